// What requests say of their texts, by itself: no engine, no model.
#include <gtest/gtest.h>

#include "asynct/serve/constraint_fields.h"

namespace asynct::serve {
namespace {

class ConstraintsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!GrammarCompiler::available()) GTEST_SKIP() << "built without a grammar engine";
  }
  std::string outcome(std::string_view body) const {
    const Json request = Fields::parse(body);
    try {
      return constraint_of(Fields(request), &grammars, false) != nullptr ? "constrained" : "free";
    } catch (const RequestError& error) {
      return cat(error.status, " ", error.code, " ", error.param, ": ", error.what());
    }
  }

  const Tokenizer tokenizer = Tokenizer::load("models/asynct-tiny");
  const GrammarCompiler grammars{tokenizer, 4096};
};

// They would change the text: to pass over them would be to answer something else than was asked.
TEST_F(ConstraintsTest, WhatWouldChangeTheTextAndIsMissingIsRefused) {
  const auto outputs = [&](const std::string& more) {
    return outcome(R"({"structured_outputs": {"json": {"type": "integer"}, )" + more + "}}");
  };
  constexpr const char* kRefused = "400 unsupported structured_outputs: structured_outputs: ";
  EXPECT_EQ(outputs(R"("whitespace_pattern": " ?")"),
            cat(kRefused, "whitespace_pattern: this server cannot do that"));
  EXPECT_EQ(outputs(R"("disable_additional_properties": true)"),
            cat(kRefused, "disable_additional_properties: this server cannot do that"));
  EXPECT_EQ(outputs(R"("structural_tag": {})"), cat(kRefused, "structural_tag: this server cannot do that"));
  EXPECT_EQ(outputs(R"("disable_additional_properties": 1)").substr(0, 3), "400");
  EXPECT_EQ(
      outcome(R"({"guided_json": {}, "guided_whitespace_pattern": "[ ]?"})"),
      "400 unsupported guided_whitespace_pattern: guided_whitespace_pattern: this server cannot do that");
  // As vLLM's clients write what they leave alone.
  EXPECT_EQ(
      outputs(
          R"("whitespace_pattern": null, "disable_additional_properties": false, "structural_tag": null)"),
      "constrained");
  EXPECT_EQ(outcome(R"({"guided_whitespace_pattern": null})"), "free");
}

}  // namespace
}  // namespace asynct::serve
