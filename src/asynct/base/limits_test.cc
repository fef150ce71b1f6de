#include "asynct/base/limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace asynct {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMiB = 1 << 20;

TEST(QuotaCores, RoundsUp) {
  EXPECT_EQ(quota_cores("150000 100000\n"), 2);
  EXPECT_EQ(quota_cores("200000 100000\n"), 2);
  EXPECT_EQ(quota_cores("200001 100000"), 3);
  EXPECT_EQ(quota_cores("1000 100000"), 1);
}

TEST(QuotaCores, NoQuota) {
  for (const char* text :
       {"max 100000\n", "-1\n 100000\n", "", "max", "0 100000", "100000 0", "100000", "x y"})
    EXPECT_EQ(quota_cores(text), std::nullopt) << text;
}

TEST(KibField, FindsWholeKeysOnly) {
  const char* text = "MemTotal:       100 kB\nMemAvailable:   12345 kB\nVmHWM:\t    7 kB\nOdd:\n";
  EXPECT_EQ(kib_field(text, "MemAvailable"), 12345 * 1024);
  EXPECT_EQ(kib_field(text, "VmHWM"), 7 * 1024);
  EXPECT_EQ(kib_field(text, "Mem"), std::nullopt);
  EXPECT_EQ(kib_field(text, "Odd"), std::nullopt);
}

TEST(CgroupDirs, V2) {
  const CgroupDirs found =
      cgroup_dirs("0::/user.slice/app.service\n",
                  "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n", "cpu");
  EXPECT_TRUE(found.v2);
  EXPECT_EQ(found.dirs, (std::vector<std::string>{"/sys/fs/cgroup/user.slice/app.service",
                                                  "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup"}));
}

TEST(CgroupDirs, V1BesideAnEmptyV2) {
  const char* groups = "0::/\n4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n";
  const char* mounts =
      "40 30 0:31 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
      "41 30 0:32 / /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n"
      "42 30 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
  const CgroupDirs memory = cgroup_dirs(groups, mounts, "memory");
  EXPECT_FALSE(memory.v2);
  EXPECT_EQ(memory.dirs, std::vector<std::string>{"/sys/fs/cgroup/memory"});  // the container's own part
  EXPECT_EQ(cgroup_dirs(groups, mounts, "cpu").dirs,
            (std::vector<std::string>{"/sys/fs/cgroup/cpu/docker/abc", "/sys/fs/cgroup/cpu/docker",
                                      "/sys/fs/cgroup/cpu"}));
}

TEST(CgroupDirs, PathsOutsideTheNamespaceAndNonsense) {
  const char* mounts = "30 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n";
  EXPECT_EQ(cgroup_dirs("0::/../../other\n", mounts, "cpu").dirs, std::vector<std::string>{"/cg"});
  EXPECT_EQ(cgroup_dirs("0::a\n", mounts, "cpu").dirs, std::vector<std::string>{"/cg"});
  const char* container = "30 23 0:26 /docker/abc /cg rw - cgroup2 cgroup2 rw\n";
  EXPECT_EQ(cgroup_dirs("0::/docker/abcdef\n", container, "cpu").dirs, std::vector<std::string>{"/cg"});
  EXPECT_EQ(cgroup_dirs("0::/docker/abc/d\n", container, "cpu").dirs,
            (std::vector<std::string>{"/cg/d", "/cg"}));
  EXPECT_TRUE(cgroup_dirs("", mounts, "cpu").dirs.empty());
  EXPECT_TRUE(cgroup_dirs("0::/a\n", "", "cpu").dirs.empty());
  EXPECT_TRUE(cgroup_dirs("garbage\n:\n", "x - y\n - \n", "cpu").dirs.empty());
}

/// A /proc and /sys of our own.
class Limits : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("asynct_limits_" + std::to_string(::getpid()));
    write("/proc/meminfo", "MemTotal: 99999999 kB\nMemAvailable: 1048576 kB\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void v2() {
    write("/proc/self/cgroup", "0::/a/b\n");
    write("/proc/self/mountinfo", "30 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
  }
  void v1() {
    write("/proc/self/cgroup", "2:memory:/a\n1:cpu,cpuacct:/a\n");
    write(
        "/proc/self/mountinfo",
        "30 23 0:26 / /mem rw - cgroup none rw,memory\n31 23 0:27 / /cpu rw - cgroup none rw,cpu,cpuacct\n");
  }
  std::int64_t budget() const { return memory_budget(0, root_).bytes / kMiB; }

  std::string root_;
};

