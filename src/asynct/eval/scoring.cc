#include "asynct/eval/scoring.h"

#include <algorithm>
#include <array>

#include "asynct/eval/filters.h"
#include "asynct/text/python_string.h"

namespace asynct {
namespace {

/// Whether the choice with the largest log-probability is the right one; `lengths` divide them when given.
double choice_accuracy(const TaskRun& run, std::size_t index, std::span<const Response> responses,
                       bool normalized) {
  const Example& document = run.documents[index];
  const RequestRange range = run.ranges[index];
  std::vector<double> logprobs;
  for (std::size_t i = 0; i < range.count; ++i) {
    const double characters = normalized ? static_cast<double>(python::length(document.choices[i])) : 1.0;
    logprobs.push_back(responses[range.first + i].logprob / characters);
  }
  return argmax(logprobs) == static_cast<std::size_t>(document.gold) ? 1.0 : 0.0;
}

MetricValue metric_value(Metric metric, const TaskRun& run, std::size_t index, std::string_view filtered,
                         std::span<const Response> responses) {
  const Example& document = run.documents[index];
  const RequestRange range = run.ranges[index];
  switch (metric) {
    case Metric::acc:
      if (run.task->type == OutputType::loglikelihood) return {responses[range.first].greedy ? 1.0 : 0.0};
      return {choice_accuracy(run, index, responses, false)};
    case Metric::acc_norm:
      return {choice_accuracy(run, index, responses, true)};
    case Metric::exact_match:
      return {exact_match(filtered, document.target) ? 1.0 : 0.0};
    case Metric::perplexity:
      return {responses[range.first].logprob};
    case Metric::word_perplexity:
      return {summed_logprob(range, responses), static_cast<double>(document.words)};
    case Metric::byte_perplexity:
    case Metric::bits_per_byte:
      return {summed_logprob(range, responses), static_cast<double>(document.bytes)};
  }
  return {};
}

/// The score of `metric` through `filter`, if the task has it.
const Score* find_score(const TaskResult& result, Metric metric, std::string_view filter) {
  const auto found = std::find_if(result.scores.begin(), result.scores.end(), [&](const Score& score) {
    return score.metric == metric && score.filter == filter;
  });
  return found == result.scores.end() ? nullptr : &*found;
}

}  // namespace

double summed_logprob(const RequestRange& range, std::span<const Response> responses) {
  double sum = 0;
  for (std::size_t i = 0; i < range.count; ++i) sum += responses[range.first + i].logprob;
  return sum;
}

std::span<const Filter> filters_of(const TaskSpec& task) {
  static constexpr std::array<Filter, 1> kNone = {{{"none", filter_none, ""}}};
  return task.filters.empty() ? std::span<const Filter>(kNone) : task.filters;
}

DocumentScore score_document(const TaskRun& run, std::size_t index, const Filter& filter,
                             std::span<const Response> responses) {
  DocumentScore score;
  std::string filtered;
  if (run.task->type == OutputType::generate_until) {
    filtered = filter.apply(responses[run.ranges[index].first].text);
    score.filtered.push_back(filtered);
  }
  for (const Metric metric : run.task->metrics)
    score.values.push_back(metric_value(metric, run, index, filtered, responses));
  return score;
}

std::vector<Score> score_task(const TaskRun& run, std::span<const Response> responses, ThreadPool& pool) {
  std::vector<Score> scores;
  const auto& metrics = run.task->metrics;
  for (const Filter& filter : filters_of(*run.task)) {
    std::vector<std::vector<MetricValue>> values(metrics.size());
    for (std::size_t i = 0; i < run.documents.size(); ++i) {
      const DocumentScore document = score_document(run, i, filter, responses);
      for (std::size_t m = 0; m < metrics.size(); ++m) values[m].push_back(document.values[m]);
    }
    for (std::size_t m = 0; m < metrics.size(); ++m)
      scores.push_back({metrics[m], std::string(filter.name), aggregate(metrics[m], values[m]),
                        standard_error(metrics[m], values[m], pool)});
  }
  return scores;
}

GroupResult score_group(const TaskGroup& group, std::span<const TaskResult> results) {
  std::vector<const TaskSpec*> tasks;
  for (const TaskResult& result : results) tasks.push_back(result.task);
  std::vector<const TaskResult*> leaves;
  for (const TaskSpec* task : members(group, tasks))
    leaves.push_back(
        &results[static_cast<std::size_t>(std::find(tasks.begin(), tasks.end(), task) - tasks.begin())]);

  GroupResult out;
  out.group = &group;
  if (leaves.empty()) return out;
  std::vector<std::size_t> sizes;
  sizes.reserve(leaves.size());
  for (const TaskResult* leaf : leaves) sizes.push_back(leaf->effective);
  for (const std::size_t size : sizes) out.documents += size;
  if (std::all_of(leaves.begin(), leaves.end(),
                  [&](const TaskResult* l) { return l->shots == leaves[0]->shots; }))
    out.shots = leaves[0]->shots;

  for (const Score& first : leaves[0]->scores) {
    std::vector<double> values, errors;
    for (const TaskResult* leaf : leaves)
      if (const Score* score = find_score(*leaf, first.metric, first.filter)) {
        values.push_back(score->value);
        if (score->error) errors.push_back(*score->error);
      }
    if (values.size() != leaves.size()) continue;  // not a metric of all
    const bool pooled = errors.size() == values.size();
    out.scores.push_back({first.metric, first.filter, weighted_mean(values, sizes),
                          pooled ? std::optional(pooled_error(errors, sizes)) : std::nullopt});
  }
  return out;
}

}  // namespace asynct
