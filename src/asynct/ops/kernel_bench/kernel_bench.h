#pragma once

#include <functional>
#include <string>
#include <vector>

#include "asynct/ops/kernel_bench/report.h"
#include "asynct/ops/kernel_bench/shapes.h"

namespace asynct::kernel_bench {

struct KernelBenchOptions {
  std::vector<DecodeShape> decode = default_decode_shapes();
  std::vector<PrefillShape> prefill = default_prefill_shapes();
  std::vector<MixedShape> mixed = default_mixed_shapes();
  std::vector<LinearShape> linear = default_linear_shapes();
  std::vector<LayerShape> layer = default_layer_shapes();
  std::vector<double> densities = {0, 0.25, 0.5, 0.75, 1};  // of decode
  std::string filter;  // a part of "kernel shape variant"; empty: everything
  bool quick = false;  // fewer rounds, shorter sustained runs
};

/// Every CUDA kernel of the program against its floor on the current device, and what the card itself can do.
/// `progress` hears what comes next. Error without a device that the kernels are made for.
Report run_kernel_bench(const KernelBenchOptions& options,
                        const std::function<void(const std::string&)>& progress);

/// Whether the filter keeps something that is written so.
bool matches(const std::string& filter, const std::string& kernel, const std::string& shape,
             const std::string& variant);

}  // namespace asynct::kernel_bench
