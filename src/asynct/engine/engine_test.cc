#include "asynct/engine/engine.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>

#include "asynct/base/error.h"

namespace asynct {
namespace {

constexpr std::int32_t kVocabulary = 50;
constexpr std::int32_t kBlock = 4;

std::uint32_t hash_of(std::span<const Token> tokens) {
  std::uint32_t hash = 2166136261U;
  for (const Token token : tokens) hash = (hash ^ static_cast<std::uint32_t>(token + 1)) * 16777619U;
  return hash;
}

// A model whose next token is a hash of the whole context, read through the block table from a cache of
// tokens: any slip in slots, tables, forks or copies changes the text.
class FakeRunner : public ModelRunner {
 public:
  explicit FakeRunner(std::int32_t blocks) : cache_(static_cast<std::size_t>(blocks * kBlock), -1) {}

  std::int64_t vocabulary() const override { return kVocabulary; }
  std::int64_t max_length() const override { return 200; }

  void copy_blocks(std::span<const BlockCopy> copies) override {
    for (const BlockCopy& copy : copies)
      for (std::int32_t i = 0; i < kBlock; ++i)
        cache_[static_cast<std::size_t>(copy.to * kBlock + i)] =
            cache_[static_cast<std::size_t>(copy.from * kBlock + i)];
  }

  void forward(const StepBatch& batch) override {
    if (fail_next) {
      fail_next = false;
      throw std::runtime_error("injected");
    }
    max_rows = std::max(max_rows, batch.rows());
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
          context.push_back(cache_[static_cast<std::size_t>(
              batch.blocks_of(s)[static_cast<std::size_t>(p / kBlock)] * kBlock + p % kBlock)]);
        hashes_.push_back(hash_of(context));
      }
    }
    EXPECT_EQ(wanted, batch.logits_rows.size());
  }

  void score(std::span<const ScoreTarget> targets, std::span<TokenScore> scores) override {
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const std::uint32_t hash = hashes_.at(static_cast<std::size_t>(targets[i].row));
      scores[i] = {
          .logprob = static_cast<float>(hash % 1000) + 1000.0F * static_cast<float>(targets[i].token),
          .argmax = nan_hash == hash ? -1 : static_cast<std::int32_t>(hash % kVocabulary)};
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
    logits_calls.push_back(rows.size());
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const std::uint32_t hash = hashes_.at(static_cast<std::size_t>(rows[i / kVocabulary]));
      logits[i] = nan_hash == hash ? std::numeric_limits<float>::quiet_NaN()
                                   : static_cast<float>((hash >> (i % kVocabulary % 8)) % 7);
    }
  }

  std::vector<std::size_t> greedy_calls;  // rows of each
  std::vector<std::size_t> logits_calls;
  bool fail_next = false;
  std::uint32_t nan_hash = 1;
  std::int64_t max_rows = 0;

 private:
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
  bool on_token(RequestId id, Token token) override {
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

std::vector<Token> random_tokens(std::mt19937& random, std::size_t count) {
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(random() % kVocabulary);
  return tokens;
}

std::vector<Token> expected_text(std::vector<Token> context, std::int64_t count,
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

void drain(Engine& engine, Recorder& recorder) {
  int steps = 0;
  while (engine.step(recorder)) {
    ASSERT_EQ(engine.check_invariants(), "");
    ASSERT_LT(++steps, 100000);
  }
  EXPECT_EQ(engine.check_invariants(), "");
  EXPECT_TRUE(engine.idle());
}

TEST(Engine, RandomTreesScoreAndGenerateAsIfAlone) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    const auto blocks = static_cast<std::int32_t>(20 + random() % 100);
    FakeRunner model(blocks);
    const auto budget = static_cast<std::int64_t>(1 + random() % 40);
    Engine engine(model, {.blocks = blocks,
                          .block_size = kBlock,
                          .batch_tokens = budget,
                          .max_sequences = static_cast<std::int32_t>(1 + random() % 12)});
    Recorder recorder;
    struct Expected {
      std::vector<TokenScore> scores;
      std::vector<Token> text;
    };
    std::map<RequestId, Expected> expected;
    for (int t = 0; t < 12; ++t) {
      std::vector<Request> tree(1 + random() % 6);
      std::vector<std::vector<Token>> context(tree.size());
      std::vector<Expected> want(tree.size());
      for (std::size_t i = 0; i < tree.size(); ++i) {
        Request& request = tree[i];
        if (i > 0) {
          do request.parent = static_cast<std::int32_t>(random() % i);
          while (tree[static_cast<std::size_t>(request.parent)].max_new_tokens > 0);
          context[i] = context[static_cast<std::size_t>(request.parent)];
        }
        request.tokens = random_tokens(random, 1 + random() % 9);
        for (std::size_t row = 0; row < request.tokens.size(); ++row) {
          context[i].push_back(request.tokens[row]);
          if (random() % 2 != 0) continue;
          const auto token = static_cast<Token>(random() % kVocabulary);
          request.targets.push_back({.row = static_cast<std::int32_t>(row), .token = token});
          const auto hash = hash_of(context[i]);
          want[i].scores.push_back(
              {static_cast<float>(hash % 1000) + 1000.0F * static_cast<float>(token), 0});
        }
        if (i > 0 && random() % 2 == 0) {
          request.max_new_tokens = 1 + static_cast<std::int64_t>(random() % 9);
          request.end_tokens = {3, 17};
          want[i].text = expected_text(context[i], request.max_new_tokens, request.end_tokens);
        }
      }
      try {
        const RequestId first = engine.submit(tree);
        for (std::size_t i = 0; i < tree.size(); ++i) expected[first + static_cast<RequestId>(i)] = want[i];
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("KV blocks"), std::string::npos);
      }
      if (random() % 3 == 0) engine.step(recorder);
      ASSERT_EQ(engine.check_invariants(), "");
    }
    drain(engine, recorder);
    EXPECT_LE(model.max_rows, budget);
    ASSERT_EQ(recorder.outcomes.size(), expected.size());
    for (const auto& [id, want] : expected) {
      const Outcome& got = recorder.outcomes[id];
      EXPECT_EQ(got.finished, 1);
      EXPECT_NE(got.reason, FinishReason::failed) << got.error;
      EXPECT_EQ(got.tokens, want.text);
      ASSERT_EQ(got.scores.size(), want.scores.size());
      for (std::size_t i = 0; i < want.scores.size(); ++i)
        EXPECT_EQ(got.scores[i].logprob, want.scores[i].logprob);
    }
  }
}

