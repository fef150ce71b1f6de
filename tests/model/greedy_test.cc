// The bundled checkpoint's greedy tokens in fp32, against the PyTorch reference's
// (tests/golden/make_goldens.py greedy).

#include <gtest/gtest.h>

#include "asynct/base/json.h"
#include "model_harness.h"

namespace asynct {
namespace {

TEST(AsyncTTiny, GreedyTokensAreTheReferences) {
  const std::string dir = "models/asynct-tiny";
  const Json golden = parse_json_file("tests/golden/greedy_asynct_tiny.json");
  const auto prompt = golden.at("prompt_tokens").get<std::vector<Token>>();
  const auto expected = golden.at("tokens").get<std::vector<Token>>();
  ASSERT_EQ(expected.size(), 256U);
  EXPECT_EQ(Tokenizer::load(dir).encode(golden.at("prompt").get<std::string>()), prompt);
  OpenedModel model = open_runner(dir, {.threads = 2, .max_sequences = 1});
  EXPECT_EQ(greedy_tokens(model, prompt, 256), expected);
}

}  // namespace
}  // namespace asynct
