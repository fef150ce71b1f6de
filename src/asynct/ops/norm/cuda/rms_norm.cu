#include "asynct/ops/cuda/by_dtype.h"
#include "asynct/ops/norm/cuda/check.h"
#include "asynct/ops/norm/cuda/norm.h"
#include "asynct/ops/norm/cuda/rms.cuh"

// RMS norm of strided [N, H, D] views.
//
// Floor: elements read and written once, 2 * size_of(dtype) bytes an element, over the copy rate. Of one
// vector it is the chain of D / 16 additions of a lane.
namespace asynct::cuda {
namespace {

template <class Element>
struct RmsNormOp {
  using Args = RmsNormArgs;
  static constexpr int kVector = kVectorSize<Element>;

  static __device__ void prefetch(const Args& args, int dims) { prefetch_rms<kVector>(args.norm, dims); }

  static __device__ void run(const Args& args, RmsBlock<kVector>& block) {
    block.fill([&](std::int64_t row, int head, int channel, float(&x)[kVector]) {
      load_vector(
          static_cast<const Element*>(args.x) + row * args.x_row_stride + head * args.x_head_stride + channel,
          x);
    });
    block.find_factors([&](int) { return args.norm.epsilon; });
    block.use(args.norm, [&](std::int64_t row, int head, int channel, float(&x)[kVector], float factor,
                             const float(&gamma)[kVector]) {
      apply_rms(gamma, factor, x);
      store_vector(
          static_cast<Element*>(args.y) + row * args.y_row_stride + head * args.y_head_stride + channel, x);
    });
  }
};

}  // namespace

void check_norm(const char* kernel, const RmsParams& norm) {
  check_channels(kernel, "gamma", norm.gamma);
  if (!(norm.epsilon >= 0)) fail(kernel, ": epsilon ", norm.epsilon, ", expected 0 or more");
}

void run_rms_norm(const RmsNormArgs& args, DType dtype, cudaStream_t stream) {
  constexpr const char* kName = "RMS norm";
  if (args.rows == 0) return;
  check_norm_args(kName, args, dtype);
  by_dtype(kName, dtype, [&]<class Element>() {
    run_rms<RmsNormOp<Element>>(kName, args, args.rows, args.heads, args.dims, stream);
  });
}

}  // namespace asynct::cuda
