#include "asynct/tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace asynct {
namespace {

TEST(DType, Bf16RoundsToNearestEven) {
  EXPECT_EQ(to_bf16(1.0F).bits, 0x3f80);
  EXPECT_EQ(round_to_bf16(1.00390625F), 1.0F);       // halfway, even below
  EXPECT_EQ(round_to_bf16(1.01171875F), 1.015625F);  // halfway, even above
  EXPECT_EQ(round_to_bf16(3.4e38F), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(round_to_bf16(std::bit_cast<float>(0x7f800001U))));
}

TEST(DType, F16RoundTripsEveryValue) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = to_float(F16{static_cast<std::uint16_t>(bits)});
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(to_float(to_f16(value))));
    } else {
      ASSERT_EQ(to_f16(value).bits, bits);
    }
  }
  EXPECT_EQ(to_f16(65519.0F).bits, 0x7bff);
  EXPECT_EQ(to_f16(65520.0F).bits, 0x7c00);
  EXPECT_EQ(to_f16(0x1p-25F).bits, 0);    // halfway to the smallest subnormal, even is zero
  EXPECT_EQ(to_f16(0x1.8p-24F).bits, 2);  // halfway between 1 and 2, even is 2
}

TEST(Tensor, OwnsAlignedMemoryAndViewsIt) {
  const Tensor t(DType::bf16, {3, 5});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.view().data) % 64, 0U);
  EXPECT_EQ(t.view().bytes(), 30U);
  for (auto& value : t.values<Bf16>()) value = to_bf16(0.5F);
  EXPECT_EQ(t.view().at(14), 0.5F);
  EXPECT_EQ(t.shape().to_string(), "[3, 5]");
}

TEST(Arena, GivesPiecesThatKeepItAliveAndOwnMemoryBeyondThem) {
  std::vector<Buffer> pieces;
  {
    Arena arena(1000, Pages::huge);
    for (const std::size_t bytes : {1U, 65U, 700U, 100U, 5000U, 100U, 0U})
      pieces.push_back(arena.take(bytes));
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pieces[i].data()) % 64, 0U);
    std::memset(pieces[i].data(), static_cast<int>(i) + 1, pieces[i].size());
  }
  EXPECT_EQ(pieces[1].data() - pieces[0].data(), 64);
  EXPECT_EQ(pieces[2].data() - pieces[1].data(), 128);
  EXPECT_EQ(pieces[4].size(), 5000U);
  for (std::size_t i = 0; i < pieces.size(); ++i)
    for (std::size_t j = 0; j < pieces[i].size(); ++j)
      ASSERT_EQ(pieces[i].data()[j], static_cast<std::byte>(i + 1)) << i << ' ' << j;
}

TEST(Matrix, SlicesKeepTheStride) {
  float data[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const Matrix m(data, 3, 4);
  EXPECT_EQ(m.slice_rows(1, 2).slice_cols(2, 2).row(1)[1], 11);
}

}  // namespace
}  // namespace asynct
