#pragma once

#include <string>

// What Python makes of single values; prompts, metrics and chat templates are defined by it.
namespace asynct::python {

/// str.isspace() of one character; also what \s matches.
bool is_space(char32_t c);

/// repr(float): shortest digits that read back, in Python's layout ("-1.5", "1e-07", "inf").
std::string repr(double value);

}  // namespace asynct::python
