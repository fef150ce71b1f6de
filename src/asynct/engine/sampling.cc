#include "asynct/engine/sampling.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "asynct/base/error.h"

namespace asynct {

void validate(const SamplingParams& params) {
  if (!(params.temperature >= 0 && params.temperature <= 100))
    fail("temperature is ", params.temperature, ", expected 0 (greedy) to 100");
  if (params.top_k < 0) fail("top_k is ", params.top_k, ", expected 0 (all tokens) or more");
  if (!(params.top_p > 0 && params.top_p <= 1))
    fail("top_p is ", params.top_p, ", expected above 0, at most 1");
  if (!(params.min_p >= 0 && params.min_p <= 1)) fail("min_p is ", params.min_p, ", expected 0 to 1");
}

double uniform(std::uint64_t seed, std::uint64_t step) {
  // SplitMix64's finalizer (Steele, Lea, Flood 2014) over both words, twice: a counter-based generator.
  const auto mix = [](std::uint64_t x) {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
  };
  return static_cast<double>(mix(mix(seed) ^ step) >> 11) * 0x1p-53;
}

std::int32_t TokenSampler::sample(std::span<const float> logits, const SamplingParams& params,
                                  std::uint64_t step) {
  assert(params.temperature > 0 && !logits.empty());
  candidates_.clear();
  for (std::size_t token = 0; token < logits.size(); ++token)
    candidates_.push_back({logits[token], static_cast<std::int32_t>(token)});
  // Most probable first, ties by token id, so that the order does not depend on the sort.
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
  };
  if (params.top_k > 0 && static_cast<std::size_t>(params.top_k) < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + params.top_k, candidates_.end(), before);
    candidates_.resize(static_cast<std::size_t>(params.top_k));
  }
  std::sort(candidates_.begin(), candidates_.end(), before);

  const double scale = 1.0 / params.temperature;
  weights_.clear();
  double total = 0;
  for (const Candidate& candidate : candidates_) {
    weights_.push_back(std::exp((double{candidate.logit} - candidates_[0].logit) * scale));
    total += weights_.back();
  }
  double kept = 0;
  std::size_t count = 0;
  while (count < weights_.size()) {
    const bool enough = count > 0 && kept >= params.top_p * total;
    if (enough || weights_[count] < params.min_p) break;  // weights_[0] is 1
    kept += weights_[count++];
  }

  double left = uniform(params.seed, step) * kept;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    left -= weights_[i];
    if (left < 0) return candidates_[i].token;
  }
  return candidates_[count - 1].token;
}

}  // namespace asynct
