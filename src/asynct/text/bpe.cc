#include "asynct/text/bpe.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <functional>
#include <utility>

#include "asynct/base/error.h"
#include "asynct/text/utf8.h"

namespace asynct {
namespace {

constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // U+2581, SentencePiece's mark of a space
constexpr std::size_t kShortWord = 48;                   // symbols merged by rescanning instead of a heap

/// Up to 16 bytes of text as two integers. Together with the length they determine the text.
struct WordKey {
  std::uint64_t head = 0;
  std::uint64_t tail = 0;

  explicit WordKey(std::string_view word) {
    const std::size_t n = word.size();
    const char* const p = word.data();
    if (n >= 8) {
      std::memcpy(&head, p, 8);
      std::memcpy(&tail, p + n - 8, 8);
    } else if (n >= 4) {
      std::memcpy(&head, p, 4);
      std::memcpy(&tail, p + n - 4, 4);
    } else {
      const auto byte = [&](std::size_t i) { return std::uint64_t{static_cast<unsigned char>(p[i])}; };
      head = byte(0) | byte(n / 2) << 8 | byte(n - 1) << 16;
    }
  }
};

/// A thread's direct-mapped cache of encoded words: bounded, one cache line an entry, never freed before the
/// thread ends.
class WordCache {
 public:
  static constexpr std::size_t kMaxWord = 16;
  static constexpr std::size_t kMaxTokens = 8;

  struct alignas(64) Entry {
    std::uint64_t owner = 0;  // 0: empty
    std::uint64_t head = 0;
    std::uint64_t tail = 0;
    std::uint32_t length = 0;
    std::uint32_t count = 0;
    Token tokens[kMaxTokens] = {};

    bool holds(std::uint64_t model, const WordKey& key, std::size_t size) const {
      return owner == model && head == key.head && tail == key.tail && length == size;
    }
  };

  Entry& entry(std::uint64_t owner, const WordKey& key, std::size_t size) {
    if (entries_.empty()) entries_.resize(kEntries);
    std::uint64_t hash = (key.head ^ owner << 56) * 0x9E3779B97F4A7C15u;
    hash = (hash ^ hash >> 32 ^ key.tail ^ size) * 0xD6E8FEB86659FD93u;
    return entries_[hash >> (64 - kLogEntries)];
  }

