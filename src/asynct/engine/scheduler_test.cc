// What the scheduler, the prefix cache and the engine do together: budgets, preemption, order, prefix hits.
#include <gtest/gtest.h>

#include <set>

#include "asynct/base/error.h"
#include "asynct/engine/engine_testing.h"

namespace asynct {
namespace {

std::vector<Token> count_from(Token first, std::size_t count) {
  std::vector<Token> tokens(count);
  for (std::size_t i = 0; i < count; ++i) tokens[i] = (first + static_cast<Token>(i)) % kVocabulary;
  return tokens;
}

// A request for the log-probabilities of all its tokens but the first, as `echo` asks for them.
Request echo(std::vector<Token> tokens, std::int64_t max_new_tokens = 0) {
  Request request{.tokens = std::move(tokens), .max_new_tokens = max_new_tokens};
  for (std::size_t i = 1; i < request.tokens.size(); ++i)
    request.targets.push_back({.row = static_cast<std::int32_t>(i) - 1, .token = request.tokens[i]});
  return request;
}

void expect_echo(const std::vector<Token>& tokens, const Outcome& outcome) {
  ASSERT_EQ(outcome.scores.size(), tokens.size() - 1);
  for (std::size_t i = 1; i < tokens.size(); ++i)
    EXPECT_EQ(outcome.scores[i - 1].logprob, score_of(hash_of(std::span(tokens).first(i)), tokens[i])) << i;
}

struct Bench {
  explicit Bench(EngineOptions options, std::int32_t block_size = kBlock)
      : model(options.blocks, block_size), engine(model, of_block_size(options, block_size)) {}
  static EngineOptions of_block_size(EngineOptions options, std::int32_t block_size) {
    options.block_size = block_size;
    return options;
  }
  // Rows that the model ran in one step.
  std::int64_t step() {
    const std::int64_t before = model.rows;
    engine.step(recorder);
    EXPECT_EQ(engine.check_invariants(), "");
    return model.rows - before;
  }
  std::int64_t run() {
    const std::int64_t before = model.rows;
    drain(engine, recorder);
    return model.rows - before;
  }
  const EngineSnapshot::Member* find(RequestId id) {
    snapshot = engine.snapshot();
    for (const auto& member : snapshot.members)
      if (member.id == id) return &member;
    return nullptr;
  }

