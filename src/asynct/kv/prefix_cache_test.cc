#include "asynct/kv/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "asynct/kv/sequence.h"

namespace asynct {
namespace {

using Tokens = std::vector<std::int32_t>;

Tokens count_from(std::int32_t first, std::int32_t count) {
  Tokens tokens(static_cast<std::size_t>(count));
  for (std::int32_t i = 0; i < count; ++i) tokens[static_cast<std::size_t>(i)] = first + i;
  return tokens;
}

Tokens concat(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class PrefixCacheTest : public testing::Test {
 protected:
  static constexpr std::int32_t kBlock = 16;

  // A sequence as the engine runs it: found blocks are adopted, the rest is computed and made findable.
  Sequence run(const Tokens& tokens, std::string_view salt = {}) {
    Sequence sequence(pool_, kBlock);
    cache_.find(tokens, salt, match_);
    sequence.adopt(match_.blocks, match_.tokens);
    if (const auto copy = sequence.extend(static_cast<std::int64_t>(tokens.size()) - match_.tokens))
      pool_.release(copy->from);
    for (std::size_t i = 0; i * kBlock < tokens.size(); ++i) {
      const auto part =
          std::span(tokens).subspan(i * kBlock, std::min<std::size_t>(kBlock, tokens.size() - i * kBlock));
      const std::int32_t own = sequence.blocks()[i];
      const std::int32_t kept =
          pool_.kept(own) ? own : cache_.insert(i > 0 ? sequence.blocks()[i - 1] : -1, salt, part, own);
      if (std::ssize(part) == kBlock && kept != own) sequence.replace(i, kept);
    }
    return sequence;
  }
  std::int64_t found(const Tokens& tokens, std::string_view salt = {}) {
    cache_.find(tokens, salt, match_);
    return match_.tokens;
  }

  BlockPool pool_{10};
  PrefixCache cache_{pool_, kBlock};
  PrefixCache::Match match_;
};

TEST_F(PrefixCacheTest, FindsWholeBlocksAndPartsOfBlocks) {
  const Tokens tokens = count_from(0, 60);
  const Sequence sequence = run(tokens);
  EXPECT_EQ(found(tokens), 60);
  EXPECT_EQ(found(concat(tokens, {5, 6, 7})), 60);
  EXPECT_EQ(found(count_from(0, 40)), 40) << "ends inside of a cached block";
  EXPECT_EQ(found(count_from(0, 35)), 32) << "three tokens are computed rather than copied";
  EXPECT_EQ(found(concat(count_from(0, 26), {99, 98})), 26);
  EXPECT_EQ(found({1, 2, 3}), 0);
  EXPECT_EQ(found({}), 0);
  EXPECT_EQ(found(tokens), 60);
  EXPECT_TRUE(std::equal(match_.blocks.begin(), match_.blocks.end(), sequence.blocks().begin()));
}

TEST_F(PrefixCacheTest, SharesBlocksAndFreesTailFirst) {
  auto first = std::make_unique<Sequence>(run(count_from(0, 58)));
  const Tokens other = concat(count_from(0, 48), {90, 91, 92});
  auto second = std::make_unique<Sequence>(run(other));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(first->blocks()[i], second->blocks()[i]);
    EXPECT_EQ(pool_.references(first->blocks()[i]), 2);
  }
  const Tokens blocks(first->blocks().begin(), first->blocks().end());
  const std::int32_t private_block = second->blocks()[3];
  first.reset();
  second.reset();
  // What nobody can find goes first; then the tail of the first, and of the second, which freed 2, 1, 0.
  const auto queue = pool_.free_queue();
  EXPECT_EQ(queue.front(), private_block);
  EXPECT_EQ(Tokens(queue.end() - 4, queue.end()), (Tokens{blocks[3], blocks[2], blocks[1], blocks[0]}));
}

TEST_F(PrefixCacheTest, HitsAreTakenOutOfTheMiddleOfTheQueue) {
  run(count_from(0, 48));
  run(count_from(100, 48));
  EXPECT_EQ(pool_.free_blocks(), 10);
  const Sequence again = run(count_from(0, 32));
  EXPECT_EQ(pool_.free_blocks(), 8);
  EXPECT_EQ(again.blocks().size(), 2U);
}

TEST_F(PrefixCacheTest, RetainedHitsAreNotTakenForNewBlocks) {
  run(count_from(0, 16 * 9));
  const Tokens tokens = concat(count_from(0, 16), count_from(500, 16 * 9));
  const Sequence sequence = run(tokens);  // takes every other block of the pool
  EXPECT_EQ(sequence.blocks().size(), 10U);
  EXPECT_EQ(found(tokens), 160);
  EXPECT_EQ(found(count_from(0, 32)), 16) << "those blocks hold something else now";
}

TEST_F(PrefixCacheTest, SaltsSeparate) {
  const Tokens tokens = count_from(0, 40);
  run(tokens, "a");
  EXPECT_EQ(found(tokens, "a"), 40);
  EXPECT_EQ(found(tokens, "b"), 0);
  EXPECT_EQ(found(tokens), 0);
}

TEST_F(PrefixCacheTest, EqualBlocksBecomeOne) {
  Sequence one(pool_, kBlock);
  Sequence two(pool_, kBlock);
  ASSERT_FALSE(one.extend(16).has_value());
  ASSERT_FALSE(two.extend(16).has_value());
  const Tokens tokens = count_from(7, 16);
  EXPECT_EQ(cache_.insert(-1, {}, tokens, one.blocks()[0]), one.blocks()[0]);
  EXPECT_EQ(cache_.insert(-1, {}, tokens, two.blocks()[0]), one.blocks()[0]);
  two.replace(0, one.blocks()[0]);
  EXPECT_EQ(pool_.free_blocks(), 9);
}

TEST_F(PrefixCacheTest, ShortOrKnownPartsAreNotKept) {
  Sequence sequence(pool_, kBlock);
  ASSERT_FALSE(sequence.extend(12).has_value());
  const std::int32_t block = sequence.blocks()[0];
  EXPECT_EQ(cache_.insert(-1, {}, count_from(0, 7), block), -1);
  EXPECT_EQ(cache_.insert(-1, {}, count_from(0, 12), block), block);
  Sequence other(pool_, kBlock);
  ASSERT_FALSE(other.extend(9).has_value());
  EXPECT_EQ(cache_.insert(-1, {}, count_from(0, 9), other.blocks()[0]), block);
}

TEST_F(PrefixCacheTest, ResetWaitsForTheLastUser) {
  auto sequence = std::make_unique<Sequence>(run(count_from(0, 40)));
  EXPECT_FALSE(cache_.reset());
  EXPECT_EQ(found(count_from(0, 40)), 40);
  sequence.reset();
  EXPECT_TRUE(cache_.reset());
  EXPECT_EQ(found(count_from(0, 40)), 0);
  EXPECT_EQ(cache_.cached_blocks(), 0);
}

TEST_F(PrefixCacheTest, WhatFollowsAReusedBlockIsForgotten) {
  run(count_from(0, 64));
  const Tokens chain = [&] {
    cache_.find(count_from(0, 64), {}, match_);
    return match_.blocks;
  }();
  cache_.on_reuse(chain[1]);
  EXPECT_EQ(found(count_from(0, 64)), 16);
  EXPECT_EQ(cache_.cached_blocks(), 1);
  EXPECT_EQ(cache_.tokens_of(chain[3]), 0);
  EXPECT_FALSE(pool_.kept(chain[2]));
}

// Random prompts over a small alphabet, live and gone, against a map of what each block must hold.
TEST(PrefixCache, NeverFindsWhatIsNotThere) {
  for (const std::int32_t block_size : {4, 8, 16, 32}) {
    std::mt19937 random(static_cast<unsigned>(block_size));
    BlockPool pool(24);
    PrefixCache cache(pool, block_size);
    std::map<std::int32_t, Tokens> content;  // of each block, with all before it
    PrefixCache::Match match;
    std::vector<Sequence> live;
    std::int64_t hits = 0;
    for (int step = 0; step < 20000; ++step) {
      if (!live.empty() && random() % 2 == 0)
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(random() % live.size()));
      Tokens tokens(1 + random() % static_cast<unsigned>(4 * block_size));
      const auto same = random() % tokens.size();
      for (std::size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = i < same ? static_cast<std::int32_t>(i) % 3 : static_cast<std::int32_t>(random() % 3);
      const std::string salt(random() % 2, 'x');
      cache.find(tokens, salt, match);
      ASSERT_LE(match.tokens, std::ssize(tokens));
      for (std::size_t i = 0; i < match.blocks.size(); ++i) {
        const auto& there = content[match.blocks[i]];
        const auto end = std::min<std::size_t>(static_cast<std::size_t>(match.tokens),
                                               (i + 1) * static_cast<std::size_t>(block_size));
        ASSERT_LE(end, there.size() - salt.size());
        ASSERT_TRUE(std::equal(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(end),
                               there.begin() + static_cast<std::ptrdiff_t>(salt.size())));
        ASSERT_EQ(there[0] == -9, !salt.empty());
      }
      hits += match.tokens;
      Sequence sequence(pool, block_size);
      sequence.adopt(match.blocks, match.tokens);
      const auto more = static_cast<std::int64_t>(tokens.size()) - match.tokens;
      if (sequence.blocks_for(more) > pool.free_blocks()) continue;
      if (const auto copy = sequence.extend(more)) pool.release(copy->from);
      const auto size = static_cast<std::size_t>(block_size);
      for (std::size_t i = 0; i * size < tokens.size(); ++i) {
        const std::int32_t own = sequence.blocks()[i];
        if (pool.kept(own)) continue;
        const std::size_t end = std::min(tokens.size(), (i + 1) * size);
        content[own] = concat(Tokens(salt.size(), -9),
                              Tokens(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(end)));
        const std::int32_t kept = cache.insert(i > 0 ? sequence.blocks()[i - 1] : -1, salt,
                                               std::span(tokens).subspan(i * size, end - i * size), own);
        if (end == (i + 1) * size && kept != own) sequence.replace(i, kept);
      }
      live.push_back(std::move(sequence));
    }
    EXPECT_GT(hits, 20000) << "block size " << block_size;
    live.clear();
    EXPECT_EQ(pool.free_blocks(), 24);
    EXPECT_TRUE(cache.reset());
  }
}

}  // namespace
}  // namespace asynct
