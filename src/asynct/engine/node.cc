#include "asynct/engine/node.h"

#include <algorithm>

namespace asynct {

void copy_tokens(const Node& node, std::int64_t begin, std::int64_t end, std::vector<Token>& tokens) {
  tokens.resize(static_cast<std::size_t>(end - begin));
  for (const Node* at = &node; at != nullptr && at->end() > begin; at = at->parent) {
    const std::int64_t from = std::max(begin, at->begin);
    const std::int64_t to = std::min(end, at->end());
    if (from < to)
      std::copy(at->tokens.begin() + (from - at->begin), at->tokens.begin() + (to - at->begin),
                tokens.begin() + (from - begin));
  }
}

std::int64_t common_tokens(const Node& node, std::span<const Token> tokens) {
  std::int64_t common = std::min(node.end(), std::ssize(tokens));
  for (const Node* at = &node; at != nullptr; at = at->parent) {
    if (common <= at->begin) continue;
    const auto count = static_cast<std::size_t>(std::min(common, at->end()) - at->begin);
    const auto own = std::span(at->tokens).first(count);
    const auto differs =
        std::mismatch(own.begin(), own.end(), tokens.begin() + static_cast<std::ptrdiff_t>(at->begin)).first;
    // A difference further up counts for more; what follows it is cut off.
    if (differs != own.end()) common = at->begin + (differs - own.begin());
  }
  return common;
}

}  // namespace asynct
