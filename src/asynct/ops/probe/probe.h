#pragma once

#include <cstddef>
#include <string>

#include "asynct/base/cpu_features.h"
#include "asynct/base/thread_pool.h"

namespace asynct {

/// What this machine can do at most: the yardsticks of the benchmarks. Measuring takes about half a second
/// and reports the best of several rounds, with all threads of the pool at once.

/// Fused multiply-adds on registers only, in FLOP/s (two an FMA).
double measure_fma_peak(ThreadPool& pool, Isa isa);

/// Reads of a buffer far larger than the caches, in bytes/s.
double measure_read_bandwidth(ThreadPool& pool, Isa isa);

/// Size of the last-level caches of the CPUs that this process may run on, all of them together; 0 when
/// unknown. What is read again and again and fits is not read from memory. `root` stands before /sys; tests
/// bring their own.
std::size_t last_level_cache_bytes(const std::string& root = "");

}  // namespace asynct
