#pragma once

#include <cstdint>

// Included by units compiled with -m flags, hence no inline functions here.
namespace asynct {

enum class DType : std::uint8_t;

/// How an operator keeps packed weights: as they are in the checkpoint. 16-bit weights are widened by
/// kernels.
enum class Storage { f32, bf16, f16 };
constexpr int kStorages = 3;

/// Error, naming `what`, for a type that no kernel reads.
Storage storage_of(DType dtype, const char* what);

}  // namespace asynct
