#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "asynct/model/checkpoint.h"
#include "asynct/model/config.h"
#include "asynct/model/memory_plan.h"
#include "asynct/model/weights.h"

namespace asynct {

struct Range {
  float low = 0;
  float high = 0;
};

/// Smallest and largest value of a norm's parameters over one place in the layer ("input_norm", "q_norm",
/// ...).
struct NormReport {
  std::string place;
  std::optional<Range> alpha;  // dyht
  Range gamma;
  std::optional<Range> beta;
};

/// Head classes of one layer (see ops/attention/attention.h) and its sigmas; asynci and uniaffine only.
struct LayerHeads {
  std::string classes;  // one letter a head: s skip-safe, d dead, D dense
  Range sigma;
};

struct ModelReport {
  ModelConfig config;
  std::vector<std::string> dtypes;  // of the matrices
  std::int64_t parameters = 0;      // tied embedding counted once
  std::size_t file_bytes = 0;
  std::vector<MemoryPart> memory;  // weights only
  std::size_t kv_bytes_fp32 = 0;   // a token, all layers
  std::size_t kv_bytes_bf16 = 0;
  std::vector<LayerHeads> heads;               // empty for softmax
  std::array<std::int64_t, 3> class_counts{};  // skip-safe, dead, dense
  std::vector<NormReport> norms;
};

/// Everything but the values of the matrices; reads no more than parameters of norms and heads.
ModelReport inspect_model(const ModelSource& source);

/// A tensor that holds values that no model should have.
struct BadTensor {
  std::string name;
  std::int64_t nan = 0;
  std::int64_t infinite = 0;
};

/// Reads every supported tensor of the checkpoint, whatever model it is.
std::vector<BadTensor> find_bad_values(const Checkpoint& checkpoint);

}  // namespace asynct
