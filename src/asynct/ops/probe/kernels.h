#pragma once

#include <cstdint>

// Private to the probe; included by units compiled with -m flags.
namespace asynct::probe {

struct KernelTable {
  /// `rounds` FMAs on each of many independent registers; returns the FLOPs done, `sink` keeps them alive.
  double (*multiply_add)(std::int64_t rounds, float* sink);
  /// Reads floats [0, count), count a multiple of 256.
  float (*read)(const float* data, std::int64_t count);
};

extern const KernelTable kScalarKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;

}  // namespace asynct::probe
