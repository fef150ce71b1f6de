#include "asynct/eval/filters.h"

#include <algorithm>

namespace asynct {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_amount(char c) { return is_digit(c) || c == '.' || c == ','; }
bool is_price(char c) { return is_amount(c) || c == '$'; }

/// Length of the longest prefix of `text` made of characters that `accepts`.
template <class Accepts>
std::size_t run_length(std::string_view text, Accepts accepts) {
  return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), accepts) - text.begin());
}

std::string or_no_answer(std::string_view match) { return std::string(match.empty() ? kNoAnswer : match); }

}  // namespace

std::string filter_hash_answer(std::string_view response) {
  constexpr std::string_view kMark = "#### ";
  for (std::size_t at = response.find(kMark); at != std::string_view::npos;
       at = response.find(kMark, at + 1)) {
    const std::string_view rest = response.substr(at + kMark.size());
    const std::size_t sign = rest.starts_with('-') ? 1 : 0;
    const std::size_t run = run_length(rest.substr(sign), is_amount);
    if (run > 0) return std::string(rest.substr(0, sign + run));
  }
  return std::string(kNoAnswer);
}

std::string filter_the_answer_is(std::string_view response) {
  constexpr std::string_view kMark = "The answer is ";
  for (std::size_t at = response.find(kMark); at != std::string_view::npos;
       at = response.find(kMark, at + 1)) {
    const std::string_view rest = response.substr(at + kMark.size());
    const std::size_t sign = rest.starts_with('-') ? 1 : 0;
    std::size_t run = run_length(rest.substr(sign), is_amount);
    // The character after the group: if there is none, the group gives up its own last one.
    const std::size_t next = sign + run;
    if (next == rest.size() || rest[next] == '\n') run = run > 0 ? run - 1 : 0;
    if (run > 0) return std::string(rest.substr(0, sign + run));
  }
  return std::string(kNoAnswer);
}

std::string filter_last_number(std::string_view response) {
  std::string_view last;
  for (std::size_t at = 0; at < response.size();) {
    const std::string_view rest = response.substr(at);
    const std::size_t sign = rest[0] == '-' ? 1 : 0;
    const std::size_t price = run_length(rest.substr(sign), is_price);
    const std::size_t integer = run_length(rest.substr(sign), is_digit);
    const std::size_t run = price >= 2 ? price : integer;
    if (run > 0) last = rest.substr(0, sign + run);
    at += run > 0 ? sign + run : 1;
  }
  return or_no_answer(last);
}

std::string filter_none(std::string_view response) { return std::string(response); }

std::string normalize_answer(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c != ',' && c != '$') out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (const std::size_t mark = out.rfind("#### "); mark != std::string::npos) out.erase(0, mark + 5);
  // `\.$`: the end, or the end before a final line feed.
  const std::size_t end = out.size() - (out.ends_with('\n') ? 1 : 0);
  if (end > 0 && out[end - 1] == '.') out.erase(end - 1, 1);
  return out;
}

bool exact_match(std::string_view prediction, std::string_view target) {
  return normalize_answer(prediction) == normalize_answer(target);
}

}  // namespace asynct
