#include "asynct/serve/load/prompts.h"

#include <gtest/gtest.h>

#include <set>

#include "asynct/base/error.h"

namespace asynct::load {
namespace {

LoadOptions options_with(std::string_view prompt_tokens, std::string_view output_tokens = "3..5") {
  LoadOptions options;
  options.prompt_tokens = LengthDistribution::parse(prompt_tokens, "p");
  options.output_tokens = LengthDistribution::parse(output_tokens, "o");
  options.seed = 7;
  return options;
}

TEST(RandomPrompts, AreTokenIdsBelowTheVocabulary) {
  const LoadOptions options = options_with("10..20");
  const auto source = random_prompts(options, 50);
  std::set<std::int64_t> seen;
  for (int i = 0; i < 100; ++i) {
    const Prompt prompt = source->next();
    ASSERT_EQ(prompt.tokens, static_cast<std::int64_t>(prompt.content.size()));
    EXPECT_TRUE(prompt.tokens >= 10 && prompt.tokens <= 20);
    EXPECT_TRUE(prompt.output_tokens >= 3 && prompt.output_tokens <= 5);
    for (const Json& token : prompt.content) seen.insert(token.get<std::int64_t>());
  }
  EXPECT_EQ(*seen.begin(), 0);
  EXPECT_EQ(*seen.rbegin(), 49);
  EXPECT_EQ(seen.size(), 50U);
}

TEST(RandomPrompts, DependOnTheSeedOnly) {
  LoadOptions options = options_with("10..20");
  const auto first = random_prompts(options, 500)->next();
  const auto again = random_prompts(options, 500)->next();
  EXPECT_EQ(first.content, again.content);
  EXPECT_EQ(first.output_tokens, again.output_tokens);
  options.seed = 8;
  EXPECT_NE(random_prompts(options, 500)->next().content, first.content);
}

TEST(RandomPrompts, ShareTheirPrefixes) {
  LoadOptions options = options_with("4");
  options.shared_prefix = 6;
  options.prefixes = 3;
  const auto source = random_prompts(options, 1000);
  std::set<std::string> prefixes, rests;
  for (int i = 0; i < 100; ++i) {
    const Prompt prompt = source->next();
    ASSERT_EQ(prompt.content.size(), 10U);
    EXPECT_EQ(prompt.tokens, 10);
    const std::vector<int> tokens = prompt.content;
    prefixes.insert(Json(std::vector<int>(tokens.begin(), tokens.begin() + 6)).dump());
    rests.insert(Json(std::vector<int>(tokens.begin() + 6, tokens.end())).dump());
  }
  EXPECT_EQ(prefixes.size(), 3U);
  EXPECT_EQ(rests.size(), 100U);
}

TEST(RandomPrompts, AreWordsWithoutAVocabularyAndInChats) {
  LoadOptions options = options_with("5");
  const Prompt text = random_prompts(options, 0)->next();
  const auto& words = text.content.get_ref<const std::string&>();
  EXPECT_EQ(std::count(words.begin(), words.end(), ' '), 4);
  EXPECT_EQ(text.tokens, 0);
  options.endpoint = Endpoint::chat;
  options.shared_prefix = 2;
  const Prompt chat = random_prompts(options, 100)->next();
  ASSERT_EQ(chat.content.size(), 1U);
  EXPECT_EQ(chat.content[0]["role"], "user");
  const auto& message = chat.content[0]["content"].get_ref<const std::string&>();
  EXPECT_EQ(std::count(message.begin(), message.end(), ' '), 6);
}

TEST(GivenPrompts, AreTakenInTurn) {
  const LoadOptions options = options_with("1", "9");
  const auto source = given_prompts(
      options, "\"a\"\n\n{\"prompt\": [1, 2], \"max_tokens\": 4}\r\n{\"prompt\": \"c\", \"id\": 3}",
      "f.jsonl");
  for (int round = 0; round < 2; ++round) {
    const Prompt a = source->next(), b = source->next(), c = source->next();
    EXPECT_EQ(a.content, "a");
    EXPECT_EQ(a.output_tokens, 9);
    EXPECT_EQ(a.tokens, 0);
    EXPECT_EQ(b.content, Json({1, 2}));
    EXPECT_EQ(b.output_tokens, 4);
    EXPECT_EQ(b.tokens, 2);
    EXPECT_EQ(c.content, "c");
  }
}

TEST(GivenPrompts, OfChats) {
  LoadOptions options = options_with("1");
  options.endpoint = Endpoint::chat;
  const auto source = given_prompts(
      options, "\"a\"\n{\"messages\": [{\"role\": \"system\", \"content\": \"b\"}]}\n{\"prompt\": \"c\"}",
      "f");
  EXPECT_EQ(source->next().content[0]["content"], "a");
  EXPECT_EQ(source->next().content[0]["role"], "system");
  EXPECT_EQ(source->next().content[0]["content"], "c");
  EXPECT_THROW(given_prompts(options, "[1, 2]", "f"), Error);
}

TEST(GivenPrompts, NameTheLineThatIsWrong) {
  const LoadOptions options = options_with("1");
  for (const char* const line :
       {"{", "3", "null", "[]", "[\"a\"]", "[-1]", "[1.5]", "[4294967296]", "{}", R"({"messages": []})",
        R"({"prompt": 3})", R"({"prompt": "a", "max_tokens": 0})", R"({"prompt": "a", "max_tokens": "1"})"}) {
    try {
      given_prompts(options, cat("\"good\"\n", line, "\n"), "f.jsonl");
      ADD_FAILURE() << line;
    } catch (const Error& error) {
      EXPECT_EQ(std::string_view(error.what()).substr(0, 15), "f.jsonl, line 2") << error.what();
    }
  }
  EXPECT_THROW(given_prompts(options, "\n \n", "f.jsonl"), Error);
}

TEST(RequestBody, HasWhatTheEndpointTakes) {
  LoadOptions options;
  const Prompt prompt{Json({1, 2}), 2, 8};
  EXPECT_EQ(request_body(options, "m", prompt),
            R"({"model":"m","prompt":[1,2],"max_tokens":8,"temperature":0.0,"ignore_eos":true,"stream":true,)"
            R"("stream_options":{"include_usage":true}})");
  options.endpoint = Endpoint::chat;
  options.stream = options.ignore_eos = false;
  options.temperature = 0.5;
  EXPECT_EQ(request_body(options, "m", {Json::array(), 0, 8}),
            R"({"model":"m","messages":[],"max_tokens":8,"temperature":0.5,"stream":false})");
}

}  // namespace
}  // namespace asynct::load
