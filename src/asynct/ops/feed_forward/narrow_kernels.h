#pragma once

#include <cstdint>

// What kernel families of vectors narrower than 16 lanes share; included after their Vec and sum_lanes().
namespace asynct::feed_forward {
namespace {

template <int kVectors>
void multiply_by_sums(const Vec (&sum)[4][kVectors], float* h) {
  for (int j = 0; j < 4; ++j) h[j] *= sum_lanes(sum[j]);
}

std::uint32_t take_active(const float* gate, std::int64_t count, std::int32_t base, std::int32_t* index,
                          float* values) {
  std::uint32_t active = 0;
  for (int i = 0; i < 16 && i < count; i += Vec::kLanes) {
    const Vec vec = count - i >= Vec::kLanes ? Vec::load(gate + i) : Vec::load_first(gate + i, count - i);
    active |= vec.active() << i;
  }
  int found = 0;
  for (std::uint32_t bits = active; bits != 0; bits &= bits - 1, ++found) {
    const int i = __builtin_ctz(bits);
    index[found] = base + i;
    values[found] = gate[i];
  }
  return active;
}

}  // namespace
}  // namespace asynct::feed_forward
