// What one block does with the tile layer: barriers, copies into shared memory, fragments, products. Values
// are small integers or bits that name their place, so that everything compares equal, not nearly.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "asynct/ops/cuda/barrier.cuh"
#include "asynct/ops/cuda/copy_async.cuh"
#include "asynct/ops/cuda/gpu_testing.h"
#include "asynct/ops/cuda/mma.cuh"
#include "asynct/ops/cuda/tensor_map.h"
#include "asynct/ops/cuda/tile_testing.cuh"
#include "asynct/ops/cuda/tma.cuh"

namespace asynct::cuda {
namespace {

// --- Barriers ---

constexpr int kRounds = 7;

/// Warp 0 fills a place again and again, warp 1 empties it; each is late in turn.
__global__ void pass_through_one_place(std::uint32_t* out) {
  __shared__ std::uint32_t place[32];
  __shared__ std::uint64_t barriers[2];
  const std::uint32_t full = shared_address(&barriers[0]);
  const std::uint32_t free = shared_address(&barriers[1]);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    barrier_init(full, 32);
    barrier_init(free, 32);
  }
  __syncthreads();
  for (int round = 0; round < kRounds; ++round) {
    if ((round + threadIdx.x / 32) % 2 == 0) dawdle();
    if (threadIdx.x < 32) {
      barrier_wait(free, (round & 1) ^ 1);
      place[lane] = 32 * round + lane;
      barrier_arrive(full);
    } else {
      barrier_wait(full, round & 1);
      out[32 * round + lane] = place[31 - lane];
      barrier_arrive(free);
    }
  }
}

TEST(TileBarrier, phases_alternate) {
  const auto out = poisoned<std::uint32_t>(32 * kRounds);
  pass_through_one_place<<<1, 64>>>(out.data());
  check_launch("pass_through_one_place");
  Words want(out.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    want[i] = static_cast<std::uint32_t>(i / 32 * 32 + 31 - i % 32);
  EXPECT_EQ(out.download(), want);
}

/// Warps 0 and 1 write and go on, warps 2 and 3 wait for them and then for each other.
__global__ void pass_by_named_barriers(std::uint32_t* out) {
  __shared__ std::uint32_t first[64], second[64];
  const int i = static_cast<int>(threadIdx.x) % 64;
  if (threadIdx.x < 64) {
    dawdle();
    first[i] = 100 + i;
    barrier_arrive(1, 128);
    return;
  }
  barrier_sync(1, 128);
  if (i < 32) dawdle();
  second[i] = first[63 - i];
  barrier_sync(2, 64);
  out[i] = second[63 - i];
}

TEST(TileBarrier, named_barriers_join_the_threads_they_count) {
  const auto out = poisoned<std::uint32_t>(64);
  pass_by_named_barriers<<<1, 128>>>(out.data());
  check_launch("pass_by_named_barriers");
  Words want(64);
  std::iota(want.begin(), want.end(), 100);
  EXPECT_EQ(out.download(), want);
}

__global__ void store_and_load(std::uint32_t* out) {
  __shared__ alignas(16) std::uint32_t memory[32];
  const std::uint32_t at = shared_address(memory);
  for (std::uint32_t& word : memory) word = kPoisonWord;
  store_shared(at, make_uint4(1, 2, 3, 4));
  store_shared(at + 16, make_uint2(5, 6));
  store_shared(at + 24, std::uint32_t{7});
  store_shared(at + 28, std::uint16_t{8});
  store_shared(at + 32, make_float4(1, 2, 3, 4));
  store_shared(at + 48, make_float2(5, 6));
  store_shared(at + 56, 7.0F);
  store_shared(at + 64, make_uint4(0, 0, 0, 0));
  for (int i = 0; i < 20; ++i) out[i] = memory[i];
  const auto words = load_shared<uint4>(at);
  const auto two = load_shared<uint2>(at + 16);
  const auto floats = load_shared<float4>(at + 32);
  const auto pair = load_shared<float2>(at + 48);
  const std::uint32_t loaded[] = {words.x, words.y, words.z, words.w, two.x, two.y};
  for (int i = 0; i < 6; ++i) out[20 + i] = loaded[i];
  const float loaded_floats[] = {floats.x, floats.y, floats.z, floats.w, pair.x, pair.y};
  for (int i = 0; i < 6; ++i) out[26 + i] = __float_as_uint(loaded_floats[i]);
  out[32] = load_shared<std::uint32_t>(at + 24);
}

TEST(TileBarrier, stores_and_loads_keep_the_order_of_words) {
  const auto out = poisoned<std::uint32_t>(33);
  store_and_load<<<1, 1>>>(out.data());
  check_launch("store_and_load");
  const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  const Words want = {
      1,       2,       3,       4,       5,       6,       7,       (kPoisonWord & 0xffff0000u) | 8,
      bits(1), bits(2), bits(3), bits(4), bits(5), bits(6), bits(7), kPoisonWord,
      0,       0,       0,       0,       1,       2,       3,       4,
      5,       6,       bits(1), bits(2), bits(3), bits(4), bits(5), bits(6),
      7};
  EXPECT_EQ(out.download(), want);
}

// --- cp.async ---

/// The first half counted by a barrier and read by other threads, the second in groups by the thread itself.
__global__ void copy_by_threads(const uint4* in, uint4* out) {
  __shared__ uint4 memory[4 * 128];
  __shared__ std::uint64_t barrier;
  const std::uint32_t full = shared_address(&barrier);
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < 4 * 128; i += 128) memory[i] = make_uint4(0, 0, 0, 0);
  if (thread == 0) barrier_init(full, 128);
  __syncthreads();
  for (int i = thread; i < 2 * 128; i += 128) copy_async_16(shared_address(&memory[i]), in + i);
  copy_async_arrive(full);
  barrier_wait(full, 0);
  for (int i = thread; i < 2 * 128; i += 128) out[i] = memory[2 * 128 - 1 - i];
  for (int i = thread + 2 * 128; i < 4 * 128; i += 128) {
    copy_async_16(shared_address(&memory[i]), in + i);
    copy_async_commit();
  }
  copy_async_wait<1>();
  out[thread + 2 * 128] = memory[thread + 2 * 128];
  copy_async_wait<0>();
  out[thread + 3 * 128] = memory[thread + 3 * 128];
}

TEST(TileCopy, by_threads_counted_by_a_barrier_and_in_groups) {
  Words in(4 * 4 * 128);
  std::iota(in.begin(), in.end(), 1);
  const DeviceBuffer<std::uint32_t> from(in);
  const auto out = poisoned<std::uint32_t>(in.size());
  copy_by_threads<<<1, 128>>>(reinterpret_cast<const uint4*>(from.data()),
                              reinterpret_cast<uint4*>(out.data()));
  check_launch("copy_by_threads");
  Words want = in;
  for (std::size_t i = 0; i < in.size() / 2; ++i) want[i] = in[(in.size() / 8 - 1 - i / 4) * 4 + i % 4];
  EXPECT_EQ(out.download(), want);
}

// --- The copy engine ---

constexpr int kBoxBytes = 16 * 1024;

struct BoxArgs {
  CUtensorMap map;
  std::array<int, 5> at = {};
  int bytes = 0;  // of the box
  std::uint16_t* out = nullptr;
};

/// Shared memory as it is after the copy.
__global__ void copy_box(const __grid_constant__ BoxArgs args) {
  __shared__ alignas(1024) std::uint16_t box[kBoxBytes / 2];
  __shared__ std::uint64_t barrier;
  const std::uint32_t full = shared_address(&barrier);
  for (int i = static_cast<int>(threadIdx.x); i < kBoxBytes / 2; i += 128) box[i] = 0xFFFF;
  fence_async_shared();
  if (threadIdx.x == 0) {
    barrier_init(full, 1);
    barrier_init_fence();
    tma_prefetch(args.map);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    barrier_arrive_expect(full, args.bytes);
    tma_load(shared_address(box), args.map, full, args.at[0], args.at[1], args.at[2], args.at[3], args.at[4]);
  }
  barrier_wait(full, 0);
  for (int i = static_cast<int>(threadIdx.x); i < kBoxBytes / 2; i += 128) args.out[i] = box[i];
}

struct BoxCase {
  const char* name;
  TensorMapShape shape;
  std::array<int, 5> at;
};

// Boxes have 64 columns: 128 bytes.
constexpr BoxCase kBoxes[] = {
    {"1 dimension",
     {.size = {200, 1, 1, 1, 1}, .stride = {400, 400, 400, 400}, .box = {64, 1, 1, 1, 1}},
     {128}},
    {"1 dimension, past the end",
     {.size = {200, 1, 1, 1, 1}, .stride = {400, 400, 400, 400}, .box = {64, 1, 1, 1, 1}},
     {168}},
    {"2 dimensions",
     {.size = {136, 37, 1, 1, 1}, .stride = {288, 16384, 16384, 16384}, .box = {64, 24, 1, 1, 1}},
     {64, 5}},
    {"2 dimensions, rows past the end",
     {.dtype = DType::f16,
      .size = {136, 37, 1, 1, 1},
      .stride = {288, 16384, 16384, 16384},
      .box = {64, 24, 1, 1, 1}},
     {0, 30}},
    {"2 dimensions, all of it past the end",
     {.size = {136, 37, 1, 1, 1}, .stride = {288, 16384, 16384, 16384}, .box = {64, 24, 1, 1, 1}},
     {0, 64}},
    {"2 dimensions, rows and columns before the first",
     {.size = {136, 37, 1, 1, 1}, .stride = {288, 16384, 16384, 16384}, .box = {64, 24, 1, 1, 1}},
     {-8, -3}},
    {"3 dimensions: a matrix in slices of 64 columns",
     {.size = {64, 21, 3, 1, 1}, .stride = {400, 128, 16384, 16384}, .box = {64, 16, 2, 1, 1}},
     {0, 8, 2}},
    {"4 dimensions",
     {.size = {64, 3, 5, 4, 1}, .stride = {128, 384, 1920, 16384}, .box = {64, 2, 3, 4, 1}},
     {0, 2, 1, -1}},
    {"5 dimensions",
     {.size = {72, 3, 3, 2, 3}, .stride = {144, 432, 1296, 2592}, .box = {64, 2, 3, 2, 2}},
     {8, 1, 0, 1, 2}},
    // Keys 4 t + 2 j + e of 16 in rows 8 j + 2 t + e, from token 16 of block 1; tokens of 2 heads of 64.
    {"5 dimensions, keys permuted as prefill reads them",
     {.size = {64 + 16 * 128 + 64, 2, 4, 2, 3}, .stride = {256, 1024, 512, 8192}, .box = {64, 2, 4, 2, 1}},
     {64 + 16 * 128, 0, 0, 0, 1}},
};

/// The element at a place of the tensor; zero outside of it.
std::uint16_t element(const Halves& memory, const TensorMapShape& shape, const std::array<int, 5>& place) {
  std::size_t at = 0;
  for (std::size_t d = 0; d < 5; ++d) {
    if (place[d] < 0 || place[d] >= static_cast<int>(shape.size[d])) return 0;
    at += static_cast<std::size_t>(place[d]) * (d == 0 ? 1 : shape.stride[d - 1] / 2);
  }
  return memory.at(at);
}

/// Rows of 128 bytes, 16-byte pieces exclusive-ored with the row.
Halves box_in_shared_memory(const Halves& memory, const BoxCase& c) {
  Halves want(kBoxBytes / 2, 0xFFFF);
  std::array<int, 5> in_box = {};
  for (int row = 0;; ++row) {
    for (int column = 0; column < 64; ++column) {
      in_box[0] = column;
      std::array<int, 5> place;
      for (std::size_t d = 0; d < 5; ++d) place[d] = c.at[d] + in_box[d];
      want.at(static_cast<std::size_t>(64 * row + (column ^ row % 8 * 8))) = element(memory, c.shape, place);
    }
    std::size_t d = 1;
    while (d < 5 && ++in_box[d] == static_cast<int>(c.shape.box[d])) in_box[d++] = 0;
    if (d == 5) return want;
  }
}

TEST(TileCopy, boxes_lie_swizzled_with_zeros_outside_of_the_tensor) {
  Halves memory(32768);
  std::iota(memory.begin(), memory.end(), 1);
  const DeviceBuffer<std::uint16_t> from(memory);
  for (const BoxCase& c : kBoxes) {
    const auto out = poisoned<std::uint16_t>(kBoxBytes / 2);
    BoxArgs args = {.map = make_tensor_map(from.data(), c.shape), .at = c.at, .out = out.data()};
    args.bytes = 2;
    for (const std::uint32_t size : c.shape.box) args.bytes *= static_cast<int>(size);
    copy_box<<<1, 128>>>(args);
    check_launch("copy_box");
    EXPECT_EQ(out.download(), box_in_shared_memory(memory, c)) << c.name;
  }
}

/// Two boxes of 8 rows, the second late; what other threads find when the barrier lets them go.
__global__ void copy_in_two(const __grid_constant__ BoxArgs args) {
  __shared__ alignas(1024) std::uint16_t box[2 * 512];
  __shared__ std::uint64_t barrier;
  const std::uint32_t full = shared_address(&barrier);
  for (int i = static_cast<int>(threadIdx.x); i < 1024; i += 64) box[i] = 0xFFFF;
  fence_async_shared();
  if (threadIdx.x == 0) {
    barrier_init(full, 1);
    barrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    barrier_arrive_expect(full, 2048);
    tma_load(shared_address(box), args.map, full, 0, 0, 0, 0, 0);
    dawdle();
    tma_load(shared_address(box) + 1024, args.map, full, 0, 8, 0, 0, 0);
  }
  if (threadIdx.x < 32) return;
  barrier_wait(full, 0);
  for (int i = static_cast<int>(threadIdx.x) - 32; i < 1024; i += 32) args.out[i] = box[i];
}

TEST(TileCopy, barrier_waits_for_all_bytes_announced) {
  Halves memory(1024);
  std::iota(memory.begin(), memory.end(), 1);
  const DeviceBuffer<std::uint16_t> from(memory);
  const TensorMapShape shape = {
      .size = {64, 16, 1, 1, 1}, .stride = {128, 2048, 2048, 2048}, .box = {64, 8, 1, 1, 1}};
  const auto out = poisoned<std::uint16_t>(1024);
  copy_in_two<<<1, 64>>>({.map = make_tensor_map(from.data(), shape), .out = out.data()});
  check_launch("copy_in_two");
  Halves want(1024);
  for (std::size_t i = 0; i < 1024; ++i) want[i / 64 * 64 + ((i % 64) ^ (i / 64 % 8 * 8))] = memory[i];
  EXPECT_EQ(out.download(), want);
}

TEST(TileCopy, maps_that_cannot_be_are_refused) {
  const DeviceBuffer<std::uint16_t> from(1024);
  const TensorMapShape good = {
      .size = {64, 16, 1, 1, 1}, .stride = {128, 2048, 2048, 2048}, .box = {64, 8, 1, 1, 1}};
  TensorMapShape bad = good;
  bad.dtype = DType::f32;
  expect_error([&] { make_tensor_map(from.data(), bad); }, "dtype fp32");
  bad = good;
  bad.stride[0] = 136;
  expect_error([&] { make_tensor_map(from.data(), bad); }, "strides 136");
  bad = good;
  bad.box[0] = 128;
  expect_error([&] { make_tensor_map(from.data(), bad); }, "refused by the driver");
  EXPECT_NO_THROW(make_tensor_map(from.data(), good));
}

// --- Fragments of a warp ---

struct MatricesOut {
  std::uint32_t plain[4][32];
  std::uint32_t transposed[4][32];
  std::uint16_t stored[4 * 64];  // the transposed fragments
};

__global__ void move_matrices(const std::uint16_t* in, MatricesOut* out) {
  __shared__ alignas(16) std::uint16_t from[4 * 64];
  __shared__ alignas(16) std::uint16_t to[4 * 64];
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 4 * 64; i += 32) from[i] = in[i], to[i] = 0xFFFF;
  __syncwarp();
  std::uint32_t fragment[4];
  load_matrices(fragment, shared_address(from + 8 * lane));
  for (int m = 0; m < 4; ++m) out->plain[m][lane] = fragment[m];
  load_matrices_transposed(fragment, shared_address(from + 8 * lane));
  for (int m = 0; m < 4; ++m) out->transposed[m][lane] = fragment[m];
  store_matrices(shared_address(to + 8 * lane), fragment);
  __syncwarp();
  for (int i = lane; i < 4 * 64; i += 32) out->stored[i] = to[i];
}

