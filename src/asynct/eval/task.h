#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "asynct/eval/row.h"

namespace asynct {

/// How a task asks the model, in lm-evaluation-harness's names.
enum class OutputType { multiple_choice, generate_until, loglikelihood, loglikelihood_rolling };

/// One document, rendered by its task.
struct Example {
  std::string text;    // what the prompt ends with; loglikelihood_rolling: the text scored
  std::string target;  // what a shot puts after its text; loglikelihood: the continuation scored
  std::vector<std::string> choices;   // multiple_choice: answers, without the space before them
  std::vector<std::string> contexts;  // not empty: one text a choice, and `target` is the one continuation
  int gold = 0;                       // multiple_choice: index of the right answer
  std::int64_t words = 0;             // loglikelihood_rolling: of the original text
  std::int64_t bytes = 0;
  std::string logged_target;  // what the samples file shows as target
  std::string document;       // the document's JSON on one line
};

enum class Metric { acc, acc_norm, exact_match, perplexity, word_perplexity, byte_perplexity, bits_per_byte };

struct MetricInfo {
  std::string_view name;
  std::string_view aggregation;
  bool higher_is_better;
};
const MetricInfo& info(Metric metric);
std::string_view name(OutputType type);

struct Filter {
  std::string_view name;
  std::string (*apply)(std::string_view response);
  std::string_view pattern;  // the regular expression it stands for, for the report; empty: none
};

enum class Sampler {
  random,  // lm-eval's default: one draw a document from Random(1234), in document order
  first,   // the first k of the pool for every document
};

/// A benchmark: where its documents are, how they become prompts, how answers become numbers. Everything that
/// differs between tasks is in here (docs/evaluation.md shows how to add one).
struct TaskSpec {
  std::string name;
  std::string alias;  // shown inside a group
  double version = 1.0;
  OutputType type = OutputType::multiple_choice;

  std::vector<std::string> files;  // documents: the first that exists in the data directory
  std::vector<std::string>
      shot_files;      // pool that shots come from, likewise; empty: the documents themselves
  std::string subset;  // keep only documents whose "subject" is this
  Example (*read)(const Row& row) = nullptr;
  Example (*read_shot)(const Row& row) = nullptr;  // null: as `read`

  std::string description;  // opens every prompt
  int shots = 0;            // unless --num-fewshot
  Sampler sampler = Sampler::random;
  /// Draw k + 1 and drop the document itself: what lm-eval does for a task without a test split.
  bool leave_document_out = false;

  std::vector<std::string> stop;      // generate_until
  std::int64_t max_new_tokens = 256;  // generate_until
  std::vector<Filter> filters;        // empty: one filter, "none", that changes nothing
  std::vector<Metric> metrics;
};

/// Tasks whose scores are averaged, each document counting once.
struct TaskGroup {
  std::string name;
  std::string alias;
  std::string version;
  std::vector<std::string> children;  // tasks or groups
};

/// What a list of names stands for.
struct TaskSelection {
  std::vector<const TaskSpec*> tasks;    // in running order, without repeats
  std::vector<const TaskGroup*> groups;  // parents before children
  std::vector<std::string> labels;       // by task: the name it was asked for by ("mmlu")
};

std::span<const TaskSpec> all_tasks();
std::span<const TaskGroup> all_groups();

/// Error: an unknown name; the message offers the nearest one and lists all.
TaskSelection select_tasks(std::span<const std::string> names);

/// Leaf tasks of `group` among `tasks`, in group order.
std::vector<const TaskSpec*> members(const TaskGroup& group, std::span<const TaskSpec* const> tasks);

}  // namespace asynct
