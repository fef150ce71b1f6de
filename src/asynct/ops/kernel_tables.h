#pragma once

#include "asynct/base/cpu_features.h"

namespace asynct {

/// The kernels of the widest family that has some of its own and is no wider than `isa`: for operators whose
/// kernels are the same from AVX-512 on. Table: a struct of functions, or a function.
template <class Table>
const Table& select_kernels(Isa isa, const Table& scalar, const Table& avx2, const Table& avx512) {
  if (isa >= Isa::avx512) return avx512;
  return isa >= Isa::avx2 ? avx2 : scalar;
}

}  // namespace asynct
