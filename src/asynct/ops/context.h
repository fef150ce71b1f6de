#pragma once

#include <cstddef>
#include <vector>

#include "asynct/base/cpu_features.h"
#include "asynct/base/thread_pool.h"
#include "asynct/tensor/tensor.h"

namespace asynct {

/// How activations are stored between operators. On the CPU the buffers hold floats either way; with bf16 an
/// operator rounds each value it stores to the nearest bf16 (one rounding an operator, arithmetic in float).
enum class Precision { fp32, bf16 };

/// What an operator needs to run: threads, kernel family, precision, and scratch memory that is kept from
/// call to call, so that a step allocates nothing once it has seen its largest batch.
class OpContext {
 public:
  OpContext(ThreadPool& pool, Isa isa, Precision precision)
      : pool_(pool), isa_(isa), precision_(precision), scratch_(static_cast<std::size_t>(pool.size())) {}

  ThreadPool& pool() const { return pool_; }
  Isa isa() const { return isa_; }
  Precision precision() const { return precision_; }

  /// At least `bytes` of 64-byte aligned memory of `worker`, contents undefined, valid until the worker asks
  /// again. Only the worker itself may call this inside a parallel region.
  std::byte* scratch(int worker, std::size_t bytes) {
    Buffer& buffer = scratch_[static_cast<std::size_t>(worker)];
    if (buffer.size() < bytes) buffer = Buffer(bytes);
    return buffer.data();
  }

  /// Likewise, for what an operator's workers share: only the thread that calls the operator asks, outside of
  /// parallel regions; valid until the next operator asks.
  std::byte* shared_scratch(std::size_t bytes) {
    if (shared_.size() < bytes) shared_ = Buffer(bytes);
    return shared_.data();
  }

 private:
  ThreadPool& pool_;
  Isa isa_;
  Precision precision_;
  std::vector<Buffer> scratch_;
  Buffer shared_;
};

}  // namespace asynct
