#include "asynct/text/stream_decoder.h"

#include <utility>

#include "asynct/text/tokenizer.h"
#include "asynct/text/tokenizer_parts.h"
#include "asynct/text/utf8.h"

namespace asynct {
namespace {

/// Like append_valid_utf8, but with U+FFFD for each byte that is wrong, as the byte-fallback decoder has it.
void append_byte_tokens(std::string& out, std::string_view bytes) {
  while (!bytes.empty()) {
    const CodePoint c = decode_utf8(bytes);
    const auto length = static_cast<std::size_t>(c.length);
    if (c.valid) {
      out.append(bytes.substr(0, length));
    } else {
      for (std::size_t i = 0; i < length; ++i) append_utf8(out, 0xFFFD);
    }
    bytes.remove_prefix(length);
  }
}

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer),
      skip_special_(skip_special),
      strip_left_(tokenizer.parts_->decoder.strip.start) {}

std::string StreamDecoder::push(Token token) {
  const TokenizerParts& parts = *tokenizer_->parts_;
  const auto i = static_cast<std::size_t>(token);
  if (token < 0 || i >= parts.known.size() || !parts.known[i] || (skip_special_ && parts.special[i]))
    return {};
  std::string out;
  const bool in_bytes = parts.decoder.byte_level || parts.fallback_byte[i];
  if (in_bytes) {
    pending_.append(parts.bytes[token]);
    const std::string_view ready = std::string_view(pending_).substr(0, complete_utf8_prefix(pending_));
    if (parts.decoder.byte_level)
      append_valid_utf8(out, ready);
    else
      append_byte_tokens(out, ready);
    pending_.erase(0, ready.size());
  } else {
    append_byte_tokens(out, std::exchange(pending_, {}));
    if (first_)
      append_valid_utf8(out, decode_token(parts.decoder, parts.contents[token], true));
    else
      append_valid_utf8(out, parts.bytes[token]);
  }
  first_ = false;
  strip(out);
  return out;
}

/// Removes what is left to remove of the text's start.
void StreamDecoder::strip(std::string& text) {
  const std::string& content = tokenizer_->parts_->decoder.strip.content;
  while (strip_left_ > 0 && !text.empty()) {
    const bool hit = text.starts_with(content);
    strip_left_ = hit ? strip_left_ - 1 : 0;
    if (hit) text.erase(0, content.size());
  }
}

std::string StreamDecoder::finish() {
  std::string out;
  if (tokenizer_->parts_->decoder.byte_level)
    append_valid_utf8(out, pending_);
  else
    append_byte_tokens(out, pending_);
  strip(out);
  *this = StreamDecoder(*tokenizer_, skip_special_);
  return out;
}

}  // namespace asynct
