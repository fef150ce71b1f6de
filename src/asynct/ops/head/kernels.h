#pragma once

#include <cstdint>

// Private to Head: statistics of a piece of a row of logits. Included by units compiled with -m flags.
namespace asynct::head {

struct PieceStats {
  float max = 0;             // undefined when a logit is NaN
  std::int32_t argmax = -1;  // first position of max in the piece; -1: a logit is NaN
  double exp_sum = 0;        // sum of exp(logit - max), filled in by exp_sum
};

struct KernelTable {
  PieceStats (*largest)(const float* logits, std::int64_t count);  // count >= 1
  double (*exp_sum)(const float* logits, std::int64_t count, float max);
  void (*weights)(const float* logits, std::int64_t count, float max, double scale, double* out);
};

extern const KernelTable kScalarKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;

}  // namespace asynct::head
