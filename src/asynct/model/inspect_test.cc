#include "asynct/model/inspect.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "asynct/model/decoder.h"
#include "asynct/model/safetensors_writer.h"
#include "asynct/model/synth.h"
#include "asynct/model/test_files.h"

namespace asynct {
namespace {

ModelReport report_of(const std::string& dir) { return inspect_model(open_source(dir)); }

TEST(Inspect, SyntheticModel) {
  const testing::TempDir dir;
  ThreadPool pool(2);
  SynthOptions options;
  options.out = dir / "m";
  options.gate_zeros = 0.87;
  const SynthSummary summary = write_synthetic(options, pool);
  const ModelReport report = report_of(options.out);
  EXPECT_EQ(report.parameters, summary.parameters);
  EXPECT_EQ(report.file_bytes, summary.bytes);
  EXPECT_EQ(report.dtypes, std::vector<std::string>{"bf16"});
  EXPECT_EQ(report.kv_bytes_fp32, 2U * 2 * 2 * 16 * 4);  // K and V, layers, heads, size, bytes
  EXPECT_EQ(report.kv_bytes_bf16, report.kv_bytes_fp32 / 2);
  EXPECT_EQ(report.class_counts, (std::array<std::int64_t, 3>{8, 0, 0}));
  EXPECT_EQ(report.heads.at(1).classes, "ssss");
  EXPECT_EQ(report.heads.at(1).sigma.high, 1);
  const auto norm = std::find_if(report.norms.begin(), report.norms.end(),
                                 [](const NormReport& n) { return n.place == "feed-forward"; });
  EXPECT_EQ(norm->alpha->low, 0);
  EXPECT_EQ(norm->beta->high, 1);
  for (const MemoryPart& part : report.memory)
    EXPECT_TRUE(part.name != "gate" || part.bytes == 2U * 192 * 64 * 2);
}

TEST(Inspect, Stories260K) {
  const ModelReport report = report_of("tests/data/stories260K");
  EXPECT_EQ(report.parameters, 260032);
  EXPECT_TRUE(report.heads.empty());
  EXPECT_EQ(report.config.attention.scale, static_cast<float>(1 / std::sqrt(8.0)));
}

TEST(Inspect, GoldenCheckpointsLoad) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/golden")) {
    if (!std::filesystem::exists(entry.path() / "config.json")) continue;
    SCOPED_TRACE(entry.path());
    const ModelReport report = report_of(entry.path());
    EXPECT_GT(report.parameters, 1000);
    EXPECT_TRUE(find_bad_values(Checkpoint(entry.path())).empty());
    if (entry.path().filename() == "asynci_sigma_classes") {
      EXPECT_EQ(report.class_counts, (std::array<std::int64_t, 3>{4, 2, 2}));
    }
    ++count;
  }
  EXPECT_GE(count, 20);
}

TEST(Inspect, MemoryIsWhatTheDecoderTakes) {
  ThreadPool pool(2);
  OpContext context(pool, select_isa(), Precision::fp32);
  for (const std::string name : {"asynci_pool3", "odd_sizes", "untied_silu", "weights_bf16", "llama"}) {
    SCOPED_TRACE(name);
    const std::string dir = "tests/golden/" + name;
    std::size_t packed = 0;
    for (const MemoryPart& part : report_of(dir).memory)
      if (!part.mapped && part.name != "norms and heads") packed += part.bytes;
    EXPECT_EQ(packed, Decoder(context, open_source(dir), 16).weight_bytes());
  }
}

TEST(Inspect, NanAndInfinityInEveryDtype) {
  const testing::TempDir dir;
  const float values[4] = {1, std::nanf(""), -std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::max()};
  const Bf16 bf16[4] = {to_bf16(1), to_bf16(values[1]), to_bf16(values[2]), {0x7f7f}};
  const F16 f16[4] = {to_f16(1), to_f16(values[1]), to_f16(values[2]), {0x7bff}};
  SafetensorsWriter writer(
      dir / "model.safetensors",
      {{"a", DType::f32, {4}}, {"b", DType::bf16, {4}}, {"c", DType::f16, {4}}, {"d", DType::f32, {2}}});
  writer.write(0, 0, std::as_bytes(std::span(values)));
  writer.write(1, 0, std::as_bytes(std::span(bf16)));
  writer.write(2, 0, std::as_bytes(std::span(f16)));
  writer.finish();
  const auto bad = find_bad_values(Checkpoint(dir.path()));
  ASSERT_EQ(bad.size(), 3U);
  for (const BadTensor& tensor : bad) {
    EXPECT_EQ(tensor.nan, 1) << tensor.name;
    EXPECT_EQ(tensor.infinite, 1) << tensor.name;
  }
}

}  // namespace
}  // namespace asynct
