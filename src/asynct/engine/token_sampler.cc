#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "asynct/engine/sampling.h"
#include "asynct/ops/head/head.h"
#include "asynct/ops/head/weight.h"

namespace asynct {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

// Of the tokens in their order so many are looked at first: most draws need no more.
constexpr std::size_t kHead = 512;

// When they are not enough, tokens are put into buckets by their distance from the largest logit, so many to
// a factor of e in probability, and only the bucket where the drawn point lies is ordered. The last bucket
// takes all that is less probable than e^-40.
constexpr double kBucketsPerE = 64;
constexpr std::int32_t kBuckets = 40 * 64 + 1;

// Blocks of logits are passed over where none is wanted. The tests of a block end at its end, not at the
// first hit: so they are vector instructions.
constexpr std::size_t kBlock = 64;

// Most probable first, ties by token id, so that the order does not depend on the sort.
constexpr auto kBefore = [](const auto& a, const auto& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
};

std::span<const float> block_at(std::span<const float> logits, std::size_t begin) {
  return logits.subspan(begin, std::min(kBlock, logits.size() - begin));
}

// An exponent as bounded_exponent gives it; a smaller logit is never in an earlier bucket.
std::int32_t bucket_of(double exponent) {
  return std::min(static_cast<std::int32_t>(exponent * -kBucketsPerE), kBuckets - 1);
}

// Any family gives the same tokens.
Isa isa() {
  static const Isa fastest = select_isa();
  return fastest;
}

}  // namespace

double TokenSampler::weight(const Candidate& candidate) const {
  return exp_of_bounded(bounded_exponent(candidate.logit, largest_, scale_));
}

double TokenSampler::mass(std::size_t begin, std::size_t end) const {
  double sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += weight(candidates_[i]);
  return sum;
}

// Candidates gather until there are several times as many as wanted; the worse ones then go, and from there
// on only what is better than the worst that stayed comes in. An equal logit does not: its id is larger.
void TokenSampler::take_most_probable(std::span<const float> logits, std::size_t count) {
  const std::size_t room = std::max<std::size_t>(4 * count, 256);
  candidates_.clear();
  float floor = kBanned;
  const auto keep = [&] {
    if (candidates_.size() <= count) return;
    const auto last = candidates_.begin() + static_cast<std::ptrdiff_t>(count) - 1;
    std::nth_element(candidates_.begin(), last, candidates_.end(), kBefore);
    candidates_.resize(count);
    floor = candidates_.back().logit;
  };
  for (std::size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const auto block = block_at(logits, begin);
    unsigned above = 0;
    for (const float logit : block) above |= static_cast<unsigned>(logit > floor);
    if (above == 0) continue;
    for (std::size_t i = 0; i < block.size(); ++i)
      if (block[i] > floor) candidates_.push_back({block[i], static_cast<std::int32_t>(begin + i)});
    if (candidates_.size() >= room) keep();
  }
  keep();
}

bool TokenSampler::drop_below(float min_p) {
  return min_p > 0 &&
         std::erase_if(candidates_, [&](const Candidate& one) { return weight(one) < min_p; }) > 0;
}

// Halves the candidates in their order until few are left, which are sorted: one part of the order is made,
// where the mass is reached.
template <class Reached>
TokenSampler::Prefix TokenSampler::prefix(double before, Reached reached) {
  constexpr std::size_t kSorted = 64;
  const auto at = [&](std::size_t i) { return candidates_.begin() + static_cast<std::ptrdiff_t>(i); };
  std::size_t begin = 0;
  std::size_t end = candidates_.size();
  while (end - begin > kSorted) {
    const std::size_t middle = begin + (end - begin) / 2;
    std::nth_element(at(begin), at(middle), at(end), kBefore);
    const double half = before + mass(begin, middle);
    if (reached(half)) {
      end = middle;
    } else {
      before = half;
      begin = middle;
    }
  }
  std::sort(at(begin), at(end), kBefore);
  for (std::size_t i = begin; i < end; ++i) {
    before += weight(candidates_[i]);
    if (reached(before)) return {i + 1, before};
  }
  return {end, before};
}

void TokenSampler::weigh_buckets(std::span<const float> logits, float min_p) {
  bucket_mass_.assign(kBuckets, 0);
  last_bucket_ = 0;
  constexpr std::size_t kChunk = 256;
  double weights[kChunk];
  double exponents[kChunk];
  std::int32_t buckets[kChunk];
  for (std::size_t begin = 0; begin < logits.size(); begin += kChunk) {
    const auto block = logits.subspan(begin, std::min(kChunk, logits.size() - begin));
    row_weights(isa(), block, largest_, scale_, std::span(weights).first(block.size()));
    for (std::size_t i = 0; i < block.size(); ++i)
      exponents[i] = bounded_exponent(block[i], largest_, scale_);
    for (std::size_t i = 0; i < block.size(); ++i) buckets[i] = bucket_of(exponents[i]);
    for (std::size_t i = 0; i < block.size(); ++i) {
      if (weights[i] < min_p || block[i] == kBanned) continue;
      bucket_mass_[static_cast<std::size_t>(buckets[i])] += weights[i];
      last_bucket_ = std::max(last_bucket_, buckets[i]);
    }
  }
}

