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

}  // namespace asynct
