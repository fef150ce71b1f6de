#include "asynct/ops/embedding/cuda/embedding.h"

#include "asynct/ops/cuda/by_dtype.h"
#include "asynct/ops/cuda/row_kernel.cuh"
#include "asynct/ops/cuda/vector.cuh"

// Rows of the embedding table, scaled.
//
// Floor: a row read and written, 2 * size_of(dtype) bytes an element and 4 a token, over the copy rate; a
// token's row can only be asked for once the token is there: two trips to memory.
namespace asynct::cuda {
namespace {

template <class Element>
class EmbeddingOp {
 public:
  using Args = EmbeddingArgs;
  static constexpr int kVector = kVectorSize<Element>;
  static constexpr int kMostRows = 2;
  struct Values {
    float x[kVector];
  };

  static __host__ __device__ int columns(const Args& args) { return args.size / kVector; }

  __device__ EmbeddingOp(const Args& args, int column) : args_(args), channel_(column * kVector) {}

  __device__ void load(std::int64_t row, Values& values) const {
    const std::int32_t token = args_.tokens[row];
    if (token >= 0 && token < args_.vocabulary) {
      load_vector(
          static_cast<const Element*>(args_.table) + static_cast<std::int64_t>(token) * args_.size + channel_,
          values.x);
    } else {
#pragma unroll
      for (float& x : values.x) x = __int_as_float(0x7fffffff);
    }
  }
  __device__ void store(std::int64_t row, Values& values) const {
#pragma unroll
    for (float& x : values.x) x = __fmul_rn(x, args_.multiplier);
    store_vector(static_cast<Element*>(args_.out) + row * args_.out_stride + channel_, values.x);
  }

 private:
  const Args& args_;
  int channel_;
};

}  // namespace

void run_embedding(const EmbeddingArgs& args, DType dtype, cudaStream_t stream) {
  constexpr const char* kName = "embedding";
  if (args.rows == 0) return;
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  if (args.vocabulary <= 0 || args.size <= 0)
    fail(kName, ": a table of [", args.vocabulary, ", ", args.size, "], expected at least 1 of each");
  if (args.tokens == nullptr) fail(kName, ": no tokens");
  expect_aligned(kName, "rows", args.size * size);
  expect_aligned(kName, "the output's stride", args.out_stride * size);
  expect_aligned(kName, "table", args.table);
  expect_aligned(kName, "output", args.out);
  by_dtype(kName, dtype, [&]<class Element>() { run_rows<EmbeddingOp<Element>>(kName, args, stream); });
}

}  // namespace asynct::cuda
