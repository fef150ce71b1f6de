// Rates of Linear and FeedForward against what the machine can do, all measured in one run.
//
//   asynct_linear_bench [--threads N] [--precision fp32|bf16] [--weights fp32|bf16|fp16] [--json]
//                       [--only dense|stream|reglu|reglu-stream|families]
//
// --weights: dense products of this type only. ASYNCT_ISA picks the kernels. In bf16 precision bf16 weights
// are multiplied on matrix tiles where there are any, so that a share of the FMA peak may be far above 100 %.
// `families` compares the families that multiply bf16 in bf16 precision, whatever ASYNCT_ISA says.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "asynct/base/error.h"
#include "asynct/base/json.h"
#include "asynct/base/limits.h"
#include "asynct/ops/feed_forward/feed_forward.h"
#include "asynct/ops/linear/linear.h"
#include "asynct/ops/probe/probe.h"

namespace asynct {
namespace {

using Clock = std::chrono::steady_clock;

// Seconds of the fastest call within `least` seconds of calls, after a warm-up: what the probes of the
// machine report too. Whatever else runs on the machine only adds time.
template <class Function>
double best_seconds(Function function, double least = 0.4) {
  function();
  double best = 1e30;
  double total = 0;
  for (int calls = 0; total < least || calls < 5; ++calls) {
    const auto begin = Clock::now();
    function();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

Tensor random_tensor(DType dtype, Shape shape, float scale, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  Tensor tensor(dtype, shape);
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (dtype == DType::f32) tensor.values<float>()[at] = normal(random);
    if (dtype == DType::bf16) tensor.values<Bf16>()[at] = to_bf16(normal(random));
    if (dtype == DType::f16) tensor.values<F16>()[at] = to_f16(normal(random));
  }
  return tensor;
}

Matrix matrix_of(const Tensor& tensor) {
  return {tensor.values<float>().data(), tensor.view().shape[0], tensor.view().shape[1]};
}

Linear make_linear(const OpContext& context, const Tensor& weight) {
  const TensorView parts[] = {weight.view()};
  return {context, parts};
}

class Bench {
 public:
  Bench(int threads, Precision precision, bool json)
      : pool_(threads), context_(pool_, select_isa(), precision), json_(json) {
    peak_ = measure_fma_peak(pool_, context_.isa());
    bandwidth_ = measure_read_bandwidth(pool_, context_.isa());
    report_["isa"] = std::string(name(context_.isa()));
    report_["threads"] = threads;
    report_["precision"] = precision == Precision::bf16 ? "bf16" : "fp32";
    report_["fma_peak_gflops"] = peak_ / 1e9;
    report_["read_gbs"] = bandwidth_ / 1e9;
    if (!json_)
      std::printf("%s, %s, %d threads: FMA peak %.1f GFLOP/s, read bandwidth %.2f GB/s\n",
                  std::string(name(context_.isa())).c_str(), precision == Precision::bf16 ? "bf16" : "fp32",
                  threads, peak_ / 1e9, bandwidth_ / 1e9);
  }

  // Products of many rows, by weights of one type (empty: all).
  void dense(const std::string& weights) {
    if (!json_) std::printf("\n%-6s %6s %6s %6s %10s %8s\n", "dtype", "M", "K", "N", "GFLOP/s", "of peak");
    struct Size {
      std::int64_t rows, inputs, outputs;
    };
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      if (!weights.empty() && weights != name(dtype)) continue;
      for (const Size& s :
           {Size{256, 256, 256}, Size{256, 256, 768}, Size{256, 512, 512}, Size{256, 1024, 1024},
            Size{2048, 256, 768}, Size{2048, 768, 256}, Size{2560, 256, 4096}, Size{2048, 1024, 4096}}) {
        const Linear linear = make_linear(context_, random_tensor(dtype, {s.outputs, s.inputs}, 1, 1));
        const Tensor x = random_input(s.rows, s.inputs);
        const Tensor y(DType::f32, {s.rows, s.outputs});
        peak_ = std::max(peak_, measure_fma_peak(pool_, context_.isa()));
        const double seconds = best_seconds([&] { linear.run(context_, matrix_of(x), matrix_of(y)); });
        const double rate = 2.0 * static_cast<double>(s.rows * s.inputs * s.outputs) / seconds;
        report_["dense"].push_back({{"dtype", std::string(name(dtype))},
                                    {"m", s.rows},
                                    {"k", s.inputs},
                                    {"n", s.outputs},
                                    {"gflops", rate / 1e9},
                                    {"share", rate / peak_}});
        if (!json_)
          std::printf("%-6s %6ld %6ld %6ld %10.1f %7.1f%%\n", std::string(name(dtype)).c_str(), long{s.rows},
                      long{s.inputs}, long{s.outputs}, rate / 1e9, 100 * rate / peak_);
      }
    }
  }

  // Few rows through so many layers that no cache holds them: every call reads its weights from memory.
  void stream() {
    if (!json_) std::printf("\n%-6s %6s %6s %6s %10s %8s\n", "dtype", "M", "K", "N", "GB/s", "of read");
    constexpr std::size_t kBytes = std::size_t{600} << 20;
    struct Size {
      std::int64_t inputs, outputs;
    };
    for (const DType dtype : {DType::bf16, DType::f32})
      for (const Size& s : {Size{1024, 3072}, Size{3072, 1024}, Size{1024, 32768}}) {
        const Tensor weight = random_tensor(dtype, {s.outputs, s.inputs}, 1, 1);
        std::vector<Linear> layers;
        while (layers.size() * weight.view().bytes() < kBytes)
          layers.push_back(make_linear(context_, weight));
        for (const std::int64_t rows : {1, 2, 4, 8}) {
          const Tensor x = random_input(rows, s.inputs);
          const Tensor y(DType::f32, {rows, s.outputs});
          bandwidth_ = std::max(bandwidth_, measure_read_bandwidth(pool_, context_.isa()));
          const double seconds = best_seconds([&] {
            for (const Linear& layer : layers) layer.run(context_, matrix_of(x), matrix_of(y));
          });
          const double rate = static_cast<double>(layers.size() * weight.view().bytes()) / seconds;
          report_["stream"].push_back({{"dtype", std::string(name(dtype))},
                                       {"m", rows},
                                       {"k", s.inputs},
                                       {"n", s.outputs},
                                       {"gbs", rate / 1e9},
                                       {"share", rate / bandwidth_}});
          if (!json_)
            std::printf("%-6s %6ld %6ld %6ld %10.2f %7.1f%%\n", std::string(name(dtype)).c_str(), long{rows},
                        long{s.inputs}, long{s.outputs}, rate / 1e9, 100 * rate / bandwidth_);
        }
      }
  }

  // bf16 rows and weights by each family that has AVX-512, in turns; weights stay in cache where they fit.
  void families() {
    std::vector<OpContext> contexts;
    for (const Isa isa : {Isa::avx512, Isa::avx512bf16, Isa::amx})
      if (cpu_runs(isa)) contexts.emplace_back(pool_, isa, Precision::bf16);
    if (!json_) {
      std::printf("\n%6s %6s %6s  GFLOP/s:", "M", "K", "N");
      for (const OpContext& context : contexts)
        std::printf(" %10s", std::string(name(context.isa())).c_str());
      std::printf("\n");
    }
    for (const std::int64_t rows : {1, 2, 4, 8, 16, 64, 512, 2048})
      for (const std::int64_t inputs : {256, 1024, 4096})
        for (const std::int64_t outputs : {256, 1024, 4096}) family_case(contexts, rows, inputs, outputs);
  }

  // ReGLU over active neurons against the same layer as three dense products, bf16 weights.
  void reglu() {
    if (!json_)
      std::printf("\n%6s %6s %6s %8s %10s %10s %8s\n", "d", "F", "M", "active", "sparse us", "dense us",
                  "speedup");
    struct Size {
      std::int64_t d, neurons;
    };
    for (const Size& s : {Size{256, 768}, Size{1024, 3072}})
      for (const double share : {0.05, 0.13, 0.3, 0.5, 1.0})
        for (const std::int64_t rows : {1, 8, 64, 512}) reglu_case(s.d, s.neurons, share, rows);
  }

  // One row through so many ReGLU layers that no cache holds them; only what the row needs counts as read.
  void reglu_stream() {
    if (!json_) std::printf("\n%6s %6s %6s %8s %10s %8s\n", "d", "F", "M", "active", "GB/s", "of read");
    constexpr std::int64_t kBytes = std::int64_t{600} << 20;
    constexpr std::int64_t kWidth = 1024;
    constexpr std::int64_t kNeurons = 3072;
    const Tensor x = random_gate_input(1, kWidth);
    const Tensor y(DType::f32, {1, kWidth});
    for (const double share : {0.05, 0.13, 0.3, 1.0}) {
      const RegluTensors tensors = reglu_tensors(kWidth, kNeurons, share);
      std::vector<FeedForward> layers;
      constexpr std::int64_t kLayerBytes = 3 * kNeurons * kWidth * 2;
      for (std::int64_t i = 0; i * kLayerBytes < kBytes; ++i)
        layers.emplace_back(context_, tensors.weights(), Activation::relu);
      bandwidth_ = std::max(bandwidth_, measure_read_bandwidth(pool_, context_.isa()));
      const double seconds = best_seconds([&] {
        for (const FeedForward& layer : layers) layer.run(context_, matrix_of(x), matrix_of(y));
      });
      const FeedForward::Counts counts = layers[0].counts();
      const double active = static_cast<double>(counts.active) / static_cast<double>(counts.neurons);
      const double bytes = static_cast<double>(layers.size() * kNeurons * kWidth * 2) * (1 + 2 * active);
      const double rate = bytes / seconds;
      report_["reglu_stream"].push_back({{"d", kWidth},
                                         {"f", kNeurons},
                                         {"active", active},
                                         {"gbs", rate / 1e9},
                                         {"share", rate / bandwidth_}});
      if (!json_)
        std::printf("%6ld %6ld %6d %7.1f%% %10.2f %7.1f%%\n", long{kWidth}, long{kNeurons}, 1, 100 * active,
                    rate / 1e9, 100 * rate / bandwidth_);
    }
  }

  void finish() {
    report_["fma_peak_gflops"] = peak_ / 1e9;
    report_["read_gbs"] = bandwidth_ / 1e9;
    if (json_) std::printf("%s\n", report_.dump(1).c_str());
  }

 private:
  Tensor random_input(std::int64_t rows, std::int64_t cols) const {
    Tensor x = random_tensor(DType::f32, {rows, cols}, 1, 4);
    if (context_.precision() == Precision::bf16)
      for (float& value : x.values<float>()) value = round_to_bf16(value);
    return x;
  }

  void family_case(std::vector<OpContext>& contexts, std::int64_t rows, std::int64_t inputs,
                   std::int64_t outputs) {
    const Linear linear = make_linear(contexts.front(), random_tensor(DType::bf16, {outputs, inputs}, 1, 1));
    Tensor x = random_tensor(DType::f32, {rows, inputs}, 1, 4);
    for (float& value : x.values<float>()) value = round_to_bf16(value);
    const Tensor y(DType::f32, {rows, outputs});
    std::vector<double> seconds(contexts.size(), 1e30);
    for (int round = 0; round < 3; ++round)
      for (std::size_t i = 0; i < contexts.size(); ++i)
        seconds[i] = std::min(
            seconds[i], best_seconds([&] { linear.run(contexts[i], matrix_of(x), matrix_of(y)); }, 0.05));
    Json entry = {{"m", rows}, {"k", inputs}, {"n", outputs}};
    if (!json_) std::printf("%6ld %6ld %6ld          ", long{rows}, long{inputs}, long{outputs});
    for (std::size_t i = 0; i < contexts.size(); ++i) {
      const double gflops = 2e-9 * static_cast<double>(rows * inputs * outputs) / seconds[i];
      entry[std::string(name(contexts[i].isa()))] = gflops;
      if (!json_) std::printf(" %10.1f", gflops);
    }
    if (!json_) std::printf("\n");
    report_["families"].push_back(entry);
  }

  struct RegluTensors {
    Tensor gate;
    Tensor up;
    Tensor down;
    FeedForwardWeights weights() const { return {gate.view(), up.view(), down.view()}; }
  };

  // Gates are about normal; input 0 is the constant that moves them to the wanted share above zero.
  static RegluTensors reglu_tensors(std::int64_t d, std::int64_t neurons, double share) {
    const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(d)));
    RegluTensors tensors{random_tensor(DType::bf16, {neurons, d}, scale, 1),
                         random_tensor(DType::bf16, {neurons, d}, scale, 2),
                         random_tensor(DType::bf16, {d, neurons}, scale, 3)};
    for (std::int64_t f = 0; f < neurons; ++f)
      tensors.gate.values<Bf16>()[static_cast<std::size_t>(f * d)] = to_bf16(quantile(share));
    return tensors;
  }
  Tensor random_gate_input(std::int64_t rows, std::int64_t d) const {
    Tensor x = random_input(rows, d);
    for (std::int64_t r = 0; r < rows; ++r) matrix_of(x).row(r)[0] = 1;
    return x;
  }