 private:
  static constexpr int kLogEntries = 14;
  static constexpr std::size_t kEntries = std::size_t{1} << kLogEntries;
  std::vector<Entry> entries_;
};

WordCache& thread_cache() {
  thread_local WordCache cache;
  return cache;
}

std::uint64_t next_cache_owner() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

/// Merges the symbols at `symbols[0..n)` in place, lowest rank first, leftmost among equals; returns how many
/// are left. Quadratic, and the fastest there is for words of ordinary length.
std::size_t merge_short(const MergeTable& merges, Token* symbols, std::size_t n) {
  Merge pairs[kShortWord];  // pairs[i]: what symbols i and i + 1 merge into
  for (std::size_t i = 0; i + 1 < n; ++i) pairs[i] = merges.find(symbols[i], symbols[i + 1]);
  while (n > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (pairs[best].rank == Merge::kNone) break;
    symbols[best] = pairs[best].result;
    std::copy(symbols + best + 2, symbols + n, symbols + best + 1);
    --n;
    for (std::size_t i = best + 1; i + 1 < n; ++i) pairs[i] = pairs[i + 1];
    if (best + 1 < n) pairs[best] = merges.find(symbols[best], symbols[best + 1]);
    if (best > 0) pairs[best - 1] = merges.find(symbols[best - 1], symbols[best]);
  }
  return n;
}

/// The same in n log n: a linked list of symbols and a heap of candidate merges. A candidate is rank and
/// place; one that its symbols have outgrown is recognised when it surfaces.
std::size_t merge_long(const MergeTable& merges, Token* symbols, std::size_t n) {
  constexpr std::uint32_t kEnd = 0xFFFFFFFF;
  constexpr Token kGone = -1;
  if (n >= kEnd) fail("text to encode: a word of ", n, " symbols, more than the limit of ", kEnd - 1);
  std::vector<std::uint32_t> previous(n), next(n);
  std::vector<std::uint64_t> heap;
  heap.reserve(n);
  const auto candidate = [&](std::uint32_t left, std::uint32_t right) -> std::uint64_t {
    return std::uint64_t{merges.find(symbols[left], symbols[right]).rank} << 32 | left;
  };
  for (std::uint32_t i = 0; i < n; ++i) {
    previous[i] = i == 0 ? kEnd : i - 1;
    next[i] = i + 1 == n ? kEnd : i + 1;
    if (i == 0) continue;
    const std::uint64_t c = candidate(i - 1, i);
    if (c >> 32 != Merge::kNone) heap.push_back(c);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push = [&](std::uint32_t left, std::uint32_t right) {
    const std::uint64_t c = candidate(left, right);
    if (c >> 32 == Merge::kNone) return;
    heap.push_back(c);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const std::uint64_t top = heap.back();
    heap.pop_back();
    const auto left = static_cast<std::uint32_t>(top);
    if (symbols[left] == kGone || next[left] == kEnd) continue;
    const std::uint32_t right = next[left];
    const Merge merge = merges.find(symbols[left], symbols[right]);
    if (merge.rank != top >> 32) continue;
    symbols[left] = merge.result;
    symbols[right] = kGone;
    next[left] = next[right];
    if (next[left] != kEnd) {
      previous[next[left]] = left;
      push(left, next[left]);
    }
    if (previous[left] != kEnd) push(previous[left], left);
  }
  return static_cast<std::size_t>(std::remove(symbols, symbols + n, kGone) - symbols);
}

/// Whether no token has a metaspace after another character, so that no merge ever crosses into a metaspace.
bool metaspace_starts_words(const StringTable& words) {
  if (!words.find(kMetaspace)) return false;
  bool starts = true;
  words.for_each([&](std::string_view word, Token) {
    for (std::size_t at = word.find(kMetaspace); at != word.npos; at = word.find(kMetaspace, at + 3))
      if (at > 0 && (at < 3 || word.substr(at - 3, 3) != kMetaspace)) starts = false;
  });
  return starts;
}

}  // namespace

MergeTable::MergeTable(std::size_t merges)
    : slots_(std::bit_ceil(merges * 2 + 2)),
      mask_(slots_.size() - 1),
      shift_(64 - std::countr_zero(slots_.size())) {}

void MergeTable::insert(Token left, Token right, Merge merge) {
  const std::uint64_t key = pair_key(left, right);
  std::size_t i = slot(key);
  while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & mask_;
  slots_[i] = {key, merge};
}

BpeModel::BpeModel(BpeOptions options, StringTable words, MergeTable merges, std::vector<Token> byte_tokens)
    : options_(options),
      words_(std::move(words)),
      merges_(std::move(merges)),
      byte_tokens_(std::move(byte_tokens)),
      split_at_metaspace_(!options.byte_level && metaspace_starts_words(words_)),
      cache_owner_(next_cache_owner()) {
  if (options_.byte_level) byte_symbols_.assign(256, -1);
  words_.for_each([&](std::string_view word, Token id) {
    if (word.empty()) return;
    if (options_.byte_level) {
      if (word.size() == 1) byte_symbols_[static_cast<unsigned char>(word[0])] = id;
      return;
    }
    const CodePoint c = decode_utf8(word);
    if (c.valid && static_cast<std::size_t>(c.length) == word.size()) character_symbols_[c.value] = id;
  });
  const auto& bytes = options_.byte_level ? byte_symbols_ : byte_tokens_;
  const bool every_byte_has_one = (options_.byte_level || options_.byte_fallback) && bytes.size() == 256 &&
                                  std::find(bytes.begin(), bytes.end(), -1) == bytes.end();
  if (every_byte_has_one)
    words_.for_each(
        [&](std::string_view word, Token) { longest_token_ = std::max(longest_token_, word.size()); });
}

void BpeModel::encode(std::string_view word, std::vector<Token>& out) const {
  if (!split_at_metaspace_) return encode_word(word, out);
  if (options_.ignore_merges) {
    if (const auto id = words_.find(word)) return out.push_back(*id);
  }
  std::size_t begin = 0;
  while (begin < word.size()) {
    std::size_t end = begin;
    while (word.substr(end, 3) == kMetaspace) end += 3;
    end = std::min(word.find(kMetaspace, end), word.size());
    encode_word(word.substr(begin, end - begin), out);
    begin = end;
  }
}

void BpeModel::encode_word(std::string_view word, std::vector<Token>& out) const {
  if (word.empty()) return;
  if (word.size() > WordCache::kMaxWord) return encode_uncached(word, out);
  const WordKey key(word);
  WordCache::Entry& entry = thread_cache().entry(cache_owner_, key, word.size());
  if (entry.holds(cache_owner_, key, word.size())) {
    out.insert(out.end(), entry.tokens, entry.tokens + entry.count);
    return;
  }
  const std::size_t begin = out.size();
  encode_uncached(word, out);
  const std::size_t count = out.size() - begin;
  if (count > WordCache::kMaxTokens) return;
  entry = {cache_owner_,
           key.head,
           key.tail,
           static_cast<std::uint32_t>(word.size()),
           static_cast<std::uint32_t>(count),
           {}};
  std::copy(out.begin() + static_cast<std::ptrdiff_t>(begin), out.end(), entry.tokens);
}

void BpeModel::encode_uncached(std::string_view word, std::vector<Token>& out) const {
  if (options_.ignore_merges && !split_at_metaspace_) {
    if (const auto id = words_.find(word)) return out.push_back(*id);
  }
  const std::size_t begin = out.size();
  append_symbols(word, out);
  const std::size_t count = out.size() - begin;
  const auto merge = count <= kShortWord ? merge_short : merge_long;
  out.resize(begin + merge(merges_, out.data() + begin, count));
}

/// The tokens of single bytes or characters. `unknown` waits so that neighbours can fuse; that byte fallback
/// does not flush it is the reference library's behaviour, kept.
void BpeModel::append_symbols(std::string_view word, std::vector<Token>& out) const {
  bool unknown_waits = false;
  const auto flush_unknown = [&] {
    if (unknown_waits) out.push_back(*options_.unknown);
    unknown_waits = false;
  };
  for (std::size_t i = 0; i < word.size();) {
    Token id = -1;
    std::size_t length = 1;
    if (options_.byte_level) {
      id = byte_symbols_[static_cast<unsigned char>(word[i])];
    } else {
      const CodePoint c = decode_valid_utf8(word.data() + i);
      length = static_cast<std::size_t>(c.length);
      const auto found = character_symbols_.find(c.value);
      if (found != character_symbols_.end()) id = found->second;
    }
    if (id >= 0) {
      flush_unknown();
      out.push_back(id);
    } else if (!append_byte_tokens(word.substr(i, length), out) && options_.unknown) {
      if (!options_.fuse_unknown) flush_unknown();
      unknown_waits = true;
    }
    i += length;
  }
  flush_unknown();
}

bool BpeModel::append_byte_tokens(std::string_view character, std::vector<Token>& out) const {
  if (!options_.byte_fallback) return false;
  const auto token = [&](char byte) { return byte_tokens_[static_cast<unsigned char>(byte)]; };
  for (const char byte : character)
    if (token(byte) < 0) return false;
  for (const char byte : character) out.push_back(token(byte));
  return true;
}

}  // namespace asynct
