// Filters of one value, and the table of all.
#include "asynct/text/chat_template/filters.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "asynct/text/chat_template/json_text.h"
#include "asynct/text/chat_template/python_names.h"
#include "asynct/text/chat_template/sequence_filters.h"
#include "asynct/text/python_values.h"

namespace asynct::jinja {
namespace {

/// The value as a string, with its markup: what filters of text begin with.
String soft_string(Runtime& runtime, const Value& value) {
  if (const String* text = value.string()) {
    runtime.allocate(text->text.size());
    return *text;
  }
  return {to_str(runtime, value)};
}

template <std::string (*kMap)(std::string_view)>
Value map_text(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("a filter of case", std::move(arguments), {});
  const String text = soft_string(runtime, value);
  runtime.allocate(text.text.size() * 4);  // decoded
  return runtime.string(kMap(text.text), text.markup);
}

/// Upper case after white space and opening brackets, unlike str.title().
std::string title_words(std::string_view text) {
  std::string out;
  std::size_t begin = 0;
  const auto flush = [&](std::size_t end) {
    const std::string_view word = text.substr(begin, end - begin);
    if (word.empty()) return;
    const std::size_t first = byte_offset(word, 1);
    out += upper(word.substr(0, first));
    out += lower(word.substr(first));
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = byte_offset(text.substr(at), 1);
    const std::string_view c = text.substr(at, size);
    if (std::string_view("-({[<").find(c) != std::string_view::npos || strip(c).empty()) {
      flush(at);
      out += c;
      begin = at + size;
    }
    at += size;
  }
  flush(text.size());
  return out;
}

Value trim(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("trim", std::move(arguments), {"chars"});
  const String text = soft_string(runtime, value);
  const auto characters = p.unless_none(0) ? std::optional<std::string_view>(p.text(0)) : std::nullopt;
  runtime.scan(characters.has_value() ? text.text.size() * (1 + characters->size() / 16) : 0);
  return runtime.string(std::string(strip(text.text, Side::kBoth, characters)), text.markup);
}

Value replace_text(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("replace", std::move(arguments), {"old", "new", "count"}, 2);
  const std::string text = to_str(runtime, value);
  const std::int64_t limit = p.unless_none(2) ? p.integer(2, -1) : -1;
  return runtime.string(replace(text, to_str(runtime, *p[0]), to_str(runtime, *p[1]), limit,
                                runtime.options().limits.output_bytes));
}

Value indent(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("indent", std::move(arguments), {"width", "first", "blank"});
  const String* text = value.string();
  if (text == nullptr) fail("indent: expected a string, found ", type_name(value));
  std::string margin(4, ' ');
  if (p[0] != nullptr && p[0]->string() != nullptr) {
    margin = p.text(0);
  } else if (p[0] != nullptr) {
    const std::int64_t width = std::max<std::int64_t>(p.integer(0, 4), 0);
    if (static_cast<std::uint64_t>(width) > runtime.options().limits.output_bytes)
      fail("indent: width ", width);
    margin.assign(static_cast<std::size_t>(width), ' ');
  }
  const std::string all = text->text + "\n";
  const bool blank = p.truth_of(2);
  std::string out;
  if (p.truth_of(1)) out = margin;
  bool is_first = true;
  for (const std::string_view line : split_lines(all)) {
    if (!is_first) out += '\n';
    const bool indented = !is_first && (blank || !line.empty());
    runtime.allocate(line.size() + (indented ? margin.size() : 0) + sizeof(line));
    if (indented) out += margin;
    out += line;
    is_first = false;
  }
  return runtime.string(std::move(out), text->markup);
}

Value string(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("string", std::move(arguments), {});
  return value.string() != nullptr ? value : runtime.string(to_str(runtime, value));
}

Value safe(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("safe", std::move(arguments), {});
  return runtime.string(to_str(runtime, value), true);
}

Value escape(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("escape", std::move(arguments), {});
  if (value.string() != nullptr && value.string()->markup) return value;
  return runtime.string(escape_html(to_str(runtime, value)), true);
}

Value default_value(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("default", std::move(arguments), {"default_value", "boolean"});
  if (!value.is_undefined() && !(p.truth_of(1) && !truth(value))) return value;
  return p[0] != nullptr ? *p[0] : runtime.string({});
}

/// int(number). Nothing for NaN.
std::optional<std::int64_t> truncate(double number) {
  if (std::isnan(number)) return std::nullopt;
  const double whole = std::trunc(number);
  if (!(whole >= -0x1p63 && whole < 0x1p63)) fail("int: ", python::repr(number), " does not fit 64 bits");
  return static_cast<std::int64_t>(whole);
}

void refuse_undefined(const Value& value) {
  if (const auto* hole = value.as<Undefined>()) fail(*hole->why);
}

Value to_integer(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("int", std::move(arguments), {"default", "base"});
  refuse_undefined(value);
  const std::int64_t base = p.integer(1, 10);
  if (value.string() != nullptr && base != 0 && (base < 2 || base > 36)) fail("int: base ", base);
  const Value otherwise = p[0] != nullptr ? *p[0] : Value(std::int64_t{0});
  if (const auto integer = value.integer()) return *integer;
  if (const auto* number = value.as<double>()) {
    const auto whole = truncate(*number);
    return whole.has_value() ? Value(*whole) : otherwise;
  }
  const String* text = value.string();
  if (text == nullptr) return otherwise;
  runtime.scan(text->text.size());
  if (const auto integer = parse_integer(text->text, static_cast<int>(base))) return *integer;
  const auto number = parse_float(text->text);
  if (!number.has_value() || !std::isfinite(*number)) return otherwise;
  return *truncate(*number);
}

Value to_float(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("float", std::move(arguments), {"default"});
  refuse_undefined(value);
  if (const auto integer = value.integer()) return static_cast<double>(*integer);
  if (value.as<double>() != nullptr) return value;
  if (const String* text = value.string()) {
    runtime.scan(text->text.size());
    if (const auto number = parse_float(text->text)) return *number;
  }
  return p[0] != nullptr ? *p[0] : Value(0.0);
}

Value absolute(Runtime&, const Value& value, Arguments arguments) {
  const Parameters p("abs", std::move(arguments), {});
  if (const auto* number = value.as<double>()) return std::fabs(*number);
  const std::int64_t integer = expect_integer(value, "abs");
  if (integer == INT64_MIN) fail("abs: the result does not fit 64 bits");
  return std::abs(integer);
}

/// round(value, digits) to even, digits < 0.
std::int64_t round_integer(std::int64_t value, std::int64_t digits) {
  if (digits < -18) return 0;
  std::int64_t unit = 1;
  for (; digits < 0; ++digits) unit *= 10;
  std::int64_t rest = value % unit;
  if (rest < 0) rest += unit;
  std::int64_t down = value - rest;
  if (value < INT64_MIN + unit) fail("round: the result does not fit 64 bits");
  const bool even = (down / unit) % 2 == 0;
  if (2 * rest > unit || (2 * rest == unit && !even))
    if (__builtin_add_overflow(down, unit, &down)) fail("round: the result does not fit 64 bits");
  return down;
}

/// round(value, digits): the decimal nearest to the exact value, halves to even.
double round_float(double value, std::int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return std::copysign(std::nearbyint(value / unit) * unit, value);
  }
  char buffer[700];
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(digits), value);
  return std::strtod(buffer, nullptr);
}

