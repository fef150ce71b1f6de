#include "asynct/text/grammar/grammar.h"

#include <gtest/gtest.h>

#include <ctime>
#include <random>
#include <thread>

#include "asynct/base/error.h"
#include "asynct/text/grammar/schema_checks.h"

namespace asynct {
namespace {

using Kind = Grammar::Kind;

class GrammarTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!GrammarCompiler::available()) GTEST_SKIP() << "built without a grammar engine";
  }

  std::vector<Token> allowed(TokenConstraint& text) const {
    std::vector<std::uint32_t> bits(4096 / 32);
    text.fill(bits);
    std::vector<Token> tokens;
    for (Token token = 0; token < 4096; ++token)
      if ((bits[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1U) != 0) tokens.push_back(token);
    return tokens;
  }
  std::vector<std::string> allowed_texts(TokenConstraint& text) const {
    std::vector<std::string> texts;
    for (const Token token : allowed(text)) texts.emplace_back(tokenizer.token_bytes(token));
    return texts;
  }
  /// A text of tokens drawn at random among those allowed, to its first possible end.
  std::string draw(const Grammar& grammar, unsigned seed, std::size_t most = 2000) const {
    std::mt19937 random(seed);
    const auto text = compiler.compile(grammar)->start();
    std::string drawn;
    for (std::size_t i = 0; i < most && !text->complete(); ++i) {
      const auto tokens = allowed(*text);
      EXPECT_FALSE(tokens.empty()) << drawn;
      if (tokens.empty()) break;
      const Token token = tokens[random() % tokens.size()];
      EXPECT_TRUE(text->accept(token));
      drawn += tokenizer.token_bytes(token);
    }
    EXPECT_TRUE(text->complete()) << drawn;
    return drawn;
  }
  bool matches(const Grammar& grammar, std::string_view text) const {
    const auto constraint = compiler.compile(grammar)->start();
    for (const Token token : tokenizer.encode(text))
      if (!constraint->accept(token)) return false;
    return constraint->complete();
  }
  std::string refusal(const Grammar& grammar) const {
    try {
      compiler.compile(grammar);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  const Tokenizer tokenizer = Tokenizer::load("models/asynct-tiny");
  const GrammarCompiler compiler{tokenizer, 4096};
};

TEST_F(GrammarTest, AllowsTheTokensThatKeepAChoicePossible) {
  const auto text =
      compiler.compile(choice_grammar(std::vector<std::string>{"ab", "abc", "x\"\\\n\u00e9"}))->start();
  for (const std::string& one : allowed_texts(*text))
    EXPECT_TRUE(one == "a" || one == "ab" || std::string("x\"\\\n\u00e9").starts_with(one)) << one;
  EXPECT_FALSE(text->complete());
  ASSERT_TRUE(text->accept(*tokenizer.token_id("a")));
  ASSERT_TRUE(text->accept(*tokenizer.token_id("b")));
  EXPECT_TRUE(text->complete());
  EXPECT_EQ(allowed_texts(*text), std::vector<std::string>{"c"});
  ASSERT_TRUE(text->accept(*tokenizer.token_id("c")));
  EXPECT_TRUE(text->complete());
  EXPECT_TRUE(allowed(*text).empty());
  EXPECT_FALSE(text->accept(*tokenizer.token_id("c")));
}

TEST_F(GrammarTest, NeverAllowsSpecialTokensNorIdsBeyondTheTokenizer) {
  const GrammarCompiler wider(tokenizer, 4096 + 40);
  const auto text = wider.compile({.kind = Kind::regex, .text = "(.|\\n)*"})->start();
  std::vector<std::uint32_t> bits((4096 + 40 + 31) / 32);
  text->fill(bits);
  EXPECT_EQ(bits[0] & 1U, 0U);  // <|endoftext|>
  EXPECT_NE(bits[1], 0U);
  EXPECT_EQ(bits[4096 / 32], 0U);
  EXPECT_EQ(bits[4096 / 32 + 1], 0U);
}

TEST_F(GrammarTest, EveryTextOfAChoiceAndNoOther) {
  const std::vector<std::string> choices{"yes", "no", "x\"\\\na\t\x01\u00e9\U0001f600]"};
  const Grammar grammar = choice_grammar(choices);
  for (const std::string& choice : choices) EXPECT_TRUE(matches(grammar, choice)) << choice;
  for (const char* const other : {"", "y", "yess", "maybe"}) EXPECT_FALSE(matches(grammar, other)) << other;
}

TEST_F(GrammarTest, RegexMatchesWhole) {
  const Grammar grammar{.kind = Kind::regex, .text = "[0-9]{3}-(a|bc)+"};
  for (const char* const text : {"123-a", "000-bcabc"}) EXPECT_TRUE(matches(grammar, text)) << text;
  for (const char* const text : {"12-a", "123-", "123-b", "x123-a"})
    EXPECT_FALSE(matches(grammar, text)) << text;
}

TEST_F(GrammarTest, EscapesOfBytesHaveTwoDigits) {
  const Grammar grammar{.kind = Kind::regex, .text = R"([\x01b\u00e9a]+\x41b\x2b\x09\\x41)"};
  EXPECT_TRUE(matches(grammar,
                      "\x01"
                      "b\u00e9aAb+\t\\x41"));
  EXPECT_FALSE(matches(grammar,
                       "\x1b"
                       "Ab+\t\\x41"));
  EXPECT_TRUE(matches({.kind = Kind::regex, .text = R"(\x00b[\x00b]+[^\x00-\x7f])"},
                      std::string_view("\0bb\0b\u00e9", 7)));
  EXPECT_NE(refusal({.kind = Kind::json_schema, .text = R"({"type": "string", "pattern": "\\x41"})"})
                .find("pattern"),
            std::string::npos);
}

TEST_F(GrammarTest, RecursiveGrammar) {
  const Grammar grammar{.kind = Kind::ebnf, .text = "root ::= \"a\" root \"b\" | \"\""};
  for (const char* const text : {"", "ab", "aaabbb"}) EXPECT_TRUE(matches(grammar, text)) << text;
  for (const char* const text : {"a", "aab", "ba"}) EXPECT_FALSE(matches(grammar, text)) << text;
}

TEST_F(GrammarTest, RandomTextsOfASchemaAreJsonOfItsShape) {
  const Grammar grammar{.kind = Kind::json_schema, .text = R"({"type": "object", "required": ["a", "b", "c"],
      "properties": {"a": {"type": "integer", "minimum": -7, "maximum": 12}, "b": {"enum": ["x", 1, null]},
                     "c": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3}}})"};
  for (unsigned seed = 0; seed < 30; ++seed) {
    const Json value = parse_json(draw(grammar, seed), "drawn");
    EXPECT_EQ(value.size(), 3U);
    EXPECT_GE(value["a"].get<int>(), -7);
    EXPECT_LE(value["a"].get<int>(), 12);
    EXPECT_TRUE(value["b"] == Json("x") || value["b"] == Json(1) || value["b"].is_null());
    EXPECT_TRUE(value["c"].size() >= 1 && value["c"].size() <= 3 && value["c"][0].is_boolean());
  }
}

