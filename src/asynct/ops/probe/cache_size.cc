#include <sched.h>

#include <fstream>
#include <set>

#include "asynct/base/strings.h"
#include "asynct/ops/probe/probe.h"

namespace asynct {
namespace {

struct Cache {
  int level = 0;
  std::size_t bytes = 0;
  std::string cpus;  // that share it
};

// One of a CPU's caches as Linux lists it; level 0 when there are no more.
Cache read_cache(const std::string& dir) {
  Cache cache;
  std::size_t kib = 0;
  if (!(std::ifstream(dir + "/level") >> cache.level)) return {};
  std::ifstream(dir + "/size") >> kib;  // "32768K"
  std::ifstream(dir + "/shared_cpu_list") >> cache.cpus;
  cache.bytes = kib << 10;
  return cache;
}

Cache last_cache(const std::string& cpu_dir) {
  Cache last;
  for (int index = 0; index < 16; ++index) {
    const Cache cache = read_cache(cat(cpu_dir, "/cache/index", index));
    if (cache.level == 0) break;
    if (cache.level > last.level) last = cache;
  }
  return last;
}

}  // namespace

std::size_t last_level_cache_bytes(const std::string& root) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 0;
  std::set<std::string> counted;
  std::size_t total = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const Cache cache = last_cache(cat(root, "/sys/devices/system/cpu/cpu", cpu));
    if (cache.level > 0 && counted.insert(cache.cpus).second) total += cache.bytes;
  }
  return total;
}

}  // namespace asynct