TEST(Engine, CancelsAnywhereWithoutALeak) {
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round) {
    FakeRunner model(60);
    Engine engine(model, {.blocks = 60, .block_size = kBlock, .batch_tokens = 16, .max_sequences = 6});
    Recorder recorder;
    RequestId end = 0;
    for (int action = 0; action < 60; ++action) {
      if (random() % 3 == 0) {
        std::vector<Request> tree(1 + random() % 5);
        for (std::size_t i = 0; i < tree.size(); ++i) {
          tree[i].parent =
              static_cast<std::int32_t>(i) - 1 - static_cast<std::int32_t>(i > 1 ? random() % 2 : 0);
          tree[i].tokens = random_tokens(random, 1 + random() % 20);
        }
        tree.back().max_new_tokens = 10;
        end = engine.submit(std::move(tree)) + 1;
      } else if (random() % 2 == 0 && end > 0) {
        engine.cancel(static_cast<RequestId>(random() % static_cast<std::uint32_t>(end + 4)), recorder);
      } else {
        if (random() % 8 == 0) model.fail_next = true;
        engine.step(recorder);
      }
      ASSERT_EQ(engine.check_invariants(), "");
    }
    drain(engine, recorder);
    for (const auto& [id, outcome] : recorder.outcomes) EXPECT_EQ(outcome.finished, 1) << "request " << id;
  }
}

TEST(Engine, CancellingTheLastChildLeavesARunningParentAlone) {
  FakeRunner model(40);
  Engine engine(model, {.blocks = 40, .block_size = kBlock, .batch_tokens = 4});
  Recorder recorder;
  const std::vector<Token> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const RequestId parent =
      engine.submit({{.tokens = tokens, .targets = {{.row = 8, .token = 0}}}, {.parent = 0, .tokens = {1}}});
  engine.step(recorder);  // the first chunk of the parent
  engine.cancel(parent + 1, recorder);
  ASSERT_EQ(engine.check_invariants(), "");
  drain(engine, recorder);
  EXPECT_EQ(recorder.outcomes[parent + 1].reason, FinishReason::cancelled);
  ASSERT_EQ(recorder.outcomes[parent].scores.size(), 1U);
  EXPECT_EQ(recorder.outcomes[parent].scores[0].logprob, static_cast<float>(hash_of(tokens) % 1000));
}

TEST(Engine, OptionsAreChecked) {
  FakeRunner model(4);
  EXPECT_THROW(Engine(model, {.blocks = 4, .batch_tokens = 0}), Error);
  EXPECT_THROW(Engine(model, {.blocks = 4, .max_sequences = 0}), Error);
  EXPECT_THROW(Engine(model, {.blocks = 0}), Error);
}

