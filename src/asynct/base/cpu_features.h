#pragma once

#include <string_view>

namespace asynct {

/// The kernel families, each a superset of the one before it. The last two differ from avx512 in products of
/// bf16 weights in bf16 precision, and nowhere else (ops/linear/multiply.h).
///   scalar      plain C++, always there
///   avx2        AVX2 + FMA + F16C
///   avx512      AVX-512 F/BW/DQ/VL; 16-bit weights are widened and multiplied by FMA
///   avx512bf16  avx512 + dot products of bf16 pairs (AVX512_BF16)
///   amx         avx512bf16 + AMX tiles of bf16
enum class Isa { scalar, avx2, avx512, avx512bf16, amx };
inline constexpr Isa kIsas[] = {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512bf16, Isa::amx};

struct CpuFeatures {
  bool avx2 = false;
  bool avx512 = false;
  bool avx512_bf16 = false;
  bool amx_bf16 = false;        // the kernel also granted tile state to this process
  bool fast_bf16_dots = false;  // a dot product of 32 pairs takes as long as an FMA of 16 floats
};

/// What this CPU and kernel offer; read once.
const CpuFeatures& cpu_features();

/// Whether this CPU can run a family's kernels.
bool cpu_runs(Isa isa);

/// The fastest family on this CPU, or the one that ASYNCT_ISA=scalar|avx2|avx512|avx512bf16|amx names. An
/// unknown name, or one the CPU lacks, is an Error. avx512bf16 is chosen only where it pays: its dot products
/// take twice an FMA's time on Intel's CPUs (docs/notes/avx512-bf16.md).
Isa select_isa();

std::string_view name(Isa isa);

}  // namespace asynct
