// The golden cases: ids and texts that the Rust `tokenizers` library gave
// (tests/golden/make_tokenizer_goldens.py).

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "asynct/base/json.h"
#include "asynct/base/mapped_file.h"
#include "asynct/text/tokenizer.h"

namespace asynct {
namespace {

std::string from_hex(const std::string& hex) {
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<char>(std::strtol(hex.substr(i, 2).c_str(), nullptr, 16)));
  return out;
}

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, EncodesAndDecodesAsTheReference) {
  const std::string base = std::string("tests/golden/tokenizer/") + GetParam();
  const auto tokenizer = Tokenizer::from_json(read_file(base + ".json", 1 << 20), base);
  const std::string cases = read_file(base + "_cases.jsonl", 1 << 20);
  int count = 0;
  for (std::size_t begin = 0; begin < cases.size(); ++count) {
    const std::size_t end = cases.find('\n', begin);
    const Json one = parse_json(std::string_view(cases).substr(begin, end - begin), "case");
    begin = end + 1;
    const std::string text =
        one.contains("hex") ? from_hex(one["hex"].get<std::string>()) : one["text"].get<std::string>();
    const auto expected = one["ids"].get<std::vector<Token>>();
    EXPECT_EQ(tokenizer.encode(text), expected) << one.dump();
    EXPECT_EQ(tokenizer.decode(expected), one["decoded"].get<std::string>()) << one.dump();
  }
  EXPECT_GT(count, 200);
}

INSTANTIATE_TEST_SUITE_P(Families, Golden,
                         testing::Values("gpt2", "qwen", "llama3", "smollm2", "odd", "llama2", "metaspace"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace asynct
