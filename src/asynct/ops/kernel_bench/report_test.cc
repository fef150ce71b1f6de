#include "asynct/ops/kernel_bench/report.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "asynct/ops/kernel_bench/kernel_bench.h"

namespace asynct::kernel_bench {
namespace {

Report example() {
  Report report;
  report.device = {
      .name = "card", .multiprocessors = 132, .cache_bytes = 60e6, .driver = "580", .power_limit = 700};
  report.ceilings = {.read_bytes = 4e12,
                     .copy_bytes = 3e12,
                     .product_flops = 800e12,
                     .product_sustained = 600e12,
                     .launch_seconds = 1.25e-6};
  report.results.push_back({.kernel = "decode",
                            .shape = "32,1024,8,4,128",
                            .variant = "density 1",
                            .floor = {.bytes = 80e6, .flops = 1e9},
                            .sets = 8,
                            .bursts = {.seconds = {.median = 25e-6, .p10 = 24e-6, .p90 = 27e-6, .count = 21},
                                       .sm_mhz = 1980,
                                       .watts = 300},
                            .sustained = {.seconds = {.median = 40e-6, .p10 = 1, .p90 = 2, .count = 100}}});
  report.results.push_back(
      {.kernel = "prefill", .shape = "1,2,4,4,64", .variant = "random", .error = "no such map"});
  return report;
}

TEST(Floors, are_the_longer_of_bytes_and_operations) {
  EXPECT_DOUBLE_EQ(floor_seconds({.bytes = 8e6, .flops = 1e9}, 4e12, 800e12), 2e-6);
  EXPECT_DOUBLE_EQ(floor_seconds({.bytes = 8e6, .flops = 8e9}, 4e12, 800e12), 10e-6);
  EXPECT_DOUBLE_EQ(floor_seconds({.bytes = 8e6, .flops = 8e9}, 4e12, 0), 2e-6);  // no product was measured
  EXPECT_DOUBLE_EQ(floor_seconds({.bytes = 8e6, .flops = 8e9}, 0, 0), 0);
}

TEST(Report, as_json) {
  const Json json = to_json(example());
  EXPECT_EQ(json["device"]["name"], "card");
  EXPECT_EQ(json["ceilings"]["launch_seconds"], 1.25e-6);
  const Json& decode = json["results"][0];
  EXPECT_EQ(decode["floor_bytes"], 80e6);
  EXPECT_DOUBLE_EQ(decode["floor_seconds"].get<double>(), 20e-6);
  EXPECT_DOUBLE_EQ(decode["bursts"]["part_of_floor"].get<double>(), 0.8);
  EXPECT_DOUBLE_EQ(decode["bursts"]["bytes_per_second"].get<double>(), 3.2e12);
  EXPECT_EQ(decode["bursts"]["sm_mhz"], 1980);
  EXPECT_DOUBLE_EQ(decode["sustained"]["part_of_floor"].get<double>(), 0.5);
  EXPECT_FALSE(decode.contains("error"));
  const Json& prefill = json["results"][1];
  EXPECT_EQ(prefill["error"], "no such map");
  EXPECT_FALSE(prefill.contains("bursts"));
}

TEST(Report, as_a_table) {
  const std::string text = table(example());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6);
  for (const char* part :
       {"card, 132 multiprocessors, L2 60.0 MB", "read 4.00 TB/s", "sustained 600", "smallest kernel 1.25 us",
        "32,1024,8,4,128", "density 1", "20.00 |", "25.00", " 80.0 ", "no such map"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(Report, what_was_not_measured_is_a_dash) {
  Report report = example();
  report.ceilings = {};
  report.results.resize(1);
  report.results[0].sustained = {};
  const std::string text = table(report);
  EXPECT_NE(text.find("read - TB/s"), std::string::npos) << text;
  EXPECT_NE(text.find(" - |"), std::string::npos) << text;
  EXPECT_FALSE(to_json(report)["results"][0].contains("sustained"));
}

TEST(Filter, looks_at_a_whole_line) {
  EXPECT_TRUE(matches("", "decode", "1,2,3", "density 1"));
  EXPECT_TRUE(matches("decode 1,2", "decode", "1,2,3", "density 1"));
  EXPECT_TRUE(matches("3 density", "decode", "1,2,3", "density 1"));
  EXPECT_FALSE(matches("prefill", "decode", "1,2,3", "density 1"));
}

}  // namespace
}  // namespace asynct::kernel_bench
