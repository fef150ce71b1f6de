#include "asynct/engine/sampling.h"

#include <cmath>

#include "asynct/base/error.h"
#include "asynct/ops/head/head.h"

namespace asynct {
namespace {

void check_penalty(const char* field, float penalty) {
  if (!(penalty >= -2 && penalty <= 2)) fail(field, " is ", penalty, ", expected -2 to 2");
}

void check_count(const char* field, std::size_t count, std::size_t most) {
  if (count > most) fail(field, " has ", count, " entries, expected at most ", most);
}

}  // namespace

bool processes_logits(const SamplingParams& params) {
  return params.repetition_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0 ||
         params.min_tokens > 0 || !params.logit_bias.empty() || !params.allowed_tokens.empty() ||
         !params.bad_words.empty();
}

void validate(const SamplingParams& params) {
  if (!(params.temperature >= 0 && params.temperature <= 100))
    fail("temperature is ", params.temperature, ", expected 0 (greedy) to 100");
  if (params.top_k < 0) fail("top_k is ", params.top_k, ", expected 0 (all tokens) or more");
  if (!(params.top_p > 0 && params.top_p <= 1))
    fail("top_p is ", params.top_p, ", expected above 0, at most 1");
  if (!(params.min_p >= 0 && params.min_p <= 1)) fail("min_p is ", params.min_p, ", expected 0 to 1");
  if (!(params.repetition_penalty > 0 && std::isfinite(params.repetition_penalty)))
    fail("repetition_penalty is ", params.repetition_penalty, ", expected above 0 and finite");
  check_penalty("presence_penalty", params.presence_penalty);
  check_penalty("frequency_penalty", params.frequency_penalty);
  if (params.min_tokens < 0) fail("min_tokens is ", params.min_tokens, ", expected 0 or more");
  check_count("logit_bias", params.logit_bias.size(), kMaxLogitBiases);
  for (const LogitBias& entry : params.logit_bias)
    if (!(entry.bias >= -100 && entry.bias <= 100))
      fail("logit_bias of token ", entry.token, " is ", entry.bias, ", expected -100 to 100");
  check_count("bad_words", params.bad_words.size(), kMaxBadWords);
  for (const auto& word : params.bad_words)
    if (word.empty() || word.size() > kMaxBadWordTokens)
      fail("bad_words: one has ", word.size(), " tokens, expected 1 to ", kMaxBadWordTokens);
}

void validate(const SamplingParams& params, std::int64_t vocabulary) {
  validate(params);
  const auto check_token = [&](const char* field, Token token) {
    if (token < 0 || token >= vocabulary)
      fail(field, ": token ", token, " is not in the vocabulary of ", vocabulary);
  };
  for (const LogitBias& entry : params.logit_bias) check_token("logit_bias", entry.token);
  check_count("allowed_tokens", params.allowed_tokens.size(), static_cast<std::size_t>(vocabulary));
  for (const Token token : params.allowed_tokens) check_token("allowed_tokens", token);
  for (const auto& word : params.bad_words)
    for (const Token token : word) check_token("bad_words", token);
}

std::int32_t argmax(std::span<const float> logits) {
  static const Isa isa = select_isa();
  return row_largest(isa, logits).argmax;
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

}  // namespace asynct
