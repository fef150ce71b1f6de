#pragma once

#include <optional>
#include <string>

#include "asynct/eval/evaluator.h"

namespace asynct {

/// What the report says about the run beside its scores.
struct RunInfo {
  std::string model;  // directory
  std::string dtype;
  std::string device;
  std::optional<double> limit;
  std::int64_t max_length = 0;
  std::int64_t started = 0;  // seconds since 1970
};

/// The results in the form of lm-eval's JSON file.
std::string report_json(const EvalResult& result, const RunInfo& info);

/// The results as lm-eval's table, with documents and seconds.
std::string report_table(const EvalResult& result);

}  // namespace asynct
