// Pieces of the protocol without an engine.
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "asynct/serve/choice.h"
#include "asynct/serve/json_writer.h"
#include "asynct/serve/metrics.h"
#include "asynct/serve/request_fields.h"

namespace asynct::serve {
namespace {

std::string json_of(auto value) {
  std::string out;
  append_json(out, value);
  return out;
}

TEST(JsonWriter, WritesWhatAParserReadsBack) {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  all += "\xe2\x82\xac \xf0\x9f\x98\x80";
  std::string valid;
  append_valid_utf8(valid, all);
  EXPECT_EQ(Json::parse(json_of(std::string_view(all))).get<std::string>(), valid);
  EXPECT_EQ(json_of(std::string_view("\x7f\x01")), "\"\\u007f\\u0001\"");
}

TEST(JsonWriter, FloatsComeBackBitForBit) {
  std::uint32_t bits = 12345;
  for (int i = 0; i < 100000; ++i) {
    bits = bits * 1664525U + 1013904223U;
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    const std::string text = json_of(value);
    EXPECT_TRUE(Json::parse(text).is_number_float()) << text;
    EXPECT_EQ(std::strtof(text.c_str(), nullptr), value) << text;
  }
  EXPECT_EQ(json_of(-std::numeric_limits<float>::infinity()), "-9999.0");
  EXPECT_EQ(json_of(-0.5F), "-0.5");
  EXPECT_EQ(json_of(3.0F), "3.0");
}

TEST(RequestFields, RefuseDepthAndSize) {
  EXPECT_THROW(Fields::parse(std::string(100000, '[')), RequestError);
  EXPECT_THROW(Fields::parse("{\"a\":1,\"a\":2}"), RequestError);
  EXPECT_THROW(Fields::parse("{\"a\":1} x"), RequestError);
  const Json body = Fields::parse(R"({"text":"abc","n":5.0,"list":["a","b"],"null":null})");
  const Fields fields(body);
  EXPECT_THROW(fields.text("text", "", 2), RequestError);
  EXPECT_EQ(fields.integer("n", 0, 0, 9), 5);
  EXPECT_THROW(fields.integer("n", 0, 0, 4), RequestError);
  EXPECT_EQ(fields.texts("list", 2, 1).size(), 2U);
  EXPECT_THROW(fields.texts("list", 1, 1), RequestError);
  EXPECT_EQ(fields.integer("null", 7, 0, 9), 7);
}

class ChoiceTest : public testing::Test {
 protected:
  // Pushes the tokens of a text one by one until the choice has enough.
  ChoiceDelta run(std::string_view text, FinishReason reason) {
    Choice choice(tokenizer, options);
    for (const Token token : tokenizer.encode(text))
      if (!choice.push(token, {})) {
        reason = FinishReason::stopped;
        break;
      }
    choice.finish(reason, "");
    return choice.take();
  }
  const Tokenizer tokenizer = Tokenizer::load("models/asynct-tiny");
  GenerationOptions options;
};

TEST_F(ChoiceTest, StopsAreCutOutAndNamed) {
  options.stop = {"zzz", "upon a"};
  const ChoiceDelta delta = run("Once upon a time", FinishReason::length);
  EXPECT_EQ(delta.text, "Once ");
  EXPECT_EQ(delta.ending->reason, "stop");
  EXPECT_EQ(delta.ending->stop_string, "upon a");
  options.include_stop = true;
  EXPECT_EQ(run("Once upon a time", FinishReason::length).text, "Once upon a");
}

TEST_F(ChoiceTest, HeldBackTextComesAtTheEnd) {
  options.stop = {"time and again"};
  const ChoiceDelta delta = run("Once upon a time", FinishReason::length);
  EXPECT_EQ(delta.text, "Once upon a time");
  EXPECT_EQ(delta.ending->reason, "length");
}

TEST_F(ChoiceTest, StopTokensAreNamedEndOfTextIsNot) {
  options.stop_token_ids = {7};
  for (const Token end : {7, 8}) {
    Choice choice(tokenizer, options);
    choice.push_end(end, {});
    EXPECT_EQ(choice.finish(FinishReason::end_token, ""), "stop");
    EXPECT_EQ(choice.token_count(), 1);
    EXPECT_EQ(choice.take().ending->stop_token.has_value(), end == 7);
  }
}

TEST(Metrics, HistogramsCountCumulatively) {
  Histogram histogram;
  for (const double seconds : {0.0005, 0.003, 0.003, 1000.0}) histogram.add(seconds);
  std::string page;
  histogram.write(page, "h", "a=\"b\"", "help");
  EXPECT_NE(page.find("h_bucket{a=\"b\",le=\"0.001\"} 1\n"), std::string::npos) << page;
  EXPECT_NE(page.find("h_bucket{a=\"b\",le=\"0.005\"} 3\n"), std::string::npos) << page;
  EXPECT_NE(page.find("h_bucket{a=\"b\",le=\"80\"} 3\n"), std::string::npos) << page;
  EXPECT_NE(page.find("h_bucket{a=\"b\",le=\"+Inf\"} 4\n"), std::string::npos) << page;
  EXPECT_NE(page.find("h_count{a=\"b\"} 4\n"), std::string::npos) << page;
}

}  // namespace
}  // namespace asynct::serve
