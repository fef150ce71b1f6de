// stories260K, a public 260K-parameter Llama, continues its public prompt with its public text.

#include <gtest/gtest.h>

#include "asynct/engine/engine_factory.h"
#include "model_harness.h"

namespace asynct {
namespace {

TEST(Stories260K, GreedyTextIsThePublicOne) {
  const auto model = open_model("tests/data/stories260K", {.threads = 2});
  const std::string prompt = "Once upon a time";
  const std::vector<Token> tokens = model->tokenizer().encode(prompt, {.add_special_tokens = true});
  EXPECT_EQ(tokens, (std::vector<Token>{1, 403, 407, 261, 378}));
  std::string text;
  const GenerateRequest request{.prompt = tokens, .max_new_tokens = 60};
  model->generate({&request, 1},
                  [&](std::size_t, const GeneratedText& result) { text = prompt + result.text; });
  EXPECT_EQ(text,
            "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "
            "One day, she "
            "saw a big, red ball. She wanted to play with it, but it was too high.\nLily");
}

}  // namespace
}  // namespace asynct
