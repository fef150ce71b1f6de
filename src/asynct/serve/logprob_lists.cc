#include "asynct/serve/logprob_lists.h"

#include <algorithm>

#include "asynct/serve/json_writer.h"

namespace asynct::serve {

std::string token_text(const Tokenizer& tokenizer, Token token) {
  std::string text;
  append_valid_utf8(text, tokenizer.token_bytes(token));
  return text;
}

void LogprobLists::begin(Token token) {
  const char* const comma = tokens_.empty() ? "" : ",";
  const std::string text = token_text(tokenizer_, token);
  tokens_ += comma;
  append_json(tokens_, std::string_view(text));
  text_offset_ += comma;
  append_json(text_offset_, offset_);
  token_logprobs_ += comma;
  top_logprobs_ += comma;
  offset_ += static_cast<std::int64_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

void LogprobLists::add_first(Token token) {
  begin(token);
  token_logprobs_ += "null";
  top_logprobs_ += "null";
}

// The object's keys are texts: of two tokens with one text the more probable one stands.
void LogprobLists::add_entry(Token token, float logprob, std::span<const TokenLogprob> tops) {
  begin(token);
  append_json(token_logprobs_, logprob);
  std::vector<std::string> seen;
  top_logprobs_ += '{';
  for (const TokenLogprob& top : tops) {
    std::string text = token_text(tokenizer_, top.token);
    if (std::find(seen.begin(), seen.end(), text) != seen.end()) continue;
    if (!seen.empty()) top_logprobs_ += ',';
    append_json(top_logprobs_, std::string_view(text));
    top_logprobs_ += ':';
    append_json(top_logprobs_, top.logprob);
    seen.push_back(std::move(text));
  }
  top_logprobs_ += '}';
}

void LogprobLists::add(const AnswerToken& token) {
  const auto own = std::find_if(token.logprobs.begin(), token.logprobs.end(),
                                [&](const TokenLogprob& top) { return top.token == token.token; });
  add_entry(token.token, own != token.logprobs.end() ? own->logprob : -INFINITY, token.logprobs);
}

void LogprobLists::add(Token token, const TokenScore& score) {
  const TokenLogprob tops[] = {{.token = score.argmax, .logprob = score.argmax_logprob, .rank = 1},
                               {.token = token, .logprob = score.logprob}};
  add_entry(token, score.logprob, std::span(tops).first(token == score.argmax ? 1 : 2));
}

void LogprobLists::add(Token token, const TokenScore& score, const std::vector<TokenLogprob>& tops) {
  add_entry(token, score.logprob, tops);
}

void LogprobLists::write(std::string& out) const {
  out += "{\"tokens\":[";
  out += tokens_;
  out += "],\"token_logprobs\":[";
  out += token_logprobs_;
  out += "],\"top_logprobs\":[";
  out += top_logprobs_;
  out += "],\"text_offset\":[";
  out += text_offset_;
  out += "]}";
}

}  // namespace asynct::serve
