#include "asynct/kv/prefix_cache.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

namespace asynct {
namespace {

// Blocks that begin alike are compared, newest first, up to so many: some miss a longer match rather than
// that a crowd of similar prompts makes every search slow.
constexpr int kMostCompared = 64;

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15U;
  return hash ^ (hash >> 29);
}

std::uint64_t hash_of(std::int32_t parent, std::string_view salt, std::span<const std::int32_t> tokens) {
  std::uint64_t hash = mix(0x243f6a8885a308d3U, static_cast<std::uint64_t>(std::int64_t{parent} + 1));
  if (parent < 0)
    for (const char c : salt) hash = mix(hash, static_cast<unsigned char>(c));
  for (const std::int32_t token : tokens) hash = mix(hash, static_cast<std::uint32_t>(token));
  return mix(hash, tokens.size());
}

}  // namespace

PrefixCache::PrefixCache(BlockPool& pool, std::int32_t block_size)
    : pool_(pool),
      block_size_(block_size),
      start_tokens_(std::min<std::int64_t>(kMinTokens, block_size)),
      entries_(static_cast<std::size_t>(pool.size())),
      tokens_(static_cast<std::size_t>(pool.size()) * static_cast<std::size_t>(block_size)),
      salts_(static_cast<std::size_t>(pool.size())),
      full_buckets_(std::bit_ceil(2 * static_cast<std::size_t>(pool.size())), -1),
      start_buckets_(full_buckets_) {
  pool.observe(this);
}

std::span<const std::int32_t> PrefixCache::tokens(std::int32_t block) const {
  return std::span(tokens_).subspan(static_cast<std::size_t>(block) * static_cast<std::size_t>(block_size_),
                                    static_cast<std::size_t>(entry(block).count));
}

bool PrefixCache::belongs(std::int32_t block, std::int32_t parent, std::string_view salt) const {
  return entry(block).parent == parent && (parent >= 0 || salts_[static_cast<std::size_t>(block)] == salt);
}

std::int32_t PrefixCache::find_full(std::int32_t parent, std::string_view salt,
                                    std::span<const std::int32_t> wanted) const {
  const std::uint64_t hash = hash_of(parent, salt, wanted);
  for (std::int32_t at = full_buckets_[bucket(hash)]; at >= 0; at = entry(at).next_full)
    if (entry(at).full_hash == hash && belongs(at, parent, salt) &&
        std::equal(wanted.begin(), wanted.end(), tokens(at).begin(), tokens(at).end()))
      return at;
  return -1;
}

std::int32_t PrefixCache::find_start(std::int32_t parent, std::string_view salt,
                                     std::span<const std::int32_t> wanted, std::int64_t& common) const {
  common = 0;
  if (std::ssize(wanted) < start_tokens_) return -1;
  const std::uint64_t hash = hash_of(parent, salt, wanted.first(static_cast<std::size_t>(start_tokens_)));
  std::int32_t best = -1;
  int compared = 0;
  for (std::int32_t at = start_buckets_[bucket(hash)]; at >= 0 && compared < kMostCompared;
       at = entry(at).next_start) {
    if (entry(at).start_hash != hash || !belongs(at, parent, salt)) continue;
    ++compared;
    const auto here = tokens(at);
    const auto differs = std::mismatch(wanted.begin(), wanted.end(), here.begin(), here.end()).first;
    if (differs - wanted.begin() <= common) continue;
    common = differs - wanted.begin();
    best = at;
  }
  if (common < start_tokens_) best = -1;
  return best;
}

void PrefixCache::find(std::span<const std::int32_t> wanted, std::string_view salt, Match& match) const {
  match.blocks.clear();
  match.tokens = 0;
  std::int32_t parent = -1;
  const auto size = static_cast<std::size_t>(block_size_);
  while (wanted.size() >= size) {
    const std::int32_t block = find_full(parent, salt, wanted.first(size));
    if (block < 0) break;
    match.blocks.push_back(block);
    match.tokens += block_size_;
    wanted = wanted.subspan(size);
    parent = block;
  }
  std::int64_t common = 0;
  const std::int32_t partial = find_start(parent, salt, wanted.first(std::min(size, wanted.size())), common);
  if (partial < 0) return;
  match.blocks.push_back(partial);
  match.tokens += common;
}

std::int32_t PrefixCache::insert(std::int32_t parent, std::string_view salt,
                                 std::span<const std::int32_t> content, std::int32_t block) {
  assert(pool_.references(block) > 0 && !content.empty() && std::ssize(content) <= block_size_);
  assert(parent < 0 || entry(parent).count == block_size_);
  if (std::ssize(content) < block_size_) {
    if (std::ssize(content) < start_tokens_) return -1;
    std::int64_t common = 0;
    const std::int32_t same = find_start(parent, salt, content, common);
    if (same >= 0 && common == std::ssize(content)) return same;
  } else if (const std::int32_t same = find_full(parent, salt, content); same >= 0) {
    return same;
  }
  assert(entry(block).count == 0);
  Entry& fresh = entry(block);
  fresh = {.count = static_cast<std::int32_t>(content.size()),
           .parent = parent,
           .full_hash = hash_of(parent, salt, content),
           .start_hash = hash_of(parent, salt, content.first(static_cast<std::size_t>(start_tokens_)))};
  const auto at = static_cast<std::size_t>(block);
  std::copy(content.begin(), content.end(), tokens_.begin() + static_cast<std::ptrdiff_t>(at) * block_size_);
  fresh.next_full = std::exchange(full_buckets_[bucket(fresh.full_hash)], block);
  fresh.next_start = std::exchange(start_buckets_[bucket(fresh.start_hash)], block);
  if (parent < 0) {
    salts_[at] = salt;
  } else {
    fresh.next_sibling = std::exchange(entry(parent).first_child, block);
    if (fresh.next_sibling >= 0) entry(fresh.next_sibling).previous_sibling = block;
  }
  pool_.keep(block);
  ++cached_;
  return block;
}

void PrefixCache::forget(std::int32_t block) {
  Entry& gone = entry(block);
  const auto unchain = [&](std::int32_t* link, std::int32_t Entry::*next) {
    while (*link != block) link = &(entry(*link).*next);
    *link = gone.*next;
  };
  unchain(&full_buckets_[bucket(gone.full_hash)], &Entry::next_full);
  unchain(&start_buckets_[bucket(gone.start_hash)], &Entry::next_start);
  if (gone.previous_sibling >= 0) {
    entry(gone.previous_sibling).next_sibling = gone.next_sibling;
  } else if (gone.parent >= 0) {
    entry(gone.parent).first_child = gone.next_sibling;
  }
  if (gone.next_sibling >= 0) entry(gone.next_sibling).previous_sibling = gone.previous_sibling;
  gone = {};
  salts_[static_cast<std::size_t>(block)].clear();
  --cached_;
}

void PrefixCache::on_reuse(std::int32_t block) {
  // What follows it cannot be found any more. Rare: chains are freed tail first, so the tail goes first.
  while (entry(block).first_child >= 0) {
    std::int32_t leaf = block;
    while (entry(leaf).first_child >= 0) leaf = entry(leaf).first_child;
    forget(leaf);
    pool_.drop(leaf);
  }
  forget(block);
}

bool PrefixCache::reset() {
  if (pool_.free_blocks() < pool_.size()) return false;
  for (std::int32_t block = 0; block < pool_.size(); ++block) {
    if (entry(block).count == 0) continue;
    forget(block);
    pool_.drop(block);
  }
  return true;
}

}  // namespace asynct
