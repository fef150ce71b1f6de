#include "asynct/ops/attention/cuda/plan.h"

#include <algorithm>
#include <cassert>
#include <tuple>

#include "asynct/ops/attention/cuda/policy.h"

namespace asynct::cuda {
namespace {

std::int32_t keys_of(const DecodeUnit& unit) {
  return std::min(unit.context - unit.chunk * kChunkKeys, kChunkKeys);
}

}  // namespace

void DecodePlan::build(std::span<const std::int32_t> query_start,
                       std::span<const std::int32_t> context_length, std::int32_t kv_heads) {
  assert(query_start.size() == context_length.size() + 1);
  units.clear();
  slots = 0;
  for (std::size_t i = 0; i < context_length.size(); ++i) {
    if (query_start[i + 1] == query_start[i]) continue;
    const std::int32_t chunks = chunks_of(context_length[i]);
    for (std::int32_t chunk = 0; chunk < chunks; ++chunk)
      for (std::int32_t head = 0; head < kv_heads; ++head)
        units.push_back({.sequence = static_cast<std::int32_t>(i),
                         .kv_head = head,
                         .chunk = chunk,
                         .first_slot = slots + head * chunks,
                         .first_row = query_start[i],
                         .tokens = query_start[i + 1] - query_start[i],
                         .context = context_length[i]});
    slots += chunks * kv_heads;
  }
  std::sort(units.begin(), units.end(), [](const DecodeUnit& a, const DecodeUnit& b) {
    return std::tuple(-keys_of(a), a.sequence, a.chunk, a.kv_head) <
           std::tuple(-keys_of(b), b.sequence, b.chunk, b.kv_head);
  });
}

void PrefillPlan::build(std::span<const std::int32_t> query_start,
                        std::span<const std::int32_t> context_length, std::int32_t kv_heads,
                        std::int32_t group) {
  assert(query_start.size() == context_length.size() + 1);
  const std::int32_t unit_tokens = kPrefillRows / group;
  units.clear();
  for (std::size_t i = 0; i < context_length.size(); ++i) {
    const std::int32_t tokens = query_start[i + 1] - query_start[i];
    for (std::int32_t token = 0; token < tokens; token += unit_tokens) {
      const std::int32_t position = context_length[i] - tokens + token;
      for (std::int32_t head = 0; head < kv_heads; ++head)
        units.push_back({.sequence = static_cast<std::int32_t>(i),
                         .kv_head = head,
                         .first_row = query_start[i],
                         .tokens = tokens,
                         .token = token,
                         .first_position = position,
                         .last_key = std::min(context_length[i], position + unit_tokens)});
    }
  }
  std::sort(units.begin(), units.end(), [](const PrefillUnit& a, const PrefillUnit& b) {
    return std::tuple(-a.last_key, a.sequence, a.token, a.kv_head) <
           std::tuple(-b.last_key, b.sequence, b.token, b.kv_head);
  });
}

}  // namespace asynct::cuda
