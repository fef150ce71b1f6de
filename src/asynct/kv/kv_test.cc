#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "asynct/kv/block_pool.h"
#include "asynct/kv/kv_cache.h"
#include "asynct/kv/sequence.h"

namespace asynct {
namespace {

TEST(BlockPool, CountsReferences) {
  BlockPool pool(2);
  const auto a = pool.allocate();
  const auto b = pool.allocate();
  EXPECT_NE(a, b);
  EXPECT_EQ(pool.free_blocks(), 0);
  pool.retain(a);
  pool.release(a);
  EXPECT_EQ(pool.free_blocks(), 0);
  pool.release(a);
  EXPECT_EQ(pool.free_blocks(), 1);
  EXPECT_EQ(pool.allocate(), a);
}

TEST(Sequence, ForkSharesFullBlocksAndCopiesThePartialOneOnFirstWrite) {
  BlockPool pool(8);
  Sequence parent(pool, 4);
  EXPECT_FALSE(parent.extend(6).has_value());
  Sequence child = parent.fork();
  EXPECT_EQ(pool.free_blocks(), 6);
  EXPECT_EQ(child.blocks_for(1), 1);  // the copy
  EXPECT_EQ(child.blocks_for(3), 2);
  const auto copy = child.extend(1);
  ASSERT_TRUE(copy.has_value());
  EXPECT_EQ(copy->from, parent.blocks()[1]);
  EXPECT_EQ(copy->to, child.blocks()[1]);
  EXPECT_EQ(child.blocks()[0], parent.blocks()[0]);
  EXPECT_EQ(pool.references(copy->from), 2) << "nobody may take it before the copy is done";
  pool.release(copy->from);
  EXPECT_FALSE(child.extend(1).has_value());
  EXPECT_FALSE(parent.extend(1).has_value());  // nobody else holds its partial block now
  EXPECT_EQ(parent.slot(6), parent.blocks()[1] * 4 + 2);
}

TEST(Sequence, ForkAtABlockBorderNeedsNoCopy) {
  BlockPool pool(4);
  Sequence parent(pool, 4);
  EXPECT_FALSE(parent.extend(4).has_value());
  Sequence child = parent.fork();
  EXPECT_EQ(child.blocks_for(1), 1);
  EXPECT_FALSE(child.extend(1).has_value());
}

// Random forks and writes against a model in which every sequence owns its contents.
TEST(Sequence, RandomForksKeepEverySequencesContents) {
  constexpr int kBlock = 4;
  std::mt19937 random(7);
  BlockPool pool(400);
  std::vector<int> memory(400 * kBlock, -1);
  struct Pair {
    Sequence sequence;
    std::vector<int> contents;
  };
  std::vector<Pair> live;
  int next_value = 0;
  for (int step = 0; step < 20000; ++step) {
    const auto action = random() % 10;
    if (live.empty() || (action == 0 && live.size() < 20)) {
      live.push_back({Sequence(pool, kBlock), {}});
    } else if (action < 3 && live.size() < 20) {
      const auto& source = live[random() % live.size()];
      live.push_back({source.sequence.fork(), source.contents});
    } else if (action == 3) {
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(random() % live.size()));
    } else {
      auto& pair = live[random() % live.size()];
      const int tokens = static_cast<int>(random() % 7);
      if (pair.sequence.blocks_for(tokens) > pool.free_blocks() || pair.contents.size() > 40) continue;
      const auto before = pool.free_blocks();
      const auto need = pair.sequence.blocks_for(tokens);
      if (const auto copy = pair.sequence.extend(tokens)) {
        std::memcpy(&memory[static_cast<std::size_t>(std::int64_t{copy->to} * kBlock)],
                    &memory[static_cast<std::size_t>(std::int64_t{copy->from} * kBlock)],
                    kBlock * sizeof(int));
        pool.release(copy->from);
      }
      EXPECT_EQ(before - pool.free_blocks(), need);
      for (int t = 0; t < tokens; ++t) {
        memory[static_cast<std::size_t>(
            pair.sequence.slot(static_cast<std::int64_t>(pair.contents.size())))] = next_value;
        pair.contents.push_back(next_value++);
      }
    }
    for (const auto& pair : live) {
      ASSERT_EQ(pair.sequence.length(), static_cast<std::int64_t>(pair.contents.size()));
      for (std::size_t i = 0; i < pair.contents.size(); ++i)
        ASSERT_EQ(memory[static_cast<std::size_t>(pair.sequence.slot(static_cast<std::int64_t>(i)))],
                  pair.contents[i]);
    }
  }
  live.clear();
  EXPECT_EQ(pool.free_blocks(), 400);
}

TEST(KvCache, CopiesAllLayersOfABlock) {
  const KvShape shape{.layers = 2, .kv_heads = 2, .head_dim = 4, .block_size = 8};
  KvCache cache(shape, 3);
  EXPECT_EQ(shape.block_bytes(), 2U * 2 * 2 * 4 * 8 * 4);
  for (int l = 0; l < 2; ++l) {
    const KvLayer layer = cache.layer(l);
    for (std::int64_t block = 0; block < 3; ++block)
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t t = 0; t < 8; ++t)
          for (std::int64_t d = 0; d < 4; ++d) {
            const auto value = static_cast<float>((((l * 3 + block) * 2 + h) * 8 + t) * 4 + d);
            static_cast<float*>(layer.key.data)[layer.key.offset(block, h, t, d)] = value;
            static_cast<float*>(layer.value.data)[layer.value.offset(block, h, t, d)] = -value;
          }
  }
  cache.copy_block(0, 2);
  for (int l = 0; l < 2; ++l) {
    const KvLayer layer = cache.layer(l);
    const auto* key = static_cast<const float*>(layer.key.data);
    const auto* value = static_cast<const float*>(layer.value.data);
    EXPECT_EQ(key[layer.key.offset(2, 1, 5, 3)], key[layer.key.offset(0, 1, 5, 3)]);
    EXPECT_EQ(value[layer.value.offset(2, 0, 7, 1)], value[layer.value.offset(0, 0, 7, 1)]);
    EXPECT_NE(key[layer.key.offset(1, 1, 5, 3)], key[layer.key.offset(0, 1, 5, 3)]);
  }
}

}  // namespace
}  // namespace asynct
