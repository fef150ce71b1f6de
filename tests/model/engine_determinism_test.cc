// The reduction-order contract through the engine over a real model: scores, texts and logits of a request
// are the same bits alone and in any company, whatever the admission into a small KV cache, the step's token
// budget, shared prefixes, forks and threads. One text is long enough (1,500 tokens) for attention to split
// its keys over threads.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>

#include "asynct/engine/offline_model.h"
#include "asynct/model/synth.h"
#include "asynct/model/test_files.h"
#include "model_harness.h"
#include "recording_runner.h"

namespace asynct {
namespace {

constexpr std::int32_t kBlockSize = 16;
constexpr std::size_t kLongText = 1500;
constexpr std::int32_t kSmallCache = 112;  // blocks: the long text and little beside it
constexpr std::int32_t kLargeCache = 600;
constexpr char kTokenizer[] = "tests/data/stories260K";  // 512 tokens, as many as the models below

std::vector<Token> random_tokens(std::mt19937& random, std::size_t count) {
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(random() % 512);
  return tokens;
}

struct Outcome {
  std::vector<float> logprobs;
  std::vector<std::int32_t> argmax;
  std::vector<Token> tokens;
  FinishReason reason = FinishReason::failed;
  bool operator==(const Outcome&) const = default;
};

class Recorder : public EngineListener {
 public:
  void on_scores(RequestId id, std::size_t /*first*/, std::span<const TokenScore> scores) override {
    for (const TokenScore& score : scores) {
      outcomes[id].logprobs.push_back(score.logprob);
      outcomes[id].argmax.push_back(score.argmax);
    }
  }
  bool on_token(RequestId id, Token token, std::span<const TokenLogprob> /*logprobs*/) override {
    outcomes[id].tokens.push_back(token);
    return true;
  }
  void on_finished(RequestId id, FinishReason reason, std::string_view error) override {
    EXPECT_NE(reason, FinishReason::failed) << error;
    outcomes[id].reason = reason;
  }
  std::map<RequestId, Outcome> outcomes;
};

using Tree = std::vector<Request>;

void want_scores(Request& request, std::mt19937& random, std::uint32_t one_in) {
  for (std::size_t row = 0; row < request.tokens.size(); ++row)
    if (random() % one_in == 0)
      request.targets.push_back(
          {.row = static_cast<std::int32_t>(row), .token = static_cast<Token>(random() % 512)});
}

void want_tokens(Request& request, std::mt19937& random, std::int64_t count) {
  request.max_new_tokens = count;
  if (random() % 2 == 0) request.sampling = {.temperature = 1, .top_p = 0.9F, .seed = random()};
  if (random() % 2 == 0) request.end_tokens = {3, 17, 200, 411};
}

Tree random_tree(std::mt19937& random) {
  Tree tree(1 + random() % 6);
  for (std::size_t i = 0; i < tree.size(); ++i) {
    if (i > 0) {
      do tree[i].parent = static_cast<std::int32_t>(random() % i);
      while (tree[static_cast<std::size_t>(tree[i].parent)].max_new_tokens > 0);
    }
    tree[i].tokens = random_tokens(random, 1 + random() % (i == 0 ? 90 : 30));
    want_scores(tree[i], random, 2);
    if (i > 0 && random() % 2 == 0)
      want_tokens(tree[i], random, 1 + static_cast<std::int64_t>(random() % 30));
  }
  return tree;
}

/// A context of kLongText tokens and three continuations, one of them a text; then trees that share its
/// beginning without the engine's knowledge, and small ones.
std::vector<Tree> make_trees(std::mt19937& random) {
  const std::vector<Token> text = random_tokens(random, kLongText);
  std::vector<Tree> trees(2);
  trees[0].push_back({.tokens = text});
  want_scores(trees[0][0], random, 10);
  for (int child = 0; child < 3; ++child) {
    Request& request = trees[0].emplace_back(
        Request{.parent = 0, .tokens = random_tokens(random, static_cast<std::size_t>(1 + child * 20))});
    want_scores(request, random, 1);
  }
  trees[0][1].max_new_tokens = 40;
  trees[1].push_back({.tokens = {text.begin(), text.begin() + 700}});
  trees[1][0].targets = trees[0][0].targets;
  std::erase_if(trees[1][0].targets, [](const ScoreTarget& target) { return target.row >= 700; });
  want_tokens(trees[1][0], random, 10);
  while (trees.size() < 12) trees.push_back(random_tree(random));
  return trees;
}

/// The same request without relatives.
Request alone(const Tree& tree, std::size_t index) {
  Request request = tree[index];
  while (request.parent >= 0) {
    const Request& parent = tree[static_cast<std::size_t>(request.parent)];
    request.tokens.insert(request.tokens.begin(), parent.tokens.begin(), parent.tokens.end());
    for (ScoreTarget& target : request.targets) target.row += static_cast<std::int32_t>(parent.tokens.size());
    request.parent = parent.parent;
  }
  return request;
}

std::vector<Outcome> run_alone(ModelRunner& model, const std::vector<Tree>& trees) {
  std::vector<Outcome> outcomes;
  for (const Tree& tree : trees)
    for (std::size_t i = 0; i < tree.size(); ++i) {
      Engine engine(model, {.blocks = kLargeCache, .block_size = kBlockSize, .batch_tokens = 2048});
      Recorder recorder;
      const RequestId id = engine.submit({alone(tree, i)});
      while (engine.step(recorder)) {
      }
      outcomes.push_back(recorder.outcomes.at(id));
    }
  return outcomes;
}

/// All trees in one engine, in random order, with steps and cancelled strangers in between. Outcomes as
/// above.
std::vector<Outcome> run_together(ModelRunner& model, const EngineOptions& options,
                                  const std::vector<Tree>& trees, std::mt19937& random, int& waits) {
  Engine engine(model, options);
  Recorder recorder;
  std::vector<std::size_t> order(trees.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  std::vector<RequestId> first(trees.size());
  std::vector<RequestId> strangers;
  const auto step = [&] {
    const bool more = engine.step(recorder);
    const EngineSnapshot snapshot = engine.snapshot();
    EXPECT_EQ(check(snapshot), "");
    for (const auto& member : snapshot.members) waits += member.awaits ? 1 : 0;
    return more;
  };
  for (const std::size_t index : order) {
    // With a prefix cache a twin that goes before computes what the tree waits for, until it is cancelled.
    const bool twin = options.prefix_cache && random() % 2 == 0;
    strangers.push_back(engine.submit(twin ? trees[index] : random_tree(random)));
    first[index] = engine.submit(trees[index]);
    for (auto steps = random() % 4; steps > 0; --steps) step();
    if (random() % 2 == 0) engine.cancel(strangers[random() % strangers.size()], recorder);
  }
  while (step()) {
  }
  EXPECT_EQ(engine.counters().cached_tokens > 0, options.prefix_cache);
  std::vector<Outcome> outcomes;
  for (std::size_t t = 0; t < trees.size(); ++t)
    for (std::size_t i = 0; i < trees[t].size(); ++i)
      outcomes.push_back(recorder.outcomes.at(first[t] + static_cast<RequestId>(i)));
  return outcomes;
}

struct Case {
  AttentionForm attention;
  Precision precision;
  Isa isa;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const AttentionForm attention : {AttentionForm::asynci, AttentionForm::softmax})
    for (const Precision precision : {Precision::fp32, Precision::bf16})
      for (const Isa isa : available_isas()) all.push_back({attention, precision, isa});
  return all;
}

class EngineDeterminism : public ::testing::TestWithParam<Case> {
 protected:
  EngineDeterminism()
      : model_(directory_ / "model"), random_(static_cast<std::uint32_t>(GetParam().isa) + 7) {
    ThreadPool pool(2);
    const bool asynci = GetParam().attention == AttentionForm::asynci;
    write_synthetic({.shape = "tiny,vocab=512,positions=2048",
                     .out = model_,
                     .seed = 5,
                     .attention = GetParam().attention,
                     .norm = asynci ? NormKind::dyht : NormKind::rms},
                    pool);
  }

