#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "asynct/text/token.h"

namespace asynct {

struct TokenLogprob {
  Token token = 0;
  float logprob = 0;
  std::int32_t rank = 0;  // 1 = most probable; ties by smaller id
};

inline constexpr std::int32_t kMaxTopLogprobs = 512;  // a beam search asks for many

/// The n most probable tokens (0 <= n <= kMaxTopLogprobs) in their order, and after them `chosen` with its
/// rank where it is not among them (chosen = -1: none is asked for). logits [V], not empty: the model's,
/// before any processing; V < n gives V tokens. The log-softmax has the bits of TokenScore::logprob, as far
/// as the logits have: those that Head::logits and Head::score compute are the same. false, and nothing in
/// `out`, when a logit is NaN or the largest is infinite.
bool top_logprobs(std::span<const float> logits, std::int32_t n, Token chosen,
                  std::vector<TokenLogprob>& out);

}  // namespace asynct
