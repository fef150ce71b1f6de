#include "asynct/ops/attention/attention.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "asynct/base/error.h"
#include "asynct/ops/attention/kernels.h"
#include "asynct/ops/carver.h"
#include "asynct/ops/kernel_tables.h"

namespace asynct {
namespace {

using attention::HeadPages;
using attention::UnitArgs;
using attention::Workspace;

static_assert(kAttentionChunk % attention::kSpanKeys == 0 && attention::kSpanKeys == 64);

const attention::KernelTable& kernels(Isa isa) {
  return select_kernels(isa, attention::kScalarKernels, attention::kAvx2Kernels, attention::kAvx512Kernels);
}

std::int64_t padded(std::int64_t dims) { return (dims + 15) / 16 * 16; }

Workspace carve_workspace(Carver& carver, std::int64_t queries, std::int64_t dims) {
  const auto sums = [&]() -> attention::Sums {
    float* const values = carver.take<float>(queries * padded(dims));
    float* const largest = carver.take<float>(queries);
    return {values, largest, carver.take<float>(queries)};
  };
  Workspace work = {};
  work.queries = carver.take<const float*>(queries);
  work.halo = carver.take<float>(queries * attention::kHalo);
  work.chunk = sums();
  work.all = sums();
  work.keys = carver.take<float>(attention::kSpanKeys * dims);
  work.values = carver.take<float>(attention::kSpanKeys * padded(dims));
  work.spare = carver.take<float>(padded(dims));
  return work;
}

// Queries of one unit at most.
std::int64_t most_queries(std::int64_t group) {
  return std::max<std::int64_t>(attention::kUnitQueries, group);
}

std::size_t workspace_bytes(std::int64_t group, std::int64_t dims) {
  Carver count;
  carve_workspace(count, most_queries(group), dims);
  return count.used();
}

// Of one slot of partial sums.
std::size_t slot_floats(std::int64_t group, std::int64_t dims) {
  return static_cast<std::size_t>(AttentionPlan::kSplitRows * group * (padded(dims) + 2));
}

HeadPages head_pages(const KvPages& pages, std::int64_t head) {
  assert(pages.dtype == DType::f32 || pages.dtype == DType::bf16);
  const auto bytes = static_cast<std::int64_t>(size_of(pages.dtype)) * head * pages.head_stride;
  return {static_cast<const std::byte*>(pages.data) + bytes, pages.dtype == DType::bf16, pages.block_stride,
          pages.token_stride, pages.dim_stride};
}

/// One value a head; `absent` when the tensor is not there.
std::vector<float> per_head(std::vector<float> values, std::int32_t heads, float absent, const char* what) {
  const auto wanted = static_cast<std::size_t>(heads);
  if (values.empty()) values.assign(wanted, absent);
  if (values.size() != wanted)
    fail("attention ", what, ": found ", values.size(), " values, expected one for each of ", heads,
         " heads");
  return values;
}

void check(const AttentionConfig& config) {
  if (config.heads <= 0 || config.kv_heads <= 0 || config.heads % config.kv_heads != 0)
    fail("attention: ", config.heads, " heads over ", config.kv_heads,
         " key/value heads, expected a positive multiple");
  if (config.head_dim <= 0) fail("attention: head size ", config.head_dim, ", expected at least 1");
  const bool known =
      config.pool_size == 1 || config.pool_size == 2 || config.pool_size == 3 || config.pool_size == 5;
  if (config.kind == AttentionKind::asynci && !known)
    fail("attention: pool size ", config.pool_size, ", expected 1, 2, 3 or 5");
}

}  // namespace

HeadClass classify_head(const AttentionConfig& config, const AttentionHeadParams& params, std::int32_t head) {
  if (config.kind != AttentionKind::asynci) return HeadClass::dense;
  const auto h = static_cast<std::size_t>(head);
  const float sigma = params.sigma.empty() ? 0 : params.sigma[h];
  const float slope = params.slope.empty() ? 1 : params.slope[h];
  const float bias = params.bias.empty() ? 0 : params.bias[h];
  const bool skip_safe = config.pool_relu && slope > 0 && bias <= 0 && sigma >= 0;
  if (!skip_safe) return HeadClass::dense;
  return sigma >= static_cast<float>(config.pool_size) * slope ? HeadClass::dead : HeadClass::skip_safe;
}

/// What the units of one call share.
struct Attention::Run {
  const Attention& attention;
  const StepBatch& batch;
  const KvLayer& kv;
  ConstMatrix q;
  Matrix out;
  bool round;
  const attention::KernelTable& table;

  std::int64_t group() const { return attention.config_.heads / attention.config_.kv_heads; }

  UnitArgs args(const AttentionPlan::Unit& unit, Workspace work, float* partial) const {
    const AttentionConfig& config = attention.config_;
    const auto s = static_cast<std::size_t>(unit.sequence);
    const auto head = static_cast<std::size_t>(unit.kv_head);
    const std::int32_t first_row = batch.query_start[s];
    const std::int32_t rows = batch.query_start[s + 1] - first_row;
    return {.q = q.row(first_row + unit.row_begin),
            .q_stride = q.stride,
            .heads = attention.live_.data() + attention.live_begin_[head],
            .live = attention.live_begin_[head + 1] - attention.live_begin_[head],
            .rows = unit.row_end - unit.row_begin,
            .first_position = batch.context_length[s] - rows + unit.row_begin,
            .head_dim = config.head_dim,
            .padded_dim = static_cast<int>(padded(config.head_dim)),
            .softmax = config.kind == AttentionKind::softmax,
            .pool_relu = config.pool_relu,
            .pool_size = config.pool_size,
            .scale = config.scale,
            .factors = attention.factors_.data(),
            .key = head_pages(kv.key, unit.kv_head),
            .value = head_pages(kv.value, unit.kv_head),
            .blocks = batch.blocks_of(unit.sequence).data(),
            .block_shift = std::countr_zero(static_cast<unsigned>(kv.block_size)),
            .chunk_keys = kAttentionChunk,
            .chunk_begin = unit.chunk_begin,
            .chunk_end = unit.chunk_end,
            .out = out.row(first_row + unit.row_begin),
            .out_stride = out.stride,
            .round = round,
            .partial = partial,
            .partial_stride = static_cast<std::int64_t>(slot_floats(group(), kv.head_dim)),
            .work = work};
  }

