#include "asynct/ops/probe/probe.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>

#include "asynct/base/strings.h"

namespace asynct {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text << "\n";
}

TEST(LastLevelCache, EachIsCountedOnce) {
  const fs::path root = fs::temp_directory_path() / "asynct_probe_test";
  fs::remove_all(root);
  EXPECT_EQ(last_level_cache_bytes(root), 0U);
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  std::size_t pairs = 0;
  for (int cpu = 0, last_pair = -1; cpu < CPU_SETSIZE; ++cpu) {
    const bool ours = CPU_ISSET(cpu, &allowed);
    if (!ours && cpu % 64 != 63) continue;  // some that this process may not use
    const fs::path caches = root / cat("sys/devices/system/cpu/cpu", cpu) / "cache";
    const auto add = [&](int index, int level, const std::string& size, const std::string& cpus) {
      write(caches / cat("index", index) / "level", cat(level));
      write(caches / cat("index", index) / "size", size);
      write(caches / cat("index", index) / "shared_cpu_list", cpus);
    };
    add(0, 1, "32K", cat(cpu));
    add(1, 3, "1024K", cat(cpu / 2 * 2, "-", cpu / 2 * 2 + 1));  // two CPUs share it
    add(2, 2, "512K", cat(cpu));                                 // in any order
    if (!ours) continue;
    pairs += cpu / 2 != last_pair ? 1 : 0;
    last_pair = cpu / 2;
  }
  EXPECT_EQ(last_level_cache_bytes(root), pairs << 20);
  fs::remove_all(root);
}

TEST(Probe, PeaksAreNumbers) {
  ThreadPool pool(1);
  EXPECT_GT(measure_fma_peak(pool, select_isa()), 1e7);
}

}  // namespace
}  // namespace asynct