TEST(TileProduct, matrices_reach_their_lanes_and_come_back) {
  Halves in(4 * 64);
  std::iota(in.begin(), in.end(), 1);
  const DeviceBuffer<std::uint16_t> from(in);
  const auto out = poisoned<MatricesOut>(1);
  move_matrices<<<1, 32>>>(from.data(), out.data());
  check_launch("move_matrices");
  const MatricesOut got = out.download()[0];
  const auto value = [&](int m, int row, int column) {
    return std::uint32_t{in[static_cast<std::size_t>(64 * m + 8 * row + column)]};
  };
  for (int m = 0; m < 4; ++m)
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4;
      const int t = lane % 4;
      EXPECT_EQ(got.plain[m][lane], value(m, g, 2 * t) | value(m, g, 2 * t + 1) << 16);
      EXPECT_EQ(got.transposed[m][lane], value(m, 2 * t, g) | value(m, 2 * t + 1, g) << 16);
      for (int e = 0; e < 2; ++e) EXPECT_EQ(got.stored[64 * m + 8 * g + 2 * t + e], value(m, 2 * t + e, g));
    }
}

/// sum [16, 8] += a [16, 16] x b [16, 8], b transposed.
template <class Element>
__global__ void multiply_once(const std::uint32_t* a, const std::uint32_t* b, float* sum) {
  const int g = static_cast<int>(threadIdx.x) / 4;
  const int t = static_cast<int>(threadIdx.x) % 4;
  const std::uint32_t left[4] = {a[8 * g + t], a[8 * (g + 8) + t], a[8 * g + t + 4], a[8 * (g + 8) + t + 4]};
  float d[4];
  for (int i = 0; i < 4; ++i) d[i] = sum[8 * (g + i / 2 * 8) + 2 * t + i % 2];
  multiply_add<Element>(d, left, b[8 * g + t], b[8 * g + t + 4]);
  for (int i = 0; i < 4; ++i) sum[8 * (g + i / 2 * 8) + 2 * t + i % 2] = d[i];
}

