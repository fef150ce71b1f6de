// What the engine costs beside the model: steps of decoding sequences with a model that does nothing.
//
//   build/asynct_engine_bench [SEQUENCES] [STEPS]
//
// Prints the median, 99th percentile and worst step in microseconds, and how many steps allocated memory.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "asynct/engine/allocation_counter.h"
#include "asynct/engine/engine.h"

namespace {

using namespace asynct;

class NoModel : public ModelRunner {
 public:
  std::int64_t vocabulary() const override { return 151'936; }
  std::int64_t max_length() const override { return 1 << 20; }
  void copy_blocks(std::span<const BlockCopy> /*copies*/) override {}
  void forward(const StepBatch& batch) override { rows += batch.rows(); }
  void score(std::span<const ScoreTarget> /*targets*/, std::span<TokenScore> scores) override {
    std::fill(scores.begin(), scores.end(), TokenScore{});
  }
  void greedy(std::span<const std::int32_t> /*rows*/, std::span<std::int32_t> tokens) override {
    for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(rows % 1000);
  }
  void logits(std::span<const std::int32_t> /*rows*/, std::span<float> logits) override {
    std::fill(logits.begin(), logits.end(), 0.0F);
  }
  std::int64_t rows = 0;
};

class Silent : public EngineListener {
 public:
  void on_scores(RequestId /*id*/, std::size_t /*first*/, std::span<const TokenScore> /*scores*/) override {}
  bool on_token(RequestId /*id*/, Token /*token*/, std::span<const TokenLogprob> /*logprobs*/) override {
    return true;
  }
  void on_finished(RequestId /*id*/, FinishReason /*reason*/, std::string_view /*error*/) override {}
};

void measure(int sequences, int steps, bool prefix_cache) {
  NoModel model;
  Silent listener;
  const std::int64_t tokens = 600 + steps;
  Engine engine(model, {.blocks = static_cast<std::int32_t>(sequences * (tokens / 16 + 2)),
                        .batch_tokens = 8192,
                        .max_sequences = sequences,
                        .prefix_cache = prefix_cache});
  for (int i = 0; i < sequences; ++i)
    engine.submit({{.tokens = std::vector<Token>(static_cast<std::size_t>(200 + i % 300), i),
                    .max_new_tokens = steps + 64}});
  for (int i = 0; i < 64; ++i) engine.step(listener);
  std::vector<double> micros;
  micros.reserve(static_cast<std::size_t>(steps));
  int allocating = 0;
  for (int i = 0; i < steps - 64; ++i) {
    const std::int64_t before = allocations();
    const auto start = std::chrono::steady_clock::now();
    engine.step(listener);
    micros.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    allocating += allocations() > before ? 1 : 0;
  }
  std::sort(micros.begin(), micros.end());
  std::printf(
      "%4d sequences, prefix cache %-3s: median %6.1f us, 99 %% %6.1f us, worst %7.1f us; %d of %zu steps "
      "allocated\n",
      sequences, prefix_cache ? "on" : "off", micros[micros.size() / 2], micros[micros.size() * 99 / 100],
      micros.back(), allocating, micros.size());
}

}  // namespace

int main(int argc, char** argv) {
  const int sequences = argc > 1 ? std::atoi(argv[1]) : 256;
  const int steps = argc > 2 ? std::atoi(argv[2]) : 2000;
  for (const bool prefix_cache : {false, true}) measure(sequences, steps, prefix_cache);
}
