// config.json: any bytes give a configuration whose numbers are in range, or an Error.
#include <cmath>
#include <cstdint>
#include <string_view>

#include "asynct/base/error.h"
#include "asynct/model/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto c = asynct::parse_config({reinterpret_cast<const char*>(data), size}, "fuzz");
    const bool valid = c.vocab_size > 0 && c.hidden_size > 0 && c.intermediate_size > 0 && c.layers > 0 &&
                       c.kv_heads > 0 && c.heads % c.kv_heads == 0 && c.head_dim > 0 && c.head_dim % 2 == 0 &&
                       c.max_positions > 0 && c.rope_theta >= 1 && std::isfinite(c.attention.scale) &&
                       std::isfinite(c.embedding_multiplier) && c.clip_low < c.clip_high;
    if (!valid) __builtin_trap();
    for (const auto id : c.eos_ids)
      if (id < 0 || id >= c.vocab_size) __builtin_trap();
  } catch (const asynct::Error&) {
  }
  return 0;
}
