#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

// What the card's memory can do, and inputs for kernels.
namespace asynct::kernel_bench {

/// Device memory; `bytes` a multiple of 16.
struct Bytes {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

/// Ways to read: which is the fastest depends on the amount.
inline constexpr int kReadSettings = 4;

/// Reads both. Nothing is written (the loads stay, as the compiler does not know that).
void run_read(int setting, const Bytes& first, const Bytes& second, std::uint32_t* sink, cudaStream_t stream);

void run_copy(const Bytes& from, void* to, cudaStream_t stream);

/// A kernel that writes one word.
void run_smallest(std::uint32_t* out, cudaStream_t stream);

/// `count` normal bf16 numbers, the same for the same seed.
void fill_normal(std::uint16_t* out, std::size_t count, std::uint32_t seed, cudaStream_t stream);

/// Makes rows of `columns` numbers positive, or negative where `needed` of the row is 0. With a positive
/// query a key's score gets that sign.
void set_signs(std::uint16_t* rows, std::int64_t columns, std::span<const std::uint8_t> needed);

}  // namespace asynct::kernel_bench
