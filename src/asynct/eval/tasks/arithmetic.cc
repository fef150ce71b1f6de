// GSM8K (Cobbe et al., 2021): word problems answered in free text that ends with a number.

#include "asynct/eval/filters.h"
#include "asynct/eval/tasks.h"
#include "asynct/text/python_string.h"

namespace asynct {
namespace {

Example read_gsm8k(const Row& row) {
  Example example;
  example.text = cat("Question: ", row.text("question"), "\nAnswer:");
  example.target = row.text("answer");
  return example;
}

/// The number after the last "####".
Example read_gsm8k_cot(const Row& row) {
  Example example;
  example.text = cat("Q: ", row.text("question"), "\nA:");
  const std::string answer = row.text("answer");
  const std::size_t mark = answer.rfind("####");
  example.target = python::strip(mark == std::string::npos ? answer : answer.substr(mark + 4));
  return example;
}

Example read_cot_shot(const Row& row) {
  Example example;
  example.text = cat("Q: ", row.text("question"), "\nA:");
  example.target = row.text("target");
  return example;
}

constexpr Filter kFlexible = {"flexible-extract", filter_last_number, R"((-?[$0-9.,]{2,})|(-?[0-9]+))"};

}  // namespace

void add_arithmetic_tasks(std::vector<TaskSpec>& tasks) {
  tasks.push_back({
      .name = "gsm8k",
      .alias = "gsm8k",
      .version = 3.0,
      .type = OutputType::generate_until,
      .files = {"gsm8k/gsm8k_test.jsonl"},
      .shot_files = {"gsm8k/gsm8k_train.jsonl"},
      .read = read_gsm8k,
      .shots = 5,
      .stop = {"Question:", "</s>", "<|im_end|>"},
      .filters = {{"strict-match", filter_hash_answer, R"(#### (\-?[0-9\.\,]+))"}, kFlexible},
      .metrics = {Metric::exact_match},
  });
  tasks.push_back({
      .name = "gsm8k_cot",
      .alias = "gsm8k_cot",
      .version = 3.0,
      .type = OutputType::generate_until,
      .files = {"gsm8k/gsm8k_test.jsonl"},
      .shot_files = {"gsm8k/gsm8k_cot_shots.jsonl"},
      .read = read_gsm8k_cot,
      .read_shot = read_cot_shot,
      .shots = 8,
      .sampler = Sampler::first,
      .stop = {"Q:", "</s>", "<|im_end|>"},
      .filters = {{"strict-match", filter_the_answer_is, R"(The answer is (\-?[0-9\.\,]+).)"}, kFlexible},
      .metrics = {Metric::exact_match},
  });
}

}  // namespace asynct
