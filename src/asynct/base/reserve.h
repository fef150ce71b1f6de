#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace asynct {

/// Room for `count` elements, made twofold at least when it is too little: bounds that creep up cost few
/// allocations.
template <class T>
void reserve_at_least(std::vector<T>& vector, std::size_t count) {
  if (vector.capacity() < count) vector.reserve(std::max(count, 2 * vector.capacity()));
}

}  // namespace asynct
