#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "asynct/text/token.h"

namespace asynct {

/// Added to a token's logit.
struct LogitBias {
  Token token = 0;
  float bias = 0;
};

inline constexpr std::size_t kMaxLogitBiases = 1024;
inline constexpr std::size_t kMaxBadWords = 1024;
inline constexpr std::size_t kMaxBadWordTokens = 64;

/// How the next token is chosen. The logits first go through what stands below `seed` (LogitsProcessor); then
/// temperature 0 takes the largest, and the fields above it matter no more.
struct SamplingParams {
  float temperature = 0;
  std::int32_t top_k = 0;  // 0 = all
  float top_p = 1;         // smallest set of most probable tokens whose mass reaches it
  float min_p = 0;         // at least this share of the most probable token's probability
  std::uint64_t seed = 0;

  float repetition_penalty = 1;  // above 1: tokens of the prompt or the output become less likely
  float presence_penalty = 0;    // subtracted from the logits of tokens in the output
  float frequency_penalty = 0;   // subtracted once for each time that the token is in the output
  std::int64_t min_tokens = 0;   // no end token before so many were generated
  std::vector<LogitBias> logit_bias;
  std::vector<Token> allowed_tokens;  // no others; empty: all
  /// Sequences that must not come about: the last token of each is banned where the text so far, prompt
  /// included, ends with the ones before it.
  std::vector<std::vector<Token>> bad_words;
};

/// Whether the logits can differ from the model's when the token is chosen.
bool processes_logits(const SamplingParams& params);

/// Error naming the field when a value makes no sense (negative temperature, top_p of 0, NaN, too many
/// biases, ...). Ranges are those of OpenAI's and vLLM's interfaces.
void validate(const SamplingParams& params);

/// Also checks that the token ids are in a vocabulary of this size.
void validate(const SamplingParams& params, std::int64_t vocabulary);

/// First index of the largest logit; -1 when a logit is NaN or the largest is infinite, as Head::greedy.
/// logits: not empty.
std::int32_t argmax(std::span<const float> logits);

/// A number in [0, 1) that depends on seed and step only, so that a request draws the same numbers in any
/// batch.
double uniform(std::uint64_t seed, std::uint64_t step);

/// Draws from softmax(logits / temperature) after top-k, then top-p, then min-p (the order of transformers).
/// Deterministic in (logits, params, step): the draw picks a point in the mass of the kept tokens, laid out
/// most probable first, ties by id. Reuses its memory.
class TokenSampler {
 public:
  /// temperature > 0, logits not empty. -1 as argmax().
  std::int32_t sample(std::span<const float> logits, const SamplingParams& params, std::uint64_t step);

 private:
  struct Candidate {
    float logit;
    std::int32_t token;
  };
  struct Prefix {
    std::size_t count;  // the candidates up to and with the one where a mass is reached; all if it never is
    double mass;        // of these and of what comes before the candidates
  };

  std::int32_t draw_from_candidates(const SamplingParams& params, double total, double point);
  std::int32_t draw_from_all(std::span<const float> logits, const SamplingParams& params, double total,
                             double point);
  void take_most_probable(std::span<const float> logits, std::size_t count);
  bool drop_below(float min_p);
  void weigh_buckets(std::span<const float> logits, float min_p);
  void take_bucket(std::span<const float> logits, std::int32_t bucket, float min_p);
  double weight(const Candidate& candidate) const;  // 1 for the most probable
  double mass(std::size_t begin, std::size_t end) const;
  template <class Reached>
  Prefix prefix(double before, Reached reached);
  template <class Reached>
  Prefix prefix_of_all(std::span<const float> logits, float min_p, Reached reached);

  std::vector<Candidate> candidates_;
  float largest_ = 0;
  double scale_ = 1;
  std::vector<double> bucket_mass_;
  std::int32_t last_bucket_ = 0;  // the last that holds a token
};

}  // namespace asynct
