#include "asynct/ops/qkv_projection/cuda/finish_qkv.h"

#include "asynct/ops/cuda/by_dtype.h"
#include "asynct/ops/cuda/row_kernel.cuh"
#include "asynct/ops/norm/cuda/dyht.cuh"
#include "asynct/ops/qkv_projection/cuda/check.h"
#include "asynct/ops/qkv_projection/cuda/qkv_head.cuh"

// Norm, rotation and cache append of a packed qkv row, in one pass.
//
// Floor: a row read and written, 2 * size_of(dtype) bytes an element of (H + 2 Hk) D, and D floats of cosines
// and sines a row, over the copy rate.
//
// A thread takes a vector of a head's lower half and the one of the upper half that it is rotated with. The
// heads of a row read the same cosines, 4 heads of 128 in one warp. Values need none, and no norm.
namespace asynct::cuda {
namespace {

template <class Element, class Source>
class FinishQkvOp {
 public:
  using Args = FinishQkvArgs;
  static constexpr int kVector = kVectorSize<Element>;
  static constexpr int kMostRows = 1;
  struct Values {
    float low[kVector], high[kVector];
    float cos[kVector], sin[kVector];
    std::int64_t slot;
    std::int32_t position;
  };

  static __host__ __device__ int columns(const Args& args) {
    return (args.heads + 2 * args.kv_heads) * pieces(args);
  }

  __device__ FinishQkvOp(const Args& args, int column)
      : args_(args),
        head_(column / pieces(args)),
        dim_((column - head_ * pieces(args)) * kVector),
        part_(qkv_part(args, head_)),
        has_norm_(has_norm(args, part_)) {}

  __device__ void prefetch(std::int64_t row, Values& values) const {
    values.slot = part_ == QkvPart::query ? 0 : __ldg(args_.slots + row);
    values.position = part_ == QkvPart::value ? 0 : __ldg(args_.positions + row);
  }

  /// Nothing here waits for the slot, and the vectors not for the position.
  __device__ void load(std::int64_t row, Values& values) const {
    const Source* const from =
        static_cast<const Source*>(args_.qkv) + row * args_.qkv_stride + head_ * args_.head_dim + dim_;
    load_vector(from, values.low);
    load_vector(from + args_.head_dim / 2, values.high);
    if (part_ == QkvPart::value) return;
    load_rotation(args_, values.position, dim_, values.cos, values.sin);
  }

  __device__ void store(std::int64_t row, Values& values) const {
    if (values.slot < 0) return;
    if (part_ != QkvPart::value) {
      // Parameters last: they come from a cache, and registers are what limits threads.
      if (has_norm_) {
        Dyht<kVector>(norm(), dim_).apply(values.low);
        Dyht<kVector>(norm(), dim_ + args_.head_dim / 2).apply(values.high);
      }
      rotate(values.cos, values.sin, values.low, values.high);
    }
    Element* const to = qkv_place<Element>(args_, part_, head_, row, values.slot) + dim_;
    store_vector(to, values.low);
    store_vector(to + args_.head_dim / 2, values.high);
  }

 private:
  static __host__ __device__ int pieces(const Args& args) { return args.head_dim / (2 * kVector); }

  __device__ const DyhtParams& norm() const { return part_ == QkvPart::query ? args_.q_norm : args_.k_norm; }

  const Args& args_;
  int head_;
  int dim_;
  QkvPart part_;
  bool has_norm_;
};

}  // namespace

void run_finish_qkv(const FinishQkvArgs& args, DType dtype, DType qkv_dtype, cudaStream_t stream) {
  if (args.rows == 0) return;
  check_finish_qkv_args("finish_qkv", args, dtype, qkv_dtype);
  by_dtypes("finish_qkv", dtype, qkv_dtype, [&]<class Element, class Source>() {
    run_rows<FinishQkvOp<Element, Source>>("finish_qkv", args, stream);
  });
}

}  // namespace asynct::cuda
