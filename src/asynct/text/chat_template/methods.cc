#include "asynct/text/chat_template/methods.h"

#include <algorithm>
#include <span>

#include "asynct/text/chat_template/operators.h"
#include "asynct/text/chat_template/python_names.h"

namespace asynct::jinja {
namespace {

using Named = Parameters::Named;
using Function = Value (*)(Runtime& runtime, const Value& self, std::string_view name, Arguments arguments);

struct Entry {
  std::string_view name;
  Function call;
};

const String& text_of(const Value& self) { return *self.string(); }

Value list_of(Runtime& runtime, const std::vector<std::string_view>& parts, bool markup) {
  std::vector<Value> items;
  for (const std::string_view part : parts) items.push_back(runtime.string(std::string(part), markup));
  return runtime.list(std::move(items));
}

template <Side kSide>
Value strip_text(Runtime& runtime, const Value& self, std::string_view name, Arguments arguments) {
  const Parameters p(name, std::move(arguments), {"chars"}, 0, Named::kRefused);
  const auto characters = p.unless_none(0) ? std::optional<std::string_view>(p.text(0)) : std::nullopt;
  runtime.scan(text_of(self).text.size() * (characters.has_value() ? 1 + characters->size() / 16 : 1));
  return runtime.string(std::string(strip(text_of(self).text, kSide, characters)), text_of(self).markup);
}

template <std::string (*kMap)(std::string_view)>
Value map_text(Runtime& runtime, const Value& self, std::string_view name, Arguments arguments) {
  const Parameters p(name, std::move(arguments), {}, 0, Named::kRefused);
  runtime.allocate(text_of(self).text.size() * 4);  // decoded
  return runtime.string(kMap(text_of(self).text), text_of(self).markup);
}

template <bool (*kTest)(std::string_view)>
Value test_text(Runtime& runtime, const Value& self, std::string_view name, Arguments arguments) {
  const Parameters p(name, std::move(arguments), {}, 0, Named::kRefused);
  runtime.allocate(text_of(self).text.size() * 4);
  return kTest(text_of(self).text);
}

/// Counts a search from the right, whose time is the product of both lengths.
void scan_backwards(Runtime& runtime, std::string_view text, std::string_view wanted) {
  std::size_t product = 0;
  if (__builtin_mul_overflow(text.size(), wanted.size() / 16, &product))
    fail("a search in too long a string");
  runtime.scan(product);
}

template <bool kFromRight>
Value split_text(Runtime& runtime, const Value& self, std::string_view name, Arguments arguments) {
  const Parameters p(name, std::move(arguments), {"sep", "maxsplit"});
  const auto separator = p.unless_none(0) ? std::optional<std::string_view>(p.text(0)) : std::nullopt;
  runtime.scan(text_of(self).text.size());
  if (kFromRight && separator.has_value()) scan_backwards(runtime, text_of(self).text, *separator);
  return list_of(runtime, split(text_of(self).text, separator, p.integer(1, -1), kFromRight),
                 text_of(self).markup);
}

Value split_text_lines(Runtime& runtime, const Value& self, std::string_view name, Arguments arguments) {
  const Parameters p(name, std::move(arguments), {"keepends"});
  return list_of(runtime, split_lines(text_of(self).text, p.truth_of(0)), text_of(self).markup);
}

/// The part of a text that text.method(what, start, end) looks at, and where it begins in characters.
struct Window {
  std::string_view text;
  std::int64_t begin = 0;
  bool exists = true;  // else not even the empty string is in it
};

Window window(Runtime& runtime, const std::string& text, const Parameters& p) {
  runtime.scan(text.size() + 16);
  if (p.unless_none(1) == nullptr && p.unless_none(2) == nullptr) return {text};
  const std::int64_t size = length(text);
  const auto clamp = [&](std::int64_t at) {
    return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const std::int64_t start = p.unless_none(1) ? p.integer(1, 0) : 0;
  const std::int64_t end = p.unless_none(2) ? clamp(p.integer(2, 0)) : size;
  if (start > size || clamp(start) > end) return {{}, 0, false};
  const std::size_t first = byte_offset(text, clamp(start));
  const std::string_view tail = std::string_view(text).substr(first);
  return {tail.substr(0, byte_offset(tail, end - clamp(start))), clamp(start), true};
}

template <bool kAtStart>
Value match_end(Runtime& runtime, const Value& self, std::string_view name, Arguments arguments) {
  const Parameters p(name, std::move(arguments), {"affix", "start", "end"}, 1, Named::kRefused);
  const Window part = window(runtime, text_of(self).text, p);
  const auto matches = [&](const Value& affix) {
    const std::string& text = expect_text(affix, name);
    return part.exists && (kAtStart ? part.text.starts_with(text) : part.text.ends_with(text));
  };
  const Sequence* choice = p[0]->tuple();
  if (choice == nullptr) return matches(*p[0]);
  for (const Value& affix : choice->items)
    if (matches(affix)) return true;
  return false;
}

template <bool kFromRight, bool kRequired>
Value find_text(Runtime& runtime, const Value& self, std::string_view name, Arguments arguments) {
  const Parameters p(name, std::move(arguments), {"sub", "start", "end"}, 1, Named::kRefused);
  const std::string& wanted = p.text(0);
  const Window part = window(runtime, text_of(self).text, p);
  if (kFromRight) scan_backwards(runtime, part.text, wanted);
  const std::size_t at = kFromRight ? part.text.rfind(wanted) : find_bytes(part.text, wanted);
  if (part.exists && at != std::string_view::npos) return part.begin + length(part.text.substr(0, at));
  if (kRequired) fail(name, ": substring not found");
  return std::int64_t{-1};
}

Value count_text(Runtime& runtime, const Value& self, std::string_view name, Arguments arguments) {
  const Parameters p(name, std::move(arguments), {"sub", "start", "end"}, 1, Named::kRefused);
  const std::string& wanted = p.text(0);
  const Window part = window(runtime, text_of(self).text, p);
  if (!part.exists) return std::int64_t{0};
  if (wanted.empty()) return length(part.text) + 1;
  std::int64_t count = 0;
  for (std::size_t at = 0; (at = find_bytes(part.text, wanted, at)) != std::string_view::npos;
       at += wanted.size())
    ++count;
  return count;
}

Value replace_text(Runtime& runtime, const Value& self, std::string_view name, Arguments arguments) {
  const Parameters p(name, std::move(arguments), {"old", "new", "count"}, 2, Named::kRefused);
  const String& text = text_of(self);
  runtime.scan(text.text.size());
  std::string to = p.text(1);
  if (text.markup && !p[1]->string()->markup) to = escape_html(to);
  const std::size_t largest = runtime.options().limits.output_bytes;
  return runtime.string(replace(text.text, p.text(0), to, p.integer(2, -1), largest), text.markup);
}

Value join_text(Runtime& runtime, const Value& self, std::string_view name, Arguments arguments) {
  const Parameters p(name, std::move(arguments), {"iterable"}, 1, Named::kRefused);
  const String& separator = text_of(self);
  std::string out;
  bool first = true;
  for (const Value& item : runtime.elements(*p[0])) {
    if (!first) out += separator.text;
    first = false;
    const std::string& text = expect_text(item, name);
    runtime.allocate(text.size() + separator.text.size());
    out += separator.markup && !item.string()->markup ? escape_html(text) : text;
  }
  return runtime.string(std::move(out), separator.markup);
}

template <bool kPrefix>
Value remove_affix(Runtime& runtime, const Value& self, std::string_view name, Arguments arguments) {
  const Parameters p(name, std::move(arguments), {"affix"}, 1, Named::kRefused);
  std::string_view text = text_of(self).text;
  const std::string& affix = p.text(0);
  if (kPrefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!kPrefix && text.ends_with(affix)) text.remove_suffix(affix.size());
  return runtime.string(std::string(text), text_of(self).markup);
}

template <bool kFromRight>
Value partition_text(Runtime& runtime, const Value& self, std::string_view name, Arguments arguments) {
  const Parameters p(name, std::move(arguments), {"sep"}, 1, Named::kRefused);
  const std::string& separator = p.text(0);
  if (kFromRight) scan_backwards(runtime, text_of(self).text, separator);
  const auto parts = split(text_of(self).text, separator, 1, kFromRight);
  const auto make = [&](std::string_view part) {
    return runtime.string(std::string(part), text_of(self).markup);
  };
  if (parts.size() == 2) return runtime.tuple({make(parts[0]), make(separator), make(parts[1])});
  if (kFromRight) return runtime.tuple({make({}), make({}), make(parts[0])});
  return runtime.tuple({make(parts[0]), make({}), make({})});
}

bool all_space(std::string_view text) { return !text.empty() && strip(text).empty(); }

constexpr Entry kTextMethods[] = {{"capitalize", map_text<capitalize>},
                                  {"count", count_text},
                                  {"endswith", match_end<false>},
                                  {"find", find_text<false, false>},
                                  {"index", find_text<false, true>},
                                  {"islower", test_text<is_lower>},
                                  {"isspace", test_text<all_space>},
                                  {"isupper", test_text<is_upper>},
                                  {"join", join_text},
                                  {"lower", map_text<lower>},
                                  {"lstrip", strip_text<Side::kLeft>},
                                  {"partition", partition_text<false>},
                                  {"removeprefix", remove_affix<true>},
                                  {"removesuffix", remove_affix<false>},
                                  {"replace", replace_text},
                                  {"rfind", find_text<true, false>},
                                  {"rindex", find_text<true, true>},
                                  {"rpartition", partition_text<true>},
                                  {"rsplit", split_text<true>},
                                  {"rstrip", strip_text<Side::kRight>},
                                  {"split", split_text<false>},
                                  {"splitlines", split_text_lines},
                                  {"startswith", match_end<true>},
                                  {"strip", strip_text<Side::kBoth>},
                                  {"title", map_text<title>},
                                  {"upper", map_text<upper>}};

Value count_items(Runtime& runtime, const Value& self, std::string_view name, Arguments arguments) {
  const Parameters p(name, std::move(arguments), {"value"}, 1, Named::kRefused);
  std::int64_t count = 0;
  for (const Value& item : runtime.elements(self)) count += equal(runtime, item, *p[0]) ? 1 : 0;
  return count;
}

Value index_of_item(Runtime& runtime, const Value& self, std::string_view name, Arguments arguments) {
  const Parameters p(name, std::move(arguments), {"value"}, 1, Named::kRefused);
  const std::vector<Value> items = runtime.elements(self);
  for (std::size_t i = 0; i < items.size(); ++i)
    if (equal(runtime, items[i], *p[0])) return static_cast<std::int64_t>(i);
  fail(name, ": no such element");
}

constexpr Entry kSequenceMethods[] = {{"count", count_items}, {"index", index_of_item}};

template <View::Part kPart>
Value view_dict(Runtime&, const Value& self, std::string_view name, Arguments arguments) {
  const Parameters p(name, std::move(arguments), {}, 0, Named::kRefused);
  return View{*self.as<std::shared_ptr<const Dict>>(), kPart};
}

Value get_from_dict(Runtime&, const Value& self, std::string_view name, Arguments arguments) {
  const Parameters p(name, std::move(arguments), {"key", "default"}, 1, Named::kRefused);
  check_hashable(*p[0]);
  const Value* found = self.dict()->find(*p[0]);
  if (found != nullptr) return *found;
  return p[1] != nullptr ? *p[1] : Value();
}

constexpr Entry kDictMethods[] = {{"get", get_from_dict},
                                  {"items", view_dict<View::kItems>},
                                  {"keys", view_dict<View::kKeys>},
                                  {"values", view_dict<View::kValues>}};

constexpr std::string_view kOtherTextMethods[] = {
    "casefold", "center",  "encode",    "expandtabs", "format",       "format_map", "isalnum",
    "isalpha",  "isascii", "isdecimal", "isdigit",    "isidentifier", "isnumeric",  "isprintable",
    "istitle",  "ljust",   "maketrans", "rjust",      "swapcase",     "translate",  "zfill"};
constexpr std::string_view kOtherContainerMethods[] = {"copy", "fromkeys"};
constexpr std::string_view kNumberAttributes[] = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
    "from_bytes",       "fromhex",   "hex",        "imag",      "is_integer",
    "numerator",        "real",      "to_bytes"};
constexpr std::string_view kMutators[] = {"append", "clear",  "extend",  "insert",
                                          "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kDictMutators[] = {"clear", "pop", "popitem", "setdefault", "update"};

bool any(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::span<const Entry> methods_of(const Value& value) {
  if (value.string() != nullptr) return kTextMethods;
  if (value.sequence() != nullptr || value.as<Range>() != nullptr) return kSequenceMethods;
  if (value.dict() != nullptr) return kDictMethods;
  return {};
}

const Entry* find_entry(std::span<const Entry> entries, std::string_view name) {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.name == name; });
  return found == entries.end() ? nullptr : &*found;
}

}  // namespace

MethodKind find_method(const Value& value, std::string_view name) {
  if (find_entry(methods_of(value), name) != nullptr) return MethodKind::kSupported;
  if (value.list() != nullptr && any(kMutators, name)) return MethodKind::kForbidden;
  if (value.dict() != nullptr && any(kDictMutators, name)) return MethodKind::kForbidden;
  const bool unsupported =
      (value.string() != nullptr && any(kOtherTextMethods, name)) ||
      (value.list() != nullptr && name == "copy") ||
      (value.dict() != nullptr && any(kOtherContainerMethods, name)) ||
      ((value.integer() || value.as<double>() != nullptr) && any(kNumberAttributes, name));
  return unsupported ? MethodKind::kUnsupported : MethodKind::kNone;
}

bool is_refused_method(std::string_view name) {
  return any(kOtherTextMethods, name) || any(kOtherContainerMethods, name) || any(kNumberAttributes, name);
}

Value call_method(Runtime& runtime, const Method& method, Arguments arguments) {
  const Entry* entry = find_entry(methods_of(*method.self), method.name);
  if (entry == nullptr)
    fail("the method ", method.name, "() of ", type_name(*method.self), " is not supported");
  return entry->call(runtime, *method.self, entry->name, std::move(arguments));
}

}  // namespace asynct::jinja
