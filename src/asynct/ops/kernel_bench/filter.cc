#include "asynct/base/strings.h"
#include "asynct/ops/kernel_bench/kernel_bench.h"

namespace asynct::kernel_bench {

bool matches(const std::string& filter, const std::string& kernel, const std::string& shape,
             const std::string& variant) {
  return cat(kernel, " ", shape, " ", variant).find(filter) != std::string::npos;
}

}  // namespace asynct::kernel_bench
