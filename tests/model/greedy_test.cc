// The bundled checkpoint's greedy tokens in fp32, against the PyTorch reference's
// (tests/golden/make_goldens.py greedy).

#include <gtest/gtest.h>

#include "asynct/base/json.h"
#include "asynct/engine/engine.h"
#include "asynct/engine/engine_factory.h"
#include "model_harness.h"

namespace asynct {
namespace {

class Collector : public EngineListener {
 public:
  void on_scores(RequestId /*id*/, std::size_t /*first*/, std::span<const TokenScore> /*scores*/) override {}
  bool on_token(RequestId /*id*/, Token token) override {
    tokens.push_back(token);
    return true;
  }
  void on_finished(RequestId /*id*/, FinishReason reason, std::string_view error) override {
    EXPECT_EQ(reason, FinishReason::length) << error;
  }
  std::vector<Token> tokens;
};

TEST(AsyncTTiny, GreedyTokensAreTheReferences) {
  const std::string dir = "models/asynct-tiny";
  const Json golden = parse_json_file("tests/golden/greedy_asynct_tiny.json");
  const auto prompt = golden.at("prompt_tokens").get<std::vector<Token>>();
  const auto expected = golden.at("tokens").get<std::vector<Token>>();
  ASSERT_EQ(expected.size(), 256U);
  EXPECT_EQ(Tokenizer::load(dir).encode(golden.at("prompt").get<std::string>()), prompt);
  OpenedModel model = open_runner(dir, {.threads = 2, .max_sequences = 1});
  Engine engine(*model.runner, model.engine);
  Collector collector;
  engine.submit({Request{.tokens = prompt, .max_new_tokens = 256}});  // no end tokens: it goes on past them
  while (engine.step(collector)) {
  }
  EXPECT_EQ(collector.tokens, expected);
}

}  // namespace
}  // namespace asynct
