// Upper, lower and title case, and repr(), of Python's str: what depends on Unicode's properties.
#include <utf8proc.h>

#include <algorithm>

#include "asynct/text/case_mapping.h"
#include "asynct/text/python_string.h"
#include "asynct/text/utf8.h"

namespace asynct::python {
namespace {

struct Interval {
  char32_t first, last;
};
// PropList.txt of Unicode 14: Other_Lowercase and Other_Uppercase.
constexpr Interval kOtherLower[] = {
    {0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},    {0x2E0, 0x2E4},
    {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},   {0x1D78, 0x1D78},  {0x1D9B, 0x1DBF},
    {0x2071, 0x2071},   {0x207F, 0x207F},   {0x2090, 0x209C},   {0x2170, 0x217F},  {0x24D0, 0x24E9},
    {0x2C7C, 0x2C7D},   {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},  {0xAB5C, 0xAB5F},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}};
constexpr Interval kOtherUpper[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
// WordBreakProperty.txt: MidLetter, MidNumLet, Single_Quote; they do not part a word from its last letter.
constexpr char32_t kMidWord[] = {0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,  0x5F4,  0x2018, 0x2019,
                                 0x2024, 0x2027, 0xFE13, 0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};

template <std::size_t N>
bool within(const Interval (&intervals)[N], char32_t c) {
  return std::any_of(std::begin(intervals), std::end(intervals),
                     [&](const Interval& i) { return c >= i.first && c <= i.last; });
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }
bool lower_case(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || within(kOtherLower, c); }
bool upper_case(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU || within(kOtherUpper, c); }
bool cased(char32_t c) { return lower_case(c) || upper_case(c) || category(c) == UTF8PROC_CATEGORY_LT; }

bool case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return std::find(std::begin(kMidWord), std::end(kMidWord), c) != std::end(kMidWord);
  }
}

std::u32string decode(std::string_view text) {
  std::u32string out;
  while (!text.empty()) {
    const CodePoint c = decode_utf8(text);
    out += c.value;
    text.remove_prefix(static_cast<std::size_t>(c.length));
  }
  return out;
}

void append_upper(std::string& out, char32_t c, bool title) {
  if (const SpecialCase* special = special_case(c)) {
    for (const char16_t part : title ? special->title : special->upper) append_utf8(out, part);
    return;
  }
  const auto code = static_cast<utf8proc_int32_t>(c);
  append_utf8(out, static_cast<char32_t>(title ? utf8proc_totitle(code) : utf8proc_toupper(code)));
}

/// Whether the capital sigma at `at` ends a word: a letter before it and none after it.
bool final_sigma(const std::u32string& text, std::size_t at) {
  std::size_t before = at;
  while (before > 0 && case_ignorable(text[before - 1])) --before;
  if (before == 0 || !cased(text[before - 1])) return false;
  std::size_t after = at + 1;
  while (after < text.size() && case_ignorable(text[after])) ++after;
  return after == text.size() || !cased(text[after]);
}

void append_lower(std::string& out, const std::u32string& text, std::size_t at) {
  const char32_t c = text[at];
  if (c == 0x3A3) {
    append_utf8(out, final_sigma(text, at) ? 0x3C2 : 0x3C3);
  } else if (c == 0x130) {
    out += "i\xCC\x87";
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

bool printable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

void append_hex(std::string& out, char letter, char32_t value, int digits) {
  out += '\\';
  out += letter;
  while (digits-- > 0) out += "0123456789abcdef"[value >> (4 * digits) & 15];
}

/// Whether all cased characters are of one case, and there is one.
template <class Wanted>
bool all_of_case(std::string_view text, Wanted wanted) {
  bool any = false;
  for (const char32_t c : decode(text)) {
    if (!cased(c)) continue;
    if (!wanted(c)) return false;
    any = true;
  }
  return any;
}

}  // namespace

std::string upper(std::string_view text) {
  std::string out;
  for (const char32_t c : decode(text)) append_upper(out, c, false);
  return out;
}

std::string lower(std::string_view text) {
  const std::u32string all = decode(text);
  std::string out;
  for (std::size_t i = 0; i < all.size(); ++i) append_lower(out, all, i);
  return out;
}

std::string title(std::string_view text) {
  const std::u32string all = decode(text);
  std::string out;
  bool in_word = false;
  for (std::size_t i = 0; i < all.size(); ++i) {
    in_word ? append_lower(out, all, i) : append_upper(out, all[i], true);
    in_word = cased(all[i]);
  }
  return out;
}

std::string capitalize(std::string_view text) {
  const std::u32string all = decode(text);
  std::string out;
  for (std::size_t i = 0; i < all.size(); ++i)
    i > 0 ? append_lower(out, all, i) : append_upper(out, all[i], true);
  return out;
}

bool is_lower(std::string_view text) { return all_of_case(text, lower_case); }
bool is_upper(std::string_view text) { return all_of_case(text, upper_case); }

void append_string_repr(std::string& out, std::string_view text) {
  const bool doubles = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = doubles ? '"' : '\'';
  out += quote;
  for (const char32_t c : decode(text)) {
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (printable(c)) {
      append_utf8(out, c);
    } else if (c < 0x100) {
      append_hex(out, 'x', c, 2);
    } else {
      c < 0x10000 ? append_hex(out, 'u', c, 4) : append_hex(out, 'U', c, 8);
    }
  }
  out += quote;
}

}  // namespace asynct::python
