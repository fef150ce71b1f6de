#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "asynct/text/python_values.h"

// The few str methods of Python that lm-evaluation-harness's prompts and metrics are defined by, on UTF-8.
namespace asynct::python {

/// str.strip() and str.rstrip() without arguments.
std::string_view strip(std::string_view text);
std::string_view rstrip(std::string_view text);

/// len(text): characters, not bytes.
std::size_t length(std::string_view text);

/// len(re.split(r"\s+", text)): runs of white space plus one.
std::size_t split_count(std::string_view text);

/// text.replace(from, to): left to right, results not scanned again. `from` is not empty.
std::string replace(std::string_view text, std::string_view from, std::string_view to);

/// str.capitalize(): the first character in title case, the rest in lower case (one character to one).
std::string capitalize(std::string_view text);

}  // namespace asynct::python
