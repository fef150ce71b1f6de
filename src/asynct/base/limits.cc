#include "asynct/base/limits.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <sstream>

#include "asynct/base/strings.h"

namespace asynct {
namespace {

constexpr std::int64_t kUnlimited = std::int64_t{1} << 62;

// Nothing when the file is not there; control files have no size to ask for.
std::optional<std::string> read_text(const std::string& path) {
  std::ifstream file(path);
  if (!file) return {};
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc{}) return {};
  return value;
}

std::optional<std::int64_t> read_number(const std::string& path) {
  const auto text = read_text(path);
  return text ? number(*text) : std::nullopt;
}

std::vector<std::string_view> words(std::string_view line, char separator) {
  std::vector<std::string_view> parts;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(separator), line.size());
    if (end > 0) parts.push_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return parts;
}

bool contains(std::string_view list, std::string_view word) {
  const auto parts = words(list, ',');
  return std::find(parts.begin(), parts.end(), word) != parts.end();
}

CgroupDirs dirs_of(const std::string& root, std::string_view controller) {
  CgroupDirs found = cgroup_dirs(read_text(root + "/proc/self/cgroup").value_or(""),
                                 read_text(root + "/proc/self/mountinfo").value_or(""), controller);
  for (std::string& dir : found.dirs) dir.insert(0, root);
  return found;
}

std::optional<int> quota_of(const std::string& dir, bool v2) {
  if (v2) return quota_cores(read_text(dir + "/cpu.max").value_or(""));
  const auto quota = read_text(dir + "/cpu.cfs_quota_us");
  const auto period = read_text(dir + "/cpu.cfs_period_us");
  return quota && period ? quota_cores(cat(*quota, " ", *period)) : std::nullopt;
}

// "key 123" on a line of memory.stat.
std::int64_t stat_value(std::string_view stat, std::string_view key) {
  for (const std::string_view line : words(stat, '\n'))
    if (line.size() > key.size() && line.starts_with(key) && line[key.size()] == ' ')
      return number(line.substr(key.size() + 1)).value_or(0);
  return 0;
}

// What a group leaves below its limit. Cached files count as usage but make room: the kernel drops what was
// not used lately first, and half of the rest is what it calls available on a whole machine.
std::optional<std::int64_t> room_of(const std::string& dir, bool v2) {
  const auto limit = read_number(dir + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto usage = read_number(dir + (v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !usage || *limit >= kUnlimited) return {};
  const std::string stat = read_text(dir + "/memory.stat").value_or("");
  const std::int64_t cached = stat_value(stat, v2 ? "inactive_file" : "total_inactive_file") +
                              stat_value(stat, v2 ? "active_file" : "total_active_file") / 2;
  return *limit - std::max<std::int64_t>(0, *usage - cached);
}

std::int64_t limit_of(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return kUnlimited;
  return static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(kUnlimited)));
}

// Pages of /proc/self/statm: 0 is the address space, 1 resident, 5 data and stack.
std::int64_t statm_bytes(std::size_t field) {
  const std::string text = read_text("/proc/self/statm").value_or("");
  const auto fields = words(text, ' ');
  return field < fields.size() ? number(fields[field]).value_or(0) * ::sysconf(_SC_PAGESIZE) : 0;
}

std::int64_t stack_bytes() {
  pthread_attr_t attributes;
  std::size_t bytes = std::size_t{8} << 20;
  if (::pthread_getattr_default_np(&attributes) == 0) {
    ::pthread_attr_getstacksize(&attributes, &bytes);
    ::pthread_attr_destroy(&attributes);
  }
  return static_cast<std::int64_t>(bytes);
}

}  // namespace

std::optional<int> quota_cores(std::string_view cpu_max) {
  std::string spaced(cpu_max);
  std::replace(spaced.begin(), spaced.end(), '\n', ' ');
  const auto parts = words(spaced, ' ');
  if (parts.size() != 2) return {};
  const auto quota = number(parts[0]);
  const auto period = number(parts[1]);
  if (!quota || !period || *quota <= 0 || *period <= 0) return {};
  return static_cast<int>(
      std::min<std::int64_t>((*quota - 1) / *period + 1, std::numeric_limits<int>::max()));
}

