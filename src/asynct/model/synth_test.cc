#include "asynct/model/synth.h"

#include <sys/resource.h>

#include <cmath>
#include <csignal>

#include "asynct/base/mapped_file.h"
#include "asynct/model/test_files.h"
#include "asynct/model/weights.h"

namespace asynct {
namespace {

using testing::expect_error;
using testing::TempDir;

SynthOptions to(const std::string& out, const std::string& shape = "tiny") {
  SynthOptions options;
  options.out = out;
  options.shape = shape;
  return options;
}

TEST(Synth, LoadsAsEveryVariant) {
  const TempDir dir;
  ThreadPool pool(2);
  int count = 0;
  for (const auto attention : {AttentionForm::asynci, AttentionForm::softmax})
    for (const auto norm : {NormKind::dyht, NormKind::rms})
      for (const auto dtype : {DType::bf16, DType::f32})
        for (const char* shape : {"tiny", "tiny,tied=0,heads=6,kv_heads=3,layers=1"}) {
          SynthOptions options = to(dir / cat(++count, "/"), shape);
          options.attention = attention;
          options.norm = norm;
          options.dtype = dtype;
          const SynthSummary summary = write_synthetic(options, pool);
          const ModelConfig config = load_config(options.out);
          const Checkpoint checkpoint(options.out);
          const ModelWeights weights = load_weights(checkpoint, config);
          EXPECT_EQ(weights.embedding.dtype, dtype);
          EXPECT_EQ(summary.bytes, checkpoint.file_bytes());
          EXPECT_EQ(weights.layers[0].heads.sigma.empty(), attention == AttentionForm::softmax);
          EXPECT_EQ(weights.layers[0].input_norm.kind, norm);
        }
}

struct Moments {
  double mean = 0;
  double deviation = 0;
  double kurtosis = 0;
};
Moments moments(const TensorView& view) {
  std::vector<float> x(static_cast<std::size_t>(view.shape.elements()));
  copy_to_float(view, x.data());
  double s1 = 0, s2 = 0, s4 = 0;
  for (const float v : x) s1 += v;
  const double mean = s1 / static_cast<double>(x.size());
  for (const float v : x) {
    s2 += std::pow(v - mean, 2);
    s4 += std::pow(v - mean, 4);
  }
  const double variance = s2 / static_cast<double>(x.size());
  return {mean, std::sqrt(variance), s4 / static_cast<double>(x.size()) / (variance * variance)};
}

TEST(Synth, FollowsTheInitializer) {
  const TempDir dir;
  ThreadPool pool(2);
  SynthOptions options = to(dir / "m", "tiny,hidden=256,vocab=4096,intermediate=512");
  options.dtype = DType::f32;
  write_synthetic(options, pool);
  const ModelConfig config = load_config(options.out);
  const Checkpoint checkpoint(options.out);
  const ModelWeights weights = load_weights(checkpoint, config);
  const auto expect_normal = [](const TensorView& view, double deviation) {
    const Moments m = moments(view);
    const auto n = static_cast<double>(view.shape.elements());
    EXPECT_NEAR(m.mean / deviation, 0, 5 / std::sqrt(n));
    EXPECT_NEAR(m.deviation / deviation, 1, 5 / std::sqrt(2 * n));
    EXPECT_NEAR(m.kurtosis, 3, 5 * std::sqrt(24 / n));
  };
  const LayerWeights& layer = weights.layers[1];
  expect_normal(weights.embedding, 0.02);
  expect_normal(layer.q_proj, 1.0 / 16);
  expect_normal(layer.o_proj, 1.5 / 8);  // 3 / sqrt(2 L) = 1.5, fan-in H * D = 64
  expect_normal(layer.mlp.down, 1.5 / std::sqrt(512.0));
  EXPECT_EQ(config.attention.scale, 1.0F / 16);
  EXPECT_EQ(config.embedding_multiplier, 50);
  EXPECT_EQ(layer.q_norm->alpha, std::vector<float>{1.5F});
  EXPECT_EQ(layer.input_norm.alpha, std::vector<float>{0.6F});
  EXPECT_EQ(layer.post_attention_norm->alpha, std::vector<float>{1.0F});
  EXPECT_EQ(layer.heads.sigma, std::vector<float>(4, 1.0F));
  EXPECT_NE(weights.layers[0].q_proj.at(0), layer.q_proj.at(0));
}

TEST(Synth, SameSeedSameBytesWhateverTheThreads) {
  const TempDir dir;
  ThreadPool one(1);
  ThreadPool three(3);
  const std::string shape = "tiny,vocab=3001,hidden=129,head_dim=2";  // odd sizes: pieces end inside a pair
  SynthOptions a = to(dir / "a", shape);
  SynthOptions b = to(dir / "b", shape);
  SynthOptions c = to(dir / "c", shape);
  c.seed = 1;
  write_synthetic(a, one);
  write_synthetic(b, three);
  write_synthetic(c, one);
  const auto bytes = [](const SynthOptions& o) { return read_file(o.out + "/model.safetensors", 1 << 30); };
  EXPECT_EQ(bytes(a), bytes(b));
  EXPECT_NE(bytes(a).substr(4096), bytes(c).substr(4096));
}

/// Layer 0's gate before attention has added anything: the model's own formula, in double.
double zero_share(const ModelConfig& config, const ModelWeights& weights, int tokens) {
  const NormParams& norm = weights.layers[0].mlp_norm;
  const TensorView& gate = weights.layers[0].mlp.gate;
  const auto d = static_cast<std::size_t>(config.hidden_size);
  int zeros = 0;
  for (int t = 0; t < tokens; ++t) {
    for (int f = 0; f < config.intermediate_size; ++f) {
      double sum = 0;
      for (std::size_t c = 0; c < d; ++c) {
        const double x = config.embedding_multiplier *
                         weights.embedding.at(t * config.hidden_size + static_cast<std::int64_t>(c));
        const double h = norm.gamma[c] * std::clamp(norm.alpha[c] * x + norm.beta[c], -1.0, 1.0);
        sum += h * gate.at(f * config.hidden_size + static_cast<std::int64_t>(c));
      }
      zeros += sum <= 0 ? 1 : 0;
    }
  }
  return static_cast<double>(zeros) / tokens / config.intermediate_size;
}

TEST(Synth, GateZerosIsTheShareOfZeros) {
  const TempDir dir;
  ThreadPool pool(2);
  for (const double zeros : {0.6, 0.87, 0.95}) {
    SynthOptions options = to(dir / cat(zeros), "tiny,hidden=256,intermediate=768");
    options.gate_zeros = zeros;
    write_synthetic(options, pool);
    const ModelConfig config = load_config(options.out);
    const Checkpoint checkpoint(options.out);
    EXPECT_NEAR(zero_share(config, load_weights(checkpoint, config), 40), zeros, 0.01);
  }
}

TEST(Synth, BadOptions) {
  const TempDir dir;
  ThreadPool pool(1);
  for (const auto& [shape, message] :
       std::vector<std::pair<std::string, std::string>>{{"huge", "not a shape"},
                                                        {"tiny,huge", "not a shape"},
                                                        {"layers", "not a shape"},
                                                        {"layer=2", "unknown key \"layer\""},
                                                        {"layers=two", "expected a number"},
                                                        {"layers=1.5", "whole number"},
                                                        {"layers=-1", "whole number"},
                                                        {"layers=0", "num_hidden_layers is 0"},
                                                        {"head_dim=3", "even number"},
                                                        {"heads=3", "divisor"}})
    expect_error([&, s = shape] { write_synthetic(to(dir / "x", s), pool); }, message);
  SynthOptions options = to(dir / "x");
  options.gate_zeros = 1.0;
  expect_error([&] { write_synthetic(options, pool); }, "--gate-zeros is 1");
  options.gate_zeros = 0.5;
  options.norm = NormKind::rms;
  expect_error([&] { write_synthetic(options, pool); }, "needs --norm dyht");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));  // nothing was left behind
  dir.write("f", "");
  expect_error([&] { write_synthetic(to(dir.path()), pool); }, "already exists");
  expect_error([&] { write_synthetic(to(dir / "f/x"), pool); }, "cannot create");
}

TEST(Synth, FullDiskLeavesNothing) {
  const TempDir dir;
  ThreadPool pool(1);
  struct rlimit old {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = old;
  small.rlim_cur = 4096;  // the disk, as far as the writer can tell
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = testing::error_of([&] { write_synthetic(to(dir / "x"), pool); });
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find("cannot reserve"), std::string::npos) << message;
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

}  // namespace
}  // namespace asynct
