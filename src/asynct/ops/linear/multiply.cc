#include "asynct/ops/linear/multiply.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "asynct/ops/kernel_tables.h"

namespace asynct::linear {
namespace {

const KernelTable& table_of(Isa isa) {
  return select_kernels(isa, kScalarKernels, kAvx2Kernels, kAvx512Kernels);
}

bool in_bf16(const OpContext& context, const PackedMatrix& weight) {
  return context.precision() == Precision::bf16 && weight.storage() == Storage::bf16;
}

// Inputs of the matrix in one of a tile kernel's.
std::int64_t width(const KernelTable& table) { return table.pack_pairs != nullptr ? 2 : 1; }

// Inputs of a tile kernel, an even number.
std::int64_t tile_inputs(const KernelTable& table, std::int64_t inputs) {
  const std::int64_t both = 2 * width(table);
  return (inputs + both - 1) / both * 2;
}

std::int64_t blocks_of(const KernelTable& table, std::int64_t inputs) {
  return (tile_inputs(table, inputs) + kBlockInputs - 1) / kBlockInputs;
}

// Whether many rows multiply weights widened to float.
bool widens(const KernelTable& table, Storage storage) {
  return storage != Storage::f32 && table.pack_pairs == nullptr;
}

std::int64_t tile_floats(const KernelTable& table) {
  return table.pack_pairs != nullptr ? 0 : std::int64_t{table.tile_panels} * kPanel * kBlockInputs;
}

// log2 of the most panels a kernel of `rows` rows has, at most `panels`.
int panel_log(const KernelTable& table, Storage storage, std::int64_t rows, std::int64_t panels) {
  int log = std::min(kPanelCounts, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(panels)))) - 1;
  while (table.tile[static_cast<int>(storage)][rows - 1][log] == nullptr) --log;
  return log;
}

}  // namespace

Multiplier::Multiplier(const OpContext& context, const PackedMatrix& weight)
    : table_(context.isa() == Isa::avx512bf16 && in_bf16(context, weight) ? kAvx512Bf16Kernels
                                                                          : table_of(context.isa())),
      amx_(context.isa() == Isa::amx && in_bf16(context, weight) ? &kAmxKernels : nullptr),
      weight_(weight) {}

Multiplier::Multiplier(const KernelTable& dots, const PackedMatrix& weight)
    : table_(dots), amx_(nullptr), weight_(weight) {
  assert(dots.pack_pairs != nullptr && weight.storage() == Storage::bf16);
}

Multiplier::Multiplier(const AmxKernels& amx, const PackedMatrix& weight)
    : table_(kScalarKernels), amx_(&amx), weight_(weight) {
  assert(weight.storage() == Storage::bf16);
}

std::int64_t Multiplier::panel_grain(std::int64_t rows) const {
  if (amx_ != nullptr) return rows <= 16 ? 4 : 2;
  if (rows > table_.max_rows) return table_.tile_panels;
  return std::int64_t{1} << panel_log(table_, weight_.storage(), rows, 1 << (kPanelCounts - 1));
}

std::size_t Multiplier::scratch_bytes(std::int64_t rows, std::int64_t inputs) const {
  if (amx_ != nullptr) return amx_->scratch_bytes(rows, inputs);
  return static_cast<std::size_t>(blocks_of(table_, inputs) * rows * kRowStride + tile_floats(table_)) *
         sizeof(float);
}

PackedRows Multiplier::pack(ConstMatrix x, std::byte* scratch) const {
  if (amx_ != nullptr) {
    amx_->pack(x.data, x.stride, x.rows, x.cols, scratch);
    return {scratch, nullptr, x.rows, x.cols};
  }
  // Before the rows: the widened tile of multiply_many().
  float* const data = reinterpret_cast<float*>(scratch) + tile_floats(table_);
  const std::int64_t block_inputs = kBlockInputs * width(table_);
  for (std::int64_t block = 0; block < blocks_of(table_, x.cols); ++block) {
    const std::int64_t begin = block * block_inputs;
    const std::int64_t count = std::min(block_inputs, x.cols - begin);
    for (std::int64_t r = 0; r < x.rows; ++r) {
      float* const to = data + (block * x.rows + r) * kRowStride;
      if (table_.pack_pairs != nullptr) {
        table_.pack_pairs(x.row(r) + begin, count, to);
        continue;
      }
      std::memcpy(to, x.row(r) + begin, static_cast<std::size_t>(count) * sizeof(float));
      if (count % 2 != 0) to[count] = 0;
    }
  }
  return {scratch, data, x.rows, x.cols};
}

