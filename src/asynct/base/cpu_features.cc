#include "asynct/base/cpu_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

#include "asynct/base/error.h"

namespace asynct {
namespace {

constexpr int kRequestTileState = 0x1023;  // ARCH_REQ_XCOMP_PERM
constexpr int kTileDataFeature = 18;       // XFEATURE_XTILEDATA

CpuFeatures detect() {
  CpuFeatures found;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  // clang 14 does not know "f16c" as a feature string.
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && ((ecx >> 29) & 1U) != 0;
  found.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c;
  found.avx512 = found.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (found.avx512 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0)
    found.avx512_bf16 = (eax >> 5) & 1U;
  // By vendor, not by a measurement: results depend on the family, and must not change from run to run.
  found.fast_bf16_dots = found.avx512_bf16 && __builtin_cpu_is("amd");
  if (found.avx512_bf16 && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    const bool tiles = ((edx >> 24) & 1U) != 0;      // AMX-TILE
    const bool bf16_dots = ((edx >> 22) & 1U) != 0;  // AMX-BF16
    // Linux gives a process tile registers only on request.
    found.amx_bf16 = tiles && bf16_dots && syscall(SYS_arch_prctl, kRequestTileState, kTileDataFeature) == 0;
  }
  return found;
}

Isa fastest() {
  const CpuFeatures& has = cpu_features();
  if (has.amx_bf16) return Isa::amx;
  if (has.fast_bf16_dots) return Isa::avx512bf16;
  if (has.avx512) return Isa::avx512;
  return has.avx2 ? Isa::avx2 : Isa::scalar;
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

bool cpu_runs(Isa isa) {
  const CpuFeatures& has = cpu_features();
  switch (isa) {
    case Isa::scalar:
      return true;
    case Isa::avx2:
      return has.avx2;
    case Isa::avx512:
      return has.avx512;
    case Isa::avx512bf16:
      return has.avx512_bf16;
    case Isa::amx:
      return has.amx_bf16;
  }
  return false;
}

Isa select_isa() {
  const char* wish = std::getenv("ASYNCT_ISA");
  if (wish == nullptr || *wish == '\0') return fastest();
  std::string_view most;
  for (const Isa isa : kIsas)
    if (cpu_runs(isa)) most = name(isa);
  for (const Isa isa : kIsas) {
    if (name(isa) != wish) continue;
    if (!cpu_runs(isa)) fail("ASYNCT_ISA=", wish, ": this CPU offers at most ", most);
    return isa;
  }
  fail("ASYNCT_ISA=", wish, ": expected scalar, avx2, avx512, avx512bf16 or amx");
}

std::string_view name(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return "scalar";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512bf16:
      return "avx512bf16";
    case Isa::amx:
      return "amx";
  }
  return "?";
}

}  // namespace asynct
