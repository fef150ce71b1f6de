#include "asynct/ops/token_selection/cuda/selection.h"

#include <limits>

#include "asynct/ops/cuda/by_dtype.h"
#include "asynct/ops/cuda/device.h"
#include "asynct/ops/cuda/grid.cuh"
#include "asynct/ops/cuda/launch.h"
#include "asynct/ops/cuda/shared.cuh"
#include "asynct/ops/token_selection/cuda/draw_by_mass.cuh"
#include "asynct/ops/token_selection/cuda/draw_from_all.cuh"
#include "asynct/ops/token_selection/cuda/draw_from_head.cuh"

// Choice of a token from a row of logits, by a cluster of kSelectBlocks blocks (sm_90).
//
// Floor: each logit read once, 0.3 or 0.6 MB a row of 151,936, over the read rate.
//
// A block keeps its share of the row in shared memory; everything after the first pass happens there. What
// top-k, top-p and min-p keep, and the token that a point of its mass belongs to, are prefixes of the tokens
// in the order of their keys (logit_key.cuh).
//
// First the largest logit; at temperature 0 that is all. What follows depends on what leaves tokens out:
//
// Nothing, or top-p alone (draw_by_mass.cuh): a histogram of masses, in float, says in which of 4,096 buckets
// of distance from the largest the borders can be. All blocks add up the weights before, between and behind
// those in double, and the first block sorts the tokens in them, a few hundred, and finds the borders
// exactly.
//
// Top-k or min-p (draw_from_head.cuh): the most probable tokens, at least top_k or kHead of them, go to the
// first block, which sorts them and adds up their weights. A bound for them comes from a histogram of the
// largest logit of each thread: few threads have two of them. Meanwhile all blocks add up the weights of all
// tokens, where they are wanted.
//
// When those do not decide (draw_from_all.cuh), as with a top_k of thousands or thousands of equal logits at
// a border, the mass of all tokens is collected exactly in buckets of their distance from the largest; the
// bucket that holds the border goes to the first block, and is cut again as long as it holds too many.
//
// Sums in buckets are integers in units of 2^-63, so that their order does not matter; all other sums have a
// fixed order. Tokens less probable than 2^-63 times the largest have no mass: a drawn number has 53 bits.
namespace asynct::cuda {
namespace {

template <class Element>
__global__ void __cluster_dims__(kSelectBlocks, 1, 1) __launch_bounds__(kSelectThreads, 2)
    selection_kernel(const __grid_constant__ TokenSelectionArgs args) {
  extern __shared__ uint4 shared[];
  auto& memory = *reinterpret_cast<SelectorMemory*>(shared);
  launch_dependents();
  cluster_arrive();  // a row waits before it reaches for other blocks
  wait_for_launcher();
  const Row<Element> row(args, memory, reinterpret_cast<Element*>(&memory + 1));
  if (!is_choice(row.largest) || row.choice.temperature == 0) {
    row.choose(row.largest);
  } else {
    const double point = uniform(row.choice.seed, row.choice.step);
    const bool is_by_mass = row.choice.top_k == 0 && row.choice.min_p == 0;
    if (is_by_mass && MassDraw<Element>(row, point).draw()) return;  // nobody reads another's memory then
    if (is_by_mass || !draw_from_head(row, point)) draw_from_all(row, point);
  }
  cluster_sync();  // no block leaves while others read its memory
}

template <class Element>
void launch_selection(const TokenSelectionArgs& args, cudaStream_t stream) {
  static_assert(sizeof(SelectorMemory) % 16 == 0);
  const int share = Row<Element>::share_of(args.vocabulary) * static_cast<int>(sizeof(Element));
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