  void reglu_case(std::int64_t d, std::int64_t neurons, double share, std::int64_t rows) {
    const RegluTensors tensors = reglu_tensors(d, neurons, share);
    const FeedForwardWeights weights = tensors.weights();
    const Tensor x = random_gate_input(rows, d);
    const FeedForward sparse(context_, weights, Activation::relu);
    const FeedForward dense(context_, weights, Activation::silu);
    const Tensor y(DType::f32, {rows, d});
    const double sparse_seconds =
        best_seconds([&] { sparse.run(context_, matrix_of(x), matrix_of(y)); }, 0.15);
    const double dense_seconds = best_seconds([&] { dense.run(context_, matrix_of(x), matrix_of(y)); }, 0.15);
    const double active =
        static_cast<double>(sparse.counts().active) / static_cast<double>(sparse.counts().neurons);
    report_["reglu"].push_back({{"d", d},
                                {"f", neurons},
                                {"m", rows},
                                {"active", active},
                                {"sparse_us", sparse_seconds * 1e6},
                                {"dense_us", dense_seconds * 1e6}});
    if (!json_)
      std::printf("%6ld %6ld %6ld %7.1f%% %10.1f %10.1f %8.2f\n", long{d}, long{neurons}, long{rows},
                  100 * active, sparse_seconds * 1e6, dense_seconds * 1e6, dense_seconds / sparse_seconds);
  }

