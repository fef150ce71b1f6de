#pragma once

#include "asynct/base/cpu_features.h"
#include "asynct/base/thread_pool.h"

namespace asynct {

/// What this machine can do at most, measured: the yardsticks of the benchmarks. Both take about half a
/// second and report the best of several rounds, with all threads of the pool at once.

/// Fused multiply-adds on registers only, in FLOP/s (two an FMA).
double measure_fma_peak(ThreadPool& pool, Isa isa);

/// Reads of a buffer far larger than the caches, in bytes/s.
double measure_read_bandwidth(ThreadPool& pool, Isa isa);

}  // namespace asynct
