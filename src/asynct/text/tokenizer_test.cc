#include "asynct/text/tokenizer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include "asynct/base/error.h"
#include "asynct/base/mapped_file.h"

namespace asynct {
namespace {

Tokenizer golden(const std::string& family) {
  const std::string path = "tests/golden/tokenizer/" + family + ".json";
  return Tokenizer::from_json(read_file(path, 1 << 20), path);
}

/// A document with one part replaced; the defaults make a byte-level tokenizer of a, b, ab and <e>.
struct Document {
  std::string vocab = R"({"a":0,"b":1,"ab":2})";
  std::string merges = R"(["a b"])";
  std::string added = R"([{"id":3,"content":"<e>","special":true}])";
  std::string rest =
      R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"})";
  std::string options;

  std::string text() const {
    return R"({"version":"1.0","added_tokens":)" + added + "," + rest + R"(,"model":{"type":"BPE",)" +
           options + R"("vocab":)" + vocab + R"(,"merges":)" + merges + "}}";
  }
};

std::string error_of(const std::string& json) {
  try {
    Tokenizer::from_json(json, "t.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void expect_error(const std::string& json, const std::string& part) {
  const std::string message = error_of(json);
  EXPECT_NE(message.find(part), std::string::npos) << message << "\n  lacks " << part;
  EXPECT_EQ(message.rfind("t.json", 0), 0u) << message;
}

using Tokens = std::vector<Token>;

TEST(Tokenizer, SmallDocument) {
  const auto tokenizer = Tokenizer::from_json(Document{}.text(), "t.json");
  EXPECT_EQ(tokenizer.encode("abba<e>a"), (Tokens{2, 1, 0, 3, 0}));
  EXPECT_EQ(tokenizer.encode("<e>", {.parse_special = false}), Tokens{});  // no token for < e > here
  EXPECT_EQ(tokenizer.decode(Tokens{2, 3, 0}), "ab<e>a");
  EXPECT_EQ(tokenizer.decode(Tokens{2, 3, 0}, true), "aba");
  EXPECT_EQ(tokenizer.decode(Tokens{-1, 99, 0}), "a");
  EXPECT_EQ(tokenizer.vocab_size(), 4);
  EXPECT_TRUE(tokenizer.is_special(3));
  EXPECT_FALSE(tokenizer.is_special(0) || tokenizer.is_special(-1) || tokenizer.is_special(4));
  EXPECT_EQ(tokenizer.token_bytes(2), "ab");
  EXPECT_EQ(tokenizer.token_bytes(77), "");
  EXPECT_EQ(tokenizer.token_id("ab"), 2);
  EXPECT_EQ(tokenizer.token_id("<e>"), 3);
  EXPECT_EQ(tokenizer.token_id("c"), std::nullopt);
}

TEST(Tokenizer, BothWrittenFormsOfMerges) {
  Document document;
  document.merges = R"([["a","b"]])";
  EXPECT_EQ(Tokenizer::from_json(document.text(), "t.json").encode("ab"), Tokens{2});
}

TEST(Tokenizer, SpecialTokensOfThePostProcessor) {
  const auto llama3 = golden("llama3");
  const Token bos = llama3.token_id("<|begin_of_text|>").value();
  EXPECT_EQ(llama3.encode("", {.add_special_tokens = true}), Tokens{bos});
  EXPECT_EQ(llama3.encode("x").size() + 1, llama3.encode("x", {.add_special_tokens = true}).size());
  EXPECT_FALSE(llama3.adds_bos());  // nothing has said which token BOS is
  const auto odd = golden("odd").encode("", {.add_special_tokens = true});
  EXPECT_EQ(odd.size(), 2u);
}

class Directory : public testing::Test {
 protected:
  Directory()
      : path_(std::filesystem::temp_directory_path() / ("asynct_tokenizer_" + std::to_string(::getpid()))) {
    std::filesystem::create_directory(path_);
  }
  ~Directory() override { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) { std::ofstream(path_ / name) << text; }
  std::filesystem::path path_;
};

TEST_F(Directory, ReadsTheTokenizerConfig) {
  write("tokenizer.json", Document{}.text());
  EXPECT_EQ(Tokenizer::load(path_.string()).eos(), std::nullopt);
  write("tokenizer_config.json",
        R"({"bos_token":{"content":"<e>"},"eos_token":"<e>","pad_token":null,"add_bos_token":true})");
  const auto tokenizer = Tokenizer::load(path_.string());
  EXPECT_EQ(tokenizer.bos(), 3);
  EXPECT_EQ(tokenizer.eos(), 3);
  EXPECT_EQ(tokenizer.pad(), std::nullopt);
  EXPECT_TRUE(tokenizer.adds_bos());
  EXPECT_EQ(tokenizer.encode("a", {.add_special_tokens = true}), (Tokens{3, 0}));
  write("tokenizer_config.json", R"({"bos_token":7})");
  EXPECT_THROW(Tokenizer::load(path_.string()), Error);
  write("tokenizer_config.json", "{");
  EXPECT_THROW(Tokenizer::load(path_.string()), Error);
  EXPECT_THROW(Tokenizer::load((path_ / "missing").string()), Error);
}

TEST(TokenizerErrors, NameTheBrokenPart) {
  expect_error("", "not valid JSON");
  expect_error("[]", "expected an object");
  expect_error("{}", "model: missing");
  expect_error(R"({"model":{"type":"Unigram","vocab":[["a",0]]}})", "\"Unigram\" is not supported");
  expect_error(R"({"model":{"type":"BPE","merges":[]}})", "model.vocab: missing");
  expect_error(R"({"model":{"type":"BPE","vocab":{}}})", "model.merges: missing");
  expect_error(R"({"model":7})", "expected an object");
  expect_error(std::string(100, '[') + std::string(100, ']'), "nested deeper");
  expect_error("{\"model\":{\"vocab\":{\"\xFF\":0}}}", "not valid JSON");
  expect_error(R"({"version":"1.0","version":"1.0"})", "appears twice");
}

TEST(TokenizerErrors, Vocabulary) {
  const auto with_vocab = [](const std::string& vocab) {
    Document document;
    document.vocab = vocab;
    return document.text();
  };
  expect_error(with_vocab(R"({"a":0,"b":1,"ab":1})"), "id 1 belongs to \"b\" and to \"ab\"");
  expect_error(with_vocab(R"({"a":0,"a":1,"b":2,"ab":4})"), "\"a\" appears twice");
  expect_error(with_vocab(R"({"a":-1,"b":1,"ab":2})"), "\"a\" has id -1");
  expect_error(with_vocab(R"({"a":4294967296,"b":1,"ab":2})"), "has id 4294967296");
  expect_error(with_vocab(R"({"a":18446744073709551615,"b":1,"ab":2})"), "\"a\" has id");
  expect_error(with_vocab(R"({"a":0.5,"b":1,"ab":2})"), "expected an integer");
  expect_error(with_vocab(R"({"a":[0],"b":1,"ab":2})"), "expected a token id");
  expect_error(with_vocab(R"({"a":0,"b":1})"), "\"ab\" is not in model.vocab");
  expect_error(with_vocab("7"), "model.vocab: missing");
}

TEST(TokenizerErrors, MergesAndAddedTokens) {
  const auto with_merges = [](const std::string& merges) {
    Document document;
    document.merges = merges;
    return document.text();
  };
  expect_error(with_merges(R"(["a b", "a c"])"), "model.merges[1]");
  expect_error(with_merges(R"(["ab"])"), "expected \"left right\"");
  expect_error(with_merges(R"(["a b c"])"), "expected \"left right\"");
  expect_error(with_merges(R"([["a"]])"), "an array of 1");
  expect_error(with_merges(R"([["a","b","c"]])"), "more than 2");
  expect_error(with_merges(R"([7])"), "model.merges[0]");
  expect_error(with_merges(R"([{"a":"b"}])"), "model.merges[0]");
  const auto with_added = [](const std::string& added) {
    Document document;
    document.added = added;
    return document.text();
  };
  expect_error(with_added("7"), "added_tokens: expected an array");
  expect_error(with_added("[7]"), "added_tokens[0]");
  expect_error(with_added(R"([{"id":3}])"), "content: missing");
  expect_error(with_added(R"([{"id":1,"content":"x"}])"), "id 1 belongs to");
  expect_error(with_added(R"([{"id":3,"content":"a"}])"), "elsewhere 0");
  expect_error(with_added(R"([{"id":"3","content":"x"}])"), "expected a token id");
  expect_error(with_added(R"([{"id":3,"content":"x","lstrip":1}])"), "lstrip: expected true or false");
  expect_error(with_added(R"([{"id":3,"content":")" + std::string(5000, 'x') + R"("}])"),
               "more than the limit");
}

TEST(TokenizerErrors, ComponentsThatAreNotSupported) {
  const auto with = [](const std::string& rest) {
    Document document;
    document.rest = rest;
    return document.text();
  };
  expect_error(with(R"("normalizer":{"type":"Lowercase"})"), "normalizer: component \"Lowercase\"");
  expect_error(with(R"("normalizer":{"type":"Sequence","normalizers":[{"type":"Strip"}]})"), "\"Strip\"");
  expect_error(with(R"("pre_tokenizer":{"type":"BertPreTokenizer"})"), "pre_tokenizer: component");
  expect_error(
      with(R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]})"),
      "it must come last");
  expect_error(with(R"("decoder":{"type":"CTC"})"), "decoder: component \"CTC\"");
  expect_error(with(R"("post_processor":{"type":"Other"})"), "post_processor: component \"Other\"");
  expect_error(with(R"("post_processor":{"type":"BertProcessing","cls":["x",9],"sep":["x",0]})"),
               "id 9 is no token");
  const auto split = [&](const std::string& pattern) {
    return with(R"("pre_tokenizer":{"type":"Split","behavior":"Isolated","pattern":{"Regex":")" + pattern +
                R"("}})");
  };
  expect_error(split("("), "missing closing parenthesis");
  expect_error(split(R"([\\p{L}&&[^a]])"), "intersection");
  expect_error(split(R"(\\h)"), "\\h");
  expect_error(split("(?m:a)"), "an option other than");
  expect_error(split("a{1,2}+"), "+ after {n,m}");
  expect_error(split(""), "empty");
  Document document;
  document.options = R"("dropout":0.1,)";
  expect_error(document.text(), "dropout");
  document.options = R"("end_of_word_suffix":"</w>",)";
  expect_error(document.text(), "end_of_word_suffix");
  document.options = R"("unk_token":"<unk>",)";
  expect_error(document.text(), "unk_token");
}

