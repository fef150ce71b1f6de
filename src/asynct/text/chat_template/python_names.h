#pragma once

#include "asynct/text/python_string.h"

// A template's strings are Python's.
namespace asynct::jinja {

using python::append_string_repr;
using python::byte_offset;
using python::capitalize;
using python::characters;
using python::escape_html;
using python::find_bytes;
using python::is_lower;
using python::is_upper;
using python::length;
using python::lower;
using python::parse_float;
using python::parse_integer;
using python::replace;
using python::Side;
using python::split;
using python::split_lines;
using python::strip;
using python::title;
using python::upper;

}  // namespace asynct::jinja
