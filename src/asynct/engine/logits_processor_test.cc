#include "asynct/engine/logits_processor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "asynct/base/json.h"

namespace asynct {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

std::vector<float> processed(const LogitsProcessor& processor, std::vector<float> logits) {
  processor.apply(logits);
  return logits;
}

SamplingParams params_of(const Json& json) {
  SamplingParams params{.repetition_penalty = json.value("repetition_penalty", 1.0F),
                        .presence_penalty = json.value("presence_penalty", 0.0F),
                        .frequency_penalty = json.value("frequency_penalty", 0.0F),
                        .min_tokens = json.value("min_tokens", 0),
                        .allowed_tokens = json.value("allowed_tokens", std::vector<Token>{}),
                        .bad_words = json.value("bad_words", std::vector<std::vector<Token>>{})};
  for (const Json& entry : json.value("logit_bias", Json::array()))
    params.logit_bias.push_back({entry[0].get<Token>(), entry[1].get<float>()});
  return params;
}

// What transformers' processors made of the same text (tests/golden/make_sampling.py).
TEST(LogitsProcessor, EqualsTransformers) {
  const Json golden = parse_json_file("tests/golden/sampling.json");
  const auto vocabulary = golden["vocabulary"].get<std::int64_t>();
  ASSERT_GE(golden["processed"].size(), 20U);
  for (const Json& one : golden["processed"]) {
    SCOPED_TRACE(one["params"].dump());
    const SamplingParams params = params_of(one["params"]);
    validate(params, vocabulary);
    const auto prompt = one["prompt"].get<std::vector<Token>>();
    const auto generated = one["generated"].get<std::vector<Token>>();
    const auto end_tokens = one["end_tokens"].get<std::vector<Token>>();
    LogitsProcessor grown(params, prompt, end_tokens);
    for (const Token token : generated) grown.accept(token);
    const LogitsProcessor rebuilt(params, prompt, end_tokens, generated);
    EXPECT_TRUE(grown.changes_logits());
    EXPECT_TRUE(rebuilt.changes_logits());
    std::vector<float> expected;
    for (const Json& value : one["expected"])
      expected.push_back(value.is_null() ? kBanned : value.get<float>());
    const auto logits = one["logits"].get<std::vector<float>>();
    EXPECT_EQ(processed(grown, logits), expected);
    EXPECT_EQ(processed(rebuilt, logits), expected);
  }
}

TEST(LogitsProcessor, HasNothingToDo) {
  const std::vector<Token> prompt{1, 2, 3};
  const std::vector<Token> ends{5};
  EXPECT_FALSE(LogitsProcessor({}, prompt, ends).changes_logits());
  EXPECT_FALSE(LogitsProcessor({.temperature = 1, .top_k = 3}, prompt, ends).changes_logits());
  EXPECT_FALSE(LogitsProcessor({.min_tokens = 3}, prompt, {}).changes_logits());
  EXPECT_TRUE(LogitsProcessor({.repetition_penalty = 1.1F}, prompt, ends).changes_logits());
  EXPECT_TRUE(LogitsProcessor({.allowed_tokens = {0}}, prompt, ends).changes_logits());
  EXPECT_TRUE(LogitsProcessor({.logit_bias = {{0, 1}}}, prompt, ends).changes_logits());
  EXPECT_TRUE(LogitsProcessor({.bad_words = {{7}}}, prompt, ends).changes_logits());

  LogitsProcessor presence({.presence_penalty = 1}, prompt, ends);  // the prompt does not count
  EXPECT_FALSE(presence.changes_logits());
  presence.accept(4);
  EXPECT_TRUE(presence.changes_logits());

  LogitsProcessor min_tokens({.min_tokens = 2}, prompt, ends);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(min_tokens.changes_logits());
    min_tokens.accept(4);
  }
  EXPECT_FALSE(min_tokens.changes_logits());

  LogitsProcessor word({.bad_words = {{3, 4, 6}}}, prompt, ends);
  EXPECT_FALSE(word.changes_logits());
  word.accept(4);
  EXPECT_TRUE(word.changes_logits());
  word.accept(4);
  EXPECT_FALSE(word.changes_logits());
}

TEST(LogitsProcessor, BadWordsSpanPromptAndOutput) {
  const std::vector<float> zeros(8, 0);
  const SamplingParams params{.bad_words = {{1, 2, 3, 4}, {2, 2}, {1, 2, 3, 5}, {7, 1, 2, 3, 6}}};
  LogitsProcessor processor(params, std::vector<Token>{0, 1, 2}, {});
  EXPECT_EQ(processed(processor, zeros)[2], kBanned);  // 2 2
  EXPECT_EQ(processed(processor, zeros)[4], 0);
  processor.accept(3);
  EXPECT_EQ(processed(processor, zeros), (std::vector<float>{0, 0, 0, 0, kBanned, kBanned, 0, 0}));
  // A word longer than the text.
  EXPECT_EQ(processed(LogitsProcessor(params, std::vector<Token>{2, 3}, {}), zeros), zeros);
  EXPECT_EQ(processed(LogitsProcessor(params, {}, {}), zeros), zeros);
}

TEST(LogitsProcessor, OutOfTheOrdinary) {
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr float kLeast = std::numeric_limits<float>::denorm_min();
  // Penalties that would overflow leave the largest finite logit.
  const std::vector<Token> all{0, 1, 2, 3};
  const LogitsProcessor tiny({.repetition_penalty = kLeast}, all, {});
  EXPECT_EQ(processed(tiny, {3, -3, 0, kBanned}), (std::vector<float>{kMost, -3 * kLeast, 0, kBanned}));
  const LogitsProcessor huge({.repetition_penalty = kMost}, all, {});
  EXPECT_EQ(processed(huge, {0, -3, -0.0F, kBanned}), (std::vector<float>{0, -kMost, 0, kBanned}));
  // What is banned stays so; NaN stays NaN; biases of one token add up; ids of end tokens may be anything.
  const LogitsProcessor bans({.frequency_penalty = -2,
                              .min_tokens = 9,
                              .logit_bias = {{0, 100}, {1, 2}, {1, 3}, {3, 1}},
                              .bad_words = {{0}}},
                             all, std::vector<Token>{2, -1, 4, 1 << 30}, std::vector<Token>{0, 2});
  const auto result = processed(bans, {1, 1, 1, std::nanf("")});
  EXPECT_EQ(result[0], kBanned);
  EXPECT_EQ(result[1], 6);
  EXPECT_EQ(result[2], kBanned);
  EXPECT_TRUE(std::isnan(result[3]));
  const LogitsProcessor allowed({.allowed_tokens = {3, 1, 3, 1}}, all, {});
  EXPECT_EQ(processed(allowed, {1, 2, 3, 4}), (std::vector<float>{kBanned, 2, kBanned, 4}));
}

TEST(TokenHistory, CountsAsAMapDoes) {
  std::mt19937 random(3);
  for (const unsigned tokens : {3U, 200U, 1U << 31}) {  // few and often, many; ids up to the largest
    TokenHistory history;
    std::map<Token, std::int32_t> expected;
    for (int i = 0; i < 5000; ++i) {
      const auto token = static_cast<Token>(random() % tokens);
      const std::int32_t seen = random() % 3 == 0 ? 0 : 1;
      history.add(token).count += seen;
      expected[token] += seen;
    }
    std::map<Token, std::int32_t> found;
    for (const auto& entry : history.entries()) found[entry.token] = entry.count;
    EXPECT_EQ(history.entries().size(), expected.size());
    EXPECT_EQ(found, expected);
  }
}

}  // namespace
}  // namespace asynct
