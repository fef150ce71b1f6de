#pragma once

#include <stdexcept>

#include "asynct/base/strings.h"

namespace asynct {

/// Something that came from outside (a file, an argument, a request) is wrong. The message names the thing,
/// what was found and what was expected; the command line prints it and exits 1, a server answers 4xx.
/// Broken internal contracts are not Errors: they are asserts.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws Error with the parts joined as by cat().
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw Error(cat(parts...));
}

}  // namespace asynct
