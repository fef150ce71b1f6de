#include "asynct/ops/linear/amx_product.h"

namespace asynct::linear {
namespace {

// What LDTILECFG reads.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// The tiles of this thread. Configured for one product and released after it: no other code may find them in
// use, and an idle core with live tile state does not sleep deeply. In assembly because GCC 12's intrinsics
// do not tell the compiler what memory they read.
class AmxTiles {
 public:
  AmxTiles(int height, int row_tiles) {
    TileConfig config;
    for (int t = 0; t < 8; ++t) {
      config.row_bytes[t] = static_cast<std::uint16_t>(kTileRowBytes);
      config.rows[t] = static_cast<std::uint8_t>(t < 4 + row_tiles ? height : kTileRows);
    }
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  ~AmxTiles() { asm volatile("tilerelease"); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  template <int T>
  void load(Tile<T>, const void* memory, std::int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(memory), "r"(stride), "i"(T) : "memory");
  }
  template <int T>
  void store(Tile<T>, void* memory, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(memory), "r"(stride), "i"(T) : "memory");
  }
  template <int T>
  void zero(Tile<T>) {
    asm volatile("tilezero %%tmm%c0" ::"i"(T));
  }
  template <int C, int A, int B>
  void dot(Tile<C>, Tile<A>, Tile<B>) {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
  }
};

}  // namespace

constinit const AmxKernels kAmxKernels = make_amx_kernels<AmxTiles>();

}  // namespace asynct::linear
