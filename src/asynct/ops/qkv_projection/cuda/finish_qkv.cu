#include "asynct/ops/qkv_projection/cuda/finish_qkv.h"

#include "asynct/ops/cuda/by_dtype.h"
#include "asynct/ops/cuda/row_kernel.cuh"
#include "asynct/ops/norm/cuda/dyht.cuh"
#include "asynct/ops/norm/cuda/norm.h"

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
        part_(head_ < args.heads                   ? Part::query
              : head_ < args.heads + args.kv_heads ? Part::key
                                                   : Part::value),
        has_norm_(part_ == Part::query ? args.has_q_norm : part_ == Part::key && args.has_k_norm) {}

  __device__ void prefetch(std::int64_t row, Values& values) const {
    values.slot = part_ == Part::query ? 0 : __ldg(args_.slots + row);
    values.position = part_ == Part::value ? 0 : __ldg(args_.positions + row);
  }

  /// Nothing here waits for the slot, and the vectors not for the position.
  __device__ void load(std::int64_t row, Values& values) const {
    const Source* const from =
        static_cast<const Source*>(args_.qkv) + row * args_.qkv_stride + head_ * args_.head_dim + dim_;
    load_vector(from, values.low);
    load_vector(from + args_.head_dim / 2, values.high);
    if (part_ == Part::value) return;
    const std::int32_t position = is_known(values.position) ? values.position : 0;
    const float* const cos = args_.cos_sin + static_cast<std::int64_t>(position) * args_.head_dim + dim_;
    load_vector(cos, values.cos);
    load_vector(cos + args_.head_dim / 2, values.sin);
  }

  __device__ void store(std::int64_t row, Values& values) const {
    if (values.slot < 0) return;
    if (part_ != Part::value) {
      // Parameters last: they come from a cache, and registers are what limits threads.
      if (has_norm_) {
        Dyht<kVector>(norm(), dim_).apply(values.low);
        Dyht<kVector>(norm(), dim_ + args_.head_dim / 2).apply(values.high);
      }
      rotate(values);
    }
    Element* const to = part_ == Part::query ? query(row)
                        : part_ == Part::key
                            ? cached(args_.key, head_ - args_.heads, values.slot)
                            : cached(args_.value, head_ - args_.heads - args_.kv_heads, values.slot);
    store_vector(to, values.low);
    store_vector(to + args_.head_dim / 2, values.high);
  }

 private:
  enum class Part { query, key, value };

  static __host__ __device__ int pieces(const Args& args) { return args.head_dim / (2 * kVector); }

  __device__ const DyhtParams& norm() const { return part_ == Part::query ? args_.q_norm : args_.k_norm; }

  __device__ bool is_known(std::int32_t position) const {
    return position >= 0 && position < args_.max_positions;
  }

  /// Products round before they are added, as on the CPU.
  __device__ void rotate(Values& values) const {
    const bool known = is_known(values.position);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const float a = values.low[i], b = values.high[i], s = values.sin[i];
      const float c = known ? values.cos[i] : __int_as_float(0x7fffffff);
      values.low[i] = __fsub_rn(__fmul_rn(a, c), __fmul_rn(b, s));
      values.high[i] = __fadd_rn(__fmul_rn(b, c), __fmul_rn(a, s));
    }
  }

  __device__ Element* query(std::int64_t row) const {
    return static_cast<Element*>(args_.q) + row * args_.q_stride + head_ * args_.head_dim + dim_;
  }
  __device__ Element* cached(const KvTarget& target, int head, std::int64_t slot) const {
    const std::int64_t block = slot >> args_.block_shift;
    const std::int64_t token = slot & ((1 << args_.block_shift) - 1);
    return static_cast<Element*>(target.data) + block * target.block_stride + head * target.head_stride +
           token * target.token_stride + dim_;
  }

  const Args& args_;
  int head_;
  int dim_;
  Part part_;
  bool has_norm_;
};

void check(const FinishQkvArgs& args, DType dtype, DType qkv_dtype) {
  constexpr const char* kName = "finish_qkv";
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  if (args.heads <= 0 || args.kv_heads <= 0 || args.head_dim <= 0)
    fail(kName, ": ", args.heads, " and ", args.kv_heads, " heads of ", args.head_dim,
         ", expected at least 1 of each");
  if (args.positions == nullptr || args.slots == nullptr) fail(kName, ": no positions or no slots");
  if (args.head_dim % 2 != 0) fail(kName, ": head_dim ", args.head_dim, ", expected an even number");
  if (args.block_shift < 0 || args.block_shift > 30)
    fail(kName, ": blocks of 2^", args.block_shift, " tokens, expected 2^0 to 2^30");
  if (args.has_q_norm) check_norm(kName, args.q_norm);
  if (args.has_k_norm) check_norm(kName, args.k_norm);
  expect_aligned(kName, "half a head", args.head_dim / 2 * size);
  expect_aligned(kName, "the qkv stride", args.qkv_stride * static_cast<std::int64_t>(size_of(qkv_dtype)));
  expect_aligned(kName, "the q stride", args.q_stride * size);
  expect_aligned(kName, "qkv", args.qkv);
  expect_aligned(kName, "q", args.q);
  expect_aligned(kName, "table of cosines", args.cos_sin);
  for (const KvTarget* const target : {&args.key, &args.value}) {
    expect_aligned(kName, "cache", target->data);
    expect_aligned(kName, "a block's stride", target->block_stride * size);
    expect_aligned(kName, "a head's stride", target->head_stride * size);
    expect_aligned(kName, "a token's stride", target->token_stride * size);
  }
  if (args.q == args.qkv && (qkv_dtype != dtype || args.q_stride != args.qkv_stride))
    fail(kName, ": q lies over qkv with another dtype or stride");
}

}  // namespace

void run_finish_qkv(const FinishQkvArgs& args, DType dtype, DType qkv_dtype, cudaStream_t stream) {
  if (args.rows == 0) return;
  check(args, dtype, qkv_dtype);
  by_dtypes("finish_qkv", dtype, qkv_dtype, [&]<class Element, class Source>() {
    run_rows<FinishQkvOp<Element, Source>>("finish_qkv", args, stream);
  });
}

}  // namespace asynct::cuda
