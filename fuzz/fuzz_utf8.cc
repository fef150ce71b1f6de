// UTF-8 repair, and its streaming forms: StreamDecoder over one token a byte, StopMatcher over pieces. The
// first byte says how the text is cut.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "asynct/text/tokenizer.h"
#include "asynct/text/utf8.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

std::string repaired(std::string_view text) {
  std::string out;
  asynct::append_valid_utf8(out, text);
  return out;
}

/// A byte-level tokenizer whose 256 tokens are the bytes, with the byte for id.
asynct::Tokenizer make_byte_tokenizer() {
  std::string vocabulary;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
    std::string content;
    asynct::append_utf8(content, static_cast<char32_t>(printable ? byte : next++));
    if (content == "\"" || content == "\\") content.insert(0, "\\");
    vocabulary += (byte == 0 ? "\"" : ",\"") + content + "\":" + std::to_string(byte);
  }
  return asynct::Tokenizer::from_json(
      R"({"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"},)"
      R"("model":{"type":"BPE","merges":[],"vocab":{)" +
          vocabulary + "}}}",
      "byte tokenizer");
}

void check_repair(std::string_view text) {
  const std::string good = repaired(text);
  require(asynct::is_valid_utf8(good) && repaired(good) == good);
  require(asynct::is_valid_utf8(text) == (good == text));
  std::string joined;
  for (std::size_t i = 0; i < text.size();) {
    const asynct::CodePoint c = asynct::decode_utf8(text.substr(i));
    require(c.length >= 1 && i + static_cast<std::size_t>(c.length) <= text.size());
    asynct::append_utf8(joined, c.value);
    i += static_cast<std::size_t>(c.length);
  }
  require(joined == good);
}

void check_stream(std::string_view text) {
  static const asynct::Tokenizer tokenizer = make_byte_tokenizer();
  asynct::StreamDecoder stream(tokenizer);
  std::vector<asynct::Token> ids;
  std::string streamed;
  for (const char byte : text) {
    ids.push_back(static_cast<unsigned char>(byte));
    streamed += stream.push(ids.back());
    require(asynct::is_valid_utf8(streamed));
  }
  streamed += stream.finish();
  require(streamed == repaired(text) && tokenizer.decode(ids) == streamed);
  require(tokenizer.decode(tokenizer.encode(text)) == streamed);
}

void check_stops(std::string_view text, std::size_t piece) {
  const std::vector<std::string> stops = {"ab", "\n\n", "abc", "", std::string(text.substr(0, piece))};
  std::size_t first = std::string_view::npos;
  for (const std::string& stop : stops)
    if (!stop.empty()) first = std::min(first, text.find(stop));
  asynct::StopMatcher matcher(stops);
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += piece) out += matcher.push(text.substr(i, piece));
  out += matcher.finish();
  require(matcher.stopped() == (first != std::string_view::npos));
  // A stop that ends earlier may begin later; the text is cut at a stop and nothing before it is lost.
  require(text.starts_with(out) && (matcher.stopped() ? out.size() >= first : out == text));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  check_repair(text);
  check_stream(text);
  check_stops(text, 1u + data[0] % 8u);
  return 0;
}