TEST_F(Limits, MachineWithoutGroups) {
  EXPECT_EQ(budget(), 1024);
  EXPECT_NE(memory_budget(0, root_).bound.find("free memory"), std::string::npos);
  EXPECT_GE(available_cores(root_), 1);
  EXPECT_LE(available_cores(root_), static_cast<int>(std::thread::hardware_concurrency()));
}

TEST_F(Limits, GroupsV2TheTightestAncestorCounts) {
  v2();
  write("/cg/a/b/memory.max", "max\n");
  write("/cg/a/b/memory.current", "1\n");
  write("/cg/a/memory.max", std::to_string(500 * kMiB) + "\n");
  write("/cg/a/memory.current", std::to_string(300 * kMiB) + "\n");
  write("/cg/a/memory.stat", "anon 5\ninactive_file " + std::to_string(100 * kMiB) + "\nactive_file " +
                                 std::to_string(40 * kMiB) + "\n");
  EXPECT_EQ(budget(), 500 - (300 - 100 - 20));
  EXPECT_NE(memory_budget(0, root_).bound.find("/cg/a"), std::string::npos);
  write("/cg/a/memory.current", std::to_string(900 * kMiB) + "\n");
  EXPECT_EQ(budget(), 0);  // over the limit already
}

TEST_F(Limits, GroupsV1) {
  v1();
  write("/mem/a/memory.limit_in_bytes", "9223372036854771712\n");
  write("/mem/a/memory.usage_in_bytes", "4096\n");
  EXPECT_EQ(budget(), 1024);
  write("/mem/a/memory.limit_in_bytes", std::to_string(64 * kMiB) + "\n");
  write("/mem/a/memory.usage_in_bytes", std::to_string(30 * kMiB) + "\n");
  write("/mem/a/memory.stat", "inactive_file 1\ntotal_inactive_file " + std::to_string(10 * kMiB) + "\n");
  EXPECT_EQ(budget(), 44);
}

TEST_F(Limits, CommitLimit) {
  write("/proc/meminfo", "MemAvailable: 1048576 kB\nCommitLimit: 3072 kB\nCommitted_AS: 1024 kB\n");
  EXPECT_EQ(budget(), 1024);
  write("/proc/sys/vm/overcommit_memory", "2\n");
  EXPECT_EQ(budget(), 2);
}

TEST_F(Limits, CpuQuota) {
  v2();
  write("/cg/a/cpu.max", "50000 100000\n");
  write("/cg/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(available_cores(root_), 1);
  v1();
  write("/cpu/a/cpu.cfs_quota_us", "-1\n");
  write("/cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(available_cores(root_), available_cores("/nonexistent"));
  write("/cpu/a/cpu.cfs_quota_us", "90000\n");
  EXPECT_EQ(available_cores(root_), 1);
}

TEST_F(Limits, AddressSpace) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  rlimit low = before;
  low.rlim_cur = rlim_t{40} << 30;  // sanitizers map terabytes: too low for them, and still above their use
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &low), 0);
  write("/proc/meminfo", "MemAvailable: 999999999 kB\n");
  const MemoryBudget budget = memory_budget(0, root_);
  const MemoryBudget with_stacks = memory_budget(4, root_);
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_LT(budget.bytes, std::int64_t{40} << 30);
  EXPECT_NE(budget.bound.find("40960 MiB"), std::string::npos);
  EXPECT_LE(with_stacks.bytes, budget.bytes);
}

TEST(Resident, PeakIsNotBelowNow) {
  const std::vector<char> touched(32 * kMiB, 1);
  EXPECT_GE(resident_bytes(), 32 * kMiB);
  EXPECT_GE(peak_resident_bytes(), 32 * kMiB);
}

}  // namespace
}  // namespace asynct
