#pragma once

#include <cstdint>

namespace asynct {

struct EngineOptions {
  std::int32_t blocks = 0;           // of the KV cache
  std::int32_t block_size = 16;      // tokens
  std::int64_t batch_tokens = 1024;  // rows a step, prefill and decode together
  std::int32_t max_sequences = 256;  // running at once; at most batch_tokens
  std::int64_t prefill_chunk = 0;    // rows of one prompt a step at most; 0: as many as there is room for
  bool prefix_cache = false;         // keep blocks of finished requests for those that begin alike
};

/// Since the engine was made.
struct EngineCounters {
  std::int64_t rows = 0;           // run through the model
  std::int64_t prompt_tokens = 0;  // of requests that started, each once
  std::int64_t cached_tokens = 0;  // of these, found in the prefix cache
  std::int64_t preemptions = 0;
  std::int64_t steps = 0;
};

}  // namespace asynct