TEST(TokenizerErrors, APatternThatBacktracksForever) {
  Document document;
  document.rest =
      R"("pre_tokenizer":{"type":"Split","behavior":"Isolated","pattern":{"Regex":"(a|a)*c|(?:b+)+$"}})";
  const auto tokenizer = Tokenizer::from_json(document.text(), "t.json");
  EXPECT_THROW(tokenizer.encode(std::string(60, 'a') + "b"), Error);
}

TEST(StreamDecoder, NeverGivesHalfACharacter) {
  for (const char* family : {"gpt2", "llama2", "llama3", "smollm2"}) {
    const auto tokenizer = golden(family);
    const std::string text = "caf\xC3\xA9 \xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x98\x80 it's  over";
    const auto ids = tokenizer.encode(text);
    StreamDecoder stream(tokenizer);
    std::string joined;
    for (const Token id : ids) {
      const std::string piece = stream.push(id);
      EXPECT_EQ(piece.find("\xEF\xBF\xBD"), std::string::npos) << family;
      joined += piece;
    }
    joined += stream.finish();
    EXPECT_EQ(joined, tokenizer.decode(ids)) << family;
    EXPECT_EQ(joined, text) << family;
  }
}

TEST(StreamDecoder, AnUnfinishedCharacterBecomesAReplacement) {
  const auto tokenizer = golden("gpt2");
  const auto ids = tokenizer.encode("\xF0\x9F\x98\x80");
  ASSERT_GT(ids.size(), 1u);
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(ids[0]), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.push(tokenizer.encode("a")[0]), "a");
}

