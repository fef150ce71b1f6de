#include "asynct/ops/kernel_bench/report.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace asynct::kernel_bench {
namespace {

/// printf into a string; lines of the table are shorter than the buffer, names are cut.
[[gnu::format(printf, 1, 2)]] std::string format(const char* form, ...) {
  char buffer[320];
  va_list arguments;
  va_start(arguments, form);
  std::vsnprintf(buffer, sizeof buffer, form, arguments);
  va_end(arguments);
  return buffer;
}

std::string number(double value, int width, int digits) {
  return value > 0 ? format("%*.*f", width, digits, value) : format("%*s", width, "-");
}

double rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

std::string regime(const Timing& timing, const Floor& floor, double floor_time) {
  const double time = timing.seconds.median;
  return number(time * 1e6, 9, 2) + " " + number(timing.seconds.p10 * 1e6, 9, 2) + " " +
         number(timing.seconds.p90 * 1e6, 9, 2) + " " + number(100 * rate(floor_time, time), 6, 1) + " " +
         number(rate(floor.bytes, time) / 1e12, 6, 2) + " " + number(rate(floor.flops, time) / 1e12, 7, 1) +
         " " + number(timing.sm_mhz, 5, 0) + " " + number(timing.watts, 4, 0);
}

Json timing_json(const Timing& timing, const Floor& floor, double floor_time) {
  const double time = timing.seconds.median;
  return {{"seconds", time},
          {"p10", timing.seconds.p10},
          {"p90", timing.seconds.p90},
          {"count", timing.seconds.count},
          {"part_of_floor", rate(floor_time, time)},
          {"bytes_per_second", rate(floor.bytes, time)},
          {"flops_per_second", rate(floor.flops, time)},
          {"sm_mhz", timing.sm_mhz},
          {"watts", timing.watts}};
}

double burst_floor(const Ceilings& ceilings, const Floor& floor) {
  return floor_seconds(floor, ceilings.read_bytes, ceilings.product_flops);
}
double sustained_floor(const Ceilings& ceilings, const Floor& floor) {
  return floor_seconds(floor, ceilings.read_bytes, ceilings.product_sustained);
}

}  // namespace

double floor_seconds(const Floor& floor, double read_bytes, double product_flops) {
  return std::max(rate(floor.bytes, read_bytes), rate(floor.flops, product_flops));
}

std::string table(const Report& report) {
  const Ceilings& c = report.ceilings;
  std::string out =
      format("%s, %d multiprocessors, L2 %.1f MB, driver %s, %.0f W\n", report.device.name.c_str(),
             report.device.multiprocessors, report.device.cache_bytes / 1e6, report.device.driver.c_str(),
             report.device.power_limit);
  out += "read " + number(c.read_bytes / 1e12, 0, 2) + " TB/s, copy " + number(c.copy_bytes / 1e12, 0, 2) +
         " TB/s, bf16 product " + number(c.product_flops / 1e12, 0, 0) + " TFLOP/s (sustained " +
         number(c.product_sustained / 1e12, 0, 0) + "), smallest kernel " +
         number(c.launch_seconds * 1e6, 0, 2) + " us\n\n";
  const char* columns = "us       p10       p90  floor   TB/s TFLOP/s   MHz    W";
  out += format("%-10s %-32s %-26s %8s | bursts: %s | sustained: %s\n", "kernel", "shape", "variant",
                "floor us", columns, columns);
  for (const Result& r : report.results) {
    out += format("%-10s %-32s %-26s ", r.kernel.c_str(), r.shape.c_str(), r.variant.c_str());
    if (!r.error.empty()) {
      out += r.error + "\n";
      continue;
    }
    out += number(burst_floor(c, r.floor) * 1e6, 8, 2) + " | " +
           regime(r.bursts, r.floor, burst_floor(c, r.floor)) + " |    " +
           regime(r.sustained, r.floor, sustained_floor(c, r.floor)) + "\n";
  }
  return out;
}

Json to_json(const Report& report) {
  const Ceilings& c = report.ceilings;
  Json out;
  out["device"] = {{"name", report.device.name},
                   {"multiprocessors", report.device.multiprocessors},
                   {"l2_bytes", report.device.cache_bytes},
                   {"memory_bytes", report.device.memory_bytes},
                   {"driver", report.device.driver},
                   {"power_limit_watts", report.device.power_limit}};
  out["ceilings"] = {{"read_bytes_per_second", c.read_bytes},
                     {"copy_bytes_per_second", c.copy_bytes},
                     {"product_flops_per_second", c.product_flops},
                     {"product_sustained_flops_per_second", c.product_sustained},
                     {"launch_seconds", c.launch_seconds}};
  out["results"] = Json::array();
  for (const Result& r : report.results) {
    Json entry = {{"kernel", r.kernel},
                  {"shape", r.shape},
                  {"variant", r.variant},
                  {"floor_bytes", r.floor.bytes},
                  {"floor_flops", r.floor.flops},
                  {"floor_seconds", burst_floor(c, r.floor)},
                  {"sets", r.sets}};
    if (r.error.empty()) {
      entry["bursts"] = timing_json(r.bursts, r.floor, burst_floor(c, r.floor));
      if (r.sustained.seconds.count > 0)
        entry["sustained"] = timing_json(r.sustained, r.floor, sustained_floor(c, r.floor));
    } else {
      entry["error"] = r.error;
    }
    out["results"].push_back(entry);
  }
  return out;
}

}  // namespace asynct::kernel_bench
