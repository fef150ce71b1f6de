#pragma once

#include <cstdint>

// Private to Norm: its kernels, one table for each ISA.
namespace asynct::norm {

struct RowArgs {
  const float* x;
  float* y;  // may be x
  std::int64_t size;
  const float* alpha;  // [size]; dyht
  const float* gamma;  // [size]
  const float* beta;   // [size] or null; dyht
  float low;
  float high;
  float epsilon;
  bool round;  // to bf16
};

struct KernelTable {
  void (*dyht)(const RowArgs&);
  void (*rms)(const RowArgs&);
};

extern const KernelTable kScalarKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;

}  // namespace asynct::norm