std::optional<std::int64_t> kib_field(std::string_view text, std::string_view key) {
  for (std::string_view line : words(text, '\n')) {
    if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ':') continue;
    line.remove_prefix(key.size() + 1);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (const auto kib = number(line)) return *kib * 1024;
  }
  return {};
}

CgroupDirs cgroup_dirs(std::string_view cgroup, std::string_view mountinfo, std::string_view controller) {
  // "4:cpu,cpuacct:/path" is a v1 hierarchy, "0::/path" the v2 one; a controller belongs to one of them.
  CgroupDirs result;
  std::string_view path;
  for (const std::string_view line : words(cgroup, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    if (contains(controllers, controller)) {
      path = line.substr(second + 1);
      result.v2 = false;
      break;
    }
    if (controllers.empty()) {
      path = line.substr(second + 1);
      result.v2 = true;
    }
  }
  if (path.empty()) return result;

  // "id parent dev root mount-point options ... - type source super-options"
  for (const std::string_view line : words(mountinfo, '\n')) {
    const std::size_t dash = line.find(" - ");
    if (dash == line.npos) continue;
    const auto mount = words(line.substr(0, dash), ' ');
    const auto type = words(line.substr(dash + 3), ' ');
    if (mount.size() < 5 || type.size() < 3) continue;
    if (type[0] != (result.v2 ? "cgroup2" : "cgroup")) continue;
    if (!result.v2 && !contains(type[2], controller)) continue;
    // A container sees a part of the hierarchy: what lies above it cannot be read.
    const std::string_view top = mount[3] == "/" ? "" : mount[3];
    const bool under = path.starts_with(top) && path.find("..") == path.npos;
    std::string below(under ? path.substr(top.size()) : "");
    if (!below.starts_with('/')) below.clear();  // a neighbour of `top` whose name begins with its name
    while (below.size() > 1) {
      result.dirs.push_back(cat(mount[4], below));
      below.resize(below.find_last_of('/'));
    }
    result.dirs.emplace_back(mount[4]);
    break;
  }
  return result;
}

int available_cores(const std::string& root) {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
  const CgroupDirs groups = dirs_of(root, "cpu");
  for (const std::string& dir : groups.dirs)
    cores = std::min(cores, quota_of(dir, groups.v2).value_or(cores));
  return cores;
}

MemoryBudget memory_budget(int threads, const std::string& root) {
  constexpr std::int64_t kMiB = 1 << 20;
  MemoryBudget budget{kUnlimited, "nothing known"};
  const auto bound = [&](std::int64_t bytes, const std::string& what) {
    if (bytes < budget.bytes) budget = {std::max<std::int64_t>(bytes, 0), what};
  };
  const std::string meminfo = read_text(root + "/proc/meminfo").value_or("");
  if (const auto free = kib_field(meminfo, "MemAvailable")) bound(*free, "free memory of the machine");
  if (read_number(root + "/proc/sys/vm/overcommit_memory") == 2) {
    const auto limit = kib_field(meminfo, "CommitLimit");
    const auto used = kib_field(meminfo, "Committed_AS");
    if (limit && used) bound(*limit - *used, "memory that the kernel still commits (vm.overcommit_memory 2)");
  }
  const CgroupDirs groups = dirs_of(root, "memory");
  for (const std::string& dir : groups.dirs)
    if (const auto room = room_of(dir, groups.v2)) bound(*room, "memory limit of the control group " + dir);
  const std::int64_t stacks = threads * stack_bytes();
  if (const std::int64_t limit = limit_of(RLIMIT_AS); limit < kUnlimited)
    bound(limit - statm_bytes(0) - stacks, cat("address-space limit of ", limit / kMiB, " MiB (ulimit -v)"));
  if (const std::int64_t limit = limit_of(RLIMIT_DATA); limit < kUnlimited)
    bound(limit - statm_bytes(5) - stacks, cat("data limit of ", limit / kMiB, " MiB (ulimit -d)"));
  return budget;
}

std::int64_t resident_bytes() { return statm_bytes(1); }

std::int64_t peak_resident_bytes() {
  return kib_field(read_text("/proc/self/status").value_or(""), "VmHWM").value_or(0);
}

}  // namespace asynct
