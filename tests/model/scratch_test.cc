// No step grows the scratch memory: what the operators say they take, reserved before the first step, is
// enough for any batch that the runner was made for.

#include <gtest/gtest.h>

#include "model_harness.h"

namespace asynct {
namespace {

// A step of `sequences` sequences, `rows` each, on top of what they have; then everything a head can do.
void run_step(CpuRunner& runner, std::span<Sequence> sequences, std::int64_t rows) {
  StepBuilder builder;
  const std::vector<Token> tokens(static_cast<std::size_t>(rows), 1);
  std::vector<ScoreTarget> targets;
  std::vector<std::int32_t> wanted;
  for (Sequence& sequence : sequences) {
    EXPECT_FALSE(sequence.extend(rows));  // nobody shares them
    const auto first = builder.add(sequence, sequence.length() - rows, tokens);
    for (std::int32_t row = 0; row < rows; ++row) {
      wanted.push_back(builder.want(first + row));
      targets.push_back({.row = wanted.back(), .token = 2});
    }
  }
  runner.forward(builder.batch());
  std::vector<TokenScore> scores(targets.size());
  runner.score(targets, scores);
  std::vector<std::int32_t> choices(wanted.size());
  runner.greedy(wanted, choices);
  std::vector<float> logits(static_cast<std::size_t>(runner.vocabulary()) * wanted.size());
  runner.logits(wanted, logits);
}

void check(const std::string& dir, const CpuRunner::Options& options) {
  SCOPED_TRACE(dir + " " + std::string(name(options.isa)) + ", threads " + std::to_string(options.threads) +
               (options.precision == Precision::bf16 ? ", bf16" : ", fp32"));
  CpuRunner runner(dir, options);
  const std::size_t reserved = runner.context().scratch_bytes();
  BlockPool pool(runner.cache().blocks());
  const auto fresh = [&](std::int64_t count) {
    std::vector<Sequence> sequences;
    for (std::int64_t i = 0; i < count; ++i) sequences.emplace_back(pool, options.block_size);
    return sequences;
  };
  const std::int64_t most = runner.max_rows();
  const std::int64_t longest = runner.max_length() - 1;
  for (const std::int64_t rows :
       {std::int64_t{1}, std::int64_t{2}, std::int64_t{15}, std::int64_t{16}, std::int64_t{27},
        std::int64_t{55}, std::int64_t{112}, std::int64_t{139}, most}) {
    if (rows > most) continue;
    auto many = fresh(rows);
    run_step(runner, many, 1);
    many.clear();
    auto one = fresh(1);
    if (rows <= longest) run_step(runner, one, rows);
  }
  // Long enough for split decode, where the model allows it.
  auto sequence = fresh(1);
  for (std::int64_t at = 0; at < longest; at += most)
    run_step(runner, sequence, std::min(most, longest - at));
  run_step(runner, sequence, 1);
  EXPECT_EQ(runner.context().scratch_bytes(), reserved);
}

TEST(Scratch, IsReservedBeforeTheFirstStep) {
  for (const std::string model : {"asynci_pool3", "odd_sizes", "untied_silu", "weights_bf16", "llama"})
    for (const Isa isa : available_isas())
      for (const int threads : {1, 2, 5})
        for (const Precision precision : {Precision::fp32, Precision::bf16})
          check(
              "tests/golden/" + model,
              {.threads = threads, .isa = isa, .precision = precision, .max_rows = 200, .kv_bytes = 8 << 20});
}

TEST(Scratch, BundledModel) {
  for (const int threads : {1, 3})
    for (const Precision precision : {Precision::fp32, Precision::bf16})
      check("models/asynct-tiny", {.threads = threads,
                                   .isa = available_isas().back(),
                                   .precision = precision,
                                   .max_rows = 300,
                                   .kv_bytes = 48 << 20});
}

}  // namespace
}  // namespace asynct
