#pragma once

#include "asynct/ops/kernel_bench/nvml.h"
#include "asynct/ops/kernel_bench/report.h"
#include "asynct/ops/kernel_bench/timer.h"

namespace asynct::kernel_bench {

/// Rates of the current device: linear read, copy, bf16 product (where cuBLASLt is found), smallest kernel.
Ceilings measure_ceilings(const TimingOptions& options, const Nvml& nvml);

}  // namespace asynct::kernel_bench
