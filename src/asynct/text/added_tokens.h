#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "asynct/base/function_ref.h"
#include "asynct/text/token.h"

namespace asynct {

/// A token that is found in the text before the model sees it.
struct AddedToken {
  Token id = 0;
  std::string content;       // as the file has it
  std::string pattern;       // what is looked for: content, or its normalized form
  bool single_word = false;  // not next to a word character
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and after it
  bool normalized = false;   // looked for in the normalized text
  bool special = false;
};

/// Finds a set of added tokens in text: leftmost first, the longest at one place.
class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  /// Patterns must be distinct and not empty.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  /// Calls visit(piece, token) on the consecutive parts of `text`: nullptr for plain text, which may be the
  /// whole. With `skip_special` special tokens are plain text.
  void split(std::string_view text, bool skip_special,
             FunctionRef<void(std::string_view piece, const AddedToken* token)> visit) const;

 private:
  struct Node {  // of a trie over bytes; children lie together, sorted
    std::uint32_t first_child = 0;
    std::uint16_t children = 0;
    unsigned char byte = 0;
    std::int32_t token = -1;
  };
  const AddedToken* longest_at(std::string_view text) const;
  std::size_t find_candidate(std::string_view text, std::size_t from) const;
  void build(std::uint32_t node, std::size_t begin, std::size_t end, std::size_t depth);

  std::vector<AddedToken> tokens_;  // sorted by pattern
  std::vector<Node> nodes_;
  bool starts_[256] = {};  // first bytes of patterns
  int only_start_ = -1;    // the first byte, when there is but one
};

}  // namespace asynct
