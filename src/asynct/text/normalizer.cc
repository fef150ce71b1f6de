#include "asynct/text/normalizer.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "asynct/base/error.h"
#include "asynct/text/unicode.h"
#include "asynct/text/utf8.h"

namespace asynct {
namespace {

/// Whether composing `text` changes nothing, judged character by character: no false yes, some false noes.
bool surely_composed(std::string_view text) {
  std::size_t i = ascii_prefix(text);
  while (i < text.size()) {
    const CodePoint c = decode_valid_utf8(text.data() + i);
    if ((unicode::properties(c.value) & unicode::kInert) == 0) return false;
    i += static_cast<std::size_t>(c.length);
  }
  return true;
}

int utf8proc_options(UnicodeForm::Form form) {
  using Form = UnicodeForm::Form;
  int options = UTF8PROC_STABLE;
  options |= form == Form::nfc || form == Form::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == Form::nfkc || form == Form::nfkd) options |= UTF8PROC_COMPAT;
  return options;
}

void append_form(std::string& out, std::string_view text, UnicodeForm::Form form) {
  if (ascii_prefix(text) == text.size()) {
    out.append(text);
    return;
  }
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                             static_cast<utf8proc_option_t>(utf8proc_options(form)));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (size < 0) fail("Unicode normalization of ", text.size(), " bytes: ", utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(size));
}

/// Normalizes the text between barriers piece by piece.
std::string unicode_form(std::string_view text, UnicodeForm::Form form) {
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_valid_utf8(text.data() + i);
    const std::size_t next = i + static_cast<std::size_t>(c.length);
    if ((unicode::properties(c.value) & unicode::kBarrier) != 0) {
      append_form(out, text.substr(done, i - done), form);
      out.append(text.substr(i, next - i));
      done = next;
    }
    i = next;
  }
  append_form(out, text.substr(done), form);
  return out;
}

}  // namespace

std::string replace_all(std::string_view text, const ReplaceText& rule) {
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;
  const auto replace = [&](std::size_t begin, std::size_t end) {
    out.append(text.substr(done, begin - done)).append(rule.content);
    done = end;
  };
  if (const auto* literal = std::get_if<std::string>(&rule.pattern)) {
    for (std::size_t at = text.find(*literal); at != text.npos; at = text.find(*literal, done))
      replace(at, at + literal->size());
  } else {
    std::get<Regex>(rule.pattern).for_each_match(text, replace);
  }
  return out.append(text.substr(done));
}

Normalizer::Normalizer(std::vector<NormalizerStage> stages) : stages_(std::move(stages)) {}

std::string_view Normalizer::apply(std::string_view text, std::string& buffer) const {
  for (const NormalizerStage& stage : stages_) {
    if (const auto* unicode_stage = std::get_if<UnicodeForm>(&stage)) {
      if (ascii_prefix(text) == text.size()) continue;
      if (unicode_stage->form == UnicodeForm::Form::nfc && surely_composed(text)) continue;
      buffer = unicode_form(text, unicode_stage->form);
    } else if (const auto* prepend = std::get_if<PrependText>(&stage)) {
      if (text.empty()) continue;
      buffer = prepend->text + std::string(text);
    } else {
      buffer = replace_all(text, std::get<ReplaceText>(stage));
    }
    text = buffer;
  }
  return text;
}

}  // namespace asynct
