#pragma once

#include <span>
#include <string>

#include "asynct/eval/output_file.h"
#include "asynct/eval/responses.h"
#include "asynct/eval/task_run.h"

namespace asynct {

/// Writes one line a document and filter with lm-eval's fields, and the task's name in a field of its own
/// since one file holds all tasks. Returns the hash over the documents' hashes, as lm-eval's task_hashes.
std::string write_samples(OutputFile& file, const TaskRun& run, std::span<const Response> responses);

}  // namespace asynct