TEST_F(GrammarTest, RandomTextsOfARegexMatchIt) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Grammar grammar{.kind = Kind::regex, .text = "(ab|[c-f]{2})+\\.[0-9]+"};
    EXPECT_TRUE(matches(grammar, draw(grammar, seed)));
  }
}

TEST_F(GrammarTest, WithoutWhitespaceOfItsOwnJsonIsOneLine) {
  const Grammar grammar{.kind = Kind::json_schema,
                        .any_whitespace = false,
                        .text = R"({"type":"array","items":{"const":1},"minItems":2})"};
  EXPECT_TRUE(matches(grammar, "[1, 1]"));
  EXPECT_FALSE(matches(grammar, "[1,1]"));
  EXPECT_FALSE(matches(grammar, "[ 1, 1]"));
}

TEST_F(GrammarTest, RefusesWhatIsNoGrammar) {
  const auto expect = [&](Kind kind, const std::string& text, const std::string& reason) {
    EXPECT_NE(refusal({.kind = kind, .text = text}).find(reason), std::string::npos)
        << text << ": " << refusal({.kind = kind, .text = text});
  };
  expect(Kind::regex, "(a", "not closed");
  expect(Kind::regex, "[z-a]", "lower bound");
  expect(Kind::regex, "a(?=b)", "Lookahead is not supported");
  expect(Kind::regex, "a\\1", "Backreference");
  expect(Kind::regex, "a{5,2}", "Lower bound");
  expect(Kind::regex, "b^a", "'^' should be at the start");
  expect(Kind::regex, std::string("a\0b", 3), "NUL");
  expect(Kind::regex, "\xff\xfe", "UTF-8");
  expect(Kind::ebnf, "root ::= x", "\"x\" is not defined");
  expect(Kind::ebnf, "x ::= \"a\"", "\"root\" is not found");
  expect(Kind::ebnf, "root ::= root", "no text fits");
  expect(Kind::ebnf, "", "root");
  expect(Kind::json_schema, "{\"type\": ", "not valid JSON");
  expect(Kind::json_schema, "3", "expected an object");
  expect(Kind::json_schema, R"({"type": "strin"})", "strin");
  expect(Kind::json_schema, R"({"$ref": "#"})", "ircular");
  expect(Kind::json_schema, R"({"$ref": "http://x/y"})", "URI");
  expect(Kind::json_schema, R"({"$ref": "#/$defs/no"})", "no");
  expect(Kind::json_schema, "false", "any value");
  EXPECT_NE(refusal(Grammar{.kind = Kind::regex, .text = std::string(70000, 'a')}).find("70000 bytes"),
            std::string::npos);
  EXPECT_THROW(choice_grammar({}), Error);
  EXPECT_EQ(compiler.cached(), 0U);
}

// What the grammar engine would pass over: a text could fit its grammar and not the schema.
TEST_F(GrammarTest, RefusesSchemasThatItCannotHoldTo) {
  const auto expect = [&](const std::string& schema, const std::string& reason) {
    const std::string got = refusal({.kind = Kind::json_schema, .text = schema});
    EXPECT_NE(got.find(reason), std::string::npos) << schema << ": " << got;
  };
  expect(R"({"type": "object", "properties": {"a": {"not": {}}}})", "/properties/a: `not` is not supported");
  expect(R"({"type": "array", "uniqueItems": true})", "`uniqueItems`");
  expect(R"({"if": {}, "then": {}})", "`if`");
  expect(R"({"type": "object", "anyOf": [{"required": ["a"]}]})", "`type` beside `anyOf`");
  expect(R"({"allOf": [{"type": "string"}, {"type": "string"}]})", "allOf");
  expect(R"({"type": "number", "multipleOf": 0.5})", "multipleOf");
  expect(R"({"type": "string", "pattern": "a+", "maxLength": 3})", "minLength/maxLength");
  expect(R"({"minimum": 3})", "`minimum` without a `type`");
  expect(R"({"enum": ["a", 1], "type": "string"})", "not of its `type`");
  expect(R"({"type": "object", "$recursiveRef": "#"})", "`$recursiveRef`");
  expect(R"({"type": []})", "`type`: expected");
  expect(R"({"type": "string", "pattern": "a+", "format": "date"})", "`pattern` beside `format`");
  expect(R"({"anyOf": []})", "`anyOf`: expected");
  EXPECT_NO_THROW(check_schema(R"({"enum": ["a"], "type": "string", "title": "T", "default": "a"})"));
  EXPECT_NO_THROW(check_schema(R"({"properties": {"not": {"type": "string"}}, "uniqueItems": false})"));
}

TEST_F(GrammarTest, RefusesObjectsThatItCannotHoldTo) {
  const auto expect = [&](const std::string& keywords, const std::string& reason) {
    const std::string schema = R"({"type": "object", )" + keywords + "}";
    const std::string got = refusal({.kind = Kind::json_schema, .text = schema});
    EXPECT_NE(got.find(reason), std::string::npos) << schema << ": " << got;
  };
  const std::string a = R"("properties": {"a": {"type": "string"}}, )";
  const std::string names = R"("propertyNames": {"type": "string", "maxLength": 3})";
  const std::string patterns = R"("patternProperties": {"^x": {"type": "null"}})";
  expect(R"("required": ["a"])", "\"a\" is not in `properties`");
  expect(a + R"("required": ["b"])", "\"b\" is not in `properties`");
  expect(a + R"("required": ["a", "b"], "additionalProperties": {"type": "null"})", "\"b\" is not");
  expect(R"("properties": {}, "required": "a")", "`required`: expected a list");
  expect(patterns + R"(, "required": ["x"])", "\"x\" is not");
  expect(R"("properties": ["a"], "required": ["a"])", "`properties`");
  expect(a + names, "`propertyNames` beside `properties`");
  expect(a + patterns, "`patternProperties` beside `properties`");
  expect(names + ", " + patterns, "`propertyNames` beside `patternProperties`");
  expect(patterns + R"(, "additionalProperties": true)", "`patternProperties` beside `additionalProperties`");
  expect(patterns + R"(, "unevaluatedProperties": {})", "`patternProperties` beside `unevaluatedProperties`");
  expect(patterns + R"(, "minProperties": 2)", "`minProperties` of 2");
  expect(names + R"(, "minProperties": 2)", "`minProperties` of 2");
  expect(a + R"("additionalProperties": true, "minProperties": 2)", "`minProperties` of 2");
  expect(R"("patternProperties": {"^a": {"type": "null"}, "b$": {"type": "string"}})",
         "more than one pattern");
  expect(R"("patternProperties": {"\\x41": {"type": "null"}})", "`patternProperties`: \\xHH");
  expect(names + R"(, "additionalProperties": false)", "`propertyNames` beside `additionalProperties`");
  expect(R"("propertyNames": {"enum": ["a", 1]})", "`propertyNames`: expected a schema of strings");
  expect(R"("propertyNames": {"type": ["string", "null"]})", "`propertyNames`: expected a schema of strings");
  expect(R"("propertyNames": {"$ref": "#"})", "`propertyNames`: expected a schema of strings");
  for (const char* const name : {"\u00e9", R"(a\"b)"})
    expect(cat(R"("additionalProperties": {"type": "null"}, "properties": {")", name, "\": {}}"),
           "printable ASCII");
  for (const std::string& keywords :
       {a + R"("required": ["a"], "additionalProperties": {"type": "null"}, "minProperties": 1)",
        a + R"("required": [], "minProperties": 1)", patterns + R"(, "additionalProperties": false)",
        patterns + R"(, "minProperties": 1)", names + R"(, "additionalProperties": {"type": "null"})",
        std::string(R"("propertyNames": {"enum": ["a", "b"]})"), std::string(R"("propertyNames": {})")})
    EXPECT_EQ(refusal({.kind = Kind::json_schema, .text = R"({"type": "object", )" + keywords + "}"}),
              "accepted")
        << keywords;
}

// Wherever it leads: what is referred to need not stand where schemas do.
TEST_F(GrammarTest, ChecksWhatIsReferredTo) {
  for (
      const char* const schema :
      {R"({"$ref": "#/x", "x": {"not": {}}})",
       R"({"$ref": "#/x~1%79/1", "x/y": [0, {"items": {"not": {}}}]})",
       R"({"items": {"$ref": "#/a"}, "a": {"$ref": "#/b"}, "b": {"anyOf": [{"$ref": "#/a"}, {"not": {}}]}})"})
    EXPECT_NE(refusal({.kind = Kind::json_schema, .text = schema}).find("`not` is not supported"),
              std::string::npos)
        << schema;
}

// Texts of JSON only, and names as they are however they are written.
TEST_F(GrammarTest, StringsOfJson) {
  for (const char* const strings :
       {R"({"type": "string", "maxLength": 9})", R"({"type": "string", "pattern": "[^a]*"})",
        R"({"type": "string", "pattern": ".*"})", R"({"type": "string"})"}) {
    const Grammar grammar{.kind = Kind::json_schema, .text = strings};
    EXPECT_TRUE(matches(grammar, "\"b\u00e9 c\"")) << strings;
    for (const char* const text : {"\"\t\"", "\"\x01\"", "\"\n\"", "\"\"\"", "\"\\\""})
      EXPECT_FALSE(matches(grammar, text)) << strings << text;
  }
  const Grammar grammar{
      .kind = Kind::json_schema,
      .text = R"({"properties": {"ab": {"type": "null"}}, "additionalProperties": {"const": 1}})"};
  EXPECT_TRUE(matches(grammar, R"({"ab": null, "a": 1, "b\u0061": 1, "ac\u0061": 1})"));
  EXPECT_FALSE(matches(grammar, R"({"ab": 1})"));
  EXPECT_FALSE(matches(grammar, R"({"\u0061b": 1})"));
  EXPECT_FALSE(matches(grammar, R"({"a\u0062": 1})"));
}

TEST_F(GrammarTest, HostileGrammarsEndSoon) {
  std::string chain = "{\"$ref\": \"#/$defs/d0\", \"$defs\": {";
  for (int i = 0; i < 600; ++i)
    chain += cat("\"d", i, "\": {\"type\": \"array\", \"items\": {\"$ref\": \"#/$defs/d", i + 1, "\"}}, ");
  chain += "\"d600\": {}}}";
  std::string properties =
      "{\"type\": \"object\", \"minProperties\": 100, \"maxProperties\": 150, \"properties\": {";
  for (int i = 0; i < 200; ++i) properties += cat(i > 0 ? "," : "", "\"p", i, "\": {\"type\": \"string\"}");
  properties += "}}";
  std::string multiples = "{\"anyOf\": [";
  for (int i = 0; i < 900; ++i)
    multiples += cat(i > 0 ? "," : "", "{\"type\":\"integer\",\"multipleOf\":", 997 - i, "}");
  multiples += "]}";
  std::string rules = "root ::= r0\n";
  for (int i = 0; i < 2400; ++i) rules += cat("r", i, " ::= \"a\" r", i + 1, " | r", i + 1, "\n");
  rules += "r2400 ::= \"a\"";
  std::string repeats;
  for (int i = 0; i < 50; ++i) repeats += "(.{0,1000}|[a-z]{0,900}|\\w{3,777})*";
  std::string alternatives = "root ::= \"a\"";
  for (int i = 0; i < 1000; ++i) alternatives += cat(" | [a-z]{1,", i + 10, "} \"x\"");
  const Grammar hostile[] = {
      {.kind = Kind::json_schema, .text = chain},
      {.kind = Kind::json_schema, .text = properties},
      {.kind = Kind::json_schema, .text = multiples},
      {.kind = Kind::ebnf, .text = rules},
      {.kind = Kind::ebnf, .text = alternatives},
      {.kind = Kind::ebnf, .text = "root ::= " + std::string(30000, '(') + "\"a\"" + std::string(30000, ')')},
      {.kind = Kind::regex, .text = std::string(30000, '(') + "a" + std::string(30000, ')')},
      {.kind = Kind::regex, .text = repeats},
      {.kind = Kind::regex, .text = "((a{1000}){1000}){1000}"},
      {.kind = Kind::json_schema, .text = std::string(60000, '[')},
      {.kind = Kind::json_schema,
       .text = R"x({"type": "string", "pattern": "((((a{1,99}){1,99}){1,99}){1,99})"})x"},
  };
  for (const Grammar& grammar : hostile) {
    const std::clock_t start = std::clock();  // of the processor: others' work is not the grammar's
    const std::string outcome = refusal(grammar);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_LT(seconds, 60) << grammar.text.substr(0, 60);  // a few, without sanitizers
    RecordProperty(grammar.text.substr(0, 20), outcome);
  }
}

// The work of one text is bounded too, and what it may cost is the same whatever the machine.
TEST_F(GrammarTest, AnAmbiguousGrammarFailsItsTextAlone) {
  const Grammar grammar{.kind = Kind::ebnf,
                        .text = "root ::= e\ne ::= e e | e \"a\" e | \"a\" e | e \"a\" | [a-z]"};
  const auto constraint = compiler.compile(grammar);
  const auto steps = [&] {
    const auto text = constraint->start();
    std::vector<std::uint32_t> bits(4096 / 32);
    for (int i = 0; i < 3000; ++i) {
      text->fill(bits);
      if (!text->accept(*tokenizer.token_id("a"))) {
        EXPECT_NE(text->error().find("too ambiguous"), std::string::npos) << text->error();
        text->fill(bits);
        EXPECT_EQ(bits, std::vector<std::uint32_t>(4096 / 32));
        EXPECT_FALSE(text->complete());
        EXPECT_FALSE(text->accept(*tokenizer.token_id("a")));
        return i;
      }
    }
    return -1;
  };
  const int first = steps();
  EXPECT_GT(first, 5);
  EXPECT_EQ(steps(), first);
}

TEST_F(GrammarTest, KeepsAFewGrammars) {
  const GrammarCompiler small(tokenizer, 4096, {.cached = 3});
  const auto first = small.compile({.kind = Kind::regex, .text = "a0"});
  EXPECT_EQ(small.compile({.kind = Kind::regex, .text = "a0"}), first);
  EXPECT_NE(small.compile({.kind = Kind::ebnf, .text = "root ::= \"a0\""}), first);
  for (int i = 1; i < 10; ++i) small.compile({.kind = Kind::regex, .text = cat("a", i)});
  EXPECT_EQ(small.cached(), 3U);
  EXPECT_NE(small.compile({.kind = Kind::regex, .text = "a0"}), first);
}

TEST_F(GrammarTest, ThreadsShareAConstraint) {
  const Grammar grammar{.kind = Kind::json_schema,
                        .text = R"({"type": "array", "items": {"type": "integer"}})"};
  std::vector<std::thread> threads;
  std::vector<std::string> texts(4);
  for (std::size_t i = 0; i < texts.size(); ++i)
    threads.emplace_back([&, i] { texts[i] = draw(grammar, 5); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
}

}  // namespace
}  // namespace asynct
