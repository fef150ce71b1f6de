#include "asynct/ops/cuda/by_dtype.h"
#include "asynct/ops/norm/cuda/rms.cuh"
#include "asynct/ops/qkv_projection/cuda/check.h"
#include "asynct/ops/qkv_projection/cuda/finish_qkv.h"
#include "asynct/ops/qkv_projection/cuda/qkv_head.cuh"

// RMS norm, rotation and cache append of a packed qkv row, in one pass; a head is a vector of its own.
//
// Floor: a row read and written, 2 * size_of(dtype) bytes an element of (H + 2 Hk) D, and D floats of cosines
// and sines a row, over the copy rate.
namespace asynct::cuda {
namespace {

template <class Element, class Source>
struct RmsFinishQkvOp {
  using Args = RmsFinishQkvArgs;
  static constexpr int kVector = kVectorSize<Element>;

  static __device__ void prefetch(const Args& args, int dims) {
    if (args.has_q_norm) prefetch_rms<kVector>(args.q_norm, dims);
    if (args.has_k_norm) prefetch_rms<kVector>(args.k_norm, dims);
  }

  static __device__ void run(const Args& args, RmsBlock<kVector>& block) {
    block.fill([&](std::int64_t row, int head, int dim, float(&x)[kVector]) {
      load_vector(static_cast<const Source*>(args.qkv) + row * args.qkv_stride + head * args.head_dim + dim,
                  x);
    });
    block.find_factors([&](int head) {
      return qkv_part(args, head) == QkvPart::query ? args.q_norm.epsilon : args.k_norm.epsilon;
    });
    block.use_halves(
        [&](std::int64_t row, int head, int dim, float(&low)[kVector], float(&high)[kVector], float factor) {
          const QkvPart part = qkv_part(args, head);
          const std::int64_t slot = part == QkvPart::query ? 0 : __ldg(args.slots + row);
          if (slot < 0) return;
          if (part != QkvPart::value) {
            if (has_norm(args, part)) {
              const RmsParams& norm = part == QkvPart::query ? args.q_norm : args.k_norm;
              float gamma_low[kVector], gamma_high[kVector];
              load_channels(norm.gamma, dim, gamma_low);
              load_channels(norm.gamma, dim + args.head_dim / 2, gamma_high);
              apply_rms(gamma_low, factor, low);
              apply_rms(gamma_high, factor, high);
            }
            float cos[kVector], sin[kVector];
            load_rotation(args, __ldg(args.positions + row), dim, cos, sin);
            rotate(cos, sin, low, high);
          }
          Element* const to = qkv_place<Element>(args, part, head, row, slot) + dim;
          store_vector(to, low);
          store_vector(to + args.head_dim / 2, high);
        });
  }
};

}  // namespace

void run_rms_finish_qkv(const RmsFinishQkvArgs& args, DType dtype, DType qkv_dtype, cudaStream_t stream) {
  constexpr const char* kName = "RMS finish_qkv";
  if (args.rows == 0) return;
  check_finish_qkv_args(kName, args, dtype, qkv_dtype);
  by_dtypes(kName, dtype, qkv_dtype, [&]<class Element, class Source>() {
    run_rms<RmsFinishQkvOp<Element, Source>>(kName, args, args.rows, args.heads + 2 * args.kv_heads,
                                             args.head_dim, stream);
  });
}

}  // namespace asynct::cuda