void TokenSampler::take_bucket(std::span<const float> logits, std::int32_t bucket, float min_p) {
  candidates_.clear();
  // Where to look: its borders, and more than any rounding around them.
  const double high = largest_ - bucket / (kBucketsPerE * scale_);
  const double low = largest_ - (bucket + 1) / (kBucketsPerE * scale_);
  const double slack = 1e-6 * (std::abs(largest_) + std::abs(low));
  const auto highest = static_cast<float>(high + slack);
  const auto lowest = bucket + 1 < kBuckets ? static_cast<float>(low - slack) : kBanned;
  for (std::size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const auto block = block_at(logits, begin);
    unsigned near = 0;
    for (const float logit : block)
      near |= static_cast<unsigned>(logit >= lowest) & static_cast<unsigned>(logit <= highest);
    if (near == 0) continue;
    for (std::size_t i = 0; i < block.size(); ++i)
      if (block[i] != kBanned && bucket_of(bounded_exponent(block[i], largest_, scale_)) == bucket)
        candidates_.push_back({block[i], static_cast<std::int32_t>(begin + i)});
  }
  drop_below(min_p);
}

// Leaves the tokens of the bucket where the mass is reached in candidates_.
template <class Reached>
TokenSampler::Prefix TokenSampler::prefix_of_all(std::span<const float> logits, float min_p,
                                                 Reached reached) {
  double before = 0;
  std::int32_t bucket = 0;
  const auto mass_of = [&] { return bucket_mass_[static_cast<std::size_t>(bucket)]; };
  for (; bucket < last_bucket_ && !reached(before + mass_of()); ++bucket) before += mass_of();
  take_bucket(logits, bucket, min_p);
  return prefix(before, reached);
}

std::int32_t TokenSampler::draw_from_candidates(const SamplingParams& params, double total, double point) {
  double kept = total;
  if (params.top_p < 1) {
    const Prefix nucleus = prefix(0, [&](double mass) { return mass >= params.top_p * total; });
    candidates_.resize(nucleus.count);
    kept = nucleus.mass;
  } else if (params.min_p > 0) {
    kept = mass(0, candidates_.size());
  }
  const Prefix drawn = prefix(0, [&](double mass) { return mass > point * kept; });
  return candidates_[drawn.count - 1].token;
}

// The same over all tokens. The point drawn stays in the nucleus, for both are found by the same sums.
std::int32_t TokenSampler::draw_from_all(std::span<const float> logits, const SamplingParams& params,
                                         double total, double point) {
  weigh_buckets(logits, params.min_p);
  double kept = total;
  if (params.top_p < 1) {
    kept =
        prefix_of_all(logits, params.min_p, [&](double mass) { return mass >= params.top_p * total; }).mass;
  } else if (params.min_p > 0) {
    kept = 0;
    for (const double mass : bucket_mass_) kept += mass;
  }
  const Prefix drawn = prefix_of_all(logits, params.min_p, [&](double mass) { return mass > point * kept; });
  return candidates_[drawn.count - 1].token;
}

std::int32_t TokenSampler::sample(std::span<const float> logits, const SamplingParams& params,
                                  std::uint64_t step) {
  assert(params.temperature > 0 && !logits.empty());
  const RowStats row = row_largest(isa(), logits);
  if (row.argmax < 0) return -1;
  largest_ = row.max;
  scale_ = 1.0 / params.temperature;
  const double point = uniform(params.seed, step);
  if (params.top_k > 0) {
    take_most_probable(logits, static_cast<std::size_t>(params.top_k));
    const double total = mass(0, candidates_.size());
    drop_below(params.min_p);
    return draw_from_candidates(params, total, point);
  }
  take_most_probable(logits, kHead);
  // For min-p alone the mass of all does not matter, only whether all that it leaves is there.
  const bool needs_total = params.top_p < 1 || params.min_p == 0;
  const double total = needs_total ? row_mass(isa(), logits, largest_, scale_) : 0;
  bool enough = candidates_.size() < kHead;
  enough |= drop_below(params.min_p);
  if (!enough && needs_total)
    enough = mass(0, candidates_.size()) > total * (params.top_p < 1 ? params.top_p : point);
  return enough ? draw_from_candidates(params, total, point) : draw_from_all(logits, params, total, point);
}

}  // namespace asynct
