#pragma once

// For tests of the engine: a model that gives itself away when anything is misplaced, and a listener that
// keeps what it hears.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <stdexcept>
#include <thread>

#include "asynct/engine/engine.h"

namespace asynct {

inline constexpr std::int32_t kVocabulary = 50;
inline constexpr std::int32_t kBlock = 4;

inline std::uint32_t hash_of(std::span<const Token> tokens) {
  std::uint32_t hash = 2166136261U;
  for (const Token token : tokens) hash = (hash ^ static_cast<std::uint32_t>(token + 1)) * 16777619U;
  return hash;
}

inline float score_of(std::uint32_t hash, Token token) {
  return static_cast<float>(hash % 1000) + 1000.0F * static_cast<float>(token);
}

// A model whose next token is a hash of the whole context, read through the block table from a cache of
// tokens: any slip in slots, tables, forks or copies changes the text.
class FakeRunner : public ModelRunner {
 public:
  explicit FakeRunner(std::int32_t blocks, std::int32_t block_size = kBlock)
      : block_size_(block_size), cache_(static_cast<std::size_t>(std::int64_t{blocks} * block_size), -1) {}

  std::int64_t vocabulary() const override { return kVocabulary; }
  std::int64_t max_length() const override { return 200; }

  void copy_blocks(std::span<const BlockCopy> copies) override {
    for (const BlockCopy& copy : copies)
      for (std::int32_t i = 0; i < block_size_; ++i) cache_[slot(copy.to, i)] = cache_[slot(copy.from, i)];
  }

  void forward(const StepBatch& batch) override {
    while (paused) std::this_thread::yield();
    if (fail_next) {
      fail_next = false;
      throw std::runtime_error("injected");
    }
    max_rows = std::max(max_rows, batch.rows());
    rows += batch.rows();
    for (std::size_t row = 0; row < batch.tokens.size(); ++row)
      if (batch.slot_mapping[row] >= 0)
        cache_[static_cast<std::size_t>(batch.slot_mapping[row])] = batch.tokens[row];
    hashes_.clear();
    std::size_t wanted = 0;
    bool one_row = true;
    for (std::int64_t s = 0; s < batch.sequences(); ++s) {
      const auto begin = batch.query_start[static_cast<std::size_t>(s)];
      const auto end = batch.query_start[static_cast<std::size_t>(s) + 1];
      EXPECT_TRUE(one_row || end - begin > 1) << "one-row sequences must come first";
      one_row = end - begin == 1;
      for (auto row = begin; row < end; ++row) {
        const auto position = batch.positions[static_cast<std::size_t>(row)];
        EXPECT_EQ(position, batch.context_length[static_cast<std::size_t>(s)] - (end - row));
        if (wanted == batch.logits_rows.size() || batch.logits_rows[wanted] != row) continue;
        ++wanted;
        std::vector<Token> context;
        for (std::int32_t p = 0; p <= position; ++p)
          context.push_back(
              cache_[slot(batch.blocks_of(s)[static_cast<std::size_t>(p / block_size_)], p % block_size_)]);
        hashes_.push_back(hash_of(context));
      }
    }
    EXPECT_EQ(wanted, batch.logits_rows.size());
  }

  void score(std::span<const ScoreTarget> targets, std::span<TokenScore> scores) override {
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const std::uint32_t hash = hashes_.at(static_cast<std::size_t>(targets[i].row));
      scores[i] = {.logprob = score_of(hash, targets[i].token),
                   .argmax = nan_hash == hash ? -1 : static_cast<std::int32_t>(hash % kVocabulary),
                   .argmax_logprob = static_cast<float>(hash % 77)};
    }
  }

  void greedy(std::span<const std::int32_t> rows, std::span<std::int32_t> tokens) override {
    ASSERT_EQ(rows.size(), tokens.size());
    greedy_calls.push_back(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i)
      tokens[i] = static_cast<std::int32_t>(hashes_.at(static_cast<std::size_t>(rows[i])) % kVocabulary);
  }

  void logits(std::span<const std::int32_t> rows, std::span<float> logits) override {
    ASSERT_EQ(rows.size() * kVocabulary, logits.size());
    if (on_logits) on_logits();
    logits_calls.push_back(rows.size());
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const std::uint32_t hash = hashes_.at(static_cast<std::size_t>(rows[i / kVocabulary]));
      logits[i] = nan_hash == hash ? std::numeric_limits<float>::quiet_NaN()
                                   : static_cast<float>((hash >> (i % kVocabulary % 8)) % 7);
    }
  }

  std::vector<std::size_t> greedy_calls;  // rows of each
  std::vector<std::size_t> logits_calls;
  std::atomic<bool> paused = false;  // forward() waits
  std::function<void()> on_logits;
  bool fail_next = false;
  std::uint32_t nan_hash = 1;
  std::int64_t max_rows = 0;  // of a step
  std::int64_t rows = 0;

 private:
  std::size_t slot(std::int32_t block, std::int32_t offset) const {
    return static_cast<std::size_t>(std::int64_t{block} * block_size_ + offset);
  }

  std::int32_t block_size_;
  std::vector<Token> cache_;
  std::vector<std::uint32_t> hashes_;
};

struct Outcome {
  std::vector<TokenScore> scores;
  std::vector<Token> tokens;
  int finished = 0;
  FinishReason reason = FinishReason::failed;
  std::string error;
};

class Recorder : public EngineListener {
 public:
  void on_scores(RequestId id, std::size_t first, std::span<const TokenScore> scores) override {
    EXPECT_EQ(first, outcomes[id].scores.size());
    outcomes[id].scores.insert(outcomes[id].scores.end(), scores.begin(), scores.end());
  }
  bool on_token(RequestId id, Token token, std::span<const TokenLogprob> /*logprobs*/) override {
    outcomes[id].tokens.push_back(token);
    return true;
  }
  void on_finished(RequestId id, FinishReason reason, std::string_view error) override {
    ++outcomes[id].finished;
    outcomes[id].reason = reason;
    outcomes[id].error = error;
  }
  std::map<RequestId, Outcome> outcomes;
};

inline std::vector<Token> random_tokens(std::mt19937& random, std::size_t count) {
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(random() % kVocabulary);
  return tokens;
}

inline std::vector<Token> expected_text(std::vector<Token> context, std::int64_t count,
                                        std::span<const Token> ends) {
  std::vector<Token> text;
  while (static_cast<std::int64_t>(text.size()) < count) {
    const auto token = static_cast<Token>(hash_of(context) % kVocabulary);
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) break;
    text.push_back(token);
    context.push_back(token);
  }
  return text;
}

inline void drain(Engine& engine, Recorder& recorder) {
  int steps = 0;
  while (engine.step(recorder)) {
    ASSERT_EQ(engine.check_invariants(), "");
    ASSERT_LT(++steps, 100000);
  }
  EXPECT_EQ(engine.check_invariants(), "");
  EXPECT_TRUE(engine.idle());
}

}  // namespace asynct
