#pragma once

#include <cstdio>

#include "asynct/base/json.h"
#include "asynct/serve/load/run.h"

namespace asynct::load {

/// Requests that failed, and health polls. Those cancelled on purpose are not among them.
std::int64_t failures(const LoadResult& result);

/// For programs: scalars with the names of vLLM's result files, {"mean", "p50", "p90", "p99", "max"} for each
/// latency, in milliseconds; null where nothing was measured. Latencies, tokens and throughput are of the
/// completed requests.
Json report_json(const LoadResult& result);

/// What each request did, for --output: one array per measure, in the order of start.
Json records_json(const LoadResult& result);

/// For people.
void print_report(const LoadResult& result, std::FILE* out);

}  // namespace asynct::load
