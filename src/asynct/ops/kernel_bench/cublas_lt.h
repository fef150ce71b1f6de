#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace asynct::kernel_bench {

/// cuBLASLt's product out [m, n] = a [m, k] b [n, k]^T, all bf16 and row-major with float sums: the rate of
/// the matrix units. The library is looked for at run time; empty without it.
using Product = std::function<void(const void* a, const void* b, void* out, cudaStream_t stream)>;
Product make_product(std::int64_t m, std::int64_t n, std::int64_t k);

}  // namespace asynct::kernel_bench
