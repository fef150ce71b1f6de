#include "asynct/engine/logits_processor.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>

namespace asynct {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

std::size_t index(Token token) { return static_cast<std::size_t>(token); }

// A finite logit stays finite, however small or large the penalty.
float repeated(float logit, float penalty) {
  const float result = logit > 0 ? logit / penalty : logit * penalty;
  constexpr float kMost = std::numeric_limits<float>::max();
  return std::isinf(result) && std::isfinite(logit) ? std::copysign(kMost, result) : result;
}

}  // namespace

void TokenHistory::reserve(std::size_t tokens) {
  entries_.reserve(tokens);
  const std::size_t slots = std::bit_ceil(2 * std::max<std::size_t>(tokens, 8));
  if (slots > table_.size()) rehash(slots);
}

std::size_t TokenHistory::slot(Token token) const {
  // Fibonacci hashing: ids that are neighbours spread out.
  const std::size_t mask = table_.size() - 1;
  std::size_t at = (static_cast<std::uint64_t>(token) * 0x9e3779b97f4a7c15U >> 32) & mask;
  while (table_[at] >= 0 && entries_[index(table_[at])].token != token) at = (at + 1) & mask;
  return at;
}

void TokenHistory::rehash(std::size_t slots) {
  table_.assign(slots, -1);
  for (std::size_t i = 0; i < entries_.size(); ++i)
    table_[slot(entries_[i].token)] = static_cast<std::int32_t>(i);
}

TokenHistory::Entry& TokenHistory::add(Token token) {
  if (2 * (entries_.size() + 1) > table_.size()) reserve(2 * (entries_.size() + 1));
  std::int32_t& found = table_[slot(token)];
  if (found < 0) {
    found = static_cast<std::int32_t>(entries_.size());
    entries_.push_back({token, 0});
  }
  return entries_[index(found)];
}

LogitsProcessor::LogitsProcessor(const SamplingParams& params, std::span<const Token> prompt,
                                 std::span<const Token> end_tokens, std::span<const Token> generated)
    : repetition_penalty_(params.repetition_penalty),
      presence_penalty_(params.presence_penalty),
      frequency_penalty_(params.frequency_penalty),
      min_tokens_(params.min_tokens),
      logit_bias_(params.logit_bias),
      allowed_tokens_(params.allowed_tokens) {
  std::sort(allowed_tokens_.begin(), allowed_tokens_.end());
  if (min_tokens_ > 0) end_tokens_.assign(end_tokens.begin(), end_tokens.end());
  for (const auto& word : params.bad_words) {
    bad_words_.insert(bad_words_.end(), word.begin(), word.end());
    bad_words_ends_.push_back(bad_words_.size());
    tail_size_ = std::max(tail_size_, word.size() - 1);
  }
  tail_.reserve(tail_size_);
  for (const Token token : prompt.last(std::min(prompt.size(), tail_size_))) remember(token);
  if (repetition_penalty_ != 1)
    for (const Token token : prompt) history_.add(token);
  for (const Token token : generated) accept(token);
  constexpr std::size_t kRoom = 256;  // for different tokens to come, before the first growth
  if (penalizes()) history_.reserve(history_.entries().size() + kRoom);
}

void LogitsProcessor::remember(Token token) {
  if (tail_size_ == 0) return;
  if (tail_.size() == tail_size_) tail_.erase(tail_.begin());
  tail_.push_back(token);
}

void LogitsProcessor::accept(Token token) {
  ++generated_;
  remember(token);
  if (penalizes()) ++history_.add(token).count;
}

bool LogitsProcessor::penalizes() const {
  return repetition_penalty_ != 1 || presence_penalty_ != 0 || frequency_penalty_ != 0;
}

bool LogitsProcessor::completes(std::span<const Token> word) const {
  const auto beginning = word.first(word.size() - 1);
  return beginning.size() <= tail_.size() &&
         std::equal(beginning.rbegin(), beginning.rend(), tail_.rbegin());  // the end differs soonest
}

template <class Function>
void LogitsProcessor::for_each_bad_word(Function function) const {
  std::size_t begin = 0;
  for (const std::size_t end : bad_words_ends_) {
    const auto word = std::span(bad_words_).subspan(begin, end - begin);
    if (completes(word)) function(word.back());
    begin = end;
  }
}

bool LogitsProcessor::changes_logits() const {
  if (!allowed_tokens_.empty() || !logit_bias_.empty() || too_short() || !history_.entries().empty())
    return true;
  bool banned = false;
  for_each_bad_word([&](Token /*token*/) { banned = true; });
  return banned;
}

bool LogitsProcessor::allows_any(std::int64_t vocabulary) const {
  std::vector<Token> banned;
  for_each_bad_word([&](Token token) { banned.push_back(token); });
  if (too_short())
    for (const Token token : end_tokens_)
      if (token < vocabulary) banned.push_back(token);
  std::sort(banned.begin(), banned.end());
  banned.erase(std::unique(banned.begin(), banned.end()), banned.end());
  if (allowed_tokens_.empty()) return std::ssize(banned) < vocabulary;
  return std::any_of(allowed_tokens_.begin(), allowed_tokens_.end(),
                     [&](Token token) { return !std::binary_search(banned.begin(), banned.end(), token); });
}

void LogitsProcessor::apply(std::span<float> logits) const {
  if (!allowed_tokens_.empty()) {
    auto gap = logits.begin();
    for (const Token token : allowed_tokens_) {
      const auto allowed = logits.begin() + token;
      if (allowed < gap) continue;  // the same token again
      std::fill(gap, allowed, kBanned);
      gap = allowed + 1;
    }
    std::fill(gap, logits.end(), kBanned);
  }
  for_each_bad_word([&](Token token) { logits[index(token)] = kBanned; });
  if (too_short())
    for (const Token token : end_tokens_)
      if (index(token) < logits.size()) logits[index(token)] = kBanned;
  for (const LogitBias& entry : logit_bias_) logits[index(entry.token)] += entry.bias;
  penalize(logits);
}

void LogitsProcessor::penalize(std::span<float> logits) const {
  for (const TokenHistory::Entry& entry : history_.entries()) {
    assert(index(entry.token) < logits.size());
    float& logit = logits[index(entry.token)];
    if (repetition_penalty_ != 1) logit = repeated(logit, repetition_penalty_);
    if (entry.count == 0) continue;
    logit -= frequency_penalty_ * static_cast<float>(entry.count);
    logit -= presence_penalty_;
  }
}

}  // namespace asynct
