#include "asynct/cli/print_error.h"

#include <cstdio>
#include <string>

#include "asynct/text/utf8.h"

namespace asynct {

void print_error(std::string_view message) {
  std::string line = "asynct: error: ";
  while (!message.empty()) {
    const CodePoint c = decode_utf8(message);
    const bool control = c.value < 0x20 || (c.value >= 0x7F && c.value < 0xA0);
    append_utf8(line, control ? U' ' : c.value);
    message.remove_prefix(static_cast<std::size_t>(c.length));
  }
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace asynct
