#include "asynct/ops/token_selection/cuda/selection.h"

#include <limits>

#include "asynct/ops/cuda/by_dtype.h"
#include "asynct/ops/cuda/device.h"
#include "asynct/ops/cuda/grid.cuh"
#include "asynct/ops/cuda/launch.h"
#include "asynct/ops/token_selection/cuda/selector.cuh"

namespace asynct::cuda {
namespace {

constexpr int kMostSharedBytes = 227 * 1024;

template <class Element>
__global__ void __cluster_dims__(kSelectBlocks, 1, 1) __launch_bounds__(kSelectThreads, 2)
    selection_kernel(const __grid_constant__ TokenSelectionArgs args) {
  extern __shared__ uint4 shared[];
  auto& memory = *reinterpret_cast<SelectorMemory*>(shared);
  launch_dependents();
  cluster_arrive();  // the selector waits before it reaches for other blocks
  wait_for_launcher();
  RowSelector<Element> selector(args, memory, reinterpret_cast<Element*>(&memory + 1));
  selector.run();
  cluster_sync();  // no block leaves while others read its memory
}

template <class Element>
void launch_selection(const TokenSelectionArgs& args, cudaStream_t stream) {
  static_assert(sizeof(SelectorMemory) % 16 == 0);
  const int share = RowSelector<Element>::share_of(args.vocabulary) * static_cast<int>(sizeof(Element));
  const int bytes = static_cast<int>(sizeof(SelectorMemory)) + share;
  if (bytes > kMostSharedBytes)
    fail("token selection: a vocabulary of ", args.vocabulary, " needs ", bytes,
         " bytes of shared memory, expected at most ", kMostSharedBytes);
  prepare<selection_kernel<Element>>(kMostSharedBytes);
  launch_overlapped(selection_kernel<Element>, "token selection",
                    dim3(static_cast<unsigned>(args.rows) * kSelectBlocks), dim3(kSelectThreads), args,
                    stream, bytes);
}

}  // namespace

void run_token_selection(const TokenSelectionArgs& args, DType dtype, cudaStream_t stream) {
  constexpr const char* kName = "token selection";
  if (args.rows == 0) return;
  if (args.rows < 0 || args.rows > std::numeric_limits<std::int32_t>::max() / kSelectBlocks)
    fail(kName, ": ", args.rows, " rows, expected 0 to 2^28 - 1");
  if (args.vocabulary <= 0 || args.vocabulary > kMostTokens)
    fail(kName, ": a vocabulary of ", args.vocabulary, ", expected 1 to ", kMostTokens);
  if (args.choices == nullptr || args.tokens == nullptr) fail(kName, ": no choices or no tokens");
  expect_aligned(kName, "logits", args.logits);
  expect_aligned(kName, "row stride", args.row_stride * static_cast<std::int64_t>(size_of(dtype)));
  if (args.row_stride < args.vocabulary)
    fail(kName, ": rows ", args.row_stride, " apart, expected at least the vocabulary's ", args.vocabulary);
  by_dtype(kName, dtype, [&]<class Element>() { launch_selection<Element>(args, stream); });
}

}  // namespace asynct::cuda
