#include "asynct/text/added_tokens.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "asynct/text/unicode.h"
#include "asynct/text/utf8.h"

namespace asynct {
namespace {

/// Length of the last character of well-formed, non-empty `text`.
std::size_t last_length(std::string_view text) {
  std::size_t length = 1;
  while ((static_cast<unsigned char>(text[text.size() - length]) & 0xC0) == 0x80) ++length;
  return length;
}

bool first_is(std::string_view text, unicode::Property property) {
  return !text.empty() && (unicode::properties(decode_valid_utf8(text.data()).value) & property) != 0;
}

bool last_is(std::string_view text, unicode::Property property) {
  return !text.empty() && first_is(text.substr(text.size() - last_length(text)), property);
}

std::size_t white_at_start(std::string_view text) {
  std::size_t length = 0;
  while (first_is(text.substr(length), unicode::kWhite))
    length += static_cast<std::size_t>(decode_valid_utf8(text.data() + length).length);
  return length;
}

std::size_t without_white_at_end(std::string_view text, std::size_t floor) {
  while (text.size() > floor && last_is(text, unicode::kWhite)) text.remove_suffix(last_length(text));
  return std::max(text.size(), floor);
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.pattern < b.pattern; });
  if (tokens_.empty()) return;
  nodes_.emplace_back();
  build(0, 0, tokens_.size(), 0);
  for (const AddedToken& token : tokens_) starts_[static_cast<unsigned char>(token.pattern[0])] = true;
  const bool one_start = tokens_.front().pattern[0] == tokens_.back().pattern[0];
  if (one_start) only_start_ = static_cast<unsigned char>(tokens_.front().pattern[0]);
}

/// Fills `node` from the patterns [begin, end), which share their first `depth` bytes. Recursion is as deep
/// as the longest pattern, which the loader limits.
void AddedTokenMatcher::build(std::uint32_t node, std::size_t begin, std::size_t end, std::size_t depth) {
  if (tokens_[begin].pattern.size() == depth) nodes_[node].token = static_cast<std::int32_t>(begin++);
  std::vector<std::pair<std::size_t, std::size_t>> groups;
  for (std::size_t i = begin; i < end;) {
    std::size_t j = i + 1;
    while (j < end && tokens_[j].pattern[depth] == tokens_[i].pattern[depth]) ++j;
    groups.emplace_back(i, j);
    i = j;
  }
  const auto first = static_cast<std::uint32_t>(nodes_.size());
  nodes_[node].first_child = first;
  nodes_[node].children = static_cast<std::uint16_t>(groups.size());
  nodes_.resize(nodes_.size() + groups.size());
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    nodes_[first + g].byte = static_cast<unsigned char>(tokens_[groups[g].first].pattern[depth]);
    build(first + g, groups[g].first, groups[g].second, depth + 1);
  }
}

const AddedToken* AddedTokenMatcher::longest_at(std::string_view text) const {
  const Node* node = &nodes_[0];
  const AddedToken* longest = nullptr;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const auto begin = nodes_.begin() + node->first_child;
    const auto end = begin + node->children;
    const auto child =
        std::lower_bound(begin, end, byte, [](const Node& n, unsigned char b) { return n.byte < b; });
    if (child == end || child->byte != byte) break;
    node = &*child;
    if (node->token >= 0) longest = &tokens_[static_cast<std::size_t>(node->token)];
  }
  return longest;
}

/// The next place at or after `from` where a pattern's first byte stands.
std::size_t AddedTokenMatcher::find_candidate(std::string_view text, std::size_t from) const {
  if (only_start_ >= 0) return std::min(text.find(static_cast<char>(only_start_), from), text.size());
  while (from < text.size() && !starts_[static_cast<unsigned char>(text[from])]) ++from;
  return from;
}

void AddedTokenMatcher::split(
    std::string_view text, bool skip_special,
    FunctionRef<void(std::string_view piece, const AddedToken* token)> visit) const {
  if (tokens_.empty()) return visit(text, nullptr);
  std::size_t done = 0;  // end of the last token found, its stripped white space included
  std::size_t from = 0;
  while ((from = find_candidate(text, from)) < text.size()) {
    const AddedToken* const token = longest_at(text.substr(from));
    if (token == nullptr) {
      ++from;
      continue;
    }
    std::size_t begin = from;
    std::size_t end = from += token->pattern.size();
    if (skip_special && token->special) continue;
    if (token->single_word &&
        (last_is(text.substr(0, begin), unicode::kWord) || first_is(text.substr(end), unicode::kWord)))
      continue;
    // A token that stands in white space which the one before has taken keeps its place, as in the reference.
    if (token->lstrip) begin = without_white_at_end(text.substr(0, begin), std::min(done, begin));
    if (token->lstrip) begin = std::max(begin, done);
    end = std::max(end, begin);
    if (token->rstrip) end += white_at_start(text.substr(end));
    if (done < begin) visit(text.substr(done, begin - done), nullptr);
    visit(text.substr(begin, end - begin), token);
    done = end;
  }
  if (done < text.size()) visit(text.substr(done), nullptr);
}

}  // namespace asynct
