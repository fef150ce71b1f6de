#include "asynct/engine/sampling.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "asynct/base/error.h"

namespace asynct {
namespace {

// Most probable first, ties by token id, so that the order does not depend on the sort.
constexpr auto kBefore = [](const auto& a, const auto& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
};

}  // namespace

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

bool TokenSampler::collect(std::span<const float> logits, const SamplingParams& params) {
  candidates_.clear();
  sorted_ = 0;
  largest_ = -std::numeric_limits<float>::infinity();
  scale_ = 1.0 / params.temperature;
  bool nan = false;
  for (std::size_t token = 0; token < logits.size(); ++token) {
    nan |= std::isnan(logits[token]);
    largest_ = std::max(largest_, logits[token]);
    candidates_.push_back({logits[token], static_cast<std::int32_t>(token)});
  }
  if (nan || !std::isfinite(largest_)) return false;
  const auto top_k = static_cast<std::size_t>(params.top_k);
  if (top_k > 0 && top_k < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + params.top_k, candidates_.end(), kBefore);
    candidates_.resize(top_k);
  }
  return true;
}

double TokenSampler::weight(const Candidate& candidate) const {
  return std::exp((double{candidate.logit} - largest_) * scale_);
}

// A draw needs the few most probable tokens in order, seldom more: so they are sorted as they are asked for,
// in ever larger pieces.
const TokenSampler::Candidate& TokenSampler::ranked(std::size_t rank) {
  constexpr std::size_t kFirst = 64;
  constexpr std::size_t kGrowth = 8;
  while (rank >= sorted_) {
    const std::size_t end = std::min(candidates_.size(), std::max(kFirst, kGrowth * sorted_));
    const auto at = [&](std::size_t i) { return candidates_.begin() + static_cast<std::ptrdiff_t>(i); };
    if (end < candidates_.size()) std::nth_element(at(sorted_), at(end), candidates_.end(), kBefore);
    std::sort(at(sorted_), at(end), kBefore);
    sorted_ = end;
  }
  return candidates_[rank];
}

std::int32_t TokenSampler::sample(std::span<const float> logits, const SamplingParams& params,
                                  std::uint64_t step) {
  assert(params.temperature > 0 && !logits.empty());
  if (!collect(logits, params)) return -1;
  double total = 0;
  double kept = 0;  // mass of those that min_p leaves
  for (const Candidate& candidate : candidates_) {
    const double mass = weight(candidate);
    total += mass;
    if (mass >= params.min_p) kept += mass;
  }
  std::size_t count = candidates_.size();  // at most so many are kept
  if (params.top_p < 1) {
    const double enough = params.top_p * total;
    double nucleus = 0;
    count = 0;
    while (count < candidates_.size() && (count == 0 || nucleus < enough)) nucleus += weight(ranked(count++));
    kept = std::min(kept, nucleus);
  }
  double left = uniform(params.seed, step) * kept;
  std::int32_t token = ranked(0).token;
  for (std::size_t rank = 0; rank < count; ++rank) {
    const double mass = weight(ranked(rank));
    if (rank > 0 && (mass == 0 || mass < params.min_p)) break;  // rounding left a little; nothing is there
    token = ranked(rank).token;
    left -= mass;
    if (left < 0) break;
  }
  return token;
}

}  // namespace asynct