  FakeRunner model;
  Engine engine;
  Recorder recorder;
  EngineSnapshot snapshot;
};

TEST(Scheduler, SharesTheBudgetAmongLongPromptsAndDecodesFirst) {
  Bench bench({.blocks = 200, .batch_tokens = 102, .prefill_chunk = 40});
  RequestId ids[3];
  for (RequestId& id : ids) id = bench.engine.submit({{.tokens = count_from(0, 80), .max_new_tokens = 5}});
  EXPECT_EQ(bench.step(), 102);
  EXPECT_EQ(bench.find(ids[0])->next_row, 40);
  EXPECT_EQ(bench.find(ids[1])->next_row, 40);
  EXPECT_EQ(bench.find(ids[2])->next_row, 22);
  EXPECT_EQ(bench.step(), 102);
  EXPECT_EQ(bench.find(ids[2])->next_row, 44);
  EXPECT_EQ(bench.recorder.outcomes[ids[1]].tokens.size(), 1U);
  EXPECT_EQ(bench.step(), 2 + 36);
  EXPECT_EQ(bench.recorder.outcomes[ids[2]].tokens.size(), 1U);
  bench.run();
}

TEST(Scheduler, StartsOnlyWithRoomForTheWholePrompt) {
  Bench bench({.blocks = 10, .batch_tokens = 16});
  const RequestId first = bench.engine.submit({{.tokens = count_from(0, 24)}});
  const RequestId second = bench.engine.submit({{.tokens = count_from(9, 20)}});
  bench.step();
  EXPECT_EQ(bench.find(first)->state, Node::State::running);
  EXPECT_EQ(bench.find(second)->state, Node::State::waiting) << "6 blocks are spoken for, it needs 5";
  bench.run();
  EXPECT_EQ(bench.engine.counters().preemptions, 0);
}

TEST(Scheduler, TheLastGivesWayAndItsTextStaysTheSame) {
  Bench bench({.blocks = 10, .batch_tokens = 16});
  const auto a = count_from(0, 12);
  const auto b = count_from(5, 12);
  const RequestId first = bench.engine.submit({{.tokens = a, .max_new_tokens = 20}});
  const RequestId second = bench.engine.submit({{.tokens = b, .max_new_tokens = 20}});
  bool seen = false;
  for (int i = 0; i < 12; ++i) {
    bench.step();
    if (const auto* member = bench.find(second)) seen = seen || member->state == Node::State::waiting;
    EXPECT_EQ(bench.find(first) == nullptr || bench.find(first)->state == Node::State::running, true);
  }
  bench.run();
  EXPECT_TRUE(seen);
  EXPECT_GT(bench.engine.counters().preemptions, 0);
  EXPECT_EQ(bench.recorder.outcomes[first].tokens, expected_text(a, 20, {}));
  EXPECT_EQ(bench.recorder.outcomes[second].tokens, expected_text(b, 20, {}));
}

TEST(Scheduler, PriorityDecidesWhoStartsAndWhoGivesWay) {
  Bench bench({.blocks = 12, .batch_tokens = 64, .max_sequences = 2});
  const auto submit = [&](Token token, std::int64_t priority) {
    return bench.engine.submit(
        {{.tokens = count_from(token, 8), .max_new_tokens = 24, .priority = priority}});
  };
  const RequestId low = submit(1, 5);
  bench.step();
  const RequestId lower = submit(2, 9);
  const RequestId high = submit(3, -1);
  bench.step();
  EXPECT_EQ(bench.find(high)->state, Node::State::running) << "passes the one that came before it";
  EXPECT_EQ(bench.find(lower)->state, Node::State::waiting);
  while (bench.engine.counters().preemptions == 0) bench.step();
  EXPECT_EQ(bench.find(low)->state, Node::State::waiting) << "came first, but matters less";
  bench.run();
  EXPECT_EQ(bench.recorder.outcomes[lower].tokens.size(), 24U);
}

// Nobody of equal priority overtakes: with everything small, each request is done within the steps that those
// before it and it need one after the other.
TEST(Scheduler, NobodyStarves) {
  std::mt19937 random(3);
  struct Variant {
    bool cached = false;
    std::size_t common = 0;  // tokens with which every second prompt begins
  };
  for (const auto& [cached, common] : {Variant{}, Variant{.cached = true}, Variant{true, 20}}) {
    Bench bench({.blocks = 12, .batch_tokens = 8, .max_sequences = 8, .prefix_cache = cached});
    std::map<RequestId, std::int64_t> deadline;
    std::int64_t work = 0;
    std::int64_t step = 0;
    for (; step < 4000 || !bench.engine.idle(); ++step) {
      if (step < 4000 && random() % 4 == 0) {
        const std::size_t length = 1 + random() % 30;
        const auto generate = static_cast<std::int64_t>(1 + random() % 17);
        auto tokens = random_tokens(random, length);
        if (random() % 2 == 0) std::fill_n(tokens.begin(), std::min(common, length), 1);
        const RequestId id = bench.engine.submit({{.tokens = tokens, .max_new_tokens = generate}});
        // Alone: chunks of the prompt, a row a token; computed again at most once for each that goes before.
        work = std::max(work, step) + 2 * (static_cast<std::int64_t>(length) + generate);
        deadline[id] = work;
      }
      bench.step();
      for (const auto& [id, outcome] : bench.recorder.outcomes) {
        if (outcome.finished > 0) deadline.erase(id);
      }
      if (!deadline.empty()) {
        ASSERT_LE(step, deadline.begin()->second) << "request " << deadline.begin()->first;
      }
      bench.recorder.outcomes.clear();
    }
    EXPECT_GT(bench.engine.counters().preemptions, 100);
  }
}

TEST(PrefixHits, AreCountedAndChangeNothing) {
  Bench bench({.blocks = 100, .batch_tokens = 64, .prefix_cache = true});
  const auto tokens = count_from(3, 30);
  const RequestId first = bench.engine.submit({{.tokens = tokens, .max_new_tokens = 6}});
  EXPECT_EQ(bench.run(), 30 + 5);
  const RequestId second = bench.engine.submit({{.tokens = tokens, .max_new_tokens = 6}});
  EXPECT_EQ(bench.run(), 2 + 5) << "whole blocks of 4 are found: 28 of 30 tokens";
  EXPECT_EQ(bench.recorder.outcomes[first].tokens, bench.recorder.outcomes[second].tokens);
  EXPECT_EQ(bench.engine.counters().cached_tokens, 28);
  EXPECT_EQ(bench.engine.counters().prompt_tokens, 60);
}

TEST(PrefixHits, AWholePromptInTheCacheCostsOneRowThatIsNotWrittenAgain) {
  Bench bench({.blocks = 100, .batch_tokens = 64, .prefix_cache = true});
  const auto tokens = count_from(3, 32);
  bench.engine.submit({{.tokens = tokens}});
  bench.run();
  const RequestId id = bench.engine.submit({{.tokens = tokens, .max_new_tokens = 1}});
  EXPECT_EQ(bench.run(), 1);
  EXPECT_EQ(bench.recorder.outcomes[id].tokens, expected_text(tokens, 1, {}));
  bench.engine.submit({{.tokens = tokens}});
  EXPECT_EQ(bench.run(), 0) << "nothing is wanted of it";
}

class PromptScores : public testing::TestWithParam<std::int32_t> {
};  // by block size: shared whole, or in part

TEST_P(PromptScores, ComeFromMemory) {
  Bench bench({.blocks = 100, .batch_tokens = 7, .prefix_cache = true}, GetParam());
  const auto context = count_from(3, 24);
  std::int64_t rows = 0;
  for (Token choice = 0; choice < 4; ++choice) {
    auto tokens = context;
    for (Token i = 0; i < 4; ++i) tokens.push_back((choice * 7 + i) % kVocabulary);
    const RequestId id = bench.engine.submit({echo(tokens, 1)});
    rows = bench.run();
    expect_echo(tokens, bench.recorder.outcomes[id]);
    EXPECT_EQ(rows, choice == 0 ? 28 : 5) << "the context's last row, and the choice";
  }
  const RequestId id = bench.engine.submit({echo(context)});
  EXPECT_EQ(bench.run(), 0) << "all of it is remembered";
  expect_echo(context, bench.recorder.outcomes[id]);
}

INSTANTIATE_TEST_SUITE_P(BlockSizes, PromptScores, testing::Values(4, 8, 16, 32));

TEST(PrefixHits, ScoresThatWereNotAskedForAreComputedFromThere) {
  Bench bench({.blocks = 100, .batch_tokens = 64, .prefix_cache = true});
  const auto tokens = count_from(0, 32);
  bench.engine.submit({{.tokens = tokens}});
  bench.run();
  Request request{.tokens = tokens};
  for (std::int32_t row = 20; row < 31; ++row)
    request.targets.push_back({.row = row, .token = tokens[static_cast<std::size_t>(row) + 1]});
  const RequestId id = bench.engine.submit({request});
  EXPECT_EQ(bench.run(), 12);
  ASSERT_EQ(bench.recorder.outcomes[id].scores.size(), 11U);
  EXPECT_EQ(bench.recorder.outcomes[id].scores[0].logprob,
            score_of(hash_of(std::span(tokens).first(21)), tokens[21]));
  const RequestId all = bench.engine.submit({echo(tokens)});
  EXPECT_EQ(bench.run(), 32);
  expect_echo(tokens, bench.recorder.outcomes[all]);
}

TEST(PrefixHits, SaltsSeparateRequests) {
  Bench bench({.blocks = 100, .batch_tokens = 64, .prefix_cache = true});
  const auto tokens = count_from(0, 32);
  const auto rows = [&](std::string salt) {
    bench.engine.submit({{.tokens = tokens, .max_new_tokens = 1, .cache_salt = std::move(salt)}});
    return bench.run();
  };
  EXPECT_EQ(rows(""), 32);
  EXPECT_EQ(rows("a"), 32);
  EXPECT_EQ(rows("a"), 1);
  EXPECT_EQ(rows(""), 1);
}

TEST(PrefixHits, ResetIsRefusedWhileAnybodyHoldsBlocks) {
  Bench bench({.blocks = 100, .batch_tokens = 64, .prefix_cache = true});
  const auto tokens = count_from(0, 32);
  bench.engine.submit({{.tokens = tokens, .max_new_tokens = 9}});
  bench.step();
  EXPECT_FALSE(bench.engine.reset_prefix_cache());
  bench.run();
  EXPECT_TRUE(bench.engine.reset_prefix_cache());
  bench.engine.submit({{.tokens = tokens}});
  EXPECT_EQ(bench.run(), 32);
}

TEST(PrefixHits, ARefusedStartLeavesTheFoundBlocksAlone) {
  Bench bench({.blocks = 10, .batch_tokens = 64, .prefix_cache = true});
  const auto tokens = count_from(0, 16);
  bench.engine.submit({{.tokens = tokens}});
  bench.run();
  const RequestId big = bench.engine.submit({{.tokens = count_from(20, 24), .max_new_tokens = 4}});
  bench.step();
  auto longer = tokens;
  for (int i = 0; i < 12; ++i) longer.push_back(1);
  const RequestId late = bench.engine.submit({{.tokens = longer}});
  bench.step();
  EXPECT_EQ(bench.find(late)->state, Node::State::waiting);
  for (const auto& block : bench.snapshot.blocks) EXPECT_LE(block.references, 1);
  EXPECT_NE(bench.find(big), nullptr);
  bench.run();
  EXPECT_EQ(bench.recorder.outcomes[late].reason, FinishReason::prompt);
}

// --- Beginnings that another request is computing

std::vector<Token> joined(std::vector<Token> tokens, const std::vector<Token>& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

TEST(AwaitedPrefixes, OfRequestsThatStartAtOnceAreComputedOnce) {
  Bench bench({.blocks = 100, .batch_tokens = 100, .prefix_cache = true});
  std::vector<std::vector<Token>> prompts;
  for (Token t = 0; t < 4; ++t) {
    prompts.push_back(joined(count_from(3, 26), {t, t, t, t}));
    bench.engine.submit({{.tokens = prompts.back(), .max_new_tokens = 3}});
  }
  EXPECT_EQ(bench.step(), 30) << "the others wait for the first one's full blocks: 24 tokens";
  EXPECT_EQ(bench.step(), 1 + 3 * 6);
  bench.run();
  for (RequestId id = 0; id < 4; ++id)
    EXPECT_EQ(bench.recorder.outcomes[id].tokens,
              expected_text(prompts[static_cast<std::size_t>(id)], 3, {}));
}

TEST(AwaitedPrefixes, AreSharedToTheTokenWithARequestThatEnds) {
  for (const std::int64_t generate : {0, 1}) {
    Bench bench({.blocks = 100, .batch_tokens = 200, .prefix_cache = true}, 16);
    std::vector<std::vector<Token>> prompts;
    for (Token t = 0; t < 4; ++t) {
      prompts.push_back(joined(count_from(3, 26), {t, t, t, t}));
      bench.engine.submit({echo(prompts.back(), generate)});
    }
    EXPECT_EQ(bench.run(), 30 + 3 * 5) << "and the row before the first token that differs, for its score";
    for (RequestId id = 0; id < 4; ++id)
      expect_echo(prompts[static_cast<std::size_t>(id)], bench.recorder.outcomes[id]);
  }
}

// The request that waits is passed while the prefix is computed, not longer: it starts in the step after,
// whoever comes meanwhile.
TEST(AwaitedPrefixes, DelayARequestByTheStepsOfThePrefixOnly) {
  Bench bench(
      {.blocks = 400, .batch_tokens = 40, .max_sequences = 18, .prefill_chunk = 8, .prefix_cache = true});
  const RequestId first = bench.engine.submit({{.tokens = count_from(0, 100), .max_new_tokens = 2}});
  const auto tokens = joined(count_from(0, 72), count_from(20, 4));
  const RequestId second = bench.engine.submit({{.tokens = tokens, .max_new_tokens = 2}});
  for (int step = 0; step < 9; ++step) {
    bench.engine.submit({{.tokens = count_from(static_cast<Token>(step) + 1, 9), .max_new_tokens = 50}});
    bench.step();
    EXPECT_EQ(bench.find(first)->next_row, 8 * (step + 1));
    EXPECT_EQ(bench.find(second)->state, Node::State::waiting) << step;
  }
  EXPECT_GT(bench.engine.running_requests(), 5) << "others start meanwhile";
  bench.step();
  EXPECT_EQ(bench.find(second)->state, Node::State::running);
  EXPECT_EQ(bench.find(second)->next_row, 76);
  bench.run();
  EXPECT_EQ(bench.recorder.outcomes[second].tokens, expected_text(tokens, 2, {}));
}

TEST(AwaitedPrefixes, TheWaitingRequestsPlaceAndBlocksAreKept) {
  const auto tokens = joined(count_from(0, 24), {7, 7, 7, 7});
  for (const bool places : {true, false}) {
    Bench bench({.blocks = places ? 100 : 20,
                 .batch_tokens = 64,
                 .max_sequences = places ? 2 : 8,
                 .prefill_chunk = 8,
                 .prefix_cache = true});
    bench.engine.submit({{.tokens = count_from(0, 32), .max_new_tokens = 1}});  // 8 blocks
    const RequestId second = bench.engine.submit({{.tokens = tokens}});         // 7, before any is shared
    const RequestId third = bench.engine.submit({{.tokens = count_from(30, 24), .max_new_tokens = 4}});  // 6
    for (int step = 0; step < 3; ++step) {
      bench.step();
      EXPECT_EQ(bench.find(third)->state, Node::State::waiting);
    }
    bench.step();
    EXPECT_EQ(bench.find(second), nullptr) << "done in the first step that it could start in";
    bench.run();
    EXPECT_EQ(bench.engine.counters().preemptions, 0);
    EXPECT_EQ(bench.recorder.outcomes[third].tokens, expected_text(count_from(30, 24), 4, {}));
  }
}

TEST(AwaitedPrefixes, EndWithTheRequestThatComputesThem) {
  for (const bool fails : {true, false}) {
    Bench bench({.blocks = 100, .batch_tokens = 64, .prefill_chunk = 8, .prefix_cache = true});
    const RequestId first = bench.engine.submit({{.tokens = count_from(0, 40)}});
    const RequestId second = bench.engine.submit({{.tokens = count_from(0, 40)}});
    const RequestId third = bench.engine.submit({{.tokens = count_from(0, 40)}});
    bench.step();
    EXPECT_EQ(bench.find(second)->state, Node::State::waiting);
    bench.model.fail_next = fails;
    if (!fails) bench.engine.cancel(first, bench.recorder);
    bench.step();
    if (fails) bench.step();
    EXPECT_EQ(bench.find(first), nullptr);
    EXPECT_EQ(bench.find(second)->state, Node::State::running);
    EXPECT_EQ(bench.find(second)->next_row, 16) << "goes on from the 8 rows that were computed";
    EXPECT_EQ(bench.find(third)->state, Node::State::waiting);
    bench.run();
    EXPECT_EQ(bench.recorder.outcomes[third].reason, FinishReason::prompt);
  }
}

TEST(AwaitedPrefixes, AreNotAwaitedWhereNothingWouldBeFound) {
  struct Case {
    const char* what;
    Request first;
    Request second;
  };
  const auto tokens = count_from(0, 24);
  const Case cases[] = {
      {"less than the shortest piece that counts",
       {.tokens = tokens},
       {.tokens = joined(count_from(0, 7), count_from(30, 9))}},
      {"another salt", {.tokens = tokens}, {.tokens = tokens, .cache_salt = "salt"}},
      {"it comes later in the order", {.tokens = tokens, .priority = 1}, {.tokens = tokens}},
      {"rows run again for their scores", {.tokens = tokens}, echo(tokens)},
  };
  for (const Case& c : cases) {
    Bench bench({.blocks = 100, .batch_tokens = 64, .prefill_chunk = 8, .prefix_cache = true});
    bench.engine.submit({c.first});
    bench.step();
    const RequestId second = bench.engine.submit({c.second});
    bench.step();
    EXPECT_EQ(bench.find(second)->state, Node::State::running) << c.what;
    bench.run();
  }
}

TEST(AwaitedPrefixes, MayLieInWhatAnAncestorComputes) {
  Bench bench({.blocks = 100, .batch_tokens = 100, .prefix_cache = true});
  const auto tree = [](Token last) {
    return std::vector<Request>{{.tokens = count_from(0, 20)},
                                {.parent = 0, .tokens = count_from(20, 20)},
                                {.parent = 1, .tokens = {last, last}, .max_new_tokens = 2}};
  };
  bench.engine.submit(tree(1));
  bench.engine.submit(tree(2));
  const RequestId id =
      bench.engine.submit({{.tokens = joined(count_from(0, 40), {5, 5}), .max_new_tokens = 2}});
  EXPECT_EQ(bench.run(), 40 + 3 * (2 + 1));
  EXPECT_EQ(bench.recorder.outcomes[id].tokens, expected_text(joined(count_from(0, 40), {5, 5}), 2, {}));
}

// n choices of one prompt: forks of it that draw from the seeds seed, seed + 1, ... are what n requests give.
TEST(Forks, GiveWhatSingleRequestsGive) {
  const auto prompt = count_from(2, 22);
  const auto sampling = [](std::uint64_t seed) { return SamplingParams{.temperature = 1, .seed = seed}; };
  std::vector<std::vector<Token>> alone;
  for (std::uint64_t seed = 40; seed < 45; ++seed) {
    Bench bench({.blocks = 40, .batch_tokens = 64});
    const RequestId id =
        bench.engine.submit({{.tokens = prompt, .max_new_tokens = 12, .sampling = sampling(seed)}});
    bench.run();
    alone.push_back(bench.recorder.outcomes[id].tokens);
  }
  for (const bool cached : {false, true}) {
    Bench bench({.blocks = 22, .batch_tokens = 9, .prefix_cache = cached});
    std::vector<Request> tree{{.tokens = {prompt.begin(), prompt.end() - 1}}};
    for (std::uint64_t seed = 40; seed < 45; ++seed)
      tree.push_back(
          {.parent = 0, .tokens = {prompt.back()}, .max_new_tokens = 12, .sampling = sampling(seed)});
    const RequestId id = bench.engine.submit(tree);
    bench.run();
    for (std::size_t i = 0; i < 5; ++i)
      EXPECT_EQ(bench.recorder.outcomes[id + 1 + static_cast<RequestId>(i)].tokens, alone[i]);
    EXPECT_GT(bench.engine.counters().preemptions, 0);
  }
}

// Parents that are computed and wait with their blocks for room for their children must not lock each other.
TEST(Scheduler, ComputedParentsGiveWayToo) {
  Bench bench({.blocks = 14, .batch_tokens = 64, .max_sequences = 8});
  std::vector<RequestId> ids;
  ids.reserve(3);
  for (Token t = 0; t < 3; ++t)
    ids.push_back(bench.engine.submit({{.tokens = count_from(t, 12)},
                                       {.parent = 0, .tokens = count_from(t, 4), .max_new_tokens = 20},
                                       {.parent = 0, .tokens = count_from(t + 9, 4), .max_new_tokens = 20}}));
  bench.run();
  for (const RequestId id : ids) {
    EXPECT_EQ(bench.recorder.outcomes[id].finished, 1);
    for (RequestId child = id + 1; child < id + 3; ++child) {
      auto context = count_from(static_cast<Token>((id - ids[0]) / 3), 12);
      const auto own = count_from(static_cast<Token>((id - ids[0]) / 3) + (child == id + 1 ? 0 : 9), 4);
      context.insert(context.end(), own.begin(), own.end());
      EXPECT_EQ(bench.recorder.outcomes[child].tokens, expected_text(context, 20, {}));
    }
  }
}

}  // namespace
}  // namespace asynct
