#include "asynct/eval/python_random.h"

#include <bit>
#include <cassert>
#include <cmath>
#include <unordered_set>

namespace asynct {
namespace {

constexpr std::size_t kWords = 624;
constexpr std::size_t kMiddle = 397;

}  // namespace

PythonRandom::PythonRandom(std::uint32_t seed) {
  state_[0] = 19650218u;
  for (std::size_t i = 1; i < kWords; ++i)
    state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + static_cast<std::uint32_t>(i);
  // init_by_array with the key {seed}.
  std::size_t i = 1;
  for (std::size_t k = 0; k < kWords; ++k) {
    state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * 1664525u)) + seed;
    if (++i == kWords) {
      state_[0] = state_[kWords - 1];
      i = 1;
    }
  }
  for (std::size_t k = 0; k < kWords - 1; ++k) {
    state_[i] =
        (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * 1566083941u)) - static_cast<std::uint32_t>(i);
    if (++i == kWords) {
      state_[0] = state_[kWords - 1];
      i = 1;
    }
  }
  state_[0] = 0x80000000u;
}

void PythonRandom::refill() {
  for (std::size_t i = 0; i < kWords; ++i) {
    const std::uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % kWords] & 0x7fffffffu);
    state_[i] = state_[(i + kMiddle) % kWords] ^ (y >> 1) ^ ((y & 1) != 0 ? 0x9908b0dfu : 0u);
  }
  position_ = 0;
}

std::uint32_t PythonRandom::next_word() {
  if (position_ == kWords) refill();
  std::uint32_t y = state_[position_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

double PythonRandom::random() {
  const std::uint32_t high = next_word() >> 5;
  const std::uint32_t low = next_word() >> 6;
  return (high * 67108864.0 + low) * (1.0 / 9007199254740992.0);
}

std::size_t PythonRandom::below(std::size_t n) {
  assert(n >= 1 && n <= 0xffffffffu);
  const auto bits = static_cast<int>(std::bit_width(n));
  for (;;) {
    const std::size_t drawn = next_word() >> (32 - bits);
    if (drawn < n) return drawn;
  }
}

std::vector<std::size_t> PythonRandom::sample(std::size_t n, std::size_t k) {
  assert(k <= n);
  std::vector<std::size_t> picked(k);
  // CPython keeps a list of the rest for small populations and a set of what is taken for large ones; the two
  // draw differently.
  std::size_t set_size = 21;
  if (k > 5)
    set_size += std::size_t{1} << (2 * static_cast<int>(std::ceil(std::log(3.0 * static_cast<double>(k)) /
                                                                  std::log(4.0))));
  if (n <= set_size) {
    std::vector<std::size_t> pool(n);
    for (std::size_t i = 0; i < n; ++i) pool[i] = i;
    for (std::size_t i = 0; i < k; ++i) {
      const std::size_t j = below(n - i);
      picked[i] = pool[j];
      pool[j] = pool[n - i - 1];
    }
    return picked;
  }
  std::unordered_set<std::size_t> taken;
  for (std::size_t i = 0; i < k; ++i) {
    std::size_t j = below(n);
    while (!taken.insert(j).second) j = below(n);
    picked[i] = j;
  }
  return picked;
}

}  // namespace asynct
