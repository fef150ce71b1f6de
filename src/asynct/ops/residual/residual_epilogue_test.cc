#include "asynct/ops/residual/residual_epilogue.h"

#include <gtest/gtest.h>

#include <cmath>

namespace asynct {
namespace {

/// Unfused: each step on its own, rounded where the epilogue stores.
struct Expected {
  std::vector<float> residual;
  std::vector<float> next;
};

Expected unfused(const OpContext& context, const std::vector<float>& product, std::vector<float> residual,
                 std::int64_t cols, const Norm* post, const Norm& next) {
  std::vector<float> added = product;
  std::vector<float> normed(product.size());
  for (std::size_t at = 0; at < product.size(); at += static_cast<std::size_t>(cols)) {
    if (post != nullptr) post->apply(context, &product[at], &added[at], false);
    for (std::size_t i = at; i < at + static_cast<std::size_t>(cols); ++i) {
      const float sum = residual[i] + added[i];
      residual[i] = context.precision() == Precision::bf16 ? round_to_bf16(sum) : sum;
    }
    next.apply(context, &residual[at], &normed[at], true);
  }
  return {residual, normed};
}

TEST(ResidualEpilogue, IsTheUnfusedComposition) {
  constexpr std::int64_t kRows = 5;
  constexpr std::int64_t kCols = 37;
  ThreadPool pool(1);
  std::vector<float> product(kRows * kCols), residual(kRows * kCols);
  for (std::size_t i = 0; i < product.size(); ++i) {
    product[i] = std::sin(static_cast<float>(i));
    residual[i] = 2 * std::cos(static_cast<float>(3 * i));
  }
  const Norm post({.alpha = {0.8F}, .gamma = {1.2F}}, kCols);
  const Norm next({.kind = NormKind::rms, .gamma = {1.5F}}, kCols);
  for (const Precision precision : {Precision::fp32, Precision::bf16})
    for (const Norm* maybe_post : {static_cast<const Norm*>(nullptr), &post})
      for (const bool in_place : {false, true}) {
        OpContext context(pool, select_isa(), precision);
        std::vector<float> p = product, r = residual, n(product.size(), std::nanf(""));
        const Expected want = unfused(context, p, r, kCols, maybe_post, next);
        const Matrix product_matrix(p.data(), kRows, kCols);
        const ResidualEpilogue epilogue = {
            .context = context,
            .product = product_matrix,
            .residual = Matrix(r.data(), kRows, kCols),
            .next_input = in_place ? product_matrix : Matrix(n.data(), kRows, kCols),
            .post = maybe_post,
            .next = next};
        epilogue(0, 2, 0);
        for (std::size_t i = 2 * kCols; i < r.size(); ++i) EXPECT_EQ(r[i], residual[i]);  // not asked for yet
        epilogue(2, kRows, 0);
        EXPECT_EQ(r, want.residual);
        EXPECT_EQ(in_place ? p : n, want.next);
      }
}

}  // namespace
}  // namespace asynct