  CpuRunner::Options options(int threads, std::int64_t batch_tokens, std::int32_t blocks) const {
    const std::size_t element = GetParam().precision == Precision::bf16 ? 2 : 4;
    return {.threads = threads,
            .isa = GetParam().isa,
            .precision = GetParam().precision,
            .max_rows = batch_tokens,
            .block_size = kBlockSize,
            .kv_bytes = static_cast<std::size_t>(blocks) * kBlockSize * 2 * 2 * 2 * 16 * element};
  }

  testing::TempDir directory_;
  std::string model_;
  std::mt19937 random_;
};

TEST_P(EngineDeterminism, RequestsAreTheSameBitsInAnyCompany) {
  const std::vector<Tree> trees = make_trees(random_);
  LogitsLedger ledger;
  std::vector<Outcome> expected;
  {
    RecordingRunner model(model_, options(1, 2048, kLargeCache), ledger);
    ASSERT_EQ(model.cache().blocks(), kLargeCache);
    expected = run_alone(model, trees);
  }
  ASSERT_GT(ledger.contexts(), 500U);
  int split_steps = 0;
  int waits = 0;  // of requests for what another one computes
  struct Run {
    int threads;
    std::int64_t batch_tokens;
    bool prefix_cache = false;
  };
  for (const auto [threads, batch_tokens, prefix_cache] :
       {Run{1, 61}, Run{2, 9}, Run{2, 61}, Run{2, 1024}, Run{2, 61, true}, Run{2, 300, true}}) {
    RecordingRunner model(model_, options(threads, batch_tokens, kSmallCache), ledger);
    ASSERT_EQ(model.cache().blocks(), kSmallCache);
    const std::size_t repeated = ledger.repeated();
    const auto outcomes = run_together(model,
                                       {.blocks = kSmallCache,
                                        .block_size = kBlockSize,
                                        .batch_tokens = batch_tokens,
                                        .max_sequences = static_cast<std::int32_t>(1 + random_() % 9),
                                        .prefix_cache = prefix_cache},
                                       trees, random_, waits);
    ASSERT_EQ(outcomes.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(outcomes[i] == expected[i])
          << "request " << i << ", " << threads << " threads, " << batch_tokens << " tokens a step";
    EXPECT_GT(ledger.repeated(), repeated + 500);
    if (threads > 1) split_steps += model.split_steps();
  }
  EXPECT_GT(split_steps, 20);
  EXPECT_GT(waits, 0);
}

// What an evaluation asks: log-likelihoods and texts through OfflineModel, which finds the shared prefixes
// itself.
TEST_P(EngineDeterminism, LogLikelihoodsAndTextsDoNotDependOnTheirNeighbours) {
  const auto open = [&](int threads, std::int64_t batch_tokens, std::int32_t blocks) {
    return OfflineModel(
        std::make_unique<CpuRunner>(model_, options(threads, batch_tokens, blocks)),
        Tokenizer::load(kTokenizer), {2},
        {.blocks = blocks,
         .block_size = kBlockSize,
         .batch_tokens = batch_tokens,
         .max_sequences = std::min<std::int32_t>(7, static_cast<std::int32_t>(batch_tokens))});
  };
  std::vector<ScoreRequest> scores;
  std::vector<GenerateRequest> texts;
  const std::vector<std::string> stops = {"t", "he"};
  for (const std::size_t context_length : {kLongText, std::size_t{40}, std::size_t{9}, std::size_t{1}}) {
    const std::vector<Token> context = random_tokens(random_, context_length);
    for (std::size_t choice = 0; choice < 4; ++choice) {
      const auto continuation = random_tokens(random_, 1 + choice * 3);
      auto& tokens = scores.emplace_back().tokens = context;
      scores.back().score_begin = static_cast<std::int64_t>(context.size());
      tokens.insert(tokens.end(), continuation.begin(), continuation.end());
      texts.push_back({.prompt = tokens, .max_new_tokens = 24, .stop = stops});
      if (choice % 2 == 0) texts.back().stop.clear();
    }
  }

  std::vector<SequenceScore> expected_scores(scores.size());
  std::vector<GeneratedText> expected_texts(texts.size());
  OfflineModel one = open(1, 2048, kLargeCache);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    one.score({&scores[i], 1}, [&](std::size_t, const SequenceScore& score) { expected_scores[i] = score; });
    one.generate({&texts[i], 1}, [&](std::size_t, const GeneratedText& text) { expected_texts[i] = text; });
    EXPECT_LT(expected_scores[i].logprob, 0);
    EXPECT_GT(expected_texts[i].new_tokens, 0);
  }

  for (const int threads : {1, 2})
    for (const std::int64_t batch_tokens : {11, 1024}) {
      OfflineModel model = open(threads, batch_tokens, kSmallCache);
      std::size_t done = 0;
      model.score(scores, [&](std::size_t i, const SequenceScore& score) {
        EXPECT_EQ(score.logprob, expected_scores[i].logprob) << "request " << i;
        EXPECT_EQ(score.greedy, expected_scores[i].greedy) << "request " << i;
        ++done;
      });
      model.generate(texts, [&](std::size_t i, const GeneratedText& text) {
        EXPECT_EQ(text.text, expected_texts[i].text) << "prompt " << i;
        EXPECT_EQ(text.new_tokens, expected_texts[i].new_tokens) << "prompt " << i;
        ++done;
      });
      EXPECT_EQ(done, scores.size() + texts.size());
      EXPECT_LT(model.tokens_processed(), one.tokens_processed() / 2) << "shared prefixes were run again";
    }
}

INSTANTIATE_TEST_SUITE_P(Models, EngineDeterminism, ::testing::ValuesIn(cases()), [](const auto& info) {
  return std::string(info.param.attention == AttentionForm::asynci ? "asynci_" : "softmax_") +
         (info.param.precision == Precision::bf16 ? "bf16_" : "fp32_") + std::string(name(info.param.isa));
});

}  // namespace
}  // namespace asynct