TEST(StreamDecoder, LeavesSpecialTokensOut) {
  const auto tokenizer = golden("gpt2");
  const Token end = tokenizer.token_id("<|endoftext|>").value();
  EXPECT_EQ(StreamDecoder(tokenizer, true).push(end), "");
  EXPECT_EQ(StreamDecoder(tokenizer).push(end), "<|endoftext|>");
}

/// Runs of one character must not cost quadratic time or deep stacks (they crashed engines that used
/// std::regex).
TEST(TokenizerRuns, LongRunsTakeLinearTimeAndConstantStack) {
  for (const char* family : {"gpt2", "qwen", "llama3", "smollm2", "odd", "llama2", "metaspace"}) {
    const auto tokenizer = golden(family);
    const std::size_t size = std::size_t{1} << (family == std::string("odd") ? 17 : 20);
    for (const std::string unit : {"a", " ", "\n", "7", "!", "'", "\xCC\x81", "<"}) {
      std::string text;
      while (text.size() < size) text += unit;
      std::size_t tokens = 0;
      const auto start = std::chrono::steady_clock::now();
      // A thread's default stack, minus what a deep recursion would need.
      std::thread([&] { tokens = tokenizer.encode(text).size(); }).join();
      EXPECT_GT(tokens, 0u);
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << family << " " << unit;
    }
  }
}

