#include "asynct/ops/attention/attention.h"

#include <gtest/gtest.h>

#include <cstring>

#include "asynct/base/error.h"
#include "asynct/ops/attention/attention_test_case.h"

namespace asynct {
namespace {

const std::vector<std::int32_t> kContexts = {1,   2,   3,   14,  15,  16,  17,  18,  63,  64,  65, 127,
                                             128, 129, 254, 255, 256, 257, 258, 300, 511, 512, 514};

AttentionHeadParams random_params(Random& random, std::int32_t heads) {
  AttentionHeadParams params;
  const auto some = [&](float low, float high) {
    std::uniform_real_distribution<float> uniform(low, high);
    std::vector<float> values(static_cast<std::size_t>(heads));
    for (float& v : values) v = uniform(random);
    return values;
  };
  params.sigma = pick(random, 0, 3) == 0 ? some(-1, 6) : some(0.2F, 1.2F);
  if (pick(random, 0, 2) == 0) params.slope = some(-0.5F, 2);
  if (pick(random, 0, 2) == 0) params.bias = some(-0.2F, 0.2F);
  if (pick(random, 0, 2) == 0) params.gain = some(-2, 2);
  return params;
}

TestStep random_step(Random& random) {
  TestStep step;
  step.config.kind = pick(random, 0, 3) == 0 ? AttentionKind::softmax : AttentionKind::asynci;
  step.config.kv_heads = pick(random, 1, 3);
  step.config.heads = step.config.kv_heads * pick_of<int>(random, {1, 2, 4, 8});
  step.config.head_dim = pick_of<int>(random, {8, 16, 32, 40, 64, 80, 128});
  step.config.scale = 2.0F / static_cast<float>(step.config.head_dim);
  step.config.pool_size = pick_of<int>(random, {1, 2, 3, 3, 5});
  step.config.pool_relu = pick(random, 0, 3) != 0;
  step.dtype = pick(random, 0, 1) == 0 ? DType::f32 : DType::bf16;
  step.layout =
      pick_of<Layout>(random, {Layout::own, Layout::own, Layout::flash, Layout::packed, Layout::reversed});
  step.block_size = pick_of<int>(random, {8, 16, 16, 32, 64, 128});
  step.seed = static_cast<unsigned>(pick(random, 0, 1000));
  return step;
}

std::vector<TestSequence> random_sequences(Random& random, const TestStep& step) {
  std::vector<TestSequence> sequences;
  const int decodes = pick(random, 0, 2);
  const int prefills = pick(random, decodes == 0 ? 1 : 0, 2);
  for (int i = 0; i < decodes + prefills; ++i) {
    const std::int32_t context = pick_of(random, kContexts);
    const std::int32_t rows = i < decodes ? 1 : std::min(context, pick_of(random, kContexts));
    sequences.push_back(make_sequence(random, step.config, context, std::min(rows, 90), step.dtype));
  }
  return sequences;
}

TEST(Attention, MatchesTheReference) {
  Random random(7);
  for (int round = 0; round < 150; ++round) {
    const TestStep step = random_step(random);
    const AttentionHeadParams params = random_params(random, step.config.heads);
    const std::vector<TestSequence> sequences = random_sequences(random, step);
    const std::vector<double> want = reference_step(step, params, sequences);
    for (const Isa isa : isas())
      for (const Precision precision : {Precision::fp32, Precision::bf16}) {
        ThreadPool pool(pick_of<int>(random, {1, 2, 3, 7}));
        OpContext context(pool, isa, precision);
        const double error = relative_error(run_step(context, step, params, sequences), want);
        EXPECT_LE(error, precision == Precision::fp32 ? 1e-5 : 1e-2)
            << "round " << round << " " << name(isa) << " D " << step.config.head_dim << " heads "
            << step.config.heads << "/" << step.config.kv_heads << " layout " << static_cast<int>(step.layout)
            << " block " << step.block_size << " kind " << static_cast<int>(step.config.kind);
        if (::testing::Test::HasFailure()) return;
      }
  }
}

/// A row's bits alone, in any batch, any chunk of prefill, any split, any block placement and any layout.
TEST(Attention, RowsDoNotDependOnTheirSurroundings) {
  Random random(11);
  for (int round = 0; round < 40; ++round) {
    TestStep step = random_step(random);
    step.config.heads = step.config.kv_heads * pick_of<int>(random, {1, 2, 3});
    const std::int32_t total = pick_of<int>(random, {40, 260, 515, 1100, 2600});
    const AttentionHeadParams params = random_params(random, step.config.heads);
    const TestSequence whole = make_sequence(random, step.config, total, total, step.dtype);
    const std::int64_t row_size = std::int64_t{step.config.heads} * step.config.head_dim;
    const Isa isa = pick_of(random, isas());
    ThreadPool one(1);
    OpContext serial(one, isa, Precision::fp32);

    const std::int32_t rows = std::min(total, 70);
    const std::vector<float> want = run_step(serial, step, params, {window(whole, total, rows)});
    for (int trial = 0; trial < 4; ++trial) {
      TestStep other = step;
      other.seed = static_cast<unsigned>(pick(random, 0, 1000));
      other.layout = pick_of<Layout>(random, {Layout::own, Layout::flash, Layout::packed, Layout::reversed});
      other.block_size = pick_of<int>(random, {8, 16, 32, 64, 128});
      ThreadPool pool(pick_of<int>(random, {1, 2, 3, 7}));
      OpContext context(pool, isa, Precision::fp32);
      const std::int32_t last = pick(random, total - rows, total - 1);
      const std::int32_t count = trial == 0 ? 1 : pick(random, 1, last - (total - rows) + 1);
      std::vector<TestSequence> batch = {window(whole, last + 1, count)};
      if (trial == 1) batch = random_sequences(random, step);
      if (trial == 1) batch.insert(batch.begin(), window(whole, last + 1, count));
      const std::vector<float> got = run_step(context, other, params, batch);
      const std::int64_t first = std::int64_t{last} + 1 - count - (total - rows);
      EXPECT_EQ(std::memcmp(got.data(), want.data() + first * row_size,
                            static_cast<std::size_t>(count * row_size) * sizeof(float)),
                0)
          << "round " << round << " trial " << trial << " " << name(isa) << " rows " << count << " up to "
          << last << " threads " << pool.size() << " D " << step.config.head_dim << " layout "
          << static_cast<int>(other.layout) << " block " << other.block_size;
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(Attention, LongDecodeIsSplitAndReducedInOrder) {
  Random random(3);
  for (const AttentionKind kind : {AttentionKind::asynci, AttentionKind::softmax}) {
    TestStep step;
    step.config = {.kind = kind, .heads = 4, .kv_heads = 2, .head_dim = 16, .scale = 0.2F};
    const AttentionHeadParams params = {.sigma = {0.5F, 3.5F, 0.3F, 1.0F}};  // head 1 is dead
    const std::vector<TestSequence> sequences = {make_sequence(random, step.config, 5000, 1, DType::f32)};
    const std::vector<double> want = reference_step(step, params, sequences);
    for (const Isa isa : isas()) {
      ThreadPool one(1);
      OpContext serial(one, isa, Precision::fp32);
      const std::vector<float> whole = run_step(serial, step, params, sequences);
      EXPECT_LE(relative_error(whole, want), 1e-5);
      for (const int threads : {2, 3, 7}) {
        ThreadPool pool(threads);
        OpContext context(pool, isa, Precision::fp32);
        EXPECT_EQ(run_step(context, step, params, sequences), whole) << name(isa) << " " << threads;
      }
    }
  }
}

TEST(AttentionPlan, CoversEachRowOnce) {
  const AttentionConfig config = {.heads = 4, .kv_heads = 2, .head_dim = 16, .scale = 1};
  const std::vector<std::int32_t> query_start = {0, 1, 2, 102};
  const std::vector<std::int32_t> lengths = {9000, 5, 700};
  const std::vector<std::int32_t> tokens(102), table(3 * 600);
  const StepBatch batch = {.tokens = tokens,
                           .query_start = query_start,
                           .context_length = lengths,
                           .block_table = table,
                           .max_blocks = 600};
  AttentionPlan plan;
  for (const int threads : {1, 7}) {
    plan.build(config, batch, threads);
    EXPECT_EQ(plan.reductions.size(), threads == 1 ? 0U : 2U);
    std::vector<std::int64_t> chunks(3 * 2 * 102);  // [sequence, head, row]: chunks summed
    for (const AttentionPlan::Unit& u : plan.units) {
      EXPECT_EQ(u.partial >= 0, threads > 1 && u.sequence == 0);
      for (std::int32_t row = u.row_begin; row < u.row_end; ++row)
        chunks[static_cast<std::size_t>((std::int64_t{u.sequence} * 2 + u.kv_head) * 102 + row)] +=
            u.chunk_end - u.chunk_begin;
    }
    for (std::size_t head = 0; head < 2; ++head) {
      EXPECT_EQ(chunks[head * 102], 36);
      EXPECT_EQ(chunks[(2 + head) * 102], 1);
      for (std::size_t row = 0; row < 100; ++row) EXPECT_GE(chunks[(4 + head) * 102 + row], 3);
    }
  }
}

TEST(Attention, ValuesWithoutWeightAreNotRead) {
  Random random(5);
  TestStep step;
  step.config = {.heads = 2, .kv_heads = 1, .head_dim = 32, .scale = 1.0F / 32};
  TestSequence s = make_sequence(random, step.config, 600, 1, DType::f32);
  const AttentionHeadParams params = {.sigma = {1.0F, 0.7F}};
  const std::vector<double> want = reference_step(step, params, {s});
  int poisoned = 0;
  for (std::size_t j = 0; j < 600; ++j) {
    bool positive = false;
    for (std::size_t h = 0; h < 2; ++h) {
      double score = 0;
      for (std::size_t d = 0; d < 32; ++d) score += double{s.q[(599 * 2 + h) * 32 + d]} * s.keys[j * 32 + d];
      positive |= score > -1e-3;
    }
    if (positive) continue;
    std::fill_n(s.values.begin() + static_cast<std::int64_t>(j) * 32, 32, std::nanf(""));
    ++poisoned;
  }
  EXPECT_GT(poisoned, 100);
  for (const Isa isa : isas()) {
    ThreadPool pool(1);
    OpContext context(pool, isa, Precision::fp32);
    EXPECT_LE(relative_error(run_step(context, step, params, {s}), want), 1e-5) << name(isa);
  }
}

TEST(Attention, NanReachesTheRowsThatSeeIt) {
  Random random(9);
  for (const AttentionKind kind : {AttentionKind::asynci, AttentionKind::softmax}) {
    TestStep step;
    step.config = {.kind = kind, .heads = 1, .kv_heads = 1, .head_dim = 16, .scale = 1.0F / 16};
    TestSequence s = make_sequence(random, step.config, 40, 40, DType::f32);
    s.keys[20 * 16] = std::nanf("");
    for (const Isa isa : isas()) {
      ThreadPool pool(1);
      OpContext context(pool, isa, Precision::fp32);
      const std::vector<float> out = run_step(context, step, {.sigma = {0.5F}}, {s});
      for (std::size_t row = 0; row < 40; ++row) EXPECT_EQ(std::isnan(out[row * 16]), row >= 20) << name(isa);
    }
  }
}

TEST(Attention, ClassifiesHeads) {
  AttentionConfig config = {.heads = 1, .kv_heads = 1, .head_dim = 8, .scale = 1, .pool_size = 3};
  const auto classify = [&](float sigma, float slope, float bias) {
    return classify_head(config, {.sigma = {sigma}, .slope = {slope}, .bias = {bias}}, 0);
  };
  EXPECT_EQ(classify(1, 1, 0), HeadClass::skip_safe);
  EXPECT_EQ(classify(0, 1, -1), HeadClass::skip_safe);
  EXPECT_EQ(classify(3, 1, 0), HeadClass::dead);
  EXPECT_EQ(classify(3, 1.5F, 0), HeadClass::skip_safe);
  EXPECT_EQ(classify(1, 1, 0.1F), HeadClass::dense);
  EXPECT_EQ(classify(-1, 1, 0), HeadClass::dense);
  EXPECT_EQ(classify(1, 0, 0), HeadClass::dense);
  EXPECT_EQ(classify_head(config, {.sigma = {1}}, 0), HeadClass::skip_safe);
  config.pool_relu = false;
  EXPECT_EQ(classify(1, 1, 0), HeadClass::dense);
  config.kind = AttentionKind::softmax;
  EXPECT_EQ(classify_head(config, {}, 0), HeadClass::dense);
}

TEST(Attention, RejectsShapesThatDoNotFit) {
  const AttentionConfig good = {.heads = 4, .kv_heads = 2, .head_dim = 8, .scale = 1};
  EXPECT_NO_THROW(Attention(good, {.sigma = {1, 1, 1, 1}}));
  EXPECT_THROW(Attention(good, {.sigma = {1, 1, 1}}), Error);
  EXPECT_THROW(Attention(good, {.sigma = {1, 1, 1, 1}, .gain = {1}}), Error);
  AttentionConfig bad = good;
  bad.heads = 3;
  EXPECT_THROW(Attention(bad, {}), Error);
  bad = good;
  bad.pool_size = 4;
  EXPECT_THROW(Attention(bad, {}), Error);
}

}  // namespace
}  // namespace asynct
