// The search against its definition, written down a second time over whole vocabularies, with the arrays and
// the "-1e9" of transformers' _beam_search (5.17).
#include "asynct/engine/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

namespace asynct {
namespace {

using Tokens = std::vector<Token>;

// Log-probabilities after a text; the same for the same text.
class Table {
 public:
  Table(unsigned seed, std::size_t vocabulary, Tokens ends, float more)
      : seed_(seed), vocabulary_(vocabulary), ends_(std::move(ends)), more_(more) {}

  const std::vector<float>& after(const Tokens& text) {
    std::vector<float>& row = rows_[text];
    if (!row.empty()) return row;
    std::seed_seq sequence(text.begin(), text.end());
    std::vector<unsigned> mixed(1);
    sequence.generate(mixed.begin(), mixed.end());
    std::mt19937 random(mixed[0] ^ seed_);
    std::normal_distribution<float> normal(0, 2);
    double sum = 0;
    row.resize(vocabulary_);
    for (float& value : row) value = normal(random);
    for (const Token end : ends_) row[static_cast<std::size_t>(end)] += more_;
    for (const float value : row) sum += std::exp(double{value});
    for (float& value : row) value = static_cast<float>(value - std::log(sum));
    return row;
  }

 private:
  const unsigned seed_;
  const std::size_t vocabulary_;
  const Tokens ends_;
  const float more_;  // likely ends
  std::map<Tokens, std::vector<float>> rows_;
};

template <class Value>
std::vector<std::size_t> top(const std::vector<Value>& values, std::size_t count) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
  order.resize(count);
  return order;
}

struct Sequence {
  Tokens tokens;
  float score = -1e9F;
  bool finished = false;
};

// Answers by the definition. `steps`: how often the model was asked.
std::vector<Sequence> searched(Table& table, const BeamSearch::Options& options, std::size_t vocabulary,
                               std::int64_t& steps) {
  const auto width = static_cast<std::size_t>(options.width);
  std::vector<Sequence> running(width);
  std::vector<Sequence> best(width);
  running[0].score = 0;
  const std::size_t keep = std::max<std::size_t>(2, 1 + options.end_tokens.size()) * width;
  for (std::int64_t length = 1;; ++length) {
    steps = length;
    const float divisor = static_cast<float>(std::pow(static_cast<double>(length), options.length_penalty));
    std::vector<float> sums;
    for (const Sequence& beam : running)
      for (const float logprob : table.after(beam.tokens)) sums.push_back(logprob + beam.score);
    std::vector<Sequence> continued;
    std::vector<float> running_scores;
    std::vector<Sequence> merged = best;
    for (const std::size_t index : top(sums, keep)) {
      const auto token = static_cast<Token>(index % vocabulary);
      Sequence& sequence = continued.emplace_back(running[index / vocabulary]);
      sequence.tokens.push_back(token);
      sequence.score = sums[index];
      const bool stops =
          length == options.max_new_tokens ||
          std::find(options.end_tokens.begin(), options.end_tokens.end(), token) != options.end_tokens.end();
      running_scores.push_back(sums[index] + (stops ? -1e9F : 0.0F));
      Sequence& candidate = merged.emplace_back(sequence);
      candidate.finished = stops && continued.size() <= width;
      candidate.score = sums[index] / divisor + (candidate.finished ? 0.0F : -1e9F);
    }
    std::vector<float> merged_scores;
    merged_scores.reserve(merged.size());
    for (const Sequence& sequence : merged) merged_scores.push_back(sequence.score);
    best.clear();
    for (const std::size_t index : top(merged_scores, width)) best.push_back(merged[index]);
    if (length == options.max_new_tokens) return best;
    running.clear();
    for (const std::size_t index : top(running_scores, width)) running.push_back(continued[index]);
    const bool full = std::all_of(best.begin(), best.end(), [](const Sequence& s) { return s.finished; });
    if (full && (options.early_stopping || !(running[0].score / divisor > best.back().score))) return best;
  }
}

std::vector<TokenLogprob> most_probable(const std::vector<float>& row, std::int32_t count) {
  std::vector<TokenLogprob> tokens;
  for (const std::size_t index : top(row, static_cast<std::size_t>(count)))
    tokens.push_back({static_cast<Token>(index), row[index], static_cast<std::int32_t>(tokens.size()) + 1});
  return tokens;
}

std::int64_t run(BeamSearch& search, Table& table) {
  std::int64_t steps = 0;
  while (!search.done()) {
    std::vector<std::vector<TokenLogprob>> next;
    for (const BeamSearch::Beam& beam : search.beams())
      next.push_back(most_probable(table.after(search.tokens(beam.last)), search.candidates()));
    search.advance(next);
    ++steps;
  }
  return steps;
}

TEST(BeamSearch, IsWhatItsDefinitionSays) {
  std::mt19937 random(1);
  int early = 0;
  int ended = 0;
  int cut = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::size_t vocabulary = 40 + random() % 20;
    BeamSearch::Options options{
        .width = static_cast<std::int32_t>(1 + random() % 8),
        .max_new_tokens = static_cast<std::int64_t>(1 + random() % 12),
        .length_penalty = std::vector{0.0, 0.6, 1.0, 2.0, -1.0, -0.3, 5.0}[random() % 7],
        .early_stopping = random() % 4 == 0,
        .end_tokens = {},
    };
    for (auto ends = random() % 4; ends > 0; --ends)
      options.end_tokens.push_back(static_cast<Token>(3 * ends));
    Table table(random(), vocabulary, options.end_tokens, static_cast<float>(random() % 5));
    std::int64_t steps = 0;
    const std::vector<Sequence> expected = searched(table, options, vocabulary, steps);
    BeamSearch search(options);
    ASSERT_EQ(run(search, table), steps) << round;
    ASSERT_EQ(search.answers().size(), expected.size()) << round;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const BeamSearch::Answer& answer = search.answers()[i];
      ASSERT_EQ(search.tokens(answer.last), expected[i].tokens) << round << " answer " << i;
      ASSERT_EQ(answer.score, expected[i].score);
      const auto& ends = options.end_tokens;
      ASSERT_EQ(answer.ended, std::find(ends.begin(), ends.end(), expected[i].tokens.back()) != ends.end());
      ++(answer.ended ? ended : cut);
    }
    early += steps < options.max_new_tokens ? 1 : 0;
  }
  EXPECT_GT(early, 500);
  EXPECT_GT(ended, 2000);
  EXPECT_GT(cut, 2000);
}

