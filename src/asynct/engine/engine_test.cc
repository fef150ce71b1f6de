#include "asynct/engine/engine.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "asynct/base/error.h"
#include "asynct/engine/engine_testing.h"

namespace asynct {
namespace {

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
          want[i].scores.push_back({.logprob = score_of(hash, token)});
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

// A text of `word`s tokens in their order, at each place one of several; it may end after `least` of them. It
// knows what may follow `fills` times.
class FakeConstraint : public Constraint {
 public:
  FakeConstraint(std::vector<std::vector<Token>> word, std::size_t least, int fills = 1000)
      : word_(std::move(word)), least_(least), fills_(fills) {}

  std::unique_ptr<TokenConstraint> start() const override {
    ++started;
    return std::make_unique<Text>(*this);
  }

  mutable int started = 0;

 private:
  class Text : public TokenConstraint {
   public:
    explicit Text(const FakeConstraint& constraint) : constraint_(constraint) {}
    void fill(std::span<std::uint32_t> allowed) override {
      std::fill(allowed.begin(), allowed.end(), 0U);
      if (++fills_ > constraint_.fills_ || at_ == constraint_.word_.size()) return;
      for (const Token token : constraint_.word_[at_])
        allowed[static_cast<std::size_t>(token) / 32] |= std::uint32_t{1} << (token % 32);
    }
    bool accept(Token token) override {
      const auto& next = constraint_.word_.at(at_++);
      return std::find(next.begin(), next.end(), token) != next.end();
    }
    bool complete() const override { return !failed() && at_ >= constraint_.least_; }
    bool failed() const override { return fills_ > constraint_.fills_; }
    std::string_view error() const override { return failed() ? "out of work" : "dead end"; }

   private:
    const FakeConstraint& constraint_;
    std::size_t at_ = 0;
    int fills_ = 0;
  };