  // z with P(normal + z > 0) = share.
  static float quantile(double share) {
    if (share >= 1) return 20;
    double low = -8;
    double high = 8;
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2;
      (std::erfc(-middle / std::sqrt(2.0)) / 2 < share ? low : high) = middle;
    }
    return static_cast<float>(low);
  }

  ThreadPool pool_;
  OpContext context_;
  bool json_;
  double peak_ = 0;
  double bandwidth_ = 0;
  Json report_;
};

int run(int argc, char** argv) {
  int threads = available_cores();
  Precision precision = Precision::fp32;
  bool json = false;
  std::string only;
  std::string weights;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--json")
      json = true;
    else if (arg == "--threads" && i + 1 < argc)
      threads = std::max(1, std::atoi(argv[++i]));
    else if (arg == "--precision" && i + 1 < argc && std::string(argv[i + 1]) == "bf16")
      precision = Precision::bf16, ++i;
    else if (arg == "--precision" && i + 1 < argc && std::string(argv[i + 1]) == "fp32")
      precision = Precision::fp32, ++i;
    else if (arg == "--only" && i + 1 < argc)
      only = argv[++i];
    else if (arg == "--weights" && i + 1 < argc)
      weights = argv[++i];
    else
      fail(arg,
           ": expected --threads N, --precision fp32|bf16, --weights fp32|bf16|fp16, --json or "
           "--only dense|stream|reglu|reglu-stream|families");
  }
  Bench bench(threads, precision, json);
  if (only.empty() || only == "dense") bench.dense(weights);
  if (only.empty() || only == "stream") bench.stream();
  if (only.empty() || only == "reglu") bench.reglu();
  if (only.empty() || only == "reglu-stream") bench.reglu_stream();
  if (only == "families") bench.families();
  bench.finish();
  return 0;
}

}  // namespace
}  // namespace asynct

int main(int argc, char** argv) {
  try {
    return asynct::run(argc, argv);
  } catch (const asynct::Error& error) {
    std::fprintf(stderr, "asynct_linear_bench: %s\n", error.what());
    return 1;
  }
}
