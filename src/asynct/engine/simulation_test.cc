// A long random life of an engine: arrivals that share prefixes, trees, cancels, preemptions, prefix hits,
// failing forward passes, logits that are no numbers. After every step everything adds up, and every text and
// score is what the request would have got alone.
#include <gtest/gtest.h>

#include <cstdlib>

#include "asynct/base/error.h"
#include "asynct/engine/engine_testing.h"

namespace asynct {
namespace {

struct Expected {
  std::vector<Token> context;  // its tokens after its ancestors'
  Request request;
};

class Simulation {
 public:
  Simulation(unsigned seed, const EngineOptions& options)
      : random_(seed), model_(options.blocks, options.block_size), engine_(model_, options) {}

  void run(int steps) {
    for (int step = 0; step < steps; ++step) {
      while (engine_.live_requests() < 60 && chance(3)) arrive();
      if (chance(40)) engine_.cancel(pick(), recorder_);
      if (chance(200)) model_.fail_next = true;
      if (chance(500)) engine_.reset_prefix_cache();
      model_.nan_hash = chance(50) ? static_cast<std::uint32_t>(random_()) % 4096 : 1;
      const bool more = engine_.step(recorder_);
      ASSERT_EQ(more, !engine_.idle());
      const EngineSnapshot snapshot = engine_.snapshot();
      ASSERT_EQ(check(snapshot), "") << "step " << step;
      for (const auto& member : snapshot.members) waits_ += member.awaits ? 1 : 0;
      settle();
    }
    drain(engine_, recorder_);
    settle();
    EXPECT_TRUE(expected_.empty());
    EXPECT_EQ(engine_.pool().free_blocks(), engine_.pool().size());
  }

  const EngineCounters& counters() const { return engine_.counters(); }
  int compared() const { return compared_; }
  int waits() const { return waits_; }  // steps x requests that waited for another one's prefix

 private:
  bool chance(unsigned of) { return random_() % of == 0; }
  RequestId pick() {
    return next_ == 0 ? 0
                      : next_ - 1 -
                            static_cast<RequestId>(
                                random_() % std::min<std::uint64_t>(80, static_cast<std::uint64_t>(next_)));
  }

  // Prompts over few distinct beginnings, so that caches have something to find; new ones now and then, so
  // that requests meet others that are computing theirs.
  std::vector<Token> prompt() {
    if (chance(20)) beginning_ = static_cast<Token>(random_() % kVocabulary);
    std::vector<Token> tokens(random_() % 24, (beginning_ + static_cast<Token>(random_() % 3)) % kVocabulary);
    for (auto more = 1 + random_() % 12; more > 0; --more)
      tokens.push_back(static_cast<Token>(random_() % kVocabulary));
    return tokens;
  }

  void arrive() {
    std::vector<Request> tree(chance(3) ? 1 + random_() % 6 : 1);
    std::vector<Expected> expected(tree.size());
    const auto priority = static_cast<std::int64_t>(random_() % 3);
    for (std::size_t i = 0; i < tree.size(); ++i) {
      Request& request = tree[i];
      if (i > 0) {
        do request.parent = static_cast<std::int32_t>(random_() % i);
        while (tree[static_cast<std::size_t>(request.parent)].max_new_tokens > 0);
        expected[i].context = expected[static_cast<std::size_t>(request.parent)].context;
      }
      request.tokens = prompt();
      request.priority = priority;
      if (chance(4)) request.cache_salt = "salt";
      const unsigned scored = chance(2) ? 2 : 40;  // every so many rows
      for (std::size_t row = 0; row < request.tokens.size(); ++row)
        if (chance(scored))
          request.targets.push_back({.row = static_cast<std::int32_t>(row),
                                     .token = row + 1 < request.tokens.size() && !chance(5)
                                                  ? request.tokens[row + 1]
                                                  : static_cast<Token>(random_() % kVocabulary)});
      if (tree.size() == 1 || (i > 0 && chance(2))) {
        request.max_new_tokens = static_cast<std::int64_t>(random_() % 30);
        request.end_tokens = {static_cast<Token>(random_() % kVocabulary)};
      }
      expected[i].context.insert(expected[i].context.end(), request.tokens.begin(), request.tokens.end());
      expected[i].request = request;
    }
    try {
      const RequestId first = engine_.submit(std::move(tree));
      for (std::size_t i = 0; i < expected.size(); ++i)
        expected_[first + static_cast<RequestId>(i)] = expected[i];
      next_ = first + static_cast<RequestId>(expected.size());
    } catch (const Error&) {  // more than the cache holds
    }
  }

