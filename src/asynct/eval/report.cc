#include "asynct/eval/report.h"

#include <algorithm>

#include "asynct/base/json.h"
#include "asynct/eval/prompts.h"
#include "asynct/text/python_values.h"

namespace asynct {
namespace {

constexpr std::string_view kMatches = "0.4.13";  // the lm-evaluation-harness whose numbers these are

void add_scores(Json& entry, std::span<const Score> scores) {
  for (const Score& score : scores) {
    const std::string_view metric = info(score.metric).name;
    entry[cat(metric, ",", score.filter)] = score.value;
    entry[cat(metric, "_stderr,", score.filter)] = score.error ? Json(*score.error) : Json("N/A");
  }
}

Json task_entry(const TaskResult& result) {
  Json entry = {{"name", result.task->name}, {"alias", result.task->alias}, {"sample_len", result.effective}};
  add_scores(entry, result.scores);
  return entry;
}

Json group_entry(const GroupResult& result) {
  Json entry = {
      {"alias", result.group->alias}, {"name", result.group->name}, {"sample_len", result.documents}};
  add_scores(entry, result.scores);
  for (const Score& score : result.scores)
    entry["sample_count"][cat(info(score.metric).name, ",", score.filter)] = result.documents;
  return entry;
}

Json directions(std::span<const Score> scores) {
  Json out = Json::object();
  for (const Score& score : scores)
    out[std::string(info(score.metric).name)] = info(score.metric).higher_is_better;
  return out;
}

Json metric_list(const TaskSpec& task) {
  Json list = Json::array();
  for (const Metric metric : task.metrics) {
    Json entry = {{"metric", info(metric).name},
                  {"aggregation", info(metric).aggregation},
                  {"higher_is_better", info(metric).higher_is_better}};
    if (metric == Metric::exact_match) {
      entry["ignore_case"] = true;
      entry["ignore_punctuation"] = false;
      entry["regexes_to_ignore"] = {",", "\\$", "(?s).*#### ", "\\.$"};
    }
    list.push_back(std::move(entry));
  }
  return list;
}

Json filter_list(const TaskSpec& task) {
  Json list = Json::array();
  for (const Filter& filter : task.filters)
    list.push_back({{"name", filter.name},
                    {"filter", Json::array({{{"function", "regex"}, {"regex_pattern", filter.pattern}},
                                            {{"function", "take_first"}}})}});
  return list;
}

Json task_config(const TaskResult& result) {
  const TaskSpec& task = *result.task;
  Json config = {{"task", task.name}};
  if (task.alias != task.name) config["task_alias"] = task.alias;
  config["description"] = task.description;
  config["target_delimiter"] = " ";
  config["fewshot_delimiter"] = "\n\n";
  config["fewshot_config"] = {{"sampler", task.sampler == Sampler::first ? "first_n" : "default"}};
  config["num_fewshot"] = result.shots;
  config["metric_list"] = metric_list(task);
  config["output_type"] = name(task.type);
  if (task.type == OutputType::generate_until)
    config["generation_kwargs"] = {{"until", task.stop}, {"do_sample", false}, {"temperature", 0.0}};
  config["repeats"] = 1;
  if (!task.filters.empty()) config["filter_list"] = filter_list(task);
  config["metadata"] = {{"version", task.version}};
  return config;
}

/// An object whose keys are in order, as lm-eval sorts some of its tables.
Json sorted(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& item : object.items()) keys.push_back(item.key());
  std::sort(keys.begin(), keys.end());
  Json out = Json::object();
  for (const std::string& key : keys) out[key] = object[key];
  return out;
}

void add_tables(Json& report, const EvalResult& result) {
  Json configs = Json::object(), versions = Json::object(), shots = Json::object(), higher = Json::object();
  for (const TaskResult& task : result.tasks) {
    const std::string& key = task.task->name;
    configs[key] = task_config(task);
    versions[key] = task.task->version;
    shots[key] = task.shots;
    higher[key] = directions(task.scores);
    report["n-samples"][key] = {{"original", task.original}, {"effective", task.effective}};
  }
  for (const GroupResult& group : result.groups) {
    const std::string& key = group.group->name;
    versions[key] = group.group->version;
    if (group.shots) shots[key] = *group.shots;
    higher[key] = directions(group.scores);
  }
  report["configs"] = sorted(configs);
  report["versions"] = sorted(versions);
  report["n-shot"] = sorted(shots);
  report["higher_is_better"] = sorted(higher);
}

Json run_config(const RunInfo& info) {
  return {{"model", "asynct"},
          {"model_args", cat("pretrained=", info.model, ",dtype=", info.dtype)},
          {"model_dtype", info.dtype},
          {"batch_size", nullptr},
          {"batch_sizes", Json::array()},
          {"device", info.device},
          {"use_cache", nullptr},
          {"limit", info.limit ? Json(*info.limit) : Json(nullptr)},
          {"bootstrap_iters", 100000},
          {"gen_kwargs", nullptr},
          {"fewshot_seed", kFewshotSeed}};
}

}  // namespace

std::string report_json(const EvalResult& result, const RunInfo& info) {
  Json report = {{"results", Json::object()}};
  for (const TaskResult& task : result.tasks) report["results"][task.task->name] = task_entry(task);
  // lm-eval lists groups from the leaves up in "results".
  for (auto group = result.groups.rbegin(); group != result.groups.rend(); ++group)
    report["results"][group->group->name] = group_entry(*group);
  for (const GroupResult& group : result.groups) report["groups"][group.group->name] = group_entry(group);
  report["group_subtasks"] = Json::object();
  for (const GroupResult& group : result.groups)
    report["group_subtasks"][group.group->name] = group.group->children;
  for (const char* table : {"configs", "versions", "n-shot", "higher_is_better", "n-samples"})
    report[table] = Json::object();
  add_tables(report, result);
  report["config"] = run_config(info);
  report["date"] = static_cast<double>(info.started);
  report["max_length"] = info.max_length;
  report["lm_eval_version"] = cat(kMatches, " (numbers; computed by asynct)");
  report["task_hashes"] = Json::object();
  report["task_seconds"] = Json::object();
  report["task_tokens"] = Json::object();
  for (const TaskResult& task : result.tasks) {
    if (!task.samples_hash.empty()) report["task_hashes"][task.task->name] = task.samples_hash;
    report["task_seconds"][task.task->name] = task.seconds;
    report["task_tokens"][task.task->name] = task.tokens;
    if (task.resumed > 0) report["task_resumed"][task.task->name] = task.resumed;
  }
  report["model_source"] = "asynct";
  report["model_name"] = info.model;
  if (!result.stopped_in.empty())
    report[result.interrupted ? "interrupted_in" : "failed_in"] = result.stopped_in;
  report["total_evaluation_time_seconds"] = python::repr(result.seconds);
  return dump_json(report, 2) + "\n";
}

}  // namespace asynct
