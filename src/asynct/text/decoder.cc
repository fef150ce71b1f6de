#include "asynct/text/decoder.h"

#include <array>
#include <charconv>

#include "asynct/base/strings.h"
#include "asynct/text/utf8.h"

namespace asynct {
namespace {

constexpr int kTableEnd = 256 + 68;  // 188 bytes are their own character, the other 68 follow from U+0100

constexpr std::array<std::int16_t, kTableEnd> make_byte_table() {
  std::array<std::int16_t, kTableEnd> table{};
  for (auto& entry : table) entry = -1;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
    table[static_cast<std::size_t>(printable ? byte : next++)] = static_cast<std::int16_t>(byte);
  }
  return table;
}

constexpr auto kByteTable = make_byte_table();

std::string replace_metaspace(const DecoderSpec& decoder, std::string_view content, bool first) {
  const std::string space = first && decoder.metaspace_drops_first ? "" : " ";
  return replace_all(content, {.pattern = *decoder.metaspace, .content = space});
}

}  // namespace

int byte_of_character(char32_t character) { return character < kTableEnd ? kByteTable[character] : -1; }

std::optional<std::string> bytes_of_content(std::string_view content) {
  std::string bytes;
  while (!content.empty()) {
    const CodePoint c = decode_utf8(content);
    const int byte = c.valid ? byte_of_character(c.value) : -1;
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
    content.remove_prefix(static_cast<std::size_t>(c.length));
  }
  return bytes;
}

int byte_of_fallback_token(std::string_view content) {
  if (content.size() != 6 || !content.starts_with("<0x") || content[5] != '>') return -1;
  int byte = -1;
  const auto [end, error] = std::from_chars(content.data() + 3, content.data() + 5, byte, 16);
  return error == std::errc() && end == content.data() + 5 && byte >= 0 ? byte : -1;
}

std::string decode_token(const DecoderSpec& decoder, std::string_view content, bool first) {
  if (!decoder.present) return first ? std::string(content) : cat(' ', content);
  if (decoder.byte_level) return bytes_of_content(content).value_or(std::string(content));
  if (decoder.metaspace) return replace_metaspace(decoder, content, first);
  std::string text(content);
  for (const ReplaceText& rule : decoder.replacements) text = replace_all(text, rule);
  if (decoder.byte_fallback) {
    if (const int byte = byte_of_fallback_token(text); byte >= 0) text = static_cast<char>(byte);
  }
  return text;
}

}  // namespace asynct