// Two beams, by hand: the end token comes first and stays the best answer, since 0.6 is more than any
// product.
TEST(BeamSearch, AnAnswerThatIsBestStays) {
  const auto logprob = [](double p) { return static_cast<float>(std::log(p)); };
  BeamSearch search({.width = 2, .max_new_tokens = 3, .length_penalty = 0, .end_tokens = {9}});
  EXPECT_EQ(search.candidates(), 3);
  ASSERT_EQ(search.beams().size(), 1U);
  search.advance(std::vector<std::vector<TokenLogprob>>{
      {{9, logprob(0.6), 1}, {1, logprob(0.3), 2}, {2, logprob(0.1), 3}}});
  ASSERT_EQ(search.beams().size(), 2U);
  EXPECT_EQ(search.tokens(search.beams()[0].last), (Tokens{1}));
  EXPECT_EQ(search.tokens(search.beams()[1].last), (Tokens{2}));
  EXPECT_FALSE(search.done());  // one answer is not two
  search.advance(std::vector<std::vector<TokenLogprob>>{
      {{3, logprob(0.5), 1}, {9, logprob(0.4), 2}, {4, logprob(0.1), 3}},
      {{5, logprob(0.9), 1}, {9, logprob(0.1), 2}, {6, logprob(1e-9), 3}}});
  // 0.15 goes on, 0.12 is an answer, 0.09 goes on: nothing that follows 0.15 can pass 0.12 for long.
  EXPECT_FALSE(search.done());
  EXPECT_EQ(search.tokens(search.beams()[0].last), (Tokens{1, 3}));
  EXPECT_EQ(search.tokens(search.beams()[1].last), (Tokens{2, 5}));
  search.advance(std::vector<std::vector<TokenLogprob>>{
      {{7, logprob(0.7), 1}, {8, logprob(0.2), 2}, {9, logprob(0.1), 3}},
      {{7, logprob(0.5), 1}, {8, logprob(0.4), 2}, {9, logprob(0.1), 3}}});
  ASSERT_TRUE(search.done());
  ASSERT_EQ(search.answers().size(), 2U);
  EXPECT_EQ(search.tokens(search.answers()[0].last), (Tokens{9}));
  EXPECT_TRUE(search.answers()[0].ended);
  EXPECT_EQ(search.tokens(search.answers()[1].last), (Tokens{1, 9}));
  EXPECT_EQ(search.answers()[1].score, logprob(0.3) + logprob(0.4));
}

TEST(BeamSearch, StepsSayWherePlacesComeFrom) {
  Table table(3, 50, {4}, 3);
  BeamSearch search({.width = 4, .max_new_tokens = 8, .end_tokens = {4}});
  std::vector<float> logprobs;  // of the token of each place
  while (!search.done()) {
    std::vector<std::vector<TokenLogprob>> next;
    for (const BeamSearch::Beam& beam : search.beams())
      next.push_back(most_probable(table.after(search.tokens(beam.last)), search.candidates()));
    search.advance(next);
    for (const BeamSearch::Step& step : search.steps())
      logprobs.push_back(
          next[static_cast<std::size_t>(step.beam)][static_cast<std::size_t>(step.rank)].logprob);
    ASSERT_EQ(logprobs.size(), search.places());
  }
  for (const BeamSearch::Answer& answer : search.answers()) {
    const Tokens tokens = search.tokens(answer.last);
    double sum = 0;
    for (auto place = answer.last; place != BeamSearch::kPrompt; place = search.before(place))
      sum += logprobs[static_cast<std::size_t>(place)];
    EXPECT_NEAR(sum / static_cast<double>(tokens.size()), answer.score, 1e-5);
  }
}

}  // namespace
}  // namespace asynct
