#include "asynct/ops/cuda/by_dtype.h"
#include "asynct/ops/norm/cuda/rms.cuh"
#include "asynct/ops/residual/cuda/check.h"
#include "asynct/ops/residual/cuda/residual.h"

// Residual add with the RMS norms before and after it.
//
// Floor: product and residual read, residual and next input written: 8 bytes an element in bf16, 10 from a
// product in float, over the copy rate.
namespace asynct::cuda {
namespace {

template <class Element, class Product>
struct RmsResidualOp {
  using Args = RmsResidualArgs;
  static constexpr int kVector = kVectorSize<Element>;

  static __device__ void prefetch(const Args& args, int dims) {
    if (args.has_post) prefetch_rms<kVector>(args.post, dims);
    prefetch_rms<kVector>(args.next, dims);
  }

  static __device__ void run(const Args& args, RmsBlock<kVector>& block) {
    block.fill([&](std::int64_t row, int, int channel, float(&x)[kVector]) {
      load_vector(static_cast<const Product*>(args.product) + row * args.product_stride + channel, x);
    });
    if (args.has_post)
      block.find_factors([&](int) { return args.post.epsilon; });
    else
      __syncthreads();
    block.change(
        args.has_post ? &args.post : nullptr, [&](std::int64_t row, int, int channel, float(&x)[kVector],
                                                  float factor, const float(&gamma)[kVector]) {
          Element* const at = static_cast<Element*>(args.residual) + row * args.residual_stride + channel;
          float before[kVector];
          load_vector(at, before);
          if (args.has_post) apply_rms(gamma, factor, x);
#pragma unroll
          for (int i = 0; i < kVector; ++i) x[i] = __fadd_rn(before[i], x[i]);
          round_vector<Element>(x);
          store_vector(at, x);
        });
    block.find_factors([&](int) { return args.next.epsilon; });
    block.use(args.next, [&](std::int64_t row, int, int channel, float(&x)[kVector], float factor,
                             const float(&gamma)[kVector]) {
      apply_rms(gamma, factor, x);
      store_vector(static_cast<Element*>(args.next_input) + row * args.next_stride + channel, x);
    });
  }
};

}  // namespace

void run_rms_residual(const RmsResidualArgs& args, DType dtype, DType product_dtype, cudaStream_t stream) {
  constexpr const char* kName = "RMS residual";
  if (args.rows == 0) return;
  check_residual_args(kName, args, dtype, product_dtype);
  by_dtypes(kName, dtype, product_dtype, [&]<class Element, class Product>() {
    run_rms<RmsResidualOp<Element, Product>>(kName, args, args.rows, 1, args.size, stream);
  });
}

}  // namespace asynct::cuda
