#include "asynct/ops/linear/cuda/policy.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace asynct::cuda {
namespace {

TEST(LinearPolicy, splits_the_source_models_layers_and_not_its_head) {
  EXPECT_EQ(linear_parts(2048, 1024), 4);
  EXPECT_EQ(linear_parts(1024, 1024), 4);
  EXPECT_EQ(linear_parts(6144, 1024), 4);
  EXPECT_EQ(linear_parts(1024, 3072), 8);
  EXPECT_EQ(linear_parts(151936, 1024), 1);
}

TEST(LinearPolicy, parts_are_whole_stages) {
  for (std::int32_t outputs = 8; outputs < 40000; outputs = outputs * 3 / 2 / 8 * 8 + 8)
    for (std::int32_t inputs = 64; inputs < 20000; inputs += 64) {
      const std::int32_t parts = linear_parts(outputs, inputs);
      ASSERT_GE(parts, 1);
      ASSERT_LE(parts, kMostParts);
      ASSERT_TRUE(parts == 1 || inputs % (parts * kStreamDepth) == 0) << outputs << " x " << inputs;
    }
}

const std::vector<std::pair<int, int>> kModel = {
    {2048, 1024}, {1024, 1024}, {6144, 1024}, {1024, 3072}, {151936, 1024}};

std::string tile_of(int rows, int outputs, int inputs) {
  const LinearTile* const tile = linear_tile(rows, outputs, inputs);
  if (tile == nullptr) return "stream";
  return std::to_string(tile->tokens) + "x" + std::to_string(tile->outputs) + (tile->slices ? " slices" : "");
}

TEST(LinearPolicy, chooses_tiles_of_the_source_model) {
  const auto tiles = [](int rows) {
    std::string text;
    for (const auto& [outputs, inputs] : kModel) text += tile_of(rows, outputs, inputs) + ", ";
    return text;
  };
  EXPECT_EQ(tiles(1), "stream, stream, stream, stream, stream, ");
  EXPECT_EQ(tiles(16), tiles(1));
  EXPECT_EQ(tiles(64), "64x16 slices, 64x16 slices, 64x96, stream, 64x128, ");
  EXPECT_EQ(tiles(256), "64x96, 64x32 slices, 128x96, 64x32 slices, 128x256, ");
  EXPECT_EQ(tiles(2048), "128x128, 128x128, 128x192, 128x128, 128x256, ");
}

TEST(LinearPolicy, chooses_what_suits) {
  for (int outputs = 8; outputs < 200000; outputs = outputs * 3 / 2 / 8 * 8 + 8)
    for (const int inputs : {64, 192, 448, 512, 1024, 3072, 8192})
      for (int rows = 1; rows < 100000; rows = rows * 3 / 2 + 1) {
        const LinearTile* const tile = linear_tile(rows, outputs, inputs);
        if (tile == nullptr) {
          ASSERT_LE(rows, 64);
          continue;
        }
        ASSERT_GT(rows, 16);
        ASSERT_TRUE(tile->suits(linear_parts(outputs, inputs)));
        for (const LinearTile& other : kLinearTiles)
          if (other.suits(linear_parts(outputs, inputs))) {
            ASSERT_LE(tile_time(*tile, rows, outputs, inputs), tile_time(other, rows, outputs, inputs));
          }
      }
}

TEST(LinearPolicy, boxes_divide_rows) {
  for (int rows = 8; rows <= 256; rows += 8) {
    const int box = tile_box(rows);
    EXPECT_EQ(rows % box, 0);
    EXPECT_TRUE(box == 128 || rows % (2 * box) != 0) << rows;
    EXPECT_EQ(8 << tile_map_of(box), box);
  }
}

TEST(LinearPolicy, tokens_hold_the_rows) {
  EXPECT_EQ(stream_tokens(1), 8);
  EXPECT_EQ(stream_tokens(8), 8);
  EXPECT_EQ(stream_tokens(9), 16);
  EXPECT_EQ(stream_tokens(64), 64);
  EXPECT_EQ(stream_tokens(33), 64);
  EXPECT_EQ(stream_tokens(300), 64);
}

}  // namespace
}  // namespace asynct::cuda
