#pragma once

#include <string>
#include <string_view>

namespace asynct {

/// A pattern in Oniguruma's Ruby syntax, which is what tokenizer.json files mean, rewritten for PCRE2:
/// \w, \s, \b and \uHHHH become what they mean there. Constructs that PCRE2 accepts but reads differently
/// (class intersections, nested classes, POSIX brackets, \h, \W in a class, a{1,2}+, (?m)) are an Error
/// that begins with `what`: better no tokenizer than other ids.
std::string to_pcre2(std::string_view pattern, std::string_view what);

}  // namespace asynct
