#include "asynct/text/string_table.h"

#include <bit>
#include <cassert>
#include <cstring>

namespace asynct {

std::uint64_t hash_bytes(std::string_view text) {
  constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15u;
  std::uint64_t hash = text.size() * kMultiplier;
  const auto mix = [&](std::uint64_t word) {
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 32;
  };
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + i, 8);
    mix(word);
  }
  if (i < text.size()) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + i, text.size() - i);
    mix(word);
  }
  return hash ^ hash >> 29;
}

void TokenStrings::set(Token id, std::string_view text) {
  assert(id >= 0 && static_cast<std::size_t>(id) < places_.size());
  places_[static_cast<std::size_t>(id)] = {static_cast<std::uint32_t>(text_.size()),
                                           static_cast<std::uint32_t>(text.size())};
  text_.append(text);
}

StringTable::StringTable(std::size_t strings)
    : slots_(std::bit_ceil(strings * 2 + 2)), mask_(slots_.size() - 1) {}

/// The slot that holds `text`, or the free one where it belongs.
std::size_t StringTable::place(std::string_view text, std::uint32_t hash) const {
  std::size_t i = hash & mask_;
  while (slots_[i].id >= 0 && !(slots_[i].hash == hash && view(slots_[i]) == text)) i = (i + 1) & mask_;
  return i;
}

bool StringTable::insert(std::string_view text, Token id) {
  assert(id >= 0 && size_ * 2 < slots_.size());
  const auto hash = static_cast<std::uint32_t>(hash_bytes(text));
  Slot& slot = slots_[place(text, hash)];
  if (slot.id >= 0) return false;
  slot = {hash, static_cast<std::uint32_t>(text_.size()), static_cast<std::uint32_t>(text.size()), id};
  text_.append(text);
  ++size_;
  return true;
}

std::optional<Token> StringTable::find(std::string_view text) const {
  const Slot& slot = slots_[place(text, static_cast<std::uint32_t>(hash_bytes(text)))];
  return slot.id >= 0 ? std::optional<Token>(slot.id) : std::nullopt;
}

}  // namespace asynct
