// The reduction-order contract: a row's logits depend on its own tokens, positions and the checkpoint only.
// So the same request alone, in any batch, in any chunks, behind any shared prefix, by any number of threads
// gives the same bits.

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "model_harness.h"

namespace asynct {
namespace {

const std::vector<std::string>& model_dirs() {
  // The bundled model (large enough for every tile path), and small ones of other kinds.
  static const std::vector<std::string> dirs = [] {
    std::vector<std::string> found;
    for (const char* dir : {"models/asynct-tiny", "tests/golden/asynci_pool3", "tests/data/stories260K"})
      if (std::filesystem::exists(std::string(dir) + "/config.json")) found.emplace_back(dir);
    return found;
  }();
  return dirs;
}

std::vector<Token> random_tokens(std::mt19937& random, std::size_t count, std::int64_t vocabulary) {
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(random() % static_cast<std::uint32_t>(vocabulary));
  return tokens;
}

// Feeds several sequences through random steps: chunks of random size, random company, some sequences forked
// from others, and returns every row's logits by sequence.
std::vector<std::vector<float>> random_schedule(ModelHarness& harness,
                                                const std::vector<std::vector<Token>>& texts,
                                                std::size_t shared, std::mt19937& random) {
  std::vector<std::vector<float>> logits(texts.size());
  std::vector<Sequence> sequences;
  std::vector<std::size_t> fed(texts.size(), 0);
  // Texts 0 and 1 share their first `shared` tokens: 1 is forked from 0 there.
  for (std::size_t i = 0; i < texts.size(); ++i) sequences.push_back(harness.new_sequence());
  {
    const std::vector<Token> prefix(texts[0].begin(), texts[0].begin() + static_cast<std::ptrdiff_t>(shared));
    const auto rows = harness.step({{&sequences[0], prefix}})[0];
    sequences[1] = sequences[0].fork();
    logits[0] = logits[1] = rows;
    fed[0] = fed[1] = shared;
  }
  while (true) {
    std::vector<ModelHarness::Part> parts;
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::size_t left = texts[i].size() - fed[i];
      if (left == 0 || random() % 4 == 0) continue;
      const std::size_t count = random() % 3 == 0 ? 1 : std::min<std::size_t>(left, 1 + random() % 70);
      parts.push_back({&sequences[i],
                       {texts[i].begin() + static_cast<std::ptrdiff_t>(fed[i]),
                        texts[i].begin() + static_cast<std::ptrdiff_t>(fed[i] + count)}});
      order.push_back(i);
    }
    std::vector<std::size_t> by_rows(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) by_rows[i] = i;
    std::stable_partition(by_rows.begin(), by_rows.end(),
                          [&](std::size_t i) { return parts[i].tokens.size() == 1; });
    std::vector<ModelHarness::Part> sorted;
    for (const std::size_t i : by_rows) sorted.push_back(parts[i]);
    if (!sorted.empty()) {
      const auto rows = harness.step(sorted);
      for (std::size_t k = 0; k < by_rows.size(); ++k) {
        const std::size_t i = order[by_rows[k]];
        logits[i].insert(logits[i].end(), rows[k].begin(), rows[k].end());
        fed[i] += sorted[k].tokens.size();
      }
    }
    bool done = true;
    for (std::size_t i = 0; i < texts.size(); ++i) done = done && fed[i] == texts[i].size();
    if (done) return logits;
  }
}

class Determinism : public testing::TestWithParam<std::string> {};

TEST_P(Determinism, LogitsDoNotDependOnCompanyChunksForksOrThreads) {
  for (const Isa isa : available_isas()) {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      std::mt19937 random(static_cast<std::uint32_t>(isa) * 2 + static_cast<std::uint32_t>(precision));
      const CpuRunner::Options options{.threads = 1,
                                       .isa = isa,
                                       .precision = precision,
                                       .max_rows = 600,
                                       .kv_bytes = std::size_t{64} << 20};
      ModelHarness reference(GetParam(), options);
      const std::int64_t vocabulary = reference.runner().vocabulary();
      const bool slow = isa == Isa::scalar;
      const std::int64_t context = reference.runner().max_length();
      const bool small = slow || context < 300;  // where attention's chunk border is out of reach
      const std::size_t shared = small ? 9 : 150;
      std::vector<std::vector<Token>> texts;
      for (const std::size_t length : {small ? 60U : 300U, small ? 51U : 290U, 40U, 1U, 17U})
        texts.push_back(random_tokens(random, length, vocabulary));
      std::copy_n(texts[0].begin(), shared, texts[1].begin());
      std::vector<std::vector<float>> alone;
      for (const auto& text : texts) alone.push_back(reference.logits_of(text));
      EXPECT_EQ(reference.logits_of(texts[0], 1), alone[0]) << "token by token, " << name(isa);
      for (const int threads : {1, 2, 3}) {
        auto with_threads = options;
        with_threads.threads = threads;
        ModelHarness harness(GetParam(), with_threads);
        const auto mixed = random_schedule(harness, texts, shared, random);
        for (std::size_t i = 0; i < texts.size(); ++i)
          EXPECT_TRUE(mixed[i] == alone[i])
              << "text " << i << ", " << name(isa) << ", " << threads << " threads";
      }
    }
  }
}

// The last layer runs for wanted rows only: the rows that are wanted must not notice.
TEST_P(Determinism, LogitsDoNotDependOnWhichRowsAreWanted) {
  std::mt19937 random(4);
  for (const Isa isa : available_isas()) {
    ModelHarness harness(GetParam(),
                         {.threads = 2, .isa = isa, .max_rows = 600, .kv_bytes = std::size_t{64} << 20});
    const auto vocabulary = static_cast<std::size_t>(harness.runner().vocabulary());
    const std::vector<std::vector<Token>> texts = {random_tokens(random, 1, harness.runner().vocabulary()),
                                                   random_tokens(random, 50, harness.runner().vocabulary()),
                                                   random_tokens(random, 23, harness.runner().vocabulary())};
    for (const std::size_t every : {3U, 7U, 60U}) {
      std::vector<Sequence> sequences;
      for (std::size_t i = 0; i < texts.size(); ++i) sequences.push_back(harness.new_sequence());
      std::vector<ModelHarness::Part> parts;
      for (std::size_t i = 0; i < texts.size(); ++i) parts.push_back({&sequences[i], texts[i]});
      const auto some = harness.step(parts, every);
      for (std::size_t i = 0; i < texts.size(); ++i) {
        const auto all = harness.logits_of(texts[i]);
        for (std::size_t row = 0; row < texts[i].size(); row += every)
          EXPECT_TRUE(std::equal(all.begin() + static_cast<std::ptrdiff_t>(row * vocabulary),
                                 all.begin() + static_cast<std::ptrdiff_t>((row + 1) * vocabulary),
                                 some[i].begin() + static_cast<std::ptrdiff_t>(row / every * vocabulary)))
              << "text " << i << " row " << row << ", " << name(isa);
      }
    }
  }
}

TEST(DeterminismModels, AreThere) { EXPECT_EQ(model_dirs().size(), 3U); }

INSTANTIATE_TEST_SUITE_P(Models, Determinism, testing::ValuesIn(model_dirs()), [](const auto& info) {
  std::string name = std::filesystem::path(info.param).filename().string();
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
});
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Determinism);

}  // namespace
}  // namespace asynct