TEST(TileProduct, warp_multiplies_and_adds) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> integers(-8, 8);
  std::vector<float> a(256), b(128), sum(128);
  for (auto* const values : {&a, &b, &sum})
    for (float& value : *values) value = static_cast<float>(integers(random));
  std::vector<float> want = sum;
  for (std::size_t i = 0; i < 128; ++i)
    for (std::size_t k = 0; k < 16; ++k) want[i] += a[i / 8 * 16 + k] * b[i % 8 * 16 + k];
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const DeviceTensor left(a, dtype), right(b, dtype), sums(sum, DType::f32);
    const auto kernel = dtype == DType::bf16 ? multiply_once<__nv_bfloat16> : multiply_once<__half>;
    kernel<<<1, 32>>>(static_cast<const std::uint32_t*>(left.data()),
                      static_cast<const std::uint32_t*>(right.data()), static_cast<float*>(sums.data()));
    check_launch("multiply_once");
    expect_same(sums.values(), want, std::string(name(dtype)));
  }
}

/// Pairs of values, rounded and as weights.
template <class Element>
__global__ void pack_pairs(const float2* in, float bound, std::uint32_t* rounded, std::uint32_t* weights) {
  const float2 pair = in[threadIdx.x];
  rounded[threadIdx.x] = pack<Element>(pair.x, pair.y);
  weights[threadIdx.x] = pack_weights<Element>(pair.x, pair.y, pack<Element>(bound, bound));
}

