#include "asynct/cli/print_error.h"

#include <cstdio>
#include <string>

#include "asynct/base/printable.h"
#include "asynct/base/strings.h"

namespace asynct {

void print_error(std::string_view message) {
  const std::string line = cat("asynct: error: ", printable(message), "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace asynct
