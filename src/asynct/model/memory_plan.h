#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "asynct/base/limits.h"
#include "asynct/kv/kv_cache.h"
#include "asynct/model/config.h"
#include "asynct/model/weights.h"
#include "asynct/ops/context.h"

namespace asynct {

/// One kind of memory that a running model holds.
struct MemoryPart {
  std::string name;
  std::int64_t parameters = 0;  // of the model in it
  std::size_t bytes = 0;        // with the padding of its form
  bool mapped = false;          // stays in the file: pages come with use and can be dropped
};

/// Packed weights by part, the mapped embedding, and the parameters of norms and heads.
std::vector<MemoryPart> weight_parts(const ModelConfig& config, const ModelWeights& weights);

/// Of the parts that are not mapped.
std::size_t held_bytes(const std::vector<MemoryPart>& parts);

/// What a cache for this model looks like.
KvShape kv_shape(const ModelConfig& config, Precision precision, std::int32_t block_size);

/// What a run asks for.
struct RunSize {
  std::int64_t batch_tokens = 1024;  // rows a step at most
  std::int32_t max_sequences = 256;  // live at once
  std::int32_t block_size = 16;
  std::int64_t kv_bytes = 0;  // 0: what all sequences at full length need, at most 4 GiB and half of the room
};

/// What it gets. All memory that a step takes is in it and is allocated, or bounded, before the first one.
struct MemoryPlan {
  std::int64_t batch_tokens = 0;   // asked, or less where that fits
  std::int32_t blocks = 0;         // of the KV cache
  std::int64_t cached_tokens = 0;  // that the blocks hold
  std::int64_t max_context = 0;    // tokens of the longest context: the model's limit, or the whole cache
  ScratchSize scratch;
  std::vector<MemoryPart> parts;

  /// Bytes of all parts. Buffers and cache become resident as they are used: at full batches and with a full
  /// cache this is what the process holds beside its program, tokenizer and documents.
  std::size_t total() const;
};

/// Kept free of the budget for what is not planned: documents, requests, logits drawn from, output.
constexpr std::int64_t kMemoryReserve = std::int64_t{64} << 20;

/// Sizes a run before anything large is allocated. Weights come first, then the buffers and scratch of a
/// step, then the cache. Where a cache of at least 2,048 tokens (or of the size asked) does not fit beside
/// them, the batch is halved, down to 16 tokens. Error: it still does not fit, with the numbers; a cache of
/// less than one block.
MemoryPlan plan_memory(const OpContext& context, const ModelConfig& config, const ModelWeights& weights,
                       const RunSize& size, const MemoryBudget& budget);

}  // namespace asynct
