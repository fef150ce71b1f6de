#pragma once

#include <cstdint>
#include <random>

namespace asynct::load {

/// Draws that are the same with every standard library: its engines are specified to the bit, its
/// distributions are not.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  double unit();                                                    // uniform in [0, 1)
  std::int64_t between(std::int64_t least, std::int64_t greatest);  // uniform, both included
  double normal();       // mean 0, standard deviation 1 (Box-Muller)
  double exponential();  // mean 1

 private:
  std::mt19937_64 engine_;
};

}  // namespace asynct::load
