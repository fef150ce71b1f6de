#include "asynct/serve/json_writer.h"

namespace asynct::serve {

void append_json(std::string& out, std::string_view text) {
  std::string valid;
  if (!is_valid_utf8(text)) {
    append_valid_utf8(valid, text);
    text = valid;
  }
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
          out += "\\u00";
          out += kHex[(c >> 4) & 15];
          out += kHex[c & 15];
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

}  // namespace asynct::serve
