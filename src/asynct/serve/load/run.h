#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "asynct/serve/load/measures.h"
#include "asynct/serve/load/options.h"

namespace asynct::load {

struct HealthSummary {
  Summary latency;            // seconds, of the polls answered 200
  std::int64_t failures = 0;  // of polls
  std::string detail;         // of the first failure
};

struct LoadResult {
  LoadOptions options;          // as completed by the server: model, vocabulary
  double duration = 0;          // seconds, from the start to the end of the last request
  std::vector<Record> records;  // in the order of start
  std::optional<HealthSummary> health;
  int signal = 0;  // SIGINT or SIGTERM ended the run; requests under way were dropped and have no record
};

/// Asks the server for what the options leave open, sends the requests and waits for all of them, on one
/// thread. Draws a progress bar on a terminal. Errors: options that cannot be, no server when asked, no
/// model; what goes wrong with a request is in its record.
LoadResult run_load(LoadOptions options);

}  // namespace asynct::load
