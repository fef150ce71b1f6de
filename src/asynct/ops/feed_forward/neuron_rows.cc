#include "asynct/ops/feed_forward/neuron_rows.h"

#include <cstring>

#include "asynct/base/checked.h"

namespace asynct::feed_forward {
namespace {

// Where element `c` of a row is stored.
std::int64_t place(std::int64_t c, Storage storage) {
  if (storage != Storage::bf16) return c;
  const std::int64_t in_group = c % kGroup;
  return c - in_group + in_group % (kGroup / 2) * 2 + in_group / (kGroup / 2);
}

template <class T>
void copy_row(const T* from, std::int64_t step, std::int64_t count, Storage storage, T* to) {
  for (std::int64_t c = 0; c < count; ++c) to[place(c, storage)] = from[c * step];
}

}  // namespace

NeuronRows NeuronRows::outline(DType dtype, std::int64_t neurons, std::int64_t elements) {
  NeuronRows rows;
  rows.neurons_ = neurons;
  rows.storage_ = storage_of(dtype, "weights of a feed-forward layer");
  rows.length_ = (elements + kGroup - 1) / kGroup * kGroup;
  rows.row_bytes_ = rows.length_ * static_cast<std::int64_t>(size_of(dtype));
  return rows;
}

std::size_t NeuronRows::bytes() const {
  return checked_mul(static_cast<std::size_t>(neurons_), static_cast<std::size_t>(row_bytes_),
                     "packed feed-forward weights");
}

NeuronRows::NeuronRows(ThreadPool& pool, const TensorView& weight, bool transposed, Arena& memory) {
  const std::int64_t neurons = weight.shape[transposed ? 1 : 0];
  const std::int64_t elements = weight.shape[transposed ? 0 : 1];
  *this = outline(weight.dtype, neurons, elements);
  packed_ = memory.take(bytes());
  // Neighbouring columns of a transposed matrix share cache lines: a piece of 32 rows reads whole ones.
  pool.parallel_for(neurons, 32, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t f = begin; f < end; ++f) {
      std::byte* const to = packed_.data() + f * row_bytes_;
      std::memset(to, 0, static_cast<std::size_t>(row_bytes_));
      const std::int64_t first = transposed ? f : f * elements;
      const std::int64_t step = transposed ? neurons : 1;
      if (storage_ == Storage::f32)
        copy_row(static_cast<const float*>(weight.data) + first, step, elements, storage_,
                 reinterpret_cast<float*>(to));
      else
        copy_row(static_cast<const std::uint16_t*>(weight.data) + first, step, elements, storage_,
                 reinterpret_cast<std::uint16_t*>(to));
    }
  });
}

}  // namespace asynct::feed_forward
