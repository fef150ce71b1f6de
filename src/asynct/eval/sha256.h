#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace asynct {

/// SHA-256 (FIPS 180-4), for prompt hashes and run keys; not meant as a defence.
class Sha256 {
 public:
  void update(std::string_view bytes);
  /// Digest in lower-case hex. The object is used up.
  std::string hex();

 private:
  void block(const unsigned char* bytes);

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> pending_{};
  std::uint64_t bytes_ = 0;
};

std::string sha256_hex(std::string_view bytes);

}  // namespace asynct