void Multiplier::multiply(const PackedRows& x, std::int64_t first_panel, Matrix y, bool fetch) const {
  assert(x.inputs == weight_.inputs() && x.rows == y.rows);
  assert(first_panel * kPanel + y.cols <= weight_.outputs());
  if (amx_ != nullptr)
    amx_->multiply({.scratch = x.scratch,
                    .rows = x.rows,
                    .inputs = x.inputs,
                    .b = weight_.panel(first_panel),
                    .panel_stride = weight_.panel_bytes(),
                    .y = y.data,
                    .y_stride = y.stride,
                    .columns = y.cols,
                    .fetch = fetch});
  else if (x.rows <= (widens(table_, weight_.storage()) ? 2 : 1) * table_.max_rows)
    multiply_few(x, first_panel, y);
  else
    multiply_many(x, first_panel, y, fetch);
}

// One tile of rows, or two: weights pass through the registers, all inputs at a time, as many panels together
// as the registers hold. Two tiles widen weights twice, which costs less than a widened copy.
void Multiplier::multiply_few(const PackedRows& x, std::int64_t first_panel, Matrix y) const {
  const std::int64_t panels = (y.cols + kPanel - 1) / kPanel;
  const std::int64_t height = x.rows <= table_.max_rows ? x.rows : (x.rows + 1) / 2;
  for (std::int64_t p = 0; p < panels;) {
    const int log = panel_log(table_, weight_.storage(), height, panels - p);
    const std::int64_t count = std::int64_t{1} << log;
    for (std::int64_t begin = 0; begin < x.rows; begin += height)
      table_.tile[static_cast<int>(weight_.storage())][std::min(height, x.rows - begin) - 1][log]({
          .a = x.data + begin * kRowStride,
          .block_stride = x.rows * kRowStride,
          .b = weight_.panel(first_panel + p),
          .panel_stride = weight_.panel_bytes(),
          .inputs = tile_inputs(table_, x.inputs),
          .c = y.data + begin * y.stride + p * kPanel,
          .c_stride = y.stride,
          .columns = std::min(count * kPanel, y.cols - p * kPanel),
          .accumulate = false,
      });
    p += count;
  }
}

// Many tiles of rows: a tile of weights, kBlockInputs by tile_panels, is widened once (pairs are not) and
// stays in L1 while all tiles of rows pass it; sums continue from y at the next block of inputs.
void Multiplier::multiply_many(const PackedRows& x, std::int64_t first_panel, Matrix y, bool fetch) const {
  float* const tile = reinterpret_cast<float*>(x.scratch);
  const std::int64_t panels = (y.cols + kPanel - 1) / kPanel;
  const std::int64_t row_tiles = (x.rows + table_.max_rows - 1) / table_.max_rows;
  const bool widened = widens(table_, weight_.storage());
  const Storage storage = widened ? Storage::f32 : weight_.storage();
  const std::int64_t inputs_of_all = tile_inputs(table_, x.inputs);
  const std::int64_t element = widened ? 2 : 4;  // bytes of a tile kernel's input in a panel
  for (std::int64_t p = 0; p < panels; p += table_.tile_panels) {
    const std::int64_t count = std::min<std::int64_t>(table_.tile_panels, panels - p);
    for (std::int64_t block = 0; block < blocks_of(table_, x.inputs); ++block) {
      const std::int64_t inputs = std::min(std::int64_t{kBlockInputs}, inputs_of_all - block * kBlockInputs);
      const std::byte* b = weight_.panel(first_panel + p) + block * kBlockInputs * kPanel * element;
      std::int64_t panel_stride = weight_.panel_bytes();
      if (widened) {
        for (std::int64_t i = 0; i < count; ++i)
          table_.widen[static_cast<int>(weight_.storage())](b + i * panel_stride, inputs,
                                                            tile + i * kBlockInputs * kPanel);
        b = reinterpret_cast<const std::byte*>(tile);
        panel_stride = kBlockInputs * kPanel * sizeof(float);
      }
      for (std::int64_t t = 0; t < row_tiles; ++t) {
        const std::int64_t begin = t * x.rows / row_tiles;  // tiles of nearly equal height
        const std::int64_t rows = (t + 1) * x.rows / row_tiles - begin;
        const int log = count == 1 ? 0 : panel_log(table_, storage, rows, count);
        assert(std::int64_t{1} << log == count);
        table_.tile[static_cast<int>(storage)][rows - 1][log]({
            .a = x.data + (block * x.rows + begin) * kRowStride,
            .block_stride = 0,
            .b = b,
            .panel_stride = panel_stride,
            .inputs = inputs,
            .c = y.data + begin * y.stride + p * kPanel,
            .c_stride = y.stride,
            .columns = std::min(count * kPanel, y.cols - p * kPanel),
            .accumulate = block > 0,
            .fetch = fetch && block == 0,
        });
      }
    }
  }
}

}  // namespace asynct::linear
