#include "asynct/ops/kernel_bench/cublas_lt.h"

#if __has_include(<cublasLt.h>)

#include <cublasLt.h>
#include <dlfcn.h>

#include "asynct/base/error.h"
#include "asynct/ops/cuda/device_buffer.h"

namespace asynct::kernel_bench {
namespace {

constexpr std::size_t kWorkspace = std::size_t{64} << 20;

/// The library's functions that are used.
struct Library {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_product = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_product = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_product = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmul) multiply = nullptr;
  bool complete = true;

  explicit Library(void* library) {
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      complete = complete && function != nullptr;
    };
    find(create, "cublasLtCreate");
    find(destroy, "cublasLtDestroy");
    find(create_product, "cublasLtMatmulDescCreate");
    find(destroy_product, "cublasLtMatmulDescDestroy");
    find(set_product, "cublasLtMatmulDescSetAttribute");
    find(create_layout, "cublasLtMatrixLayoutCreate");
    find(destroy_layout, "cublasLtMatrixLayoutDestroy");
    find(create_preference, "cublasLtMatmulPreferenceCreate");
    find(destroy_preference, "cublasLtMatmulPreferenceDestroy");
    find(set_preference, "cublasLtMatmulPreferenceSetAttribute");
    find(heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(multiply, "cublasLtMatmul");
  }
};

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) fail("cuBLASLt: ", call, ": status ", static_cast<int>(status));
}

/// The library stays loaded: unloading it while a context lives is asking for trouble.
void* open_library() {
  for (const char* name :
       {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", "/usr/local/cuda/lib64/libcublasLt.so"})
    if (void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
  return nullptr;
}

class Multiplier {
 public:
  Multiplier(const Library& library, std::int64_t m, std::int64_t n, std::int64_t k);
  ~Multiplier();
  Multiplier(const Multiplier&) = delete;
  Multiplier& operator=(const Multiplier&) = delete;

  void run(const void* a, const void* b, void* out, cudaStream_t stream) const {
    const float one = 1;
    const float zero = 0;
    check(library_.multiply(handle_, product_, &one, b, b_, a, a_, &zero, out, out_, out, out_, &algorithm_,
                            workspace_.data(), kWorkspace, stream),
          "cublasLtMatmul");
  }

 private:
  Library library_;
  cuda::DeviceBuffer<char> workspace_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, out_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_ = {};
};

/// Its matrices are column-major: out^T [n, m] = b [n, k] a^T, b transposed as it lies there.
Multiplier::Multiplier(const Library& library, std::int64_t m, std::int64_t n, std::int64_t k)
    : library_(library), workspace_(kWorkspace) {
  const auto columns = [](std::int64_t count) { return static_cast<std::uint64_t>(count); };
  check(library_.create(&handle_), "cublasLtCreate");
  check(library_.create_product(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check(library_.set_product(product_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
        "cublasLtMatmulDescSetAttribute");
  check(library_.create_layout(&b_, CUDA_R_16BF, columns(k), columns(n), k), "cublasLtMatrixLayoutCreate");
  check(library_.create_layout(&a_, CUDA_R_16BF, columns(k), columns(m), k), "cublasLtMatrixLayoutCreate");
  check(library_.create_layout(&out_, CUDA_R_16BF, columns(n), columns(m), n), "cublasLtMatrixLayoutCreate");
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulHeuristicResult_t found = {};
  int count = 0;
  check(library_.create_preference(&preference), "cublasLtMatmulPreferenceCreate");
  const std::size_t workspace = kWorkspace;
  library_.set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
  const cublasStatus_t status =
      library_.heuristic(handle_, product_, b_, a_, out_, out_, preference, 1, &found, &count);
  library_.destroy_preference(preference);
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  if (count == 0) fail("cuBLASLt: no algorithm for ", m, " x ", n, " x ", k);
  algorithm_ = found.algo;
}

Multiplier::~Multiplier() {
  library_.destroy_layout(out_);
  library_.destroy_layout(b_);
  library_.destroy_layout(a_);
  library_.destroy_product(product_);
  library_.destroy(handle_);
}

}  // namespace

Product make_product(std::int64_t m, std::int64_t n, std::int64_t k) {
  void* const opened = open_library();
  if (opened == nullptr) return {};
  const Library library(opened);
  if (!library.complete) return {};
  return [multiplier = std::make_shared<Multiplier>(library, m, n, k)](const void* a, const void* b,
                                                                       void* out, cudaStream_t stream) {
    multiplier->run(a, b, out, stream);
  };
}

}  // namespace asynct::kernel_bench

#else  // a toolkit without its headers

namespace asynct::kernel_bench {
Product make_product(std::int64_t, std::int64_t, std::int64_t) { return {}; }
}  // namespace asynct::kernel_bench

#endif