TEST(TileProduct, packing_rounds_and_clamps_and_keeps_nan) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  // Ties of either format to even, both ways; just above a tie; underflow of fp16; its overflow.
  const float values[] = {0,          -1,        0.3F,       0.7501F,     1,      1.00390625F, 1.01171875F,
                          1.0039064F, 1.000488F, 1.0014648F, 1.00048828F, 2.5e-8, -2.5e-8,     70000,
                          -70000,     kInf,      -kInf,      kPoison,     3e38F,  -0.3F,       7.99F};
  std::vector<float> in;
  for (const float low : values)
    for (const float high : values) in.push_back(low), in.push_back(high);
  const DeviceBuffer<float> from(in);
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const float bound : {1.0F, 0.75F, 8.0F}) {
      const DeviceTensor got_rounded(in.size(), dtype), got_weights(in.size(), dtype);
      const auto kernel = dtype == DType::bf16 ? pack_pairs<__nv_bfloat16> : pack_pairs<__half>;
      kernel<<<1, static_cast<unsigned>(in.size() / 2)>>>(reinterpret_cast<const float2*>(from.data()), bound,
                                                          static_cast<std::uint32_t*>(got_rounded.data()),
                                                          static_cast<std::uint32_t*>(got_weights.data()));
      check_launch("pack_pairs");
      std::vector<float> want_rounded, want_weights;
      for (const float value : in) {
        want_rounded.push_back(rounded(value, dtype));
        want_weights.push_back(std::isnan(value) ? value
                                                 : rounded(std::min(std::max(value, 0.0F), bound), dtype));
      }
      const std::string what = std::string(name(dtype)) + ", bound " + std::to_string(bound);
      expect_same(got_rounded.values(), want_rounded, what + ", rounded");
      expect_same(got_weights.values(), want_weights, what + ", weights");
    }
}

}  // namespace
}  // namespace asynct::cuda
