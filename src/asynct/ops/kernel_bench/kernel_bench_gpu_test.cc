// What the bench's numbers stand on: its inputs, and that failures are told apart from times.

#include <gtest/gtest.h>

#include <algorithm>

#include "asynct/base/error.h"
#include "asynct/ops/cuda/device_buffer.h"
#include "asynct/ops/kernel_bench/kernel_bench.h"
#include "asynct/ops/kernel_bench/memory_kernels.h"
#include "asynct/ops/kernel_bench/timer.h"
#include "asynct/tensor/dtype.h"

namespace asynct::kernel_bench {
namespace {

using Bits = cuda::DeviceBuffer<std::uint16_t>;

std::vector<float> normals(std::size_t count, std::uint32_t seed) {
  Bits buffer(count);
  buffer.fill_bytes(0xFF);
  fill_normal(buffer.data(), count, seed, nullptr);
  std::vector<float> values;
  for (const std::uint16_t bits : buffer.download()) values.push_back(to_float(Bf16{bits}));
  return values;
}

TEST(KernelBenchInputs, are_normal_and_repeat) {
  const std::size_t count = 100'002;
  const std::vector<float> values = normals(count, 5);
  double sum = 0;
  double squares = 0;
  double neighbours = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += values[i];
    squares += values[i] * values[i];
    if (i > 0) neighbours += values[i] * values[i - 1];
  }
  const auto n = static_cast<double>(count);
  EXPECT_NEAR(sum / n, 0, 0.02);  // 6 deviations
  EXPECT_NEAR(squares / n, 1, 0.03);
  EXPECT_NEAR(neighbours / n, 0, 0.02);
  EXPECT_EQ(values, normals(count, 5));
  EXPECT_NE(values, normals(count, 6));
}

TEST(KernelBenchInputs, get_signs_by_row) {
  const std::vector<std::uint8_t> needed = {1, 0, 0, 1, 1};
  const std::int64_t columns = 66;
  Bits rows(needed.size() * static_cast<std::size_t>(columns));
  fill_normal(rows.data(), rows.size(), 1, nullptr);
  const std::vector<std::uint16_t> before = rows.download();
  set_signs(rows.data(), columns, needed);
  const std::vector<std::uint16_t> after = rows.download();
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i] & 0x7FFF, before[i] & 0x7FFF);
    EXPECT_EQ(after[i] >> 15, needed[i / static_cast<std::size_t>(columns)] == 0 ? 1 : 0);
  }
}

TEST(KernelBenchCopy, copies_every_byte) {
  const std::size_t count = 16 * 3001 / 2;  // no multiple of a block's share
  Bits from(count);
  Bits to(count + 8);
  to.fill_bytes(0xFF);
  fill_normal(from.data(), count, 3, nullptr);
  run_copy({from.data(), 2 * count}, to.data(), nullptr);
  const std::vector<std::uint16_t> want = from.download();
  const std::vector<std::uint16_t> got = to.download();
  EXPECT_TRUE(std::equal(want.begin(), want.end(), got.begin()));
  for (std::size_t i = count; i < got.size(); ++i) EXPECT_EQ(got[i], 0xFFFF);
}

TEST(KernelBenchTimer, times_grow_with_work_and_errors_stay_apart) {
  const std::size_t bytes = std::size_t{256} << 20;
  const cuda::DeviceBuffer<char> buffer(2 * bytes);
  Group group = {.kernel = "kernel", .shape = "shape", .sets = 2};
  const auto reads = [&](std::size_t amount) {
    return [&buffer, amount](int set, cudaStream_t stream) {
      run_read(0, {buffer.data() + static_cast<std::size_t>(set) * bytes, amount}, {}, nullptr, stream);
    };
  };
  group.candidates.push_back({.variant = "whole", .launch = reads(bytes)});
  group.candidates.push_back({.variant = "quarter", .launch = reads(bytes / 4)});
  group.candidates.push_back({.variant = "broken", .launch = [](int, cudaStream_t) { fail("no such map"); }});
  group.candidates.push_back({.variant = "whole", .launch = reads(bytes / 2)});  // the faster of its name
  const Nvml nvml;
  const TimingOptions options = {.rounds = 5, .skipped = 1, .sustained_seconds = 0.02};
  const std::vector<Result> results = measure(group, options, nvml);
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].variant, "whole");
  const double ratio = results[0].bursts.seconds.median / results[1].bursts.seconds.median;
  EXPECT_GT(ratio, 1.5);  // of 2, since half of it was kept; the launch takes some
  EXPECT_LT(ratio, 2.5);
  EXPECT_EQ(results[0].bursts.seconds.count, 5);
  EXPECT_GT(results[0].sustained.seconds.count, 0);
  EXPECT_LE(results[0].bursts.seconds.p10, results[0].bursts.seconds.p90);
  EXPECT_EQ(results[2].error, "no such map");
  EXPECT_EQ(results[2].bursts.seconds.count, 0);
}

TEST(KernelBench, what_cannot_be_allocated_is_a_line_of_its_own) {
  KernelBenchOptions options;
  options.decode = {{20000, 16384, 64, 64, 128}, {1, 64, 4, 2, 64}};
  options.densities = {1};
  options.prefill.clear();
  options.mixed.clear();
  options.linear.clear();
  options.layer.clear();
  options.quick = true;
  const Report report = run_kernel_bench(options, [](const std::string&) {});
  ASSERT_EQ(report.results.size(), 7u);  // three variants of decode each, and what reading takes
  EXPECT_NE(report.results[0].error.find("cudaMalloc"), std::string::npos) << report.results[0].error;
  EXPECT_EQ(report.results[3].error, "");
  EXPECT_GT(report.results[3].bursts.seconds.median, 0);
  EXPECT_EQ(report.results[6].variant, "read K and V");
  EXPECT_GT(report.ceilings.read_bytes, 0);
}

TEST(KernelBench, times_our_projections_beside_the_librarys) {
  KernelBenchOptions options;
  options.decode.clear();
  options.prefill.clear();
  options.mixed.clear();
  options.layer.clear();
  options.linear = {{5, 256, 128}, {700, 256, 128}, {5, 256, 72}};
  options.quick = true;
  const Report report = run_kernel_bench(options, [](const std::string&) {});
  std::vector<const Result*> ours;
  for (const Result& result : report.results)
    if (result.variant == "asynct") ours.push_back(&result);
  ASSERT_EQ(ours.size(), 3u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ours[static_cast<std::size_t>(i)]->error, "");
    EXPECT_GT(ours[static_cast<std::size_t>(i)]->bursts.seconds.median, 0);
  }
  EXPECT_NE(ours[2]->error.find("72 inputs"), std::string::npos) << ours[2]->error;
}

TEST(KernelBench, runs_what_a_layer_has_besides_attention_and_products) {
  KernelBenchOptions options;
  options.decode.clear();
  options.prefill.clear();
  options.mixed.clear();
  options.linear.clear();
  options.layer = {{33, 64, 4, 2, 64, 96, 5003}};
  options.quick = true;
  const Report report = run_kernel_bench(options, [](const std::string&) {});
  ASSERT_EQ(report.results.size(), 20u);  // 13 kernels, and what reading takes of each of 7 groups
  for (const Result& result : report.results) {
    EXPECT_EQ(result.error, "") << result.kernel << " " << result.variant;
    EXPECT_GT(result.bursts.seconds.median, 0) << result.kernel << " " << result.variant;
    EXPECT_GT(result.floor.bytes, 0) << result.kernel << " " << result.variant;
  }
}

}  // namespace
}  // namespace asynct::kernel_bench
