#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace asynct {

/// How the next token is chosen. temperature 0 is greedy, and then nothing else matters.
struct SamplingParams {
  float temperature = 0;
  std::int32_t top_k = 0;  // 0 = all
  float top_p = 1;         // smallest set of most probable tokens whose mass reaches it
  float min_p = 0;         // at least this share of the most probable token's probability
  std::uint64_t seed = 0;
};

/// Error naming the field when a value makes no sense (negative temperature, top_p of 0, NaN, ...).
void validate(const SamplingParams& params);

/// A number in [0, 1) that depends on seed and step only, so that a request draws the same numbers in any
/// batch.
double uniform(std::uint64_t seed, std::uint64_t step);

/// Draws from softmax(logits / temperature) after top-k, then top-p, then min-p (the order of transformers).
/// Deterministic in (params.seed, step): the draw picks a point in the mass of the kept tokens, laid out most
/// probable first, ties by id. Reuses its memory.
class TokenSampler {
 public:
  /// temperature > 0. -1 when a logit is NaN or the largest is infinite, as Head::greedy.
  std::int32_t sample(std::span<const float> logits, const SamplingParams& params, std::uint64_t step);

 private:
  struct Candidate {
    float logit;
    std::int32_t token;
  };

  bool collect(std::span<const float> logits, const SamplingParams& params);
  double weight(const Candidate& candidate) const;  // 1 for the most probable
  const Candidate& ranked(std::size_t rank);

  std::vector<Candidate> candidates_;
  std::size_t sorted_ = 0;  // candidates_[0, sorted_) are in their order, the rest comes after them
  float largest_ = 0;
  double scale_ = 1;
};

}  // namespace asynct
