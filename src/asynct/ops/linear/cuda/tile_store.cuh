#pragma once

#include <cstdint>

#include "asynct/ops/cuda/barrier.cuh"
#include "asynct/ops/cuda/copy_async.cuh"
#include "asynct/ops/cuda/mma.cuh"
#include "asynct/ops/linear/cuda/args.h"
#include "asynct/ops/linear/cuda/epilogue.cuh"

// How a warp of the tile kernel stores the sums of its 16 tokens, which it has as fragments (wgmma.cuh): it
// rounds them into rows in shared memory and writes pieces of 16 bytes, so that it is soon back at the next
// tile and the memory sees whole pieces of rows.
namespace asynct::cuda {

/// The part of a matrix that a warp's rows stand for; `rows` and `columns` are what it has from there on.
template <class Element>
struct Window {
  Element* data;
  std::int64_t stride;
  int rows;
  int columns;
  __device__ bool has(int row, int column) const { return row < rows && column < columns; }
  __device__ Element* at(int row, int column) const { return data + row * stride + column; }
  __device__ bool whole_pieces() const {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
  }
};

/// 16 rows of kColumns bf16 values in shared memory, a warp's own, 16 bytes apart so that 8 of them meet
/// different banks.
template <int kColumns>
struct StagedRows {
  static constexpr int kRowBytes = 2 * kColumns + 16;
  static constexpr int kBytes = 16 * kRowBytes;
  static constexpr int kPieces = kColumns / 8;  // of 16 bytes

  std::uint32_t base;

  __device__ std::uint32_t at(int row, int column) const { return base + row * kRowBytes + 2 * column; }
  /// For load_matrices and store_matrices: {rows 0-7, rows 8-15} of 8 columns, then of the next 8.
  __device__ std::uint32_t matrices() const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return at(lane % 16, lane / 16 * 8);
  }

  /// Pieces a lane at a time: {row, column}.
  template <class Function>
  static __device__ void for_pieces(const Function& function) {
    constexpr int kWide = kPieces % 8 == 0 ? 8 : kPieces % 4 == 0 ? 4 : kPieces % 2 == 0 ? 2 : 1;
    constexpr int kHigh = 32 / kWide < 16 ? 32 / kWide : 16;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane / kWide >= 16) return;
#pragma unroll
    for (int column = 0; column < kPieces; column += kWide)
#pragma unroll
      for (int row = 0; row < 16; row += kHigh) function(row + lane / kWide, (column + lane % kWide) * 8);
  }

  /// Asks for the window's values; they are there after copy_async_wait<0>() and __syncwarp().
  __device__ void load(const Window<const std::uint16_t>& from) const {
    const bool whole = from.whole_pieces();
    for_pieces([&](int row, int column) {
      if (!from.has(row, column)) return;
      if (whole && column + 8 <= from.columns) {
        copy_async_16(at(row, column), from.at(row, column));
        return;
      }
      for (int i = column; i < column + 8 && i < from.columns; i += 2)
        store_shared(at(row, i), __ldcg(reinterpret_cast<const unsigned*>(from.at(row, i))));
    });
    copy_async_commit();
  }

  /// Of rows that all lanes have written; the warp may write them again at once.
  __device__ void store(const Window<std::uint16_t>& to) const {
    __syncwarp();
    const bool whole = to.whole_pieces();
    for_pieces([&](int row, int column) {
      const uint4 v = load_shared<uint4>(at(row, column));
      if (!to.has(row, column)) return;
      if (whole && column + 8 <= to.columns) {
        *reinterpret_cast<uint4*>(to.at(row, column)) = v;
        return;
      }
      const std::uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (column + 2 * i < to.columns)
          *reinterpret_cast<std::uint32_t*>(to.at(row, column + 2 * i)) = words[i];
    });
    __syncwarp();
  }
};

/// Where a warp's sums belong.
struct StorePlace {
  int row;     // the first of 16
  int output;  // the first of the tile
  int rows;    // of the product
  int outputs;
};

/// store() is called by all lanes of a warp with their fragments, prepare() before the sums are there.
template <int kOutputs, class Epilogue>
class TileStore;