  /// Zeros where the dead heads of the unit's KV head belong.
  void clear_dead_heads(const UnitArgs& args, std::int32_t kv_head) const {
    if (args.live == group()) return;
    const std::int32_t* const live_end = args.heads + args.live;
    for (std::int64_t h = kv_head * group(); h < (kv_head + 1) * group(); ++h) {
      if (std::find(args.heads, live_end, h) != live_end) continue;
      for (std::int64_t row = 0; row < args.rows; ++row)
        std::fill_n(args.out + row * args.out_stride + h * args.head_dim, args.head_dim, 0.0F);
    }
  }
};

Attention::Attention(const AttentionConfig& config, AttentionHeadParams params)
    : config_(config), params_(std::move(params)) {
  check(config_);
  const std::vector<float> sigma = per_head(params_.sigma, config_.heads, 0, "sigma");
  const std::vector<float> slope = per_head(params_.slope, config_.heads, 1, "slope");
  const std::vector<float> bias = per_head(params_.bias, config_.heads, 0, "bias");
  const std::vector<float> gain = per_head(params_.gain, config_.heads, 1, "gain");
  const std::int32_t group = config_.heads / config_.kv_heads;
  live_begin_.push_back(0);
  for (std::int32_t h = 0; h < config_.heads; ++h) {
    const auto i = static_cast<std::size_t>(h);
    factors_.push_back({.slope = slope[i],
                        .bias = bias[i],
                        .sigma = sigma[i] / static_cast<float>(config_.pool_size),
                        .gain = gain[i]});
    if (classify_head(config_, params_, h) != HeadClass::dead) live_.push_back(h);
    if ((h + 1) % group == 0) live_begin_.push_back(static_cast<std::int32_t>(live_.size()));
  }
}

ScratchSize Attention::scratch_size(const OpContext& context, const AttentionConfig& config,
                                    std::int64_t max_context) {
  const std::int64_t group = config.heads / config.kv_heads;
  const auto slots =
      static_cast<std::size_t>(AttentionPlan::most_partial_slots(context.pool().size(), max_context));
  return {.worker = workspace_bytes(group, config.head_dim),
          .shared = slots * slot_floats(group, config.head_dim) * sizeof(float)};
}

void Attention::run(OpContext& context, const AttentionPlan& plan, const StepBatch& batch, const KvLayer& kv,
                    ConstMatrix q, Matrix out) const {
  assert(std::has_single_bit(static_cast<unsigned>(kv.block_size)));
  assert(kv.head_dim == config_.head_dim && kv.kv_heads == config_.kv_heads);
  assert(q.cols == config_.heads * config_.head_dim && out.cols == q.cols && q.rows == out.rows);
  const Run run = {*this, batch, kv, q, out, context.precision() == Precision::bf16, kernels(context.isa())};

  const std::size_t work_bytes = workspace_bytes(run.group(), config_.head_dim);
  const auto workspace = [&](int worker) {
    Carver carver(context.scratch(worker, work_bytes));
    return carve_workspace(carver, most_queries(run.group()), config_.head_dim);
  };
  const std::size_t slot = slot_floats(run.group(), config_.head_dim);
  const std::size_t partial_bytes = static_cast<std::size_t>(plan.partial_slots) * slot * sizeof(float);
  auto* const partials = reinterpret_cast<float*>(context.shared_scratch(partial_bytes));
  const auto partial_at = [&](std::int32_t index) {
    return index < 0 ? nullptr : partials + static_cast<std::size_t>(index) * slot;
  };

  const auto units = static_cast<std::int64_t>(plan.units.size());
  context.pool().parallel_for(units, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t i = begin; i < end; ++i) {
      const AttentionPlan::Unit& unit = plan.units[static_cast<std::size_t>(i)];
      const UnitArgs args = run.args(unit, workspace(worker), partial_at(unit.partial));
      if (args.live > 0) run.table.run_unit(args);
      if (unit.partial < 0) run.clear_dead_heads(args, unit.kv_head);
    }
  });
  const auto reductions = static_cast<std::int64_t>(plan.reductions.size());
  if (reductions == 0) return;
  context.pool().parallel_for(reductions, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t i = begin; i < end; ++i) {
      const AttentionPlan::Reduction& rows = plan.reductions[static_cast<std::size_t>(i)];
      const AttentionPlan::Unit unit = {.sequence = rows.sequence,
                                        .kv_head = rows.kv_head,
                                        .row_begin = rows.row_begin,
                                        .row_end = rows.row_end,
                                        .chunk_begin = 0,
                                        .chunk_end = rows.chunks};
      const UnitArgs args = run.args(unit, workspace(worker), partial_at(rows.partial));
      if (args.live > 0) run.table.reduce(args);
      run.clear_dead_heads(args, rows.kv_head);
    }
  });
}

}  // namespace asynct
