#include "asynct/text/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "asynct/base/mapped_file.h"
#include "asynct/text/tokenizer_parts.h"
#include "asynct/text/utf8.h"

namespace asynct {
namespace {

constexpr std::size_t kMaxTokenizerFile = std::size_t{256} << 20;
constexpr std::size_t kMaxConfigFile = std::size_t{16} << 20;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// A run of byte tokens: its text when it is well-formed, else U+FFFD for each byte (the reference's rule).
void append_byte_run(std::string& out, std::string& run) {
  if (is_valid_utf8(run)) {
    out.append(run);
  } else {
    for (std::size_t i = 0; i < run.size(); ++i) out.append(kReplacement);
  }
  run.clear();
}

void strip_start(std::string& text, const DecoderSpec::Strip& strip) {
  std::size_t cut = 0;
  for (int i = 0; i < strip.start && text.compare(cut, strip.content.size(), strip.content) == 0; ++i)
    cut += strip.content.size();
  text.erase(0, cut);
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const std::string& directory) {
  const std::string name = directory + "/tokenizer.json";
  const std::string config_name = directory + "/tokenizer_config.json";
  const std::string config =
      std::filesystem::exists(config_name) ? read_file(config_name, kMaxConfigFile) : std::string();
  return Tokenizer(std::make_unique<const TokenizerParts>(
      load_tokenizer_parts(read_file(name, kMaxTokenizerFile), name, config, config_name)));
}

Tokenizer Tokenizer::from_json(std::string_view tokenizer_json, std::string_view what) {
  return Tokenizer(
      std::make_unique<const TokenizerParts>(load_tokenizer_parts(tokenizer_json, what, {}, {})));
}

std::vector<Token> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const TokenizerParts& parts = *parts_;
  std::string repaired;
  if (!is_valid_utf8(text)) {
    append_valid_utf8(repaired, text);
    text = repaired;
  }
  std::vector<Token> out;
  if (options.add_special_tokens) out = parts.prefix;
  out.reserve(out.size() + std::min(text.size() / 3, options.most_tokens) + 4);
  // A word of so many bytes gives some tokens at least: the longest is cut short, too.
  const auto check_count = [&](std::size_t word_bytes) {
    const std::size_t longest = parts.bpe.longest_token();
    const std::size_t least = longest > 0 ? word_bytes / longest : 0;
    if (out.size() > options.most_tokens || least > options.most_tokens - out.size())
      throw TooManyTokens(options.most_tokens);
  };
  std::string buffer;
  const bool skip_special = !options.parse_special;
  parts.raw_tokens.split(text, skip_special, [&](std::string_view piece, const AddedToken* token) {
    if (token != nullptr) {
      check_count(0);
      return out.push_back(token->id);
    }
    const std::string_view normal = parts.normalizer.apply(piece, buffer);
    parts.normalized_tokens.split(normal, skip_special, [&](std::string_view part, const AddedToken* inner) {
      if (inner != nullptr) return out.push_back(inner->id);
      const bool at_start = piece.data() == text.data() && part.data() == normal.data();
      parts.pre_tokenizer.split(part, at_start, [&](std::string_view word) {
        check_count(word.size());
        parts.bpe.encode(word, out);
      });
    });
  });
  if (options.add_special_tokens) out.insert(out.end(), parts.suffix.begin(), parts.suffix.end());
  check_count(0);
  return out;
}

std::string Tokenizer::decode(std::span<const Token> tokens, bool skip_special) const {
  const TokenizerParts& parts = *parts_;
  std::string text;
  std::string run;  // byte tokens in a row
  bool first = true;
  for (const Token token : tokens) {
    const auto i = static_cast<std::size_t>(token);
    if (token < 0 || i >= parts.known.size() || !parts.known[i] || (skip_special && parts.special[i]))
      continue;
    if (parts.fallback_byte[i]) {
      run.append(parts.bytes[token]);
    } else {
      append_byte_run(text, run);
      if (first)
        text.append(decode_token(parts.decoder, parts.contents[token], true));
      else
        text.append(parts.bytes[token]);
    }
    first = false;
  }
  append_byte_run(text, run);
  strip_start(text, parts.decoder.strip);
  if (is_valid_utf8(text)) return text;
  std::string valid;
  append_valid_utf8(valid, text);
  return valid;
}

std::string_view Tokenizer::token_bytes(Token token) const { return parts_->bytes[token]; }

bool Tokenizer::is_special(Token token) const {
  return token >= 0 && token < vocab_size() && parts_->special[static_cast<std::size_t>(token)];
}

int Tokenizer::vocab_size() const { return static_cast<int>(parts_->known.size()); }

std::optional<Token> Tokenizer::bos() const { return parts_->bos; }
std::optional<Token> Tokenizer::eos() const { return parts_->eos; }
std::optional<Token> Tokenizer::pad() const { return parts_->pad; }

bool Tokenizer::adds_bos() const {
  return parts_->bos && !parts_->prefix.empty() && parts_->prefix.front() == *parts_->bos;
}

std::optional<Token> Tokenizer::token_id(std::string_view content) const { return parts_->ids.find(content); }

}  // namespace asynct
