#include "asynct/base/error.h"
#include "asynct/ops/kernel_bench/kernel_bench.h"

// In place of kernel_bench.cc where no kernels are built.
namespace asynct::kernel_bench {

Report run_kernel_bench(const KernelBenchOptions&, const std::function<void(const std::string&)>&) {
  fail(
      "bench kernels: this program was built without CUDA kernels, which needs nvcc 13.0 (cmake "
      "-DASYNCT_CUDA=ON)");
}

}  // namespace asynct::kernel_bench
