#include "asynct/ops/norm/cuda/norm.h"

#include "asynct/ops/cuda/by_dtype.h"
#include "asynct/ops/cuda/row_kernel.cuh"
#include "asynct/ops/norm/cuda/check.h"
#include "asynct/ops/norm/cuda/dyht.cuh"

// DyHT of strided [N, H, D] views: input norms, q and k norms on their own, the final norm.
//
// Floor: elements read and written once, 2 * size_of(dtype) bytes an element, over the copy rate.
namespace asynct::cuda {
namespace {

template <class Element>
class NormOp {
 public:
  using Args = NormArgs;
  static constexpr int kVector = kVectorSize<Element>;
  static constexpr int kMostRows = 2;
  struct Values {
    float x[kVector];
  };

  static __host__ __device__ int columns(const Args& args) { return args.heads * (args.dims / kVector); }

  __device__ NormOp(const Args& args, int column)
      : args_(args),
        head_(column / (args.dims / kVector)),
        channel_((column - head_ * (args.dims / kVector)) * kVector),
        norm_(args.norm, channel_) {}

  __device__ void load(std::int64_t row, Values& values) const {
    load_vector(static_cast<const Element*>(args_.x) + row * args_.x_row_stride +
                    head_ * args_.x_head_stride + channel_,
                values.x);
  }
  __device__ void store(std::int64_t row, Values& values) const {
    norm_.apply(values.x);
    store_vector(
        static_cast<Element*>(args_.y) + row * args_.y_row_stride + head_ * args_.y_head_stride + channel_,
        values.x);
  }

 private:
  const Args& args_;
  int head_;
  int channel_;
  Dyht<kVector> norm_;
};

}  // namespace

void check_norm(const char* kernel, const DyhtParams& norm) {
  check_channels(kernel, "alpha", norm.alpha);
  check_channels(kernel, "gamma", norm.gamma);
  if (norm.beta.values != nullptr) check_channels(kernel, "beta", norm.beta);
  if (!(norm.low <= norm.high))
    fail(kernel, ": clip from ", norm.low, " to ", norm.high, ", expected a range");
}

void run_norm(const NormArgs& args, DType dtype, cudaStream_t stream) {
  constexpr const char* kName = "norm";
  if (args.rows == 0) return;
  check_norm_args(kName, args, dtype);
  by_dtype(kName, dtype, [&]<class Element>() { run_rows<NormOp<Element>>(kName, args, stream); });
}

}  // namespace asynct::cuda
