#pragma once

#include <cstdint>

// Private to Embedding: its kernels, one table for each ISA.
namespace asynct::embedding {

struct RowArgs {
  const void* from;  // [size] of the table's dtype
  float* to;
  std::int64_t size;
  float multiplier;
  bool round;  // to bf16
};

struct KernelTable {
  void (*f32)(const RowArgs&);
  void (*bf16)(const RowArgs&);
  void (*f16)(const RowArgs&);
};

extern const KernelTable kScalarKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;

}  // namespace asynct::embedding
