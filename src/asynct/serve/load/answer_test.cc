#include "asynct/serve/load/answer.h"

#include <gtest/gtest.h>

#include "asynct/base/error.h"

namespace asynct::load {
namespace {

TEST(Answer, SeesTextAndTokens) {
  for (const char* const data : {
           R"({"choices":[{"text":"a"}]})",
           R"({"choices":[{"text":"","token_ids":[3]}]})",
           R"({"choices":[{"delta":{"content":"a"}}],"usage":null})",
           R"({"choices":[{"delta":{"content":null,"reasoning_content":"a"}}]})",
           R"({"choices":[{"message":{"content":"a"}}]})",
       })
    EXPECT_TRUE(parse_answer(data).content) << data;
  for (const char* const data : {
           R"({"choices":[{"text":""}]})",
           R"({"choices":[{"text":"","token_ids":[],"finish_reason":"length"}]})",
           R"({"choices":[{"delta":{"role":"assistant","content":""}}]})",
           R"({"choices":[{"delta":{}}]})",
           R"({"choices":[]})",
           "[DONE]",
       })
    EXPECT_FALSE(parse_answer(data).content) << data;
}

TEST(Answer, ReadsUsageErrorsAndTheEnd) {
  const Answer usage = parse_answer(R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":0}})");
  EXPECT_EQ(usage.prompt_tokens, 7);
  EXPECT_EQ(usage.output_tokens, 0);
  EXPECT_FALSE(usage.done);
  EXPECT_TRUE(parse_answer("[DONE]").done);
  EXPECT_EQ(parse_answer(R"({"error":{"message":"out of memory","code":500}})").error, "out of memory");
  EXPECT_EQ(parse_answer(R"({"error":"broken"})").error, "broken");
  EXPECT_FALSE(parse_answer(R"({"error":{}})").error.empty());
}

TEST(Answer, RefusesOtherShapes) {
  for (const char* const data :
       {"", "[done]", "{", "[]", "3", "null", R"({"choices":{}})", R"({"object":"x"})", R"({"choices":[3]})",
        R"({"choices":[{"delta":3}]})", R"({"choices":[],"usage":3})",
        R"({"choices":[],"usage":{"prompt_tokens":-1}})", R"({"choices":[],"usage":{"prompt_tokens":1.5}})",
        R"({"choices":[],"usage":{"completion_tokens":99999999999999999999}})",
        R"({"choices":[],"usage":{"completion_tokens":18446744073709551615}})",
        R"({"choices":[],"usage":{"completion_tokens":"7"}})", R"({"choices":[]} x)"})
    EXPECT_THROW(parse_answer(data), Error) << data;
  EXPECT_THROW(parse_answer(std::string(100000, '[')), Error);
}

TEST(Answer, ErrorMessagesOfAnyShape) {
  EXPECT_EQ(error_message(R"({"error":{"message":"no such model"}})"), "no such model");
  EXPECT_EQ(error_message(R"({"message":"vLLM's older shape"})"), "vLLM's older shape");
  EXPECT_EQ(error_message(R"({"error":"text"})"), "text");
  EXPECT_EQ(error_message("<html>Bad Gateway</html>"), "<html>Bad Gateway</html>");
  EXPECT_EQ(error_message(R"([1])"), "[1]");
  EXPECT_EQ(error_message(""), "");
  EXPECT_LE(error_message(std::string(1000, 'x')).size(), 200U);
}

}  // namespace
}  // namespace asynct::load
