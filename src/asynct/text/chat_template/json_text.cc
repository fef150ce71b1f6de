#include "asynct/text/chat_template/json_text.h"

#include <algorithm>
#include <cmath>

#include "asynct/text/chat_template/python_names.h"
#include "asynct/text/python_values.h"
#include "asynct/text/utf8.h"

namespace asynct::jinja {
namespace {

void append_unit(std::string& out, char32_t unit) {
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += "0123456789abcdef"[unit >> shift & 15];
}

void append_json_string(std::string& out, std::string_view text, bool ensure_ascii) {
  out += '"';
  while (!text.empty()) {
    const CodePoint c = decode_valid_utf8(text.data());
    constexpr std::string_view kSpecial = "\"\\\n\r\t\f\b";
    constexpr std::string_view kLetters = "\"\\nrtfb";
    const std::size_t special =
        c.value < 0x80 ? kSpecial.find(static_cast<char>(c.value)) : std::string_view::npos;
    if (special != std::string_view::npos) {
      out += '\\';
      out += kLetters[special];
    } else if (c.value < 0x20 || (ensure_ascii && c.value >= 0x7F && c.value < 0x10000)) {
      append_unit(out, c.value);
    } else if (ensure_ascii && c.value >= 0x10000) {
      append_unit(out, 0xD800 + ((c.value - 0x10000) >> 10));
      append_unit(out, 0xDC00 + ((c.value - 0x10000) & 0x3FF));
    } else {
      out.append(text.substr(0, static_cast<std::size_t>(c.length)));
    }
    text.remove_prefix(static_cast<std::size_t>(c.length));
  }
  out += '"';
}

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return python::repr(value);
}

class Writer {
 public:
  Writer(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  std::string take() { return std::move(out_); }

  void write(const Value& value, std::size_t level) {
    runtime_.step();
    if (const Sequence* sequence = value.sequence()) return write_sequence(*sequence, level);
    if (const Dict* dict = value.dict()) return write_dict(*dict, level);
    const std::size_t before = out_.size();
    if (const String* text = value.string()) {
      append_json_string(out_, text->text, style_.ensure_ascii);
    } else {
      out_ += scalar(value);
    }
    runtime_.allocate(out_.size() - before);
  }

 private:
  std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (const auto* boolean = value.as<bool>()) return *boolean ? "true" : "false";
    if (const auto* integer = value.as<std::int64_t>()) return cat(*integer);
    if (const auto* number = value.as<double>()) return json_float(*number);
    fail("tojson: ", type_name(value), " has no form in JSON");
  }

  void new_line(std::size_t level) {
    if (!style_.indent.has_value()) return;
    runtime_.allocate(style_.indent->size() * level);
    out_ += '\n';
    for (std::size_t i = 0; i < level; ++i) out_ += *style_.indent;
  }

  void write_sequence(const Sequence& sequence, std::size_t level) {
    if (sequence.items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    for (std::size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(level + 1);
      write(sequence.items[i], level + 1);
    }
    new_line(level);
    out_ += ']';
  }

  void write_dict(const Dict& dict, std::size_t level) {
    if (dict.items().empty()) {
      out_ += "{}";
      return;
    }
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items()) items.push_back(&item);
    if (style_.sort_keys)
      std::stable_sort(items.begin(), items.end(),
                       [&](const auto* a, const auto* b) { return less(runtime_, a->first, b->first); });
    out_ += '{';
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(level + 1);
      const String* key = items[i]->first.string();
      append_json_string(out_, key != nullptr ? key->text : scalar(items[i]->first), style_.ensure_ascii);
      out_ += style_.key_separator;
      write(items[i]->second, level + 1);
    }
    new_line(level);
    out_ += '}';
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  Writer writer(runtime, style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace asynct::jinja
