#include "asynct/ops/qkv_projection/qkv_projection.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace asynct {
namespace {

constexpr std::int64_t kHidden = 24;
constexpr std::int32_t kHeads = 4;
constexpr std::int32_t kKvHeads = 2;
constexpr std::int32_t kDims = 8;
constexpr std::int64_t kCols = (kHeads + 2 * kKvHeads) * kDims;
constexpr std::int32_t kBlock = 16;
constexpr std::int64_t kBlocks = 3;

/// A cache of three blocks in the CPU layout, poisoned.
struct Cache {
  explicit Cache(DType dtype) : pages(dtype, {2, kBlocks, kKvHeads, kDims * kBlock}) {
    for (std::int64_t i = 0; i < 2 * kBlocks * kKvHeads * kDims * kBlock; ++i) {
      const float nan = std::numeric_limits<float>::quiet_NaN();
      if (dtype == DType::f32)
        pages.values<float>()[static_cast<std::size_t>(i)] = nan;
      else
        pages.values<Bf16>()[static_cast<std::size_t>(i)] = to_bf16(nan);
    }
    constexpr std::int64_t kHead = kDims * kBlock;
    auto* const data = static_cast<std::byte*>(const_cast<void*>(pages.view().data));
    layer.key = {data, dtype, kKvHeads * kHead, kHead, 1, kBlock};
    layer.value = {data + pages.view().bytes() / 2, dtype, kKvHeads * kHead, kHead, kDims, 1};
    layer.block_size = kBlock;
    layer.kv_heads = kKvHeads;
    layer.head_dim = kDims;
  }
  float at(const KvPages& which, std::int64_t slot, std::int64_t head, std::int64_t dim) const {
    const std::int64_t base = which.data == layer.value.data ? kBlocks * kKvHeads * kDims * kBlock : 0;
    return pages.view().at(base + which.offset(slot / kBlock, head, slot % kBlock, dim));
  }

  Tensor pages;
  KvLayer layer;
};

TEST(QkvProjection, IsTheUnfusedComposition) {
  const Tensor weight(DType::f32, {kCols, kHidden});
  for (std::size_t i = 0; i < weight.values<float>().size(); ++i)
    weight.values<float>()[i] = round_to_bf16(std::sin(static_cast<float>(i * i % 1009)) / 4);
  const std::vector<std::int32_t> positions = {30, 3, 4, 5};
  const std::vector<std::int64_t> slots = {46, 19, -1, 0};
  const std::vector<std::int32_t> tokens(4);
  const StepBatch batch = {.tokens = tokens, .positions = positions, .slot_mapping = slots};
  std::vector<float> x(4 * kHidden);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = round_to_bf16(std::cos(static_cast<float>(i)));
  Rope rope(1e4, kDims, 64);
  rope.prepare(64);

  for (const int threads : {1, 3})
    for (const Precision precision : {Precision::fp32, Precision::bf16})
      for (const bool normed : {false, true}) {
        ThreadPool pool(threads);
        OpContext context(pool, select_isa(), precision);
        const TensorView parts[] = {weight.view()};
        std::optional<Norm> q_norm, k_norm;
        if (normed) q_norm.emplace(NormParams{.alpha = {1.5F}, .gamma = {0.9F}}, kDims);
        if (normed) k_norm.emplace(NormParams{.kind = NormKind::rms, .gamma = {1.1F}}, kDims);
        std::vector<float> want(4 * kCols);
        Linear(context, parts).run(context, ConstMatrix(x.data(), 4, kHidden), Matrix(want.data(), 4, kCols));
        for (std::size_t row = 0; row < 4; ++row)
          for (std::int64_t h = 0; h < kHeads + kKvHeads; ++h) {
            float* const head = want.data() + static_cast<std::int64_t>(row) * kCols + h * kDims;
            if (normed) (h < kHeads ? q_norm : k_norm)->apply(context, head, head, false);
            rope.apply(context, head, positions[row]);
          }

        const bool round = precision == Precision::bf16;
        Cache cache(round ? DType::bf16 : DType::f32);
        std::vector<float> qkv(4 * kCols, std::numeric_limits<float>::quiet_NaN());
        const QkvProjection projection({.qkv = Linear(context, parts),
                                        .q_norm = q_norm,
                                        .k_norm = k_norm,
                                        .heads = kHeads,
                                        .kv_heads = kKvHeads,
                                        .head_dim = kDims});
        projection.run(context, rope, batch, ConstMatrix(x.data(), 4, kHidden), Matrix(qkv.data(), 4, kCols),
                       cache.layer);
        const auto stored = [&](float value) { return round ? round_to_bf16(value) : value; };
        int written = 0;
        for (std::int64_t row = 0; row < 4; ++row) {
          const float* const expected = want.data() + row * kCols;
          for (std::int64_t i = 0; i < kHeads * kDims; ++i)
            EXPECT_EQ(qkv[static_cast<std::size_t>(row * kCols + i)], stored(expected[i]));
          const std::int64_t slot = slots[static_cast<std::size_t>(row)];
          if (slot < 0) continue;
          ++written;
          for (std::int64_t h = 0; h < kKvHeads; ++h)
            for (std::int64_t d = 0; d < kDims; ++d) {
              const float* const key = expected + (kHeads + h) * kDims + d;
              EXPECT_EQ(cache.at(cache.layer.key, slot, h, d), stored(key[0]));
              EXPECT_EQ(cache.at(cache.layer.value, slot, h, d), stored(key[kKvHeads * kDims]));
            }
        }
        std::int64_t poisoned = 0;
        for (std::int64_t i = 0; i < cache.pages.shape().elements(); ++i)
          poisoned += std::isnan(cache.pages.view().at(i));
        EXPECT_EQ(poisoned, 2 * (kBlocks * kBlock - written) * kKvHeads * kDims);
      }
}

}  // namespace
}  // namespace asynct
