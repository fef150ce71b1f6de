#include "asynct/base/printable.h"

#include <utf8proc.h>

namespace asynct {

std::string printable(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  while (!text.empty()) {
    utf8proc_int32_t code = 0;
    const utf8proc_ssize_t length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                                     static_cast<utf8proc_ssize_t>(text.size()), &code);
    const std::string_view character = text.substr(0, length > 0 ? static_cast<std::size_t>(length) : 1);
    if (length <= 0)
      line += "\uFFFD";
    else if (code < 0x20 || (code >= 0x7F && code < 0xA0))
      line += ' ';
    else
      line += character;
    text.remove_prefix(character.size());
  }
  return line;
}

}  // namespace asynct
