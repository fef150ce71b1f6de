// Multiple choice: ARC, HellaSwag, PIQA, WinoGrande, BoolQ. Each reader takes the form of the bundled file
// and the form of the Hugging Face hub.

#include <algorithm>
#include <string>

#include "asynct/eval/tasks.h"
#include "asynct/text/python_string.h"

namespace asynct {

void set_gold(Example& example, std::int64_t gold, const Row& row) {
  const auto choices = static_cast<std::int64_t>(example.choices.size());
  if (gold < 0 || gold >= choices)
    row.fail("the answer is number ", gold, " of ", choices, " choices (from 0)");
  example.gold = static_cast<int>(gold);
  example.logged_target = cat(gold);
  if (example.contexts.empty()) example.target = example.choices[static_cast<std::size_t>(gold)];
}

std::string hellaswag_clean(std::string_view text) {
  const std::string titled = python::replace(python::strip(text), " [title]", ". ");
  std::string untagged;  // without \[.*?\], whose dot stops at a line feed
  for (std::size_t at = 0; at < titled.size();) {
    const std::size_t open = std::min(titled.find('[', at), titled.size());
    untagged.append(titled, at, open - at);
    if (open == titled.size()) break;
    const std::size_t close = titled.find_first_of("]\n", open);
    const bool tag = close != std::string::npos && titled[close] == ']';
    if (!tag) untagged += '[';
    at = tag ? close + 1 : open + 1;
  }
  return python::replace(untagged, "  ", " ");
}

namespace {

std::string question_prompt(std::string_view question) { return cat("Question: ", question, "\nAnswer:"); }

Example read_arc(const Row& row) {
  Example example;
  example.text = question_prompt(row.text("question"));
  if (row.has("answer")) {
    example.choices = row.texts("choices");
    set_gold(example, row.integer("answer"), row);
    return example;
  }
  const Row choices = row.row("choices");
  example.choices = choices.texts("text");
  const auto labels = choices.texts("label");
  set_gold(example, std::find(labels.begin(), labels.end(), row.text("answerKey")) - labels.begin(), row);
  return example;
}

Example read_hellaswag(const Row& row) {
  Example example;
  if (row.has("query")) {
    example.text = row.text("query");
    example.choices = row.texts("choices");
    set_gold(example, row.integer("gold"), row);
    return example;
  }
  example.text = hellaswag_clean(
      cat(row.text("activity_label"), ": ", row.text("ctx_a"), " ", python::capitalize(row.text("ctx_b"))));
  for (const std::string& ending : row.texts("endings")) example.choices.push_back(hellaswag_clean(ending));
  set_gold(example, row.integer("label"), row);
  return example;
}

Example read_piqa(const Row& row) {
  Example example;
  example.text = question_prompt(row.text("goal"));
  example.choices = {row.text("sol1"), row.text("sol2")};
  set_gold(example, row.integer("label"), row);
  return example;
}

/// Two sentences up to and with an option; one continuation.
Example read_winogrande(const Row& row) {
  const std::string sentence = row.text("sentence");
  const std::size_t blank = sentence.find('_');
  if (blank == std::string::npos) row.fail("field \"sentence\" has no blank (\"_\")");
  Example example;
  for (const std::string_view option : {"option1", "option2"})
    example.contexts.push_back(cat(sentence.substr(0, blank), row.text(option)));
  example.choices = example.contexts;
  set_gold(example, row.integer("answer") - 1, row);
  example.text = example.contexts[static_cast<std::size_t>(example.gold)];
  example.target = python::strip(std::string_view(sentence).substr(blank + 1));
  example.logged_target = example.target;
  return example;
}

Example read_boolq(const Row& row) {
  Example example;
  example.text = cat(row.text("passage"), "\nQuestion: ", row.text("question"), "?\nAnswer:");
  example.choices = {"no", "yes"};
  set_gold(example, row.integer("label"), row);
  return example;
}

TaskSpec arc(const std::string& kind) {
  return {
      .name = cat("arc_", kind),
      .alias = cat("arc_", kind),
      .files = {cat("arc/arc_", kind, "_test.jsonl")},
      .shot_files = {cat("arc/arc_", kind, "_train.jsonl")},
      .read = read_arc,
      .metrics = {Metric::acc, Metric::acc_norm},
  };
}

}  // namespace

void add_choice_tasks(std::vector<TaskSpec>& tasks) {
  tasks.push_back(arc("easy"));
  tasks.push_back(arc("challenge"));
  tasks.push_back({
      .name = "hellaswag",
      .alias = "hellaswag",
      .files = {"hellaswag/hellaswag_validation.jsonl", "hellaswag/hellaswag_validation_sample1000.jsonl"},
      .shot_files = {"hellaswag/hellaswag_train.jsonl"},
      .read = read_hellaswag,
      .leave_document_out = true,
      .metrics = {Metric::acc, Metric::acc_norm},
  });
  tasks.push_back({
      .name = "piqa",
      .alias = "piqa",
      .files = {"piqa/piqa_validation.jsonl"},
      .shot_files = {"piqa/piqa_train.jsonl"},
      .read = read_piqa,
      .leave_document_out = true,
      .metrics = {Metric::acc, Metric::acc_norm},
  });
  tasks.push_back({
      .name = "winogrande",
      .alias = "winogrande",
      .files = {"winogrande/winogrande_xl_validation.jsonl"},
      .shot_files = {"winogrande/winogrande_xl_train.jsonl"},
      .read = read_winogrande,
      .leave_document_out = true,
      .metrics = {Metric::acc},
  });
  tasks.push_back({
      .name = "boolq",
      .alias = "boolq",
      .version = 2.0,
      .files = {"boolq/boolq_validation.jsonl"},
      .shot_files = {"boolq/boolq_train.jsonl"},
      .read = read_boolq,
      .leave_document_out = true,
      .metrics = {Metric::acc},
  });
}

}  // namespace asynct