  std::vector<std::vector<Token>> word_;
  std::size_t least_;
  int fills_;
};

Outcome constrained(Request request) {
  FakeRunner model(40);
  Engine engine(model, {.blocks = 40, .block_size = kBlock, .batch_tokens = 16, .max_sequences = 4});
  Recorder recorder;
  const RequestId id = engine.submit({std::move(request)});
  drain(engine, recorder);
  return recorder.outcomes[id];
}

TEST(Engine, AConstraintChoosesAmongItsTokensAndEndsTheText) {
  const auto word =
      std::make_shared<FakeConstraint>(std::vector<std::vector<Token>>{{7}, {8, 9}, {31, 32, 49}}, 3);
  for (const float temperature : {0.0F, 1.0F}) {
    const Outcome got = constrained({.tokens = {1, 2},
                                     .max_new_tokens = 10,
                                     .sampling = {.temperature = temperature, .top_k = 2, .seed = 3},
                                     .end_tokens = {5},
                                     .constraint = word});
    EXPECT_EQ(got.reason, FinishReason::stopped) << got.error;
    ASSERT_EQ(got.tokens.size(), 3U);
    EXPECT_EQ(got.tokens[0], 7);
    EXPECT_TRUE(got.tokens[1] == 8 || got.tokens[1] == 9);
    EXPECT_TRUE(got.tokens[2] == 31 || got.tokens[2] == 32 || got.tokens[2] == 49);
  }
}

TEST(Engine, AnEndTokenComesOnlyWhereTheTextIsComplete) {
  // The bias makes the end token the best wherever it may come.
  Request request{
      .tokens = {1, 2},
      .max_new_tokens = 10,
      .sampling = {.logit_bias = {{5, 100}}},
      .end_tokens = {5},
      .constraint = std::make_shared<FakeConstraint>(std::vector<std::vector<Token>>(4, {7, 8}), 2)};
  Outcome got = constrained(request);
  EXPECT_EQ(got.reason, FinishReason::end_token) << got.error;
  EXPECT_EQ(got.tokens.size(), 2U);
  request.sampling.min_tokens = 3;
  got = constrained(request);
  EXPECT_EQ(got.reason, FinishReason::end_token) << got.error;
  EXPECT_EQ(got.tokens.size(), 3U);
  request.sampling.min_tokens = 9;  // more than there are
  got = constrained(request);
  EXPECT_EQ(got.reason, FinishReason::stopped) << got.error;
  EXPECT_EQ(got.tokens.size(), 4U);
  request.max_new_tokens = 1;
  EXPECT_EQ(constrained(request).reason, FinishReason::length);
}

// A token that ends the text says nothing in it, whatever the constraint thinks of its bytes.
TEST(Engine, AnEndTokenIsNoPartOfTheText) {
  const auto request = [](std::size_t least) {
    return Request{.tokens = {1, 2},
                   .max_new_tokens = 10,
                   .end_tokens = {5},
                   .constraint = std::make_shared<FakeConstraint>(
                       std::vector<std::vector<Token>>{{7}, {5}, {8}}, least)};
  };
  Outcome got = constrained(request(3));
  EXPECT_EQ(got.reason, FinishReason::stuck);
  EXPECT_EQ(got.tokens, std::vector<Token>{7});
  got = constrained(request(1));
  EXPECT_EQ(got.reason, FinishReason::stopped) << got.error;
  EXPECT_EQ(got.tokens, std::vector<Token>{7});
}

// Nobody knows whether the text would have gone on: it did not end well.
TEST(Engine, AConstraintThatFailsAfterACompleteTextDidNotEndIt) {
  const Outcome got = constrained(
      {.tokens = {1, 2},
       .max_new_tokens = 10,
       .constraint = std::make_shared<FakeConstraint>(std::vector<std::vector<Token>>{{7}, {8}, {9}}, 1, 1)});
  EXPECT_EQ(got.reason, FinishReason::stuck);
  EXPECT_EQ(got.tokens, std::vector<Token>{7});
  EXPECT_NE(got.error.find("out of work"), std::string::npos) << got.error;
}

TEST(Engine, AConstraintsDeadEndIsItsRequestsAlone) {
  FakeRunner model(40);
  Engine engine(model, {.blocks = 40, .block_size = kBlock, .batch_tokens = 16, .max_sequences = 4});
  Recorder recorder;
  const RequestId dead = engine.submit(
      {{.tokens = {1, 2},
        .max_new_tokens = 5,
        .constraint = std::make_shared<FakeConstraint>(std::vector<std::vector<Token>>{{7}, {}}, 9),
        .logprobs = 2}});
  const RequestId free = engine.submit({{.tokens = {1, 2}, .max_new_tokens = 5}});
  drain(engine, recorder);
  EXPECT_EQ(recorder.outcomes[dead].reason, FinishReason::stuck);
  EXPECT_EQ(recorder.outcomes[dead].tokens, std::vector<Token>{7});
  EXPECT_NE(recorder.outcomes[dead].error.find("dead end"), std::string::npos)
      << recorder.outcomes[dead].error;
  EXPECT_EQ(recorder.outcomes[free].tokens, expected_text({1, 2}, 5, {}));
  EXPECT_EQ(engine.check_invariants(), "");
}

// One constraint for many requests, each with a state of its own that outlives preemption.
TEST(Engine, ConstrainedTextsAreTheSameInAnyCompany) {
  std::mt19937 random(5);
  std::vector<std::vector<Token>> word(24);
  for (auto& place : word) place = random_tokens(random, 6);
  const auto constraint = std::make_shared<FakeConstraint>(word, 20);
  const auto request = [&](int i) {
    return Request{.tokens = {static_cast<Token>(i), 3, 4},
                   .max_new_tokens = 30,
                   .sampling = {.temperature = 1, .seed = static_cast<std::uint64_t>(i)},
                   .end_tokens = {5},
                   .constraint = i % 3 == 2 ? nullptr : constraint};
  };
  FakeRunner model(20);  // two of them fill it
  Engine engine(model, {.blocks = 20, .block_size = kBlock, .batch_tokens = 16, .max_sequences = 6});
  Recorder recorder;
  for (int i = 0; i < 9; ++i) engine.submit({request(i)});
  drain(engine, recorder);
  EXPECT_GT(engine.counters().preemptions, 0);
  EXPECT_EQ(constraint->started, 6);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(recorder.outcomes[i].tokens, constrained(request(i)).tokens) << i;
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

std::string refusal(Engine& engine, Request request) {
  try {
    engine.submit({std::move(request)});
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Engine, SaysWhenItsParametersLeaveNoToken) {
  FakeRunner model(100);
  Engine engine(model, {.blocks = 100, .block_size = kBlock});
  Recorder recorder;
  std::vector<std::vector<Token>> all(kVocabulary);
  for (Token token = 0; token < kVocabulary; ++token) all[static_cast<std::size_t>(token)] = {token};
  const SamplingParams nothing[] = {
      {.allowed_tokens = {5, 6}, .bad_words = {{6}, {5}}},
      {.min_tokens = 1, .allowed_tokens = {7}},
      {.min_tokens = 1, .allowed_tokens = {7, 8}, .bad_words = {{1, 2, 8}}},
      {.bad_words = all},
  };
  for (const SamplingParams& sampling : nothing)
    EXPECT_EQ(
        refusal(engine, {.tokens = {1, 2}, .max_new_tokens = 3, .sampling = sampling, .end_tokens = {7}})
            .substr(0, 19),
        "no token is allowed");
  EXPECT_TRUE(engine.idle());
  // And when only the text decides.
  const RequestId bad = engine.submit(
      {{.tokens = {1}, .max_new_tokens = 5, .sampling = {.allowed_tokens = {5}, .bad_words = {{5, 5, 5}}}}});
  const RequestId good =
      engine.submit({{.tokens = {1}, .max_new_tokens = 5, .sampling = {.allowed_tokens = {5}}}});
  drain(engine, recorder);
  EXPECT_EQ(recorder.outcomes[bad].tokens, (std::vector<Token>{5, 5}));
  EXPECT_EQ(recorder.outcomes[bad].reason, FinishReason::stuck);
  EXPECT_EQ(recorder.outcomes[bad].error.substr(0, 19), "no token is allowed");
  EXPECT_EQ(recorder.outcomes[good].reason, FinishReason::length);
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
