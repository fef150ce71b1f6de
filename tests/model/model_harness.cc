#include "model_harness.h"

#include <cmath>
#include <limits>
#include <utility>

#include "asynct/base/error.h"

namespace asynct {

std::vector<std::vector<float>> ModelHarness::step(const std::vector<Part>& parts, std::size_t every) {
  builder_.clear();
  for (const Part& part : parts) {
    const std::int64_t begin = part.sequence->length();
    if (const auto copy = part.sequence->extend(static_cast<std::int64_t>(part.tokens.size()))) {
      runner_.copy_blocks({&*copy, 1});
      pool_.release(copy->from);
    }
    const auto first = builder_.add(*part.sequence, begin, part.tokens);
    for (std::size_t row = 0; row < part.tokens.size(); row += every)
      builder_.want(first + static_cast<std::int32_t>(row));
  }
  runner_.forward(builder_.batch());
  const auto vocabulary = static_cast<std::size_t>(runner_.vocabulary());
  std::vector<std::vector<float>> logits;
  std::int32_t row = 0;
  for (const Part& part : parts) {
    auto& out = logits.emplace_back((part.tokens.size() + every - 1) / every * vocabulary,
                                    std::numeric_limits<float>::quiet_NaN());
    for (std::size_t i = 0; i * every < part.tokens.size(); ++i, ++row)
      runner_.logits({&row, 1}, std::span(out).subspan(i * vocabulary, vocabulary));
  }
  return logits;
}

std::vector<float> ModelHarness::logits_of(const std::vector<Token>& tokens, std::int64_t chunk) {
  Sequence sequence = new_sequence();
  const auto total = static_cast<std::int64_t>(tokens.size());
  if (chunk == 0) chunk = total;
  std::vector<float> all;
  for (std::int64_t begin = 0; begin < total; begin += chunk) {
    const auto end = std::min(begin + chunk, total);
    const auto part = step({{&sequence, {tokens.begin() + begin, tokens.begin() + end}}});
    all.insert(all.end(), part[0].begin(), part[0].end());
  }
  return all;
}

namespace {

class GreedyListener : public EngineListener {
 public:
  void on_scores(RequestId /*id*/, std::size_t /*first*/, std::span<const TokenScore> /*scores*/) override {}
  bool on_token(RequestId /*id*/, Token token, std::span<const TokenLogprob> /*logprobs*/) override {
    tokens.push_back(token);
    return true;
  }
  void on_finished(RequestId /*id*/, FinishReason reason, std::string_view error) override {
    if (reason != FinishReason::length) fail("generation ended early: ", error);
  }
  std::vector<Token> tokens;
};

}  // namespace

std::vector<Token> greedy_tokens(OpenedModel& model, const std::vector<Token>& prompt, std::int64_t count) {
  Engine engine(*model.runner, model.engine);
  GreedyListener listener;
  engine.submit({Request{.tokens = prompt, .max_new_tokens = count}});  // no end tokens: none ends it
  while (engine.step(listener)) {
  }
  return std::move(listener.tokens);
}

std::vector<Isa> available_isas() {
  std::vector<Isa> isas;
  for (const Isa isa : kIsas)
    if (cpu_runs(isa)) isas.push_back(isa);
  return isas;
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double{a[i]} - b[i], 2);
    norm += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / norm);  // NaN when anything is
}

}  // namespace asynct
