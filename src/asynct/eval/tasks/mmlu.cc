// MMLU (Hendrycks et al., 2021): 57 subjects in four groups, the first k of "dev" as shots.

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "asynct/eval/tasks.h"
#include "asynct/text/python_string.h"

namespace asynct {
namespace {

constexpr std::string_view kStem[] = {"abstract_algebra",
                                      "anatomy",
                                      "astronomy",
                                      "college_biology",
                                      "college_chemistry",
                                      "college_computer_science",
                                      "college_mathematics",
                                      "college_physics",
                                      "computer_security",
                                      "conceptual_physics",
                                      "electrical_engineering",
                                      "elementary_mathematics",
                                      "high_school_biology",
                                      "high_school_chemistry",
                                      "high_school_computer_science",
                                      "high_school_mathematics",
                                      "high_school_physics",
                                      "high_school_statistics",
                                      "machine_learning"};
constexpr std::string_view kOther[] = {"business_ethics",
                                       "clinical_knowledge",
                                       "college_medicine",
                                       "global_facts",
                                       "human_aging",
                                       "management",
                                       "marketing",
                                       "medical_genetics",
                                       "miscellaneous",
                                       "nutrition",
                                       "professional_accounting",
                                       "professional_medicine",
                                       "virology"};
constexpr std::string_view kSocialSciences[] = {"econometrics",
                                                "high_school_geography",
                                                "high_school_government_and_politics",
                                                "high_school_macroeconomics",
                                                "high_school_microeconomics",
                                                "high_school_psychology",
                                                "human_sexuality",
                                                "professional_psychology",
                                                "public_relations",
                                                "security_studies",
                                                "sociology",
                                                "us_foreign_policy"};
constexpr std::string_view kHumanities[] = {"formal_logic",
                                            "high_school_european_history",
                                            "high_school_us_history",
                                            "high_school_world_history",
                                            "international_law",
                                            "jurisprudence",
                                            "logical_fallacies",
                                            "moral_disputes",
                                            "moral_scenarios",
                                            "philosophy",
                                            "prehistory",
                                            "professional_law",
                                            "world_religions"};

struct Field {
  std::string_view name;
  std::string_view alias;
  std::span<const std::string_view> subjects;
};

constexpr std::array<Field, 4> kFields = {{{"mmlu_stem", "stem", kStem},
                                           {"mmlu_other", "other", kOther},
                                           {"mmlu_social_sciences", "social sciences", kSocialSciences},
                                           {"mmlu_humanities", "humanities", kHumanities}}};

Example read_mmlu(const Row& row) {
  const auto answers = row.texts("choices");
  if (answers.size() != 4) row.fail("field \"choices\": expected 4, found ", answers.size());
  Example example;
  example.text = python::strip(row.text("question"));
  for (std::size_t i = 0; i < 4; ++i) example.text += cat("\n", "ABCD"[i], ". ", answers[i]);
  example.text += "\nAnswer:";
  example.choices = {"A", "B", "C", "D"};
  set_gold(example, row.integer("answer"), row);
  return example;
}

TaskSpec mmlu(std::string_view subject) {
  std::string spoken(subject);
  std::replace(spoken.begin(), spoken.end(), '_', ' ');
  return {
      .name = cat("mmlu_", subject),
      .alias = std::string(subject),
      .files = {"mmlu/mmlu_test.jsonl"},
      .shot_files = {"mmlu/mmlu_dev.jsonl"},
      .subset = std::string(subject),
      .read = read_mmlu,
      .description =
          cat("The following are multiple choice questions (with answers) about ", spoken, ".\n\n"),
      .sampler = Sampler::first,
      .metrics = {Metric::acc},
  };
}

}  // namespace

void add_mmlu_tasks(std::vector<TaskSpec>& tasks) {
  for (const Field& field : kFields)
    for (const std::string_view subject : field.subjects) tasks.push_back(mmlu(subject));
}

std::vector<TaskGroup> mmlu_groups() {
  std::vector<TaskGroup> groups = {{.name = "mmlu", .alias = "mmlu", .version = "2", .children = {}}};
  for (const Field& field : kFields) {
    groups[0].children.emplace_back(field.name);
    TaskGroup group = {std::string(field.name), std::string(field.alias), "2", {}};
    for (const std::string_view subject : field.subjects) group.children.push_back(cat("mmlu_", subject));
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace asynct