TEST(Engine, RefusesWhatCannotRun) {
  FakeRunner model(10);
  Engine engine(model, {.blocks = 10, .block_size = kBlock});
  const auto message = [&](Request request) {
    try {
      engine.submit({std::move(request)});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(message({}).find("no tokens"), std::string::npos);
  EXPECT_NE(message({.tokens = {1, kVocabulary}}).find("not in the vocabulary"), std::string::npos);
  EXPECT_NE(message({.tokens = {-1}}).find("not in the vocabulary"), std::string::npos);
  EXPECT_NE(message({.tokens = {1}, .max_new_tokens = 200}).find("exceed the context of 200"),
            std::string::npos);
  EXPECT_NE(message({.tokens = {1}, .max_new_tokens = 100}).find("KV blocks"), std::string::npos);
  EXPECT_NE(message({.tokens = {1}, .targets = {{1, 1}}}).find("target row 1"), std::string::npos);
  EXPECT_NE(
      message({.tokens = {1}, .max_new_tokens = 1, .sampling = {.temperature = -1}}).find("temperature"),
      std::string::npos);
  EXPECT_NE(message({.parent = 0, .tokens = {1}}).find("parent"), std::string::npos);
  EXPECT_TRUE(engine.idle());
}

TEST(Engine, FailuresStayWithTheirRequests) {
  FakeRunner model(40);
  Engine engine(model, {.blocks = 40, .block_size = kBlock, .batch_tokens = 4});
  Recorder recorder;
  const RequestId a = engine.submit({{.tokens = {1, 2, 3, 4}}});
  const RequestId b = engine.submit({{.tokens = {5, 6}, .targets = {{1, 0}}}});
  model.fail_next = true;
  engine.step(recorder);
  EXPECT_EQ(recorder.outcomes[a].reason, FinishReason::failed);
  EXPECT_EQ(recorder.outcomes[a].error, "injected");
  model.nan_hash = hash_of(std::vector<Token>{5, 6});
  drain(engine, recorder);
  EXPECT_EQ(recorder.outcomes[b].reason, FinishReason::failed);
  EXPECT_NE(recorder.outcomes[b].error.find("NaN"), std::string::npos);
}

TEST(Engine, OneCallOfTheHeadForGreedyRowsAndOneForSampledOnes) {
  FakeRunner model(100);
  Engine engine(model, {.blocks = 100, .block_size = kBlock});
  Recorder recorder;
  for (int i = 0; i < 7; ++i)
    engine.submit(
        {{.tokens = {i, i}, .max_new_tokens = 1, .sampling = {.temperature = i % 2 == 0 ? 0.0F : 1.0F}}});
  EXPECT_FALSE(engine.step(recorder));
  EXPECT_EQ(model.greedy_calls, std::vector<std::size_t>{4});
  EXPECT_EQ(model.logits_calls, std::vector<std::size_t>{3});
}

TEST(Engine, NaNIsNoToken) {
  FakeRunner model(100);
  Engine engine(model, {.blocks = 100, .block_size = kBlock});
  Recorder recorder;
  model.nan_hash = hash_of(std::vector<Token>{5, 6});
  const RequestId good =
      engine.submit({{.tokens = {1}, .max_new_tokens = 1, .sampling = {.temperature = 1}}});
  const RequestId bad =
      engine.submit({{.tokens = {5, 6}, .max_new_tokens = 1, .sampling = {.temperature = 1}}});
  drain(engine, recorder);
  EXPECT_EQ(recorder.outcomes[good].reason, FinishReason::length);
  EXPECT_EQ(recorder.outcomes[bad].reason, FinishReason::failed);
  EXPECT_NE(recorder.outcomes[bad].error.find("NaN"), std::string::npos);
}

TEST(Engine, SamplesTheSameInAnyCompany) {
  const Request request{.tokens = {4, 5}, .max_new_tokens = 20, .sampling = {.temperature = 1, .seed = 9}};
  std::vector<Token> alone;
  for (const int company : {0, 5}) {
    FakeRunner model(200);
    Engine engine(model, {.blocks = 200, .block_size = kBlock, .batch_tokens = 7});
    Recorder recorder;
    for (int i = 0; i < company; ++i)
      engine.submit({{.tokens = {i, i},
                      .max_new_tokens = 9,
                      .sampling = {.temperature = static_cast<float>(i % 3), .seed = 1}}});
    const RequestId id = engine.submit({request});
    drain(engine, recorder);
    if (company == 0) alone = recorder.outcomes[id].tokens;
    EXPECT_EQ(recorder.outcomes[id].tokens, alone);
  }
  EXPECT_EQ(alone.size(), 20U);
}

}  // namespace
}  // namespace asynct
