#pragma once

#include <string>
#include <vector>

#include "asynct/base/json.h"
#include "asynct/ops/kernel_bench/shapes.h"
#include "asynct/ops/kernel_bench/statistics.h"

namespace asynct::kernel_bench {

/// Rates of the card itself; 0 for what could not be measured.
struct Ceilings {
  double read_bytes = 0;         // a second
  double copy_bytes = 0;         // a second, read + written
  double product_flops = 0;      // a second, bf16 8192^3, in bursts
  double product_sustained = 0;  // likewise, after half a second of it
  double launch_seconds = 0;     // of the smallest kernel in a graph
};

struct DeviceInfo {
  std::string name;
  int multiprocessors = 0;
  double cache_bytes = 0;  // L2
  double memory_bytes = 0;
  std::string driver;
  double power_limit = 0;  // W
};

/// One regime: seconds a call, and the medians of SM clock and power meanwhile (0: not known).
struct Timing {
  Summary seconds;
  double sm_mhz = 0;
  double watts = 0;
};

struct Result {
  std::string kernel;
  std::string shape;
  std::string variant;
  Floor floor;
  int sets = 0;
  Timing bursts;      // an idle gap before each graph of calls
  Timing sustained;   // alone, without a pause; the second half counts
  std::string error;  // not empty: it could not run
};

struct Report {
  DeviceInfo device;
  Ceilings ceilings;
  std::vector<Result> results;
};

/// What the card needs for it at the least: the longer of bytes and operations; 0 where neither rate is
/// known.
double floor_seconds(const Floor& floor, double read_bytes, double product_flops);

/// For people: a line of the card, one of its ceilings, one a result.
std::string table(const Report& report);

/// For programs; numbers in SI units.
Json to_json(const Report& report);

}  // namespace asynct::kernel_bench
