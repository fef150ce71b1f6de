#include "asynct/ops/kernel_bench/layer_groups.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "asynct/base/strings.h"
#include "asynct/ops/cuda/device_buffer.h"
#include "asynct/ops/embedding/cuda/embedding.h"
#include "asynct/ops/feed_forward/cuda/reglu.h"
#include "asynct/ops/head/cuda/policy.h"
#include "asynct/ops/head/cuda/score.h"
#include "asynct/ops/kernel_bench/kernel_bench.h"
#include "asynct/ops/kernel_bench/memory_kernels.h"
#include "asynct/ops/kernel_bench/tensor_group.h"
#include "asynct/ops/norm/cuda/norm.h"
#include "asynct/ops/qkv_projection/cuda/finish_qkv.h"
#include "asynct/ops/residual/cuda/residual.h"
#include "asynct/ops/token_selection/cuda/selection.h"

namespace asynct::kernel_bench {
namespace {

using Launch = std::function<void(const Tensors& tensors, cudaStream_t stream)>;

/// One line of the table of kernels.
struct Entry {
  std::string kernel;
  std::vector<std::size_t> sizes;  // of the tensors, in 16-bit elements
  double bytes = 0;                // read and written, at the least
  std::vector<std::pair<std::string, Launch>> variants;
};

std::size_t count(std::int64_t a, std::int64_t b = 1, std::int64_t c = 1) {
  return static_cast<std::size_t>(a * b * c);
}

/// Numbers on the device that the first call makes, so that listing the groups allocates nothing.
template <class T>
std::function<const T*()> lazy_numbers(std::function<std::vector<T>()> make) {
  return [make = std::move(make), buffer = std::make_shared<std::unique_ptr<cuda::DeviceBuffer<T>>>()] {
    if (*buffer == nullptr) *buffer = std::make_unique<cuda::DeviceBuffer<T>>(make());
    return static_cast<const T*>((*buffer)->data());
  };
}

template <class T>
std::function<const T*()> lazy_rows(std::int64_t rows, T (*of)(std::int64_t row)) {
  return lazy_numbers<T>([rows, of] {
    std::vector<T> numbers;
    for (std::int64_t row = 0; row < rows; ++row) numbers.push_back(of(row));
    return numbers;
  });
}

/// A tensor of alpha, then gamma, in float.
cuda::DyhtParams dyht_of(const std::uint16_t* params, std::int64_t size) {
  const auto* const values = reinterpret_cast<const float*>(params);
  return {.alpha = {values, true}, .gamma = {values + size, true}};
}
cuda::RmsParams rms_of(const std::uint16_t* params, std::int64_t size) {
  return {.gamma = {reinterpret_cast<const float*>(params) + size, true}};
}

Entry norm_entry(const LayerShape& s) {
  const auto args = [s](const Tensors& t, const auto& norm) {
    return cuda::NormArgsOf<std::decay_t<decltype(norm)>>{.x = t[0],
                                                          .y = t[1],
                                                          .x_row_stride = s.hidden,
                                                          .y_row_stride = s.hidden,
                                                          .rows = s.rows,
                                                          .dims = s.hidden,
                                                          .norm = norm};
  };
  return {"norm",
          {count(s.rows, s.hidden), count(s.rows, s.hidden), count(4, s.hidden)},
          4.0 * s.rows * s.hidden,
          {{"DyHT",
            [=](const Tensors& t, cudaStream_t stream) {
              cuda::run_norm(args(t, dyht_of(t[2], s.hidden)), DType::bf16, stream);
            }},
           {"RMS", [=](const Tensors& t, cudaStream_t stream) {
              cuda::run_rms_norm(args(t, rms_of(t[2], s.hidden)), DType::bf16, stream);
            }}}};
}

Entry residual_entry(const LayerShape& s) {
  const auto args = [s](const Tensors& t, const auto& norm) {
    return cuda::ResidualArgsOf<std::decay_t<decltype(norm)>>{.product = t[0],
                                                              .residual = t[1],
                                                              .next_input = t[2],
                                                              .product_stride = s.hidden,
                                                              .residual_stride = s.hidden,
                                                              .next_stride = s.hidden,
                                                              .rows = s.rows,
                                                              .size = s.hidden,
                                                              .has_post = true,
                                                              .post = norm,
                                                              .next = norm};
  };
  const std::size_t rows = count(s.rows, s.hidden);
  return {"residual",
          {rows, rows, rows, count(4, s.hidden)},
          8.0 * s.rows * s.hidden,
          {{"DyHT",
            [=](const Tensors& t, cudaStream_t stream) {
              cuda::run_residual(args(t, dyht_of(t[3], s.hidden)), DType::bf16, DType::bf16, stream);
            }},
           {"RMS", [=](const Tensors& t, cudaStream_t stream) {
              cuda::run_rms_residual(args(t, rms_of(t[3], s.hidden)), DType::bf16, DType::bf16, stream);
            }}}};
}

Entry reglu_entry(const LayerShape& s) {
  return {"reglu",
          {count(s.rows, 2, s.neurons), count(s.rows, s.neurons)},
          6.0 * s.rows * s.neurons,
          {{"kernel", [s](const Tensors& t, cudaStream_t stream) {
              cuda::run_reglu({.gate = t[0],
                               .up = t[0] + s.neurons,
                               .out = t[1],
                               .input_stride = 2 * s.neurons,
                               .out_stride = s.neurons,
                               .rows = s.rows,
                               .neurons = s.neurons},
                              DType::bf16, DType::bf16, stream);
            }}}};
}

Entry embedding_entry(const LayerShape& s) {
  constexpr std::int64_t kLists = 64;  // calls take turns, so that a row of the table comes again late
  const auto tokens = lazy_numbers<std::int32_t>([s] {
    std::vector<std::int32_t> all;
    for (std::int64_t row = 0; row < kLists * s.rows; ++row)
      all.push_back(static_cast<std::int32_t>(row * 7919 % s.vocabulary));
    return all;
  });
  return {"embedding",
          {count(s.vocabulary, s.hidden), count(s.rows, s.hidden)},
          4.0 * s.rows * s.hidden + 4.0 * s.rows,
          {{"kernel", [s, tokens, call = std::int64_t{0}](const Tensors& t, cudaStream_t stream) mutable {
              cuda::run_embedding({.table = t[0],
                                   .tokens = tokens() + call++ % kLists * s.rows,
                                   .out = t[1],
                                   .out_stride = s.hidden,
                                   .rows = s.rows,
                                   .vocabulary = s.vocabulary,
                                   .size = s.hidden},
                                  DType::bf16, stream);
            }}}};
}

Entry finish_qkv_entry(const LayerShape& s) {
  constexpr std::int32_t kPositions = 4096;
  constexpr std::int64_t kBlock = 16;
  const std::int64_t heads = s.heads + 2 * std::int64_t{s.kv_heads};
  const std::int64_t width = heads * s.head_dim;
  const std::int64_t kv_width = std::int64_t{s.kv_heads} * s.head_dim;
  const std::size_t cache = count((s.rows + kBlock - 1) / kBlock * kBlock, kv_width);
  const auto positions = lazy_rows<std::int32_t>(
      s.rows, [](std::int64_t row) { return static_cast<std::int32_t>(row % kPositions); });
  const auto slots = lazy_rows<std::int64_t>(s.rows, [](std::int64_t row) { return row; });
  const auto args = [=](const Tensors& t, const auto& norm) {
    return cuda::FinishQkvArgsOf<std::decay_t<decltype(norm)>>{
        .qkv = t[0],
        .q = t[0],
        .qkv_stride = width,
        .q_stride = width,
        .positions = positions(),
        .slots = slots(),
        .cos_sin = reinterpret_cast<const float*>(t[3]),
        .key = {t[1], kBlock * kv_width, s.head_dim, kv_width},
        .value = {t[2], kBlock * kv_width, s.head_dim, kv_width},
        .rows = s.rows,
        .max_positions = kPositions,
        .heads = s.heads,
        .kv_heads = s.kv_heads,
        .head_dim = s.head_dim,
        .has_q_norm = true,
        .has_k_norm = true,
        .q_norm = norm,
        .k_norm = norm};
  };
  return {"finish_qkv",
          {count(s.rows, width), cache, cache, count(2 * kPositions, s.head_dim), count(4, s.head_dim)},
          4.0 * s.rows * static_cast<double>(width) + 4.0 * s.rows * s.head_dim,
          {{"DyHT",
            [=](const Tensors& t, cudaStream_t stream) {
              cuda::run_finish_qkv(args(t, dyht_of(t[4], s.head_dim)), DType::bf16, DType::bf16, stream);
            }},
           {"RMS", [=](const Tensors& t, cudaStream_t stream) {
              cuda::run_rms_finish_qkv(args(t, rms_of(t[4], s.head_dim)), DType::bf16, DType::bf16, stream);
            }}}};
}

/// One target a row.
Entry score_entry(const LayerShape& s) {
  const std::int64_t pieces = cuda::pieces_of(s.vocabulary);
  const std::int64_t stride = (s.vocabulary + 7) / 8 * 8;
  const auto targets = lazy_rows<ScoreTarget>(s.rows, [](std::int64_t row) {
    return ScoreTarget{static_cast<std::int32_t>(row), 0};
  });
  const auto first =
      lazy_rows<std::int32_t>(s.rows + 1, [](std::int64_t row) { return static_cast<std::int32_t>(row); });
  return {"scores",
          {count(s.rows, stride), count(s.rows, 8, pieces), count(s.rows, 2), count(s.rows, 8)},
          2.0 * s.rows * s.vocabulary + 2.0 * sizeof(cuda::LogitPiece) * s.rows * static_cast<double>(pieces),
          {{"pieces, then scores", [=](const Tensors& t, cudaStream_t stream) {
              const cuda::LogitPiecesArgs args = {.pieces = reinterpret_cast<cuda::LogitPiece*>(t[1]),
                                                  .target_logits = reinterpret_cast<float*>(t[2]),
                                                  .targets = targets(),
                                                  .first_target = first(),
                                                  .rows = s.rows,
                                                  .vocabulary = s.vocabulary};
              cuda::run_logit_pieces(args, t[0], stride, DType::bf16, stream);
              cuda::run_scores(args, reinterpret_cast<TokenScore*>(t[3]), nullptr, stream);
            }}}};
}

/// Normal logits, which are as flat as they come.
Entry selection_entry(const LayerShape& s) {
  const std::int64_t stride = (s.vocabulary + 3) / 4 * 4;
  const auto choose = [=](const cuda::TokenChoice& choice) -> Launch {
    const auto choices = lazy_numbers<cuda::TokenChoice>([s, choice] {
      std::vector<cuda::TokenChoice> all(count(s.rows), choice);
      for (std::size_t row = 0; row < all.size(); ++row) all[row].seed = row;
      return all;
    });
    return [=](const Tensors& t, cudaStream_t stream) {
      cuda::run_token_selection({.logits = t[0],
                                 .choices = choices(),
                                 .tokens = reinterpret_cast<std::int32_t*>(t[1]),
                                 .row_stride = stride,
                                 .rows = s.rows,
                                 .vocabulary = s.vocabulary},
                                DType::f32, stream);
    };
  };
  return {"token selection",
          {count(s.rows, 2, stride), count(s.rows, 2)},
          4.0 * s.rows * s.vocabulary,
          {{"greedy", choose({})},
           {"temperature 1", choose({.temperature = 1})},
           {"top-k 50", choose({.temperature = 1, .top_k = 50})},
           {"top-p 0.9", choose({.temperature = 1, .top_p = 0.9F})}}};
}

using MakeEntry = Entry (*)(const LayerShape& shape);
constexpr MakeEntry kOfRows[] = {norm_entry, residual_entry, reglu_entry, embedding_entry, finish_qkv_entry};
constexpr MakeEntry kOfLogits[] = {score_entry, selection_entry};

LazyGroup layer_group(Entry entry, const LayerShape& shape, double cache_bytes) {
  std::vector<TensorKernel> kernels;
  const Floor floor = {.bytes = entry.bytes};
  for (const auto& [variant, launch] : entry.variants) kernels.push_back({variant, floor, launch});
  // Readers have a tensor of their own, as large as what a kernel moves.
  const std::size_t bytes = (static_cast<std::size_t>(entry.bytes) + 15) / 16 * 16;
  entry.sizes.push_back(bytes / 2);
  for (int setting = 0; setting < kReadSettings; ++setting)
    kernels.push_back({"read as much", floor, [=](const Tensors& tensors, cudaStream_t stream) {
                         run_read(setting, {tensors.back(), bytes}, {}, nullptr, stream);
                       }});
  return tensor_group(entry.kernel, shape.text(), entry.sizes, std::move(kernels), cache_bytes);
}

}  // namespace

std::vector<LazyGroup> layer_groups(const KernelBenchOptions& options, double cache_bytes) {
  constexpr std::int32_t kMostLogitRows = 1024;  // a step has its logits in memory for some rows at a time
  std::vector<LazyGroup> groups;
  for (const LayerShape& shape : options.layer) {
    for (const MakeEntry make : kOfRows) groups.push_back(layer_group(make(shape), shape, cache_bytes));
    if (shape.rows > kMostLogitRows) continue;
    for (const MakeEntry make : kOfLogits) groups.push_back(layer_group(make(shape), shape, cache_bytes));
  }
  return groups;
}

}  // namespace asynct::kernel_bench
