#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace asynct {

/// Cores this process may use, at least 1: those it may run on (taskset, cpusets), and no more than its
/// control groups' CPU quota, rounded up. `root` stands before /proc and /sys; tests bring their own.
int available_cores(const std::string& root = "");

/// Memory that this process may still take.
struct MemoryBudget {
  std::int64_t bytes = 0;
  std::string bound;  // what sets it, for messages: "free memory of the machine"
};

/// The least of what the machine has free, what control groups (v1 or v2) leave below their limits, and what
/// the limits on address space and data (ulimit -v, -d) leave once the stacks of `threads` more threads are
/// taken. 2^62 where nothing is known.
MemoryBudget memory_budget(int threads = 0, const std::string& root = "");

/// Memory of this process in RAM, now and at its peak; 0 when unknown.
std::int64_t resident_bytes();
std::int64_t peak_resident_bytes();

// What the functions above read, as functions of text.

/// cpu.max ("150000 100000", "max 100000") as whole cores; nothing when there is no quota.
std::optional<int> quota_cores(std::string_view cpu_max);

/// The value in bytes of "Key:   123 kB" in /proc/meminfo, /proc/self/status; nothing when it is not there.
std::optional<std::int64_t> kib_field(std::string_view text, std::string_view key);

/// Directories of this process's control group for `controller`, from its own up to the mount's root, out of
/// /proc/self/cgroup and /proc/self/mountinfo. `v2` says which kind of files they hold.
struct CgroupDirs {
  std::vector<std::string> dirs;
  bool v2 = false;
};
CgroupDirs cgroup_dirs(std::string_view cgroup, std::string_view mountinfo, std::string_view controller);

}  // namespace asynct
