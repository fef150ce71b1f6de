#include "asynct/ops/feed_forward/cuda/reglu.h"

#include "asynct/ops/cuda/by_dtype.h"
#include "asynct/ops/cuda/row_kernel.cuh"
#include "asynct/ops/cuda/vector.cuh"
#include "asynct/ops/feed_forward/cuda/reglu.cuh"

// ReGLU of products that are in memory.
//
// Floor: gate and up read, out written: 6 bytes a neuron in bf16, over the copy rate. Not reading up where
// all of a sector's 16 gates are zero would save a tenth at the trained density, for a second trip to memory.
namespace asynct::cuda {
namespace {

template <class Element, class Input>
class RegluOp {
 public:
  using Args = RegluArgs;
  static constexpr int kVector = kVectorSize<Element>;
  static constexpr int kMostRows = 2;
  struct Values {
    float gate[kVector];
    float up[kVector];
  };

  static __host__ __device__ int columns(const Args& args) { return args.neurons / kVector; }

  __device__ RegluOp(const Args& args, int column) : args_(args), neuron_(column * kVector) {}

  __device__ void load(std::int64_t row, Values& values) const {
    const std::int64_t at = row * args_.input_stride + neuron_;
    load_vector(static_cast<const Input*>(args_.gate) + at, values.gate);
    load_vector(static_cast<const Input*>(args_.up) + at, values.up);
  }
  __device__ void store(std::int64_t row, Values& values) const {
#pragma unroll
    for (int i = 0; i < kVector; ++i) values.up[i] = reglu(values.gate[i], values.up[i]);
    store_vector(static_cast<Element*>(args_.out) + row * args_.out_stride + neuron_, values.up);
  }

 private:
  const Args& args_;
  int neuron_;
};

}  // namespace

void run_reglu(const RegluArgs& args, DType dtype, DType input_dtype, cudaStream_t stream) {
  constexpr const char* kName = "reglu";
  if (args.rows == 0) return;
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  if (args.neurons <= 0) fail(kName, ": ", args.neurons, " neurons, expected at least 1");
  expect_aligned(kName, "rows", args.neurons * size);
  expect_aligned(kName, "the inputs' stride",
                 args.input_stride * static_cast<std::int64_t>(size_of(input_dtype)));
  expect_aligned(kName, "the output's stride", args.out_stride * size);
  expect_aligned(kName, "gate", args.gate);
  expect_aligned(kName, "up", args.up);
  expect_aligned(kName, "output", args.out);
  if ((args.out == args.gate || args.out == args.up) && input_dtype != dtype)
    fail(kName, ": the output of ", name(dtype), " lies over an input of ", name(input_dtype));
  by_dtypes(kName, dtype, input_dtype,
            [&]<class Element, class Input>() { run_rows<RegluOp<Element, Input>>(kName, args, stream); });
}

}  // namespace asynct::cuda
