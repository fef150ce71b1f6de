// Rates of attention over a paged cache: prefill in GFLOP/s of the dense causal products, decode in GB/s of
// cache read, beside what the machine can do (measured in the same run).
//   asynct_attention_bench [--threads N] [--only prefill|decode] [--json]    ASYNCT_ISA=scalar|avx2|avx512
//   chooses the kernels

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "asynct/base/limits.h"
#include "asynct/ops/attention/attention.h"
#include "asynct/ops/probe/probe.h"

namespace asynct {
namespace {

struct Shape {
  std::int32_t heads;
  std::int32_t kv_heads;
  std::int32_t head_dim;
};

constexpr std::int32_t kBlock = 16;

/// `sequences` sequences of `context` keys in shuffled blocks, the last `rows` of each asked for.
class Problem {
 public:
  Problem(Shape shape, DType dtype, std::int32_t sequences, std::int32_t context, std::int32_t rows) {
    const std::int32_t blocks = context / kBlock;
    table_.resize(static_cast<std::size_t>(sequences) * static_cast<std::size_t>(blocks));
    std::iota(table_.begin(), table_.end(), 0);
    std::shuffle(table_.begin(), table_.end(), random_);
    for (std::int32_t s = 0; s < sequences; ++s) {
      query_start_.push_back(query_start_.back() + rows);
      lengths_.push_back(context);
      for (std::int32_t p = context - rows; p < context; ++p) positions_.push_back(p);
    }
    tokens_.resize(positions_.size());
    batch_ = {.tokens = tokens_,
              .positions = positions_,
              .query_start = query_start_,
              .context_length = lengths_,
              .block_table = table_,
              .max_blocks = blocks};
    const std::int64_t page = std::int64_t{kBlock} * shape.head_dim;
    const std::int64_t elements = static_cast<std::int64_t>(table_.size()) * shape.kv_heads * page;
    keys_ = normals(dtype, elements);
    values_ = normals(dtype, elements);
    kv_ = {.key = {keys_.data(), dtype, shape.kv_heads * page, page, 1, kBlock},
           .value = {values_.data(), dtype, shape.kv_heads * page, page, shape.head_dim, 1},
           .block_size = kBlock,
           .kv_heads = shape.kv_heads,
           .head_dim = shape.head_dim};
    cols_ = std::int64_t{shape.heads} * shape.head_dim;
    q_ = normals(DType::f32, std::int64_t{batch_.rows()} * cols_);
    out_ = Buffer(q_.size());
  }

  const StepBatch& batch() const { return batch_; }
  double cache_bytes() const { return static_cast<double>(keys_.size() + values_.size()); }

  /// Seconds of one call, the best of several, as the yardsticks are.
  double time(OpContext& context, const Attention& attention) {
    AttentionPlan plan;
    plan.build(attention.config(), batch_, context.pool().size());
    const ConstMatrix q(q_.as<float>(), batch_.rows(), cols_);
    const Matrix out(out_.as<float>(), batch_.rows(), cols_);
    double best = 1e30;
    int calls = 0;
    for (double spent = 0; calls < 5 || spent < 0.5; ++calls) {
      const auto begin = std::chrono::steady_clock::now();
      attention.run(context, plan, batch_, kv_, q, out);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      best = std::min(best, seconds);
      spent += seconds;
    }
    return best;
  }

 private:
  Buffer normals(DType dtype, std::int64_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> some(1 << 16);  // repeated: drawing a gigabyte would take longer than the benchmark
    for (float& v : some) v = normal(random_);
    Buffer buffer(static_cast<std::size_t>(count) * size_of(dtype));
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = some[static_cast<std::size_t>((i + i / 65536 * 7919) % 65536)];
      if (dtype == DType::f32)
        buffer.as<float>()[i] = value;
      else
        buffer.as<Bf16>()[i] = to_bf16(value);
    }
    return buffer;
  }

