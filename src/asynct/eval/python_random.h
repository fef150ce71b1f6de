#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace asynct {

/// Python's random.Random(seed) for a small non-negative seed: MT19937 seeded by init_by_array, and the
/// methods that few-shot sampling and bootstrap errors are made of, draw for draw.
class PythonRandom {
 public:
  explicit PythonRandom(std::uint32_t seed);

  std::uint32_t next_word();
  /// random.random(): in [0, 1), 53 bits.
  double random();
  /// The generator behind randrange(n), n >= 1.
  std::size_t below(std::size_t n);
  /// Indices that sample(population, k) would pick from a population of n >= k.
  std::vector<std::size_t> sample(std::size_t n, std::size_t k);

 private:
  void refill();

  std::array<std::uint32_t, 624> state_;
  std::size_t position_ = 624;
};

}  // namespace asynct
