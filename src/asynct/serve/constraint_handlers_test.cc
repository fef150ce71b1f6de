// Constrained texts over an engine whose model is a fake.
#include "asynct/serve/handlers_testing.h"
#include "asynct/text/grammar/grammar.h"

namespace asynct::serve {
namespace {

using ConstraintHandlersTest = HandlersTest;

// The fake's 50 tokens are the end of text and "!" to "Q".
TEST_F(ConstraintHandlersTest, ConstrainedTexts) {
  if (!GrammarCompiler::available()) GTEST_SKIP() << "built without a grammar engine";
  const GrammarCompiler grammars(tokenizer, model.vocabulary());
  context.grammars = &grammars;
  const auto texts = [&](const std::string& constraint) {
    std::vector<std::string> all;
    const Json answer =
        ask(R"({"prompt": [[1,2,3],[4]], "n": 3, "max_tokens": 20, "seed": 1, )" + constraint + "}");
    for (const Json& choice : answer["choices"]) {
      EXPECT_EQ(choice["finish_reason"], "stop") << choice;
      all.push_back(choice["text"]);
    }
    EXPECT_EQ(all.size(), 6U);
    return all;
  };
  for (const char* const constraint : {R"("guided_choice": ["12", "345", "A?"])",
                                       R"("structured_outputs": {"choice": ["12", "345", "A?"]})"})
    for (const std::string& text : texts(constraint))
      EXPECT_TRUE(text == "12" || text == "345" || text == "A?") << text;
  for (const char* const constraint :
       {R"("guided_regex": "[A-C]{2}-[78]")", R"("structured_outputs": {"regex": "[A-C]{2}-[78]"})",
        R"("guided_grammar": "root ::= [A-C] [A-C] \"-\" [78]")"})
    for (const std::string& text : texts(constraint)) {
      ASSERT_EQ(text.size(), 4U);
      EXPECT_TRUE(text[0] >= 'A' && text[1] <= 'C' && text[2] == '-' && (text[3] == '7' || text[3] == '8'))
          << text;
    }
  for (
      const char* const constraint :
      {R"("guided_json": {"type": "integer", "minimum": 10, "maximum": 13})",
       R"("guided_json": "{\"type\": \"integer\", \"minimum\": 10, \"maximum\": 13}")",
       R"("response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": [10, 11, 12, 13]}}})"})
    for (const std::string& text : texts(constraint)) {
      const auto value = parse_json(text, "text").get<int>();
      EXPECT_TRUE(value >= 10 && value <= 13) << text;
    }
  EXPECT_EQ(grammars.cached(), 6U);  // a schema as text has its own spaces
}

TEST_F(ConstraintHandlersTest, ConstraintsThatCannotBeHeldToAreRefused) {
  EXPECT_EQ(refusal(R"({"prompt": [1], "guided_regex": "a"})"),
            "400 guided_regex: guided_regex: this server was built without constrained decoding");
  if (!GrammarCompiler::available()) GTEST_SKIP() << "built without a grammar engine";
  const GrammarCompiler grammars(tokenizer, model.vocabulary());
  context.grammars = &grammars;
  const std::pair<const char*, const char*> cases[] = {
      {R"("response_format": {"type": "text"})", "accepted"},
      {R"("response_format": null, "guided_json": null)", "accepted"},
      {R"("response_format": 5)", "400 response_format: "},
      {R"("response_format": {"type": "xml"})", "400 response_format: "},
      {R"("response_format": {"type": "json_schema"})", "400 response_format: "},
      // There are no braces in this vocabulary.
      {R"("response_format": {"type": "json_object"})", "400 response_format: response_format: no text fits"},
      {R"("structured_outputs": {})", "400 structured_outputs: "},
      {R"("structured_outputs": {"regex": 5})", "400 structured_outputs: "},
      {R"("structured_outputs": {"structural_tag": {}})", "400 structured_outputs: "},
      {R"("structured_outputs": {"regex": "1", "choice": ["1"]})", "400 structured_outputs: "},
      {R"("guided_regex": "1", "guided_choice": ["1"])",
       "400 guided_choice: guided_choice: beside guided_regex"},
      {R"("guided_regex": "(1")", "400 guided_regex: guided_regex: Regex parsing error at position 3"},
      {R"("guided_choice": "1")", "400 guided_choice: "},
      {R"("guided_choice": [])", "400 guided_choice: "},
      {R"("guided_grammar": "x")", "400 guided_grammar: "},
      {R"("guided_json": 5)", "400 guided_json: "},
      {R"("guided_regex": "1", "n": 2, "use_beam_search": true)",
       "400 guided_regex: guided_regex: this server"},
      {R"("guided_json": {"not": {}})", "400 guided_json: guided_json: JSON schema: `not` is not supported"},
  };
  for (const auto& [constraint, expected] : cases) {
    const std::string got = refusal(cat(R"({"prompt": [1], "max_tokens": 1, )", constraint, "}"));
    EXPECT_EQ(got.substr(0, std::string_view(expected).size()), expected) << constraint << ": " << got;
  }
}

// What is wrong shows only as the text grows: the client's fault all the same.
TEST_F(ConstraintHandlersTest, ADeadEndIsTheClientsFault) {
  if (!GrammarCompiler::available()) GTEST_SKIP() << "built without a grammar engine";
  const GrammarCompiler grammars(tokenizer, model.vocabulary());
  context.grammars = &grammars;
  const auto whole = post(R"({"prompt": [1], "guided_grammar": "root ::= \"1\" x\nx ::= x"})");
  whole->wait();
  EXPECT_EQ(whole->status, 400) << whole->body;
  EXPECT_NE(whole->body.find("leaves no token"), std::string::npos) << whole->body;
  const auto stream =
      post(R"({"prompt": [1], "stream": true, "guided_grammar": "root ::= \"1\" x\nx ::= x"})");
  stream->wait();
  EXPECT_NE(stream->body.find("leaves no token"), std::string::npos) << stream->body;
  const auto banned = post(R"({"prompt": [1], "guided_choice": ["1"], "allowed_token_ids": [2]})");
  banned->wait();
  EXPECT_EQ(banned->status, 400) << banned->body;
}

}  // namespace
}  // namespace asynct::serve