TEST(TokenizerLimit, RefusesExactlyWhatHasMore) {
  std::mt19937 random(5);
  const std::vector<std::string> units = {
      "a", " ", "the ", "\n", "777", "<|endoftext|>", "\xCC\x81", "\xE4\xB8\xAD", "aaaa"};
  for (const char* family : {"gpt2", "qwen", "llama3", "smollm2", "odd", "llama2", "metaspace"}) {
    const auto tokenizer = golden(family);
    for (int round = 0; round < 200; ++round) {
      std::string text;
      for (auto parts = random() % 20; parts > 0; --parts) {
        const std::string& unit = units[random() % units.size()];
        for (auto repeat = 1 + random() % (random() % 8 == 0 ? 200 : 3); repeat > 0; --repeat) text += unit;
      }
      EncodeOptions options{.add_special_tokens = round % 2 == 0};
      const auto tokens = tokenizer.encode(text, options);
      options.most_tokens = tokens.size();
      EXPECT_EQ(tokenizer.encode(text, options), tokens) << family;
      if (tokens.empty()) continue;
      options.most_tokens = random() % tokens.size();
      EXPECT_THROW(tokenizer.encode(text, options), TooManyTokens) << family << ": " << text;
    }
  }
}

// What has no token vanishes, or becomes one unknown token together: bytes say nothing about tokens then.
TEST(TokenizerLimit, TakesWordsOfAnyLengthWhereTheyMayVanish) {
  const auto tokenizer = Tokenizer::from_json(Document{}.text(), "t.json");
  const std::string text = "ab" + std::string(5000, 'c') + "ab";
  EXPECT_EQ(tokenizer.encode(text, {.most_tokens = 2}), (Tokens{2, 2}));
}

TEST(TokenizerLimit, IsCheapWhereItIsExceeded) {
  const Tokenizer tokenizer = Tokenizer::load("models/asynct-tiny");
  for (const std::string unit : {"a", "word ", "\n", "\xE4\xB8\xAD", "<|endoftext|>"}) {
    std::string text;
    while (text.size() < std::size_t{8} << 20) text += unit;
    const auto start = std::chrono::steady_clock::now();
    EXPECT_THROW(tokenizer.encode(text, {.most_tokens = 2048}), TooManyTokens);
    // 2 seconds without the limit.
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(200)) << unit;
  }
}

TEST(Tokenizer, ThreadsAndTokenizersDoNotShareCachedWords) {
  const auto one = golden("gpt2");
  const auto other = golden("smollm2");
  const std::string text = "The little girl said 12 words, the little girl said no more.";
  const auto first = one.encode(text), second = other.encode(text);
  EXPECT_NE(first, second);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int repeat = 0; repeat < 200; ++repeat) {
        ASSERT_EQ(one.encode(text), first);
        ASSERT_EQ(other.encode(text), second);
      }
    });
  for (auto& thread : threads) thread.join();
}

TEST(Tokenizer, Moves) {
  auto tokenizer = golden("gpt2");
  const auto ids = tokenizer.encode("moved text");
  const Tokenizer moved = std::move(tokenizer);
  EXPECT_EQ(moved.encode("moved text"), ids);
}

}  // namespace
}  // namespace asynct
