#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "asynct/base/cpu_features.h"
#include "asynct/base/thread_pool.h"
#include "asynct/tensor/tensor.h"

namespace asynct {

/// How activations are stored between operators. On the CPU the buffers hold floats either way; with bf16 an
/// operator rounds each value it stores to the nearest bf16 (one rounding an operator, arithmetic in float).
enum class Precision { fp32, bf16 };

/// Bytes of scratch memory: each worker's own, and what they share.
struct ScratchSize {
  std::size_t worker = 0;
  std::size_t shared = 0;

  /// Grows to what either needs: operators run one after another and use the same memory.
  void cover(const ScratchSize& other) {
    worker = std::max(worker, other.worker);
    shared = std::max(shared, other.shared);
  }
};

/// What an operator needs to run: threads, kernel family, precision, and scratch memory that is kept from
/// call to call. Each operator says what it takes (scratch_size); once that is reserved, a step allocates
/// none.
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

  /// Grows the scratch to at least `size`; outside of parallel regions.
  void reserve(const ScratchSize& size) {
    for (int worker = 0; worker < pool_.size(); ++worker) scratch(worker, size.worker);
    shared_scratch(size.shared);
  }

  /// Memory for the weights of operators made from now on, `bytes` of it in one piece; outside of parallel
  /// regions, as is weight_arena().
  void reserve_weights(std::size_t bytes) { weights_ = Arena(bytes, Pages::huge); }
  Arena& weight_arena() const { return weights_; }

  /// Bytes held for all workers together.
  std::size_t scratch_bytes() const {
    std::size_t bytes = shared_.size();
    for (const Buffer& buffer : scratch_) bytes += buffer.size();
    return bytes;
  }

 private:
  ThreadPool& pool_;
  Isa isa_;
  Precision precision_;
  std::vector<Buffer> scratch_;
  Buffer shared_;
  mutable Arena weights_{0, Pages::huge};  // operators own what they take from it
};

}  // namespace asynct
