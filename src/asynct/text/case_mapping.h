#pragma once

#include <string_view>

namespace asynct::python {

/// A character whose upper or title case is several characters.
struct SpecialCase {
  char32_t character;
  std::u16string_view upper, title;
};

/// The entry of `c`, if it has one.
const SpecialCase* special_case(char32_t c);

}  // namespace asynct::python
