#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "asynct/text/token.h"

namespace asynct {

/// Strings by token id, in one block of memory.
class TokenStrings {
 public:
  TokenStrings() = default;
  explicit TokenStrings(std::size_t ids) : places_(ids) {}

  /// Ids beyond the size, and those never set, have an empty string.
  void set(Token id, std::string_view text);
  std::string_view operator[](Token id) const {
    const auto i = static_cast<std::size_t>(id);
    if (id < 0 || i >= places_.size()) return {};
    return std::string_view(text_).substr(places_[i].begin, places_[i].length);
  }
  std::size_t size() const { return places_.size(); }

 private:
  struct Place {
    std::uint32_t begin = 0;
    std::uint32_t length = 0;
  };
  std::string text_;
  std::vector<Place> places_;
};

/// String -> token id, open addressing over one block of memory.
class StringTable {
 public:
  explicit StringTable(std::size_t strings);

  /// False, and no change, when `text` is there already.
  bool insert(std::string_view text, Token id);
  std::optional<Token> find(std::string_view text) const;
  std::size_t size() const { return size_; }

  template <class Visit>  // visit(string_view text, Token id), in no particular order
  void for_each(Visit&& visit) const {
    for (const Slot& slot : slots_)
      if (slot.id >= 0) visit(view(slot), slot.id);
  }

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t begin = 0;
    std::uint32_t length = 0;
    Token id = -1;  // empty
  };
  std::string_view view(const Slot& slot) const {
    return std::string_view(text_).substr(slot.begin, slot.length);
  }
  std::size_t place(std::string_view text, std::uint32_t hash) const;

  std::string text_;
  std::vector<Slot> slots_;
  std::size_t mask_;
  std::size_t size_ = 0;
};

/// A fast hash of a short string; not resistant to chosen collisions.
std::uint64_t hash_bytes(std::string_view text);

}  // namespace asynct
