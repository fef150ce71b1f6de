#pragma once

#include <cstdint>
#include <string_view>

#include "asynct/base/error.h"

// From numbers of a call to the instances of a kernel; Error with the kernel's name for a number without one.
namespace asynct::cuda {

/// Calls launch.operator()<pool_size>().
template <class Launch>
void by_pool_size(std::string_view kernel, std::int32_t pool_size, const Launch& launch) {
  switch (pool_size) {
    case 1:
      return launch.template operator()<1>();
    case 2:
      return launch.template operator()<2>();
    case 3:
      return launch.template operator()<3>();
    case 5:
      return launch.template operator()<5>();
    default:
      fail(kernel, ": pool_size ", pool_size, ", expected 1, 2, 3 or 5");
  }
}

/// Calls launch.operator()<head_dim>().
template <class Launch>
void by_head_dim(std::string_view kernel, std::int32_t head_dim, const Launch& launch) {
  switch (head_dim) {
    case 64:
      return launch.template operator()<64>();
    case 128:
      return launch.template operator()<128>();
    default:
      fail(kernel, ": head_dim ", head_dim, ", expected 64 or 128");
  }
}

}  // namespace asynct::cuda
