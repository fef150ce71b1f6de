#include "asynct/ops/kernel_bench/shapes.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "asynct/base/error.h"

namespace asynct::kernel_bench {
namespace {

template <class Shape>
std::string error_of(const char* text) {
  try {
    Shape::parse(text, "--shape");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Shapes, what_is_written_reads_back) {
  for (const DecodeShape& shape : default_decode_shapes())
    EXPECT_EQ(DecodeShape::parse(shape.text(), "--decode").text(), shape.text());
  for (const PrefillShape& shape : default_prefill_shapes())
    EXPECT_EQ(PrefillShape::parse(shape.text(), "--prefill").text(), shape.text());
  for (const MixedShape& shape : default_mixed_shapes())
    EXPECT_EQ(MixedShape::parse(shape.text(), "--mixed").text(), shape.text());
  for (const LinearShape& shape : default_linear_shapes())
    EXPECT_EQ(LinearShape::parse(shape.text(), "--linear").text(), shape.text());
  for (const LayerShape& shape : default_layer_shapes())
    EXPECT_EQ(LayerShape::parse(shape.text(), "--layer").text(), shape.text());
  const MixedShape mixed = MixedShape::parse("8,512,2560,128,1024,32,16,64", "--mixed");
  EXPECT_EQ(mixed.prefills, 8);
  EXPECT_EQ(mixed.rows, 512);
  EXPECT_EQ(mixed.context, 2560);
  EXPECT_EQ(mixed.decodes, 128);
  EXPECT_EQ(mixed.decode_context, 1024);
  EXPECT_EQ(mixed.heads, 32);
  EXPECT_EQ(mixed.kv_heads, 16);
  EXPECT_EQ(mixed.head_dim, 64);
}

TEST(Shapes, errors_name_option_text_and_form) {
  for (const char* text : {"", "1", "1,2,4,2", "1,2,4,2,128,5", "1,2,4,2,", "a,2,4,2,128", "1,0,4,2,128",
                           "-1,2,4,2,128", "1, 2,4,2,128", "99999999999,2,4,2,128"}) {
    const std::string error = error_of<DecodeShape>(text);
    EXPECT_NE(error.find(std::string("--shape: \"") + text + "\", expected B,T,H,Hk,D"), std::string::npos)
        << text << ": " << error;
  }
  EXPECT_NE(error_of<DecodeShape>("1,2,4,3,128").find("a multiple of the 3 KV heads"), std::string::npos);
  EXPECT_NE(error_of<PrefillShape>("1,2,4,2,96").find("head size 96"), std::string::npos);
  EXPECT_NE(error_of<DecodeShape>("100000,100000,64,64,128").find("elements"), std::string::npos);
  EXPECT_NE(error_of<LinearShape>("1,20,16").find("multiples of 8"), std::string::npos);
  EXPECT_NE(error_of<LinearShape>("2000000000,1024,1024").find("elements"), std::string::npos);
  EXPECT_NE(error_of<LayerShape>("1,20,4,2,64,16,100").find("hidden size 20"), std::string::npos);
  EXPECT_NE(error_of<LayerShape>("1,16,4,2,64,16").find("expected M,d,H,Hk,D,F,V"), std::string::npos);
  EXPECT_NE(error_of<MixedShape>("1,20,10,1,1,4,2,64").find("20 rows"), std::string::npos);
}

TEST(Shapes, floors) {
  const DecodeShape decode = {32, 1024, 8, 4, 128};
  const double side = 32.0 * 1024 * 4 * 128 * 2;
  const double rows = 32.0 * 8 * 128 * 2;
  EXPECT_DOUBLE_EQ(decode.floor(1).bytes, 2 * side + 2 * rows);
  EXPECT_DOUBLE_EQ(decode.floor(0.25).bytes, 1.25 * side + 2 * rows);
  EXPECT_DOUBLE_EQ(decode.floor(0).bytes, side + 2 * rows);
  EXPECT_DOUBLE_EQ(decode.floor(1).flops, 4.0 * 32 * 1024 * 8 * 128);

  const PrefillShape prefill = {1, 16384, 16, 16, 128};
  EXPECT_DOUBLE_EQ(prefill.floor().flops, 4.0 * 16 * 16384 * 16384 * 128 / 2);
  EXPECT_DOUBLE_EQ(prefill.floor().bytes, 4.0 * 16384 * 16 * 128 * 2);

  const LinearShape linear = {32, 2048, 1024};
  EXPECT_DOUBLE_EQ(linear.floor().flops, 2.0 * 32 * 2048 * 1024);
  EXPECT_DOUBLE_EQ(linear.floor().bytes, 2.0 * (2048 * 1024 + 32 * 1024 + 32 * 2048));

  const MixedShape mixed = default_mixed_shapes().front();
  const double pairs = 512.0 * 2048 + 512.0 * 512 / 2;
  EXPECT_DOUBLE_EQ(mixed.prefill_floor().flops, 4.0 * 8 * 8 * 128 * pairs);
  EXPECT_DOUBLE_EQ(mixed.floor().flops, mixed.prefill_floor().flops + mixed.decode_floor().flops);
  EXPECT_DOUBLE_EQ(mixed.floor().bytes, mixed.prefill_floor().bytes + mixed.decode_floor().bytes);
}

TEST(NeededKeys, are_exactly_the_share_of_each_row) {
  for (const double density : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    const std::vector<std::uint8_t> needed = needed_keys(5, 1000, density, 7);
    ASSERT_EQ(needed.size(), 5000u);
    for (int row = 0; row < 5; ++row)
      EXPECT_EQ(std::accumulate(needed.begin() + 1000 * row, needed.begin() + 1000 * (row + 1), 0),
                static_cast<int>(1000 * density));
  }
}

TEST(NeededKeys, differ_by_row_and_seed_and_lie_scattered) {
  const std::vector<std::uint8_t> needed = needed_keys(2, 512, 0.5, 1);
  EXPECT_EQ(needed, needed_keys(2, 512, 0.5, 1));
  EXPECT_NE(needed, needed_keys(2, 512, 0.5, 2));
  EXPECT_FALSE(std::equal(needed.begin(), needed.begin() + 512, needed.begin() + 512));
  int changes = 0;
  for (std::size_t i = 1; i < 512; ++i) changes += needed[i] != needed[i - 1] ? 1 : 0;
  EXPECT_GT(changes, 200);  // 256 are expected
}

TEST(RotatingSets, outlast_the_cache) {
  EXPECT_EQ(rotating_sets(1e9, 60e6), 2);
  EXPECT_EQ(rotating_sets(67e6, 60e6), 8);
  EXPECT_EQ(rotating_sets(1e3, 60e6), 64);
  EXPECT_GE(rotating_sets(100e6, 60e6) * 100e6, 4 * 60e6);
}

}  // namespace
}  // namespace asynct::kernel_bench
