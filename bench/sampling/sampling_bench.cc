// Microseconds of CPU time a row for what turns logits into a token: one thread, the rows of a step one after
// another.
//
//     asynct_sampling_bench [vocabulary ...]
//
// peaked: normal logits of deviation 2.5, about as spread as a language model's; flat: 0.3, where the mass is
// everywhere and the order of many tokens counts.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "asynct/engine/logits_processor.h"
#include "asynct/engine/sampling.h"

namespace {

using namespace asynct;

constexpr int kRows = 16;

std::vector<std::vector<float>> random_rows(std::size_t vocabulary, float deviation) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<std::vector<float>> rows(kRows, std::vector<float>(vocabulary));
  for (auto& row : rows) std::generate(row.begin(), row.end(), [&] { return normal(random); });
  return rows;
}

// Best of several rounds over all rows; the sum of the results keeps the work from being left out.
template <class Function>
void measure(const char* what, std::size_t vocabulary, Function function) {
  double best = 1e300;
  long long sum = 0;
  for (int round = 0; round < 15; ++round) {
    const std::clock_t start = std::clock();
    for (std::size_t row = 0; row < kRows; ++row) sum += function(row);
    best = std::min(best, static_cast<double>(std::clock() - start) * 1e6 / CLOCKS_PER_SEC / kRows);
  }
  std::printf("V %-7zu %-44s %9.1f us   (%lld)\n", vocabulary, what, best, sum);
}

void run(std::size_t vocabulary) {
  struct Case {
    const char* name;
    SamplingParams params;
  };
  const Case cases[] = {
      {"temperature 0.8, top-k 50, top-p 0.95", {.temperature = 0.8F, .top_k = 50, .top_p = 0.95F}},
      {"temperature 0.8, top-k 2000", {.temperature = 0.8F, .top_k = 2000}},
      {"temperature 0.8, top-p 0.95", {.temperature = 0.8F, .top_p = 0.95F}},
      {"temperature 1, min-p 0.05", {.temperature = 1, .min_p = 0.05F}},
      {"temperature 1", {.temperature = 1}},
  };
  for (const float deviation : {2.5F, 0.3F}) {
    auto rows = random_rows(vocabulary, deviation);
    TokenSampler sampler;
    for (const Case& c : cases)
      measure((std::string(deviation > 1 ? "peaked, " : "flat, ") + c.name).c_str(), vocabulary,
              [&](std::size_t row) { return sampler.sample(rows[row], c.params, row); });
    if (deviation < 1) continue;
    measure("argmax", vocabulary, [&](std::size_t row) { return argmax(rows[row]); });
    std::vector<Token> history(2000);
    std::mt19937 random(2);
    for (Token& token : history) token = static_cast<Token>(random() % vocabulary);
    const LogitsProcessor penalties(
        {.repetition_penalty = 1.1F, .presence_penalty = 0.5F, .frequency_penalty = 0.1F},
        std::span(history).first(1000), {}, std::span(history).last(1000));
    measure("penalties over 2,000 tokens", vocabulary, [&](std::size_t row) {
      penalties.apply(rows[row]);
      return 0;
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) {
    run(49152);
    run(151936);
  }
  for (int i = 1; i < argc; ++i) run(static_cast<std::size_t>(std::max(1, std::atoi(argv[i]))));
  return 0;
}
