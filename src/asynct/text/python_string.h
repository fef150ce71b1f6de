#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Python's str, int(str), float(str) and repr(str) on UTF-8, of which an ill-formed sequence is a character
// without properties; prompts, metrics and chat templates are defined by them. Positions and lengths are in
// characters unless they are called bytes.
namespace asynct::python {

enum class Side : std::uint8_t { kLeft, kRight, kBoth };

/// str.strip(), lstrip(), rstrip(): of white space, or of the characters in `characters`.
std::string_view strip(std::string_view text, Side side = Side::kBoth,
                       std::optional<std::string_view> characters = std::nullopt);

/// len(text).
std::int64_t length(std::string_view text);

/// len(re.split(r"\s+", text)): runs of white space plus one.
std::int64_t split_count(std::string_view text);

/// Byte offset of character `index` (0 to length).
std::size_t byte_offset(std::string_view text, std::int64_t index);

/// text.find(part, from) in bytes, in linear time whatever both are, unlike std::string's.
std::size_t find_bytes(std::string_view text, std::string_view part, std::size_t from = 0);

/// The characters, each as text.
std::vector<std::string_view> characters(std::string_view text);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string title(std::string_view text);
std::string capitalize(std::string_view text);
bool is_lower(std::string_view text);
bool is_upper(std::string_view text);

/// text.split(separator, limit) or, without a separator, at white space; limit < 0: none. from_right: rsplit.
std::vector<std::string_view> split(std::string_view text, std::optional<std::string_view> separator,
                                    std::int64_t limit, bool from_right);

/// text.splitlines(keep_ends).
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);

/// text.replace(from, to, limit); limit < 0: all. Empty `from` matches between characters. The result may be
/// much longer: `largest` bytes at most, else an Error.
std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    std::int64_t limit = -1, std::size_t largest = std::numeric_limits<std::size_t>::max());

/// text with < > & ' " as HTML entities.
std::string escape_html(std::string_view text);

/// repr(text), appended.
void append_string_repr(std::string& out, std::string_view text);

/// int(text, base), base 0 or 2 to 36; nothing when it is no integer. Errors: beyond 64 bits.
std::optional<std::int64_t> parse_integer(std::string_view text, int base);

/// float(text).
std::optional<double> parse_float(std::string_view text);

}  // namespace asynct::python
