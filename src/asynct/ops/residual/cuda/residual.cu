#include "asynct/ops/residual/cuda/residual.h"

#include "asynct/ops/cuda/by_dtype.h"
#include "asynct/ops/cuda/row_kernel.cuh"
#include "asynct/ops/norm/cuda/dyht.cuh"
#include "asynct/ops/residual/cuda/check.h"

// Residual add with the norms before and after it.
//
// Floor: product and residual read, residual and next input written: 8 bytes an element in bf16, 10 from a
// product in float, over the copy rate. Two norms apart would move 12.
namespace asynct::cuda {
namespace {

template <class Element, class Product, bool kHasPost>
class ResidualOp {
 public:
  using Args = ResidualArgs;
  static constexpr int kVector = kVectorSize<Element>;
  static constexpr int kMostRows = 1;
  struct Values {
    float product[kVector];
    float residual[kVector];
  };

  static __host__ __device__ int columns(const Args& args) { return args.size / kVector; }

  __device__ ResidualOp(const Args& args, int column)
      : args_(args),
        channel_(column * kVector),
        post_(kHasPost ? args.post : args.next, channel_),
        next_(args.next, channel_) {}

  __device__ void load(std::int64_t row, Values& values) const {
    load_vector(static_cast<const Product*>(args_.product) + row * args_.product_stride + channel_,
                values.product);
    load_vector(static_cast<const Element*>(args_.residual) + row * args_.residual_stride + channel_,
                values.residual);
  }
  __device__ void store(std::int64_t row, Values& values) const {
    float(&sum)[kVector] = values.residual;
    if (kHasPost) post_.apply(values.product);
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum[i] = __fadd_rn(sum[i], values.product[i]);
    round_vector<Element>(sum);
    store_vector(static_cast<Element*>(args_.residual) + row * args_.residual_stride + channel_, sum);
    next_.apply(sum);
    store_vector(static_cast<Element*>(args_.next_input) + row * args_.next_stride + channel_, sum);
  }

 private:
  const Args& args_;
  int channel_;
  Dyht<kVector> post_, next_;
};

}  // namespace

void run_residual(const ResidualArgs& args, DType dtype, DType product_dtype, cudaStream_t stream) {
  constexpr const char* kName = "residual";
  if (args.rows == 0) return;
  check_residual_args(kName, args, dtype, product_dtype);
  by_dtypes(kName, dtype, product_dtype, [&]<class Element, class Product>() {
    if (args.has_post)
      run_rows<ResidualOp<Element, Product, true>>(kName, args, stream);
    else
      run_rows<ResidualOp<Element, Product, false>>(kName, args, stream);
  });
}

}  // namespace asynct::cuda
