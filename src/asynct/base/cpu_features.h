#pragma once

#include <string_view>

namespace asynct {

/// The kernel families, each a superset of the one before it.
///   scalar  plain C++, always there
///   avx2    AVX2 + FMA + F16C
///   avx512  AVX-512 F/BW/DQ/VL; bf16 dot products where the CPU has AVX512_BF16 (see cpu_features())
///   amx     avx512 + AMX tiles with bf16
enum class Isa { scalar, avx2, avx512, amx };

struct CpuFeatures {
  bool avx2 = false;
  bool avx512 = false;
  bool avx512_bf16 = false;
  bool avx512_vnni = false;
  bool amx_bf16 = false;  // the kernel also granted tile state to this process
};

/// What this CPU and kernel offer; read once.
const CpuFeatures& cpu_features();

/// The best family this CPU runs, or the one that ASYNCT_ISA=scalar|avx2|avx512|amx names. An unknown name,
/// or one the CPU lacks, is an Error.
Isa select_isa();

std::string_view name(Isa isa);

}  // namespace asynct
