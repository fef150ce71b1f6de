#include "asynct/engine/logprobs.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "asynct/base/cpu_features.h"
#include "asynct/ops/head/head.h"

namespace asynct {
namespace {

// Puts the n best at the front of `out`, by insertion: after the first few hundred tokens hardly one comes
// in.
void collect_best(std::span<const float> logits, std::size_t n, std::vector<TokenLogprob>& out) {
  constexpr std::size_t kBlock = 64;
  float floor = -std::numeric_limits<float>::infinity();  // an equal logit after the nth comes too late
  for (std::size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const auto block = logits.subspan(begin, std::min(kBlock, logits.size() - begin));
    unsigned above = 0;  // no early end: so it is a loop of vector instructions
    for (const float logit : block) above |= static_cast<unsigned>(logit > floor);
    if (above == 0 && out.size() == n) continue;
    for (std::size_t i = 0; i < block.size(); ++i) {
      if (out.size() == n && !(block[i] > floor)) continue;
      if (out.size() == n) out.pop_back();
      const auto place = std::find_if(out.begin(), out.end(),
                                      [&](const TokenLogprob& other) { return other.logprob < block[i]; });
      out.insert(place, {static_cast<Token>(begin + i), block[i], 0});
      if (out.size() == n) floor = out.back().logprob;
    }
  }
}

std::int32_t rank_of(std::span<const float> logits, Token token) {
  const auto at = static_cast<std::size_t>(token);
  const float logit = logits[at];
  std::int32_t before = 0;
  for (const float other : logits.first(at)) before += static_cast<std::int32_t>(other >= logit);
  for (const float other : logits.subspan(at + 1)) before += static_cast<std::int32_t>(other > logit);
  return before + 1;
}

}  // namespace

bool top_logprobs(std::span<const float> logits, std::int32_t n, Token chosen,
                  std::vector<TokenLogprob>& out) {
  assert(n >= 0 && n <= kMaxTopLogprobs && chosen < std::ssize(logits));
  static const Isa isa = select_isa();
  out.clear();
  const RowStats row = row_stats(isa, logits);
  if (row.argmax < 0) return false;
  if (n > 0) collect_best(logits, static_cast<std::size_t>(n), out);
  bool seen = chosen < 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i].rank = static_cast<std::int32_t>(i) + 1;
    seen |= out[i].token == chosen;
  }
  if (!seen) out.push_back({chosen, logits[static_cast<std::size_t>(chosen)], rank_of(logits, chosen)});
  for (TokenLogprob& entry : out) entry.logprob = static_cast<float>(entry.logprob - row.log_sum);
  return true;
}

}  // namespace asynct
