#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace asynct {

using Json = nlohmann::ordered_json;

/// Parses JSON from outside: at most `max_depth` levels, no duplicate keys, no trailing text. `what` (a file
/// name, say) opens every Error.
Json parse_json(std::string_view text, std::string_view what, int max_depth = 64);

/// The same over a file of at most `limit` bytes.
Json parse_json_file(const std::string& path, std::size_t limit = std::size_t{256} << 20);

/// JSON text with invalid UTF-8 replaced by U+FFFD instead of an exception. indent < 0: one line.
std::string dump_json(const Json& value, int indent = -1);

}  // namespace asynct