  void settle() {
    for (const auto& [id, outcome] : recorder_.outcomes) {
      if (outcome.finished == 0) continue;
      ASSERT_EQ(outcome.finished, 1);
      const auto found = expected_.find(id);
      ASSERT_NE(found, expected_.end()) << "request " << id << " ended twice";
      compare(found->second, outcome);
      expected_.erase(found);
    }
    std::erase_if(recorder_.outcomes, [](const auto& entry) { return entry.second.finished > 0; });
  }

  // Of requests that were cut short, what came is a beginning of what should have come.
  void compare(const Expected& expected, const Outcome& outcome) {
    const Request& request = expected.request;
    const bool whole = outcome.reason != FinishReason::cancelled && outcome.reason != FinishReason::failed;
    const auto text = expected_text(expected.context, request.max_new_tokens, request.end_tokens);
    if (whole) {
      ASSERT_EQ(outcome.tokens, text);
    }
    ASSERT_LE(outcome.tokens.size(), text.size());
    ASSERT_TRUE(std::equal(outcome.tokens.begin(), outcome.tokens.end(), text.begin()));
    if (whole) {
      ASSERT_EQ(outcome.scores.size(), request.targets.size());
    }
    ASSERT_LE(outcome.scores.size(), request.targets.size());
    const std::size_t before = expected.context.size() - request.tokens.size();
    for (std::size_t i = 0; i < outcome.scores.size(); ++i) {
      const ScoreTarget& target = request.targets[i];
      const auto hash =
          hash_of(std::span(expected.context).first(before + static_cast<std::size_t>(target.row) + 1));
      ASSERT_EQ(outcome.scores[i].logprob, score_of(hash, target.token));
      ASSERT_EQ(outcome.scores[i].argmax_logprob, static_cast<float>(hash % 77));
    }
    ++compared_;
  }

  std::mt19937 random_;
  FakeRunner model_;
  Engine engine_;
  Recorder recorder_;
  std::map<RequestId, Expected> expected_;
  RequestId next_ = 0;
  Token beginning_ = 0;
  int compared_ = 0;
  int waits_ = 0;
};

TEST(Simulation, EverythingAddsUpAfterEveryStep) {
  const EngineOptions variants[] = {
      {.blocks = 30, .block_size = kBlock, .batch_tokens = 24, .max_sequences = 8, .prefix_cache = true},
      {.blocks = 24, .block_size = kBlock, .batch_tokens = 24, .max_sequences = 12},
      {.blocks = 200, .block_size = kBlock, .batch_tokens = 9, .max_sequences = 9, .prefix_cache = true},
      {.blocks = 14, .block_size = 16, .batch_tokens = 24, .max_sequences = 8, .prefix_cache = true},
      {.blocks = 26,
       .block_size = kBlock,
       .batch_tokens = 64,
       .max_sequences = 30,
       .prefill_chunk = 5,
       .prefix_cache = true},
  };
  // ASYNCT_SIMULATION_STEPS: under a sanitizer fewer are enough.
  const char* const asked = std::getenv("ASYNCT_SIMULATION_STEPS");
  const int steps = asked != nullptr ? std::atoi(asked) : 25'000;
  unsigned seed = 1;
  int waits = 0;
  for (const EngineOptions& options : variants) {
    Simulation simulation(seed++, options);
    simulation.run(steps);
    if (HasFatalFailure()) return;
    EXPECT_GT(simulation.compared(), steps / 20);
    EXPECT_EQ(simulation.counters().cached_tokens > 0, options.prefix_cache);
    EXPECT_TRUE(options.prefix_cache || simulation.waits() == 0);
    waits += simulation.waits();
    if (options.blocks < 100) {
      EXPECT_GT(simulation.counters().preemptions, steps / 500);
    }
  }
  EXPECT_GT(waits, steps / 50);
}

}  // namespace
}  // namespace asynct
