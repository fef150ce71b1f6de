#include "asynct/ops/linear/linear.h"

#include <algorithm>
#include <atomic>

#include "asynct/ops/linear/multiply.h"
#include "asynct/ops/linear/schedule.h"

namespace asynct {

using linear::kPanel;

Linear::Linear(const OpContext& context, std::span<const TensorView> parts)
    : weight_(context.pool(), parts, context.weight_arena()) {}

ScratchSize Linear::scratch_size(const OpContext& context, const linear::PackedMatrix& weight,
                                 std::int64_t max_rows) {
  const linear::Multiplier multiplier(context, weight);
  // Rows of one pack: a block of run_by_rows(), or all rows of run_by_panels().
  const std::int64_t shared_rows = multiplier.most_shared_rows(context.pool().size());
  const std::int64_t most = std::min(max_rows, std::max(multiplier.most_rows(), shared_rows));
  ScratchSize size;
  for (std::int64_t rows = 1; rows <= most; ++rows)
    size.worker = std::max(size.worker, multiplier.scratch_bytes(rows, weight.inputs()));
  return size;
}

namespace {

// Results of this size and more are not found in a core's cache when they are written: half an L2 of today's
// servers. Waiting for their lines took up to half of the time of products on AMX (N = 4096), and asking for
// lines that are there a tenth.
constexpr std::int64_t kFarBytes = 1 << 20;

// Many rows: each worker takes blocks of rows through all panels and their epilogue.
void run_by_rows(OpContext& context, const linear::Multiplier& multiplier, ConstMatrix x, Matrix y,
                 const std::optional<RowEpilogue>& epilogue) {
  const bool far = y.rows * y.stride * static_cast<std::int64_t>(sizeof(float)) > kFarBytes;
  linear::for_row_blocks(
      context.pool(), x.rows, multiplier.most_rows(), [&](std::int64_t begin, std::int64_t end, int worker) {
        const std::int64_t rows = end - begin;
        std::byte* const scratch = context.scratch(worker, multiplier.scratch_bytes(rows, x.cols));
        multiplier.multiply(multiplier.pack(x.slice_rows(begin, rows), scratch), 0, y.slice_rows(begin, rows),
                            far);
        if (epilogue) (*epilogue)(begin, end, worker);
      });
}

// Few rows: workers share the panels, so that each weight is read once; the epilogue follows when all are
// done.
void run_by_panels(OpContext& context, const linear::Multiplier& multiplier, ConstMatrix x, Matrix y,
                   const std::optional<RowEpilogue>& epilogue) {
  const std::int64_t panels = (y.cols + kPanel - 1) / kPanel;
  const std::int64_t grain = linear::panel_pieces(panels, multiplier.panel_grain(x.rows), context.pool());
  std::atomic<std::int64_t> next{0};
  context.pool().run_available([&](int worker) {
    std::int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
    if (begin >= panels) return;
    std::byte* const scratch = context.scratch(worker, multiplier.scratch_bytes(x.rows, x.cols));
    const linear::PackedRows rows = multiplier.pack(x, scratch);
    for (; begin < panels; begin = next.fetch_add(grain, std::memory_order_relaxed)) {
      const std::int64_t column = begin * kPanel;
      const std::int64_t columns = std::min(grain * kPanel, y.cols - column);
      multiplier.multiply(rows, begin, y.slice_cols(column, columns));
    }
  });
  if (epilogue) linear::for_rows_after(context.pool(), x.rows, *epilogue);
}

}  // namespace

void Linear::run(OpContext& context, ConstMatrix x, Matrix y, std::optional<RowEpilogue> epilogue) const {
  assert(x.cols == inputs() && y.cols == outputs() && x.rows == y.rows);
  if (x.rows == 0) return;
  const linear::Multiplier multiplier(context, weight_);
  if (x.rows <= multiplier.most_shared_rows(context.pool().size()))
    run_by_panels(context, multiplier, x, y, epilogue);
  else
    run_by_rows(context, multiplier, x, y, epilogue);
}

}  // namespace asynct
