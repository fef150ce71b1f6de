#pragma once

#include <vector>

#include "asynct/eval/task.h"

// The tables of tasks, one function a file in tasks/.
namespace asynct {

void add_arithmetic_tasks(std::vector<TaskSpec>& tasks);         // gsm8k, gsm8k_cot
void add_choice_tasks(std::vector<TaskSpec>& tasks);             // arc, hellaswag, piqa, winogrande, boolq
void add_mmlu_tasks(std::vector<TaskSpec>& tasks);               // one a subject
void add_language_modeling_tasks(std::vector<TaskSpec>& tasks);  // lambada_openai, wikitext

std::vector<TaskGroup> mmlu_groups();

/// HellaSwag's cleaning of one text, and wikitext's undoing of its tokenisation.
std::string hellaswag_clean(std::string_view text);
std::string wikitext_detokenize(std::string_view page);

/// Sets gold and logged_target from an index. Error: outside the choices.
void set_gold(Example& example, std::int64_t gold, const Row& row);

}  // namespace asynct