  std::mt19937 random_{1};
  std::vector<std::int32_t> tokens_, positions_, query_start_ = {0}, lengths_, table_;
  StepBatch batch_;
  Buffer keys_, values_, q_, out_;
  KvLayer kv_;
  std::int64_t cols_ = 0;
};

enum class Weights { dense, sparse, softmax };  // sparse: about a third of A above zero, as in trained models

const char* name_of(Weights weights) {
  return weights == Weights::dense ? "dense" : weights == Weights::sparse ? "sparse" : "softmax";
}

Attention make_attention(Shape shape, Weights weights) {
  const AttentionConfig config = {
      .kind = weights == Weights::softmax ? AttentionKind::softmax : AttentionKind::asynci,
      .heads = shape.heads,
      .kv_heads = shape.kv_heads,
      .head_dim = shape.head_dim,
      .scale = 1.0F / static_cast<float>(shape.head_dim)};
  const auto all = [&](float value) {
    return std::vector<float>(static_cast<std::size_t>(shape.heads), value);
  };
  if (weights == Weights::dense) return Attention(config, {.sigma = all(0.1F), .bias = all(0.5F)});
  return Attention(config, {.sigma = all(1.3F)});
}

class Report {
 public:
  Report(bool json, double peak, double bandwidth) : json_(json), peak_(peak), bandwidth_(bandwidth) {
    if (json_)
      std::printf("{\"fma_peak_gflops\": %.1f, \"read_gbs\": %.2f, \"results\": [", peak_ / 1e9,
                  bandwidth_ / 1e9);
    else
      std::printf("FMA peak %.1f GFLOP/s, read bandwidth %.2f GB/s\n\n", peak_ / 1e9, bandwidth_ / 1e9);
  }
  ~Report() {
    if (json_) std::printf("\n]}\n");
  }

  void add(const char* kind, Shape shape, DType dtype, Weights weights, std::int32_t batch,
           std::int32_t context, double seconds, double amount, bool is_flops) {
    const double rate = amount / seconds / 1e9;
    const double share = amount / seconds / (is_flops ? peak_ : bandwidth_);
    const char* const unit = is_flops ? "GFLOP/s" : "GB/s";
    if (json_)
      std::printf(
          "%s\n  {\"kind\": \"%s\", \"heads\": %d, \"kv_heads\": %d, \"head_dim\": %d, \"kv\": \"%s\", "
          "\"weights\": \"%s\", \"batch\": %d, \"context\": %d, \"ms\": %.4f, \"rate\": %.2f, \"unit\": "
          "\"%s\", "
          "\"share\": %.3f}",
          first_ ? "" : ",", kind, shape.heads, shape.kv_heads, shape.head_dim,
          std::string(name(dtype)).c_str(), name_of(weights), batch, context, seconds * 1e3, rate, unit,
          share);
    else
      std::printf("%-8s H %d/%d D %-3d %s %-7s B %-3d context %-5d %9.3f ms %8.2f %-7s %5.1f %%\n", kind,
                  shape.heads, shape.kv_heads, shape.head_dim, std::string(name(dtype)).c_str(),
                  name_of(weights), batch, context, seconds * 1e3, rate, unit, share * 100);
    std::fflush(stdout);
    first_ = false;
  }

 private:
  bool json_;
  double peak_;
  double bandwidth_;
  bool first_ = true;
};

void bench_prefill(OpContext& context, Report& report, Shape shape, DType dtype, std::int32_t length) {
  Problem problem(shape, dtype, 1, length, length);
  const double pairs = 0.5 * length * (length + 1.0);
  for (const Weights weights : {Weights::dense, Weights::sparse, Weights::softmax}) {
    const double seconds = problem.time(context, make_attention(shape, weights));
    report.add("prefill", shape, dtype, weights, 1, length, seconds,
               4.0 * shape.head_dim * shape.heads * pairs, true);
  }
}

void bench_decode(OpContext& context, Report& report, Shape shape, DType dtype, std::int32_t batch,
                  std::int32_t length) {
  Problem problem(shape, dtype, batch, length, 1);
  for (const Weights weights : {Weights::dense, Weights::sparse, Weights::softmax}) {
    const double seconds = problem.time(context, make_attention(shape, weights));
    report.add("decode", shape, dtype, weights, batch, length, seconds, problem.cache_bytes(), false);
  }
}

int run(int argc, char** argv) {
  int threads = available_cores();
  bool json = false;
  const char* only = "";
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0)
      json = true;
    else if (std::strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
      threads = std::max(1, std::atoi(argv[++i]));
    else if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc)
      only = argv[++i];
    else
      return std::fprintf(stderr,
                          "usage: asynct_attention_bench [--threads N] [--only prefill|decode] [--json]\n"),
             2;
  }
  ThreadPool pool(threads);
  OpContext context(pool, select_isa(), Precision::fp32);
  Report report(json, measure_fma_peak(pool, context.isa()), measure_read_bandwidth(pool, context.isa()));
  for (const Shape shape : {Shape{4, 2, 64}, Shape{8, 4, 128}})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (std::strcmp(only, "decode") != 0)
        for (const std::int32_t length : {512, 2048}) bench_prefill(context, report, shape, dtype, length);
      if (std::strcmp(only, "prefill") == 0) continue;
      bench_decode(context, report, shape, dtype, 1, 1024);
      bench_decode(context, report, shape, dtype, 1, 32768);
      bench_decode(context, report, shape, dtype, 32, 8192);
    }
  return 0;
}

}  // namespace
}  // namespace asynct

int main(int argc, char** argv) { return asynct::run(argc, argv); }