Value round_number(Runtime&, const Value& value, Arguments arguments) {
  const Parameters p("round", std::move(arguments), {"precision", "method"});
  const std::string method = p[1] != nullptr ? p.text(1) : "common";
  if (method != "common" && method != "ceil" && method != "floor") fail("round: method \"", method, "\"");
  const std::int64_t digits = p.integer(0, 0);
  const auto* real = value.as<double>();
  if (method == "common") {
    if (real != nullptr) return round_float(*real, digits);
    const std::int64_t integer = expect_integer(value, "round");
    return digits >= 0 ? integer : round_integer(integer, digits);
  }
  if (std::abs(digits) > 300) fail("round: precision ", digits);
  const double unit = std::pow(10.0, static_cast<double>(digits));
  const double scaled =
      (real != nullptr ? *real : static_cast<double>(expect_integer(value, "round"))) * unit;
  if (!std::isfinite(scaled)) fail("round: ", python::repr(scaled), " cannot be rounded");
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit;
}

Value to_json_text(Runtime& runtime, const Value& value, Arguments arguments) {
  const Parameters p("tojson", std::move(arguments), {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.ensure_ascii = p.truth_of(0), .sort_keys = p.truth_of(3)};
  if (p.unless_none(1) != nullptr) {
    if (p[1]->string() != nullptr) {
      style.indent = p.text(1);
    } else {
      const std::int64_t width = std::max<std::int64_t>(p.integer(1, 0), 0);
      if (width > 1000) fail("tojson: indent of ", width);
      style.indent = std::string(static_cast<std::size_t>(width), ' ');
    }
    style.item_separator.resize(1);  // no space before a line's end
  }
  if (p.unless_none(2) != nullptr) {
    const std::vector<Value> pair = runtime.elements(*p[2]);
    if (pair.size() != 2) fail("tojson: expected two separators, found ", pair.size());
    style.item_separator = expect_text(pair[0], "tojson");
    style.key_separator = expect_text(pair[1], "tojson");
  }
  return runtime.string(to_json(runtime, value, style));
}

constexpr Filter kFilters[] = {
    {"abs", absolute},
    {"batch", batch},
    {"capitalize", map_text<capitalize>},
    {"count", count_elements},
    {"d", default_value},
    {"default", default_value},
    {"dictsort", dictsort},
    {"e", escape},
    {"escape", escape},
    {"first", first},
    {"float", to_float},
    {"indent", indent},
    {"int", to_integer},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", count_elements},
    {"list", list},
    {"lower", map_text<lower>},
    {"map", map},
    {"max", maximum},
    {"min", minimum},
    {"reject", reject},
    {"rejectattr", rejectattr},
    {"replace", replace_text},
    {"reverse", reverse},
    {"round", round_number},
    {"safe", safe},
    {"select", select},
    {"selectattr", selectattr},
    {"sort", sort},
    {"string", string},
    {"sum", sum},
    {"title", map_text<title_words>},
    {"tojson", to_json_text},
    {"trim", trim},
    {"unique", unique},
    {"upper", map_text<upper>},
};

}  // namespace

const Filter* find_filter(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kFilters), std::end(kFilters), [&](const Filter& f) { return f.name == name; });
  return found == std::end(kFilters) ? nullptr : found;
}

}  // namespace asynct::jinja
