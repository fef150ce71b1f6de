#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "asynct/ops/kernel_bench/shapes.h"

namespace asynct::kernel_bench {

/// One thing to time.
struct Candidate {
  std::string variant;
  Floor floor;
  /// Launches one call over the input set; may be captured into a graph. Owns what it needs.
  std::function<void(int set, cudaStream_t stream)> launch;
};

/// Candidates that take turns, over the same inputs.
struct Group {
  std::string kernel;
  std::string shape;
  int sets = 1;  // calls walk over them
  std::vector<Candidate> candidates;
};

/// A group whose inputs exist only while it is measured: make() allocates and fills them.
struct LazyGroup {
  std::string kernel;
  std::string shape;
  std::vector<std::string> variants;  // make() gives these and readers; for --filter
  std::function<Group()> make;
};

}  // namespace asynct::kernel_bench
