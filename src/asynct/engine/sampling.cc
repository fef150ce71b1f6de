#include "asynct/engine/sampling.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "asynct/base/error.h"
#include "asynct/ops/head/head.h"
#include "asynct/ops/head/weight.h"

namespace asynct {
namespace {

// Most probable first, ties by token id, so that the order does not depend on the sort.
constexpr auto kBefore = [](const auto& a, const auto& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
};

// Of the tokens in their order so many are looked at first: most draws need no more.
constexpr std::size_t kHead = 512;

// Any family gives the same tokens.
Isa isa() {
  static const Isa fastest = select_isa();
  return fastest;
}

void check_penalty(const char* field, float penalty) {
  if (!(penalty >= -2 && penalty <= 2)) fail(field, " is ", penalty, ", expected -2 to 2");
}

void check_count(const char* field, std::size_t count, std::size_t most) {
  if (count > most) fail(field, " has ", count, " entries, expected at most ", most);
}

}  // namespace

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

std::int32_t argmax(std::span<const float> logits) { return row_largest(isa(), logits).argmax; }

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
  constexpr std::size_t kBlock = 64;
  const std::size_t room = std::max<std::size_t>(4 * count, 256);
  candidates_.clear();
  float floor = -std::numeric_limits<float>::infinity();
  const auto keep = [&] {
    if (candidates_.size() <= count) return;
    const auto last = candidates_.begin() + static_cast<std::ptrdiff_t>(count) - 1;
    std::nth_element(candidates_.begin(), last, candidates_.end(), kBefore);
    candidates_.resize(count);
    floor = candidates_.back().logit;
  };
  for (std::size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const auto block = logits.subspan(begin, std::min(kBlock, logits.size() - begin));
    unsigned above = 0;  // no early end: so it is a loop of vector instructions
    for (const float logit : block) above |= static_cast<unsigned>(logit > floor);
    if (above == 0) continue;
    for (std::size_t i = 0; i < block.size(); ++i)
      if (block[i] > floor) candidates_.push_back({block[i], static_cast<std::int32_t>(begin + i)});
    if (candidates_.size() >= room) keep();
  }
  keep();
}

void TokenSampler::take_all(std::span<const float> logits) {
  candidates_.clear();
  for (std::size_t token = 0; token < logits.size(); ++token)
    if (logits[token] > -std::numeric_limits<float>::infinity())
      candidates_.push_back({logits[token], static_cast<std::int32_t>(token)});
}

bool TokenSampler::drop_below(float min_p) {
  return min_p > 0 &&
         std::erase_if(candidates_, [&](const Candidate& one) { return weight(one) < min_p; }) > 0;
}

// Halves the candidates in their order until few are left, which are sorted: one part of the order is made,
// where the mass is reached.
template <class Reached>
TokenSampler::Prefix TokenSampler::prefix(Reached reached) {
  constexpr std::size_t kSorted = 64;
  const auto at = [&](std::size_t i) { return candidates_.begin() + static_cast<std::ptrdiff_t>(i); };
  std::size_t begin = 0;
  std::size_t end = candidates_.size();
  double before = 0;
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

std::int32_t TokenSampler::sample(std::span<const float> logits, const SamplingParams& params,
                                  std::uint64_t step) {
  assert(params.temperature > 0 && !logits.empty());
  const RowStats row = row_largest(isa(), logits);
  if (row.argmax < 0) return -1;
  largest_ = row.max;
  scale_ = 1.0 / params.temperature;
  const bool cut = params.top_k > 0;
  const std::size_t count = cut ? static_cast<std::size_t>(params.top_k) : kHead;
  take_most_probable(logits, count);
  double total = 0;  // of what top-k leaves; not needed for min-p alone
  if (cut) {
    total = mass(0, candidates_.size());
  } else if (params.top_p < 1 || params.min_p == 0) {
    total = row_mass(isa(), logits, largest_, scale_);
  }
  const double point = uniform(params.seed, step);
  const bool complete = cut || candidates_.size() < count;
  if (!drop_below(params.min_p) && !complete) {
    // Without top-p or min-p the point drawn is known already, and the head is enough when it lies in it.
    const bool bounded = params.top_p < 1 || params.min_p == 0;
    const double needed = total * (params.top_p < 1 ? params.top_p : point);
    if (!bounded || mass(0, candidates_.size()) <= needed) {
      take_all(logits);
      drop_below(params.min_p);
    }
  }
  double kept = total;
  if (params.top_p < 1) {
    const Prefix nucleus = prefix([&](double mass) { return mass >= params.top_p * total; });
    candidates_.resize(nucleus.count);
    kept = nucleus.mass;
  } else if (params.min_p > 0) {
    kept = mass(0, candidates_.size());
  }
  const Prefix drawn = prefix([&](double mass) { return mass > point * kept; });
  return candidates_[drawn.count - 1].token;
}

}  // namespace asynct