template <int kOutputs>
class TileStore<kOutputs, StoreBf16> {
 public:
  __device__ TileStore(const StoreBf16& to, std::uint32_t staged) : to_(to), staged_{staged} {}
  __device__ void prepare(const StorePlace&) {}
  __device__ void store(const float (&sums)[kOutputs / 2], const StorePlace& at) {
    const std::uint32_t matrices = staged_.matrices();
#pragma unroll
    for (int j = 0; j < kOutputs / 8; j += 2) {
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = pack<__nv_bfloat16>(sums[4 * j + 2 * i], sums[4 * j + 2 * i + 1]);
      store_matrices(matrices + 16 * j, words);
    }
    staged_.store(
        {to_.out + at.row * to_.stride + at.output, to_.stride, at.rows - at.row, at.outputs - at.output});
  }

 private:
  const StoreBf16& to_;
  StagedRows<kOutputs> staged_;
};

/// A quad of lanes writes 32 bytes of a row: as good as a piece.
template <int kOutputs>
class TileStore<kOutputs, StoreFloat> {
 public:
  __device__ TileStore(const StoreFloat& to, std::uint32_t) : to_(to) {}
  __device__ void prepare(const StorePlace&) {}
  __device__ void store(const float (&sums)[kOutputs / 2], const StorePlace& at) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int j = 0; j < kOutputs / 8; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = at.row + lane / 4 + 8 * h;
        const int n = at.output + 8 * j + 2 * (lane % 4);
        if (row < at.rows && n < at.outputs)
          store_outputs(to_, row, n, sums[4 * j + 2 * h], sums[4 * j + 2 * h + 1], {}, {});
      }
  }

 private:
  const StoreFloat& to_;
};

template <int kOutputs>
class TileStore<kOutputs, StoreReglu> {
 public:
  __device__ TileStore(const StoreReglu& to, std::uint32_t staged) : to_(to), staged_{staged} {}
  __device__ void prepare(const StorePlace&) {}
  __device__ void store(const float (&sums)[kOutputs / 2], const StorePlace& at) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::uint32_t to = staged_.at(lane / 4, lane % 4);
#pragma unroll
    for (int j = 0; j < kOutputs / 8; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        store_shared(to + 8 * h * StagedRows<kOutputs / 2>::kRowBytes + 8 * j,
                     rounded_reglu(sums[4 * j + 2 * h], sums[4 * j + 2 * h + 1]));
    staged_.store({to_.out + at.row * to_.stride + at.output / 2, to_.stride, at.rows - at.row,
                   (at.outputs - at.output) / 2});
  }

 private:
  const StoreReglu& to_;
  StagedRows<kOutputs / 2> staged_;
};

template <int kOutputs>
class TileStore<kOutputs, AddResidual> {
 public:
  __device__ TileStore(const AddResidual& to, std::uint32_t staged) : to_(to), staged_{staged} {}

  __device__ void prepare(const StorePlace& at) {
    staged_.load({to_.residual + at.row * to_.residual_stride + at.output, to_.residual_stride,
                  at.rows - at.row, at.outputs - at.output});
  }
  __device__ void store(const float (&sums)[kOutputs / 2], const StorePlace& at) {
    copy_async_wait<0>();
    __syncwarp();
    const int rows = at.rows - at.row;
    const int columns = at.outputs - at.output;
    const std::uint32_t matrices = staged_.matrices();
#pragma unroll
    for (int j = 0; j < kOutputs / 8; j += 2) {
      std::uint32_t words[4];
      load_matrices(words, matrices + 16 * j);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = add_to(to_, sums[4 * j + 2 * i], sums[4 * j + 2 * i + 1], norm_of(to_.post, at, j + i / 2),
                          unpack<__nv_bfloat16>(words[i]));
      store_matrices(matrices + 16 * j, words);
    }
    staged_.store(
        {to_.residual + at.row * to_.residual_stride + at.output, to_.residual_stride, rows, columns});
    if (to_.next_input == nullptr) return;
#pragma unroll
    for (int j = 0; j < kOutputs / 8; j += 2) {
      std::uint32_t words[4];
      load_matrices(words, matrices + 16 * j);
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = next_of(to_, words[i], norm_of(to_.next, at, j + i / 2));
      store_matrices(matrices + 16 * j, words);
    }
    staged_.store({to_.next_input + at.row * to_.next_stride + at.output, to_.next_stride, rows, columns});
  }

 private:
  __device__ static DyhtFactors norm_of(const DyhtView& norm, const StorePlace& at, int j) {
    const int n = at.output + 8 * j + 2 * (static_cast<int>(threadIdx.x) % 4);
    return n < at.outputs ? load_dyht(norm, n) : DyhtFactors{};
  }

  const AddResidual& to_;
  StagedRows<kOutputs> staged_;
};

}  // namespace asynct::cuda
