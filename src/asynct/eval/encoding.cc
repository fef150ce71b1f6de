#include "asynct/eval/encoding.h"

#include <algorithm>
#include <array>

#include "asynct/base/error.h"
#include "asynct/text/python_string.h"

namespace asynct {

PromptEncoder::PromptEncoder(const Tokenizer& tokenizer, BosMode bos, std::size_t most_tokens)
    : tokenizer_(tokenizer),
      most_tokens_(most_tokens),
      add_special_(bos != BosMode::never),
      prepend_bos_(bos == BosMode::always && !tokenizer.adds_bos()) {
  if (bos == BosMode::always && !tokenizer.bos()) fail("--bos: the tokenizer has no BOS token");
  if (const auto prefix = tokenizer.bos() ? tokenizer.bos() : tokenizer.eos())
    bos_text_ = tokenizer.decode(std::array{*prefix});
}

Token PromptEncoder::prefix_token() const {
  const auto token = tokenizer_.bos() ? tokenizer_.bos() : tokenizer_.eos();
  if (!token) fail("an empty context needs a BOS or EOS token, and the tokenizer has neither");
  return *token;
}

std::vector<Token> PromptEncoder::encode(std::string_view text) const {
  const bool spelled = !bos_text_.empty() && text.starts_with(bos_text_);
  auto tokens =
      tokenizer_.encode(text, {.add_special_tokens = add_special_ && !spelled, .most_tokens = most_tokens_});
  if (prepend_bos_ && !spelled) tokens.insert(tokens.begin(), *tokenizer_.bos());
  return tokens;
}

std::vector<TokenPair> PromptEncoder::encode_pairs(std::string_view context,
                                                   const std::vector<std::string>& continuations) const {
  const std::string_view trimmed = python::strip(context, python::Side::kRight);
  const std::string_view space = context.substr(trimmed.size());
  std::vector<TokenPair> pairs;
  const auto context_tokens = trimmed.empty() ? std::vector<Token>{} : encode(trimmed);
  const auto pair_with = [&](const std::string& continuation) -> TokenPair {
    if (context_tokens.empty()) {
      auto tokens = tokenizer_.encode(cat(context, continuation), {.most_tokens = most_tokens_});
      const Token prefix = prefix_token();
      if (!tokens.empty() && tokens.front() == prefix) tokens.erase(tokens.begin());
      return {{prefix}, std::move(tokens)};
    }
    const auto whole = encode(cat(trimmed, space, continuation));
    const std::size_t border = std::min(context_tokens.size(), whole.size());
    return {context_tokens, {whole.begin() + static_cast<std::ptrdiff_t>(border), whole.end()}};
  };
  for (std::size_t i = 0; i < continuations.size(); ++i) {
    try {
      pairs.push_back(pair_with(continuations[i]));
    } catch (const TooManyTokens&) {
      throw ContinuationTooLong(most_tokens_, i);
    }
  }
  return pairs;
}

std::vector<TokenWindow> PromptEncoder::encode_windows(std::string_view text, std::int64_t max_length) const {
  const auto tokens = encode(text);
  const auto size = static_cast<std::int64_t>(tokens.size());
  std::vector<TokenWindow> windows;
  if (size == 0) return windows;
  const auto first = std::min(max_length, size);
  windows.push_back({{prefix_token()}, first});
  windows[0].tokens.insert(windows[0].tokens.end(), tokens.begin(), tokens.begin() + first);
  for (std::int64_t done = first; done < size;) {
    const auto scored = std::min(max_length, size - done);
    done += scored;
    windows.push_back({{tokens.begin() + done - max_length - 1, tokens.begin() + done}, scored});
  }
  return windows;
}

}  // namespace asynct
