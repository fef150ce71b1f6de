#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "asynct/base/function_ref.h"

namespace asynct {

/// A regular expression of a tokenizer file, run by PCRE2 with limits on steps, recursion and memory: a
/// hostile pattern or text gives an Error, not a hang or a stack overflow. The files mean Oniguruma's syntax;
/// regex_dialect.h translates it.
class Regex {
 public:
  /// Errors: `what`, the pattern and what is wrong with it.
  Regex(std::string_view pattern, std::string_view what);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  /// Calls match(begin, end) on the successive matches in well-formed UTF-8 `text`, empty ones included
  /// except right after another match.
  void for_each_match(std::string_view text,
                      FunctionRef<void(std::size_t begin, std::size_t end)> match) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace asynct
