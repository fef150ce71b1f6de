#include "asynct/eval/samples.h"

#include "asynct/base/json.h"
#include "asynct/eval/prompts.h"
#include "asynct/eval/scoring.h"
#include "asynct/eval/sha256.h"
#include "asynct/text/python_values.h"

namespace asynct {
namespace {

/// What a request was asked, by argument.
Json arguments(const TaskRun& run, std::size_t index) {
  const TaskSpec& task = *run.task;
  const Example& document = run.documents[index];
  const auto& contexts = run.contexts[index];
  Json all = Json::object();
  const auto add = [&](Json argument) { all[cat("gen_args_", all.size())] = std::move(argument); };
  if (task.type == OutputType::loglikelihood_rolling) {
    add({{"arg_0", contexts[0]}});
  } else if (task.type == OutputType::generate_until) {
    add({{"arg_0", contexts[0]},
         {"arg_1", {{"until", task.stop}, {"do_sample", false}, {"temperature", 0.0}}}});
  } else {
    for (std::size_t i = 0; i < run.ranges[index].count; ++i)
      add({{"arg_0", contexts[contexts.size() > 1 ? i : 0]}, {"arg_1", continuation(task, document, i)}});
  }
  return all;
}

/// Responses as text, by request: lm-eval prints numbers and booleans as Python does.
Json responses_as_text(const TaskRun& run, std::size_t index, std::span<const Response> responses) {
  const RequestRange range = run.ranges[index];
  if (run.task->type == OutputType::loglikelihood_rolling)
    return Json::array({python::repr(summed_logprob(range, responses))});
  Json all = Json::array();
  for (std::size_t i = 0; i < range.count; ++i) {
    const Response& response = responses[range.first + i];
    if (response.generated)
      all.push_back(response.text);
    else
      all.push_back(Json::array({python::repr(response.logprob), response.greedy ? "True" : "False"}));
  }
  return all;
}

Json metric_json(Metric metric, const MetricValue& value) {
  const bool weighted = info(metric).aggregation != "mean" && metric != Metric::perplexity;
  if (!weighted) return value.value;
  return Json::array({value.value, static_cast<std::int64_t>(value.weight)});
}

Json sample(const TaskRun& run, std::size_t index, const Filter& filter,
            std::span<const Response> responses) {
  const Example& document = run.documents[index];
  const DocumentScore score = score_document(run, index, filter, responses);
  const Json texts = responses_as_text(run, index, responses);
  Json resps = Json::array();
  for (const Json& text : texts) resps.push_back(Json::array({text}));  // one repeat
  const Json original = parse_json(document.document, "document");

  Json line = {{"doc_id", index},
               {"doc", original},
               {"target", document.logged_target},
               {"arguments", arguments(run, index)},
               {"resps", std::move(resps)},
               {"filtered_resps", score.filtered.empty() ? texts : Json(score.filtered)},
               {"filter", filter.name},
               {"metrics", Json::array()},
               {"doc_hash", sha256_hex(dump_json(original, 2))},
               {"prompt_hash", sha256_hex(run.contexts[index][0])},
               {"target_hash", sha256_hex(document.logged_target)}};
  for (std::size_t m = 0; m < run.task->metrics.size(); ++m) {
    const Metric metric = run.task->metrics[m];
    line["metrics"].push_back(info(metric).name);
    line[std::string(info(metric).name)] = metric_json(metric, score.values[m]);
  }
  line["task"] = run.task->name;
  return line;
}

}  // namespace

std::string write_samples(OutputFile& file, const TaskRun& run, std::span<const Response> responses) {
  Sha256 hash;
  for (const Filter& filter : filters_of(*run.task))
    for (std::size_t i = 0; i < run.documents.size(); ++i) {
      const Json line = sample(run, i, filter, responses);
      for (const char* field : {"doc_hash", "prompt_hash", "target_hash"})
        hash.update(line[field].get_ref<const std::string&>());
      file.write(dump_json(line));
      file.write("\n");
    }
  return hash.hex();
}

}  // namespace asynct
