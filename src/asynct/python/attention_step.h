#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <string>

#include "asynct/ops/attention/cuda/path.h"
#include "asynct/ops/attention/cuda/plan.h"
#include "asynct/ops/attention/cuda/value_density.h"
#include "asynct/python/attention_room.h"
#include "asynct/python/attention_tensors.h"

namespace asynct::extension {

/// decode: sequences of few rows only. both: those decode, the others prefill. prefill: all sequences as one
/// of many rows; where the plain path takes those, sequences of few rows get units of their own.
enum class AttentionKernels { decode, prefill, both };

/// Whether decode for sm_90a fetches needed values only. by_density: as cuda::ValueDensity says of what the
/// launches before counted.
enum class SkipValues { no, yes, by_density };

/// The most of a step whose launches are captured in a CUDA graph.
struct StepLimits {
  std::int32_t sequences = 0;
  std::int32_t tokens = 0;           // query rows of all sequences
  std::int32_t sequence_tokens = 1;  // of one that decodes
  std::int32_t context = 0;
};

/// A step's lengths on the host.
struct StepLengths {
  std::span<const std::int32_t> query_start;     // [sequences + 1]
  std::span<const std::int32_t> context_length;  // [sequences], the step's rows included
  std::int32_t table_width = 0;                  // blocks of a row of the block table
  std::span<const std::int32_t> block_table;  // [sequences, table_width], or empty: known to the device only
  std::span<const std::int64_t> first_key;    // [sequences], of keys and values in one piece
};

/// The attention of one step: a plan on the host, and its launches for each layer. Sequences of few rows (as
/// many as decode takes) and of many go to the fastest kernels that take them; which ones those are changes
/// no bit of the result.
class AttentionStep {
 public:
  /// Error for a shape that no kernel takes, CudaError for such a device.
  AttentionStep(const AttentionShape& shape, AttentionKernels kernels, const AttentionDevice& device,
                SkipValues skip_values);

  /// From now on the kernels have room for steps up to these limits: units that a step lacks are empty ones.
  /// So a captured launch runs every later plan, and launches are the same ones whatever the plan, but for
  /// those of both kinds `together`: whether run() launches them as one kernel, and how many of its blocks
  /// decode, it takes from the plan of that call; a later plan loses balance by that, never a result. Error
  /// with SkipValues::by_density, which captured launches could not follow.
  void fix(const StepLimits& limits);

  /// Error for lengths that contradict each other, the table or the limits; the plan before stays then.
  void build(const StepLengths& lengths);

  void write_units(std::span<std::int32_t> to) const;
  const StepRoom& room() const { return room_; }
  std::int32_t few_units() const { return static_cast<std::int32_t>(few_.units.size()); }
  std::int32_t many_units() const { return static_cast<std::int32_t>(many_.units.size()); }

  /// Which kernels the plan's launches are and why not faster ones: "decode for sm_90a, prefill for sm_90a",
  /// "plain: blocks of 24 tokens".
  std::string path() const;

  /// A later reading of StepMemory::value_count, for the plans to come.
  void observe_values(std::uint64_t count) { density_.observe(count); }
  /// Launches count values: they are skipped by density, and kernels that can do so are used.
  bool counts_values() const { return skip_values_ == SkipValues::by_density && decodes_for_hopper(); }
  double value_density() const { return density_.estimate(); }
  /// What the plan's decode does; prefill and the plain path fetch all values.
  bool skips_values() const { return skips_; }

  /// Error for tensors that do not fit the step; nothing is launched then. `together`: decode and prefill as
  /// one launch where it takes them.
  void run(const StepMemory& memory, const LayerTensors& layer, bool together, cudaStream_t stream) const;

 private:
  bool decodes_for_hopper() const { return few_tokens_ > 0 && !room_.few_is_plain; }
  std::int32_t unit_tokens() const;
  void check_lengths(const StepLengths& lengths) const;
  void check_limits(const StepLengths& lengths) const;
  std::int64_t check_places(const StepLengths& lengths) const;
  bool decide_skipping() const;

  AttentionKernels kernels_;
  SkipValues skip_values_;
  cuda::AttentionChoice few_path_;
  cuda::AttentionChoice many_path_;
  std::int32_t few_tokens_ = 0;  // sequences of up to so many rows are few; 0: all are many

  cuda::DecodePlan few_;
  cuda::PrefillPlan many_;
  StepRoom room_;
  std::int64_t key_blocks_ = 0;  // of the cache that the table names, or keys in one piece; 0: not known
  cuda::ValueDensity density_;
  bool skips_ = false;
};

}  // namespace asynct::extension
