#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "asynct/text/regex.h"

namespace asynct {

struct UnicodeForm {
  enum class Form { nfc, nfd, nfkc, nfkd } form = Form::nfc;
};
struct PrependText {
  std::string text;  // goes before every piece that is not empty
};
struct ReplaceText {
  std::variant<std::string, Regex> pattern;
  std::string content;
};
using NormalizerStage = std::variant<UnicodeForm, PrependText, ReplaceText>;

/// What is done to a piece of text before it is cut into words.
class Normalizer {
 public:
  explicit Normalizer(std::vector<NormalizerStage> stages = {});

  /// The normalized form of well-formed UTF-8 `text`: `text` itself where nothing changes, else in `buffer`.
  std::string_view apply(std::string_view text, std::string& buffer) const;

 private:
  std::vector<NormalizerStage> stages_;
};

/// `text` with each match replaced. A literal pattern must not be empty.
std::string replace_all(std::string_view text, const ReplaceText& rule);

}  // namespace asynct
