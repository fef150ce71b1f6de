// tokenizer.json and a text for it, with a NUL byte between them. Whatever loads must encode any text to ids
// it knows, and give the same text by decode() and by streaming.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "asynct/base/error.h"
#include "asynct/text/tokenizer.h"
#include "asynct/text/utf8.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void exercise(const asynct::Tokenizer& tokenizer, std::string_view text) {
  for (const bool parse_special : {true, false}) {
    const auto ids = tokenizer.encode(text, {.add_special_tokens = true, .parse_special = parse_special});
    asynct::StreamDecoder stream(tokenizer);
    std::string streamed;
    for (const asynct::Token id : ids) {
      require(id >= 0 && id < tokenizer.vocab_size());
      streamed += stream.push(id);
      require(asynct::is_valid_utf8(streamed));
    }
    streamed += stream.finish();
    const std::string decoded = tokenizer.decode(ids);
    require(asynct::is_valid_utf8(decoded) && asynct::is_valid_utf8(streamed));
    require(decoded == streamed || decoded.find("\xEF\xBF\xBD") != std::string::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t border = std::min(input.find('\0'), size);
  const std::string_view text =
      border < size ? input.substr(border + 1) : std::string_view("It's 12\n caf\xC3\xA9 \xFF");
  try {
    exercise(asynct::Tokenizer::from_json(input.substr(0, border), "fuzz"), text);
  } catch (const asynct::Error&) {
  }
  return 0;
}
