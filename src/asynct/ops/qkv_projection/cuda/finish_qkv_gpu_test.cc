// Norm, rotation and cache append on the device give the bits of the CPU's operators, in every cache layout.

#include "asynct/ops/qkv_projection/cuda/finish_qkv.h"

#include <algorithm>

#include "asynct/ops/norm/cuda/norm_test_case.h"
#include "asynct/ops/rope/rope.h"

namespace asynct::cuda {
namespace {

enum class CacheLayout { own, flash, packed };

struct Case {
  DType dtype, qkv_dtype;
  std::int64_t rows, heads, kv_heads, dims;
  std::int32_t block_shift;
  CacheLayout layout;
  bool has_norms;
  bool in_place;
};

/// Of keys; values lie `value_at` elements further.
KvTarget target_of(const Case& c, void* data) {
  const std::int64_t size = std::int64_t{1} << c.block_shift;
  switch (c.layout) {
    case CacheLayout::own:
      return {data, c.kv_heads * size * c.dims, size * c.dims, c.dims};
    case CacheLayout::packed:
      return {data, c.kv_heads * size * 2 * c.dims, size * 2 * c.dims, 2 * c.dims};
    case CacheLayout::flash:
      return {data, size * c.kv_heads * c.dims, c.dims, c.kv_heads * c.dims};
  }
  return {};
}

template <class TestCase, class Args>
class FinishQkv {
 public:
  using Run = void (*)(const Args&, DType, DType, cudaStream_t);

  FinishQkv(const Case& c, unsigned seed)
      : c_(c),
        random_(seed),
        columns_((c.heads + 2 * c.kv_heads) * c.dims),
        stride_(columns_ + 16),
        blocks_(c.rows / (std::int64_t{1} << c.block_shift) + 3),
        elements_(blocks_ * (std::int64_t{1} << c.block_shift) * c.kv_heads * c.dims),
        q_norm_(random_, c.dims),
        k_norm_(random_, c.dims),
        rope_(10000, c.dims, kPositions) {
    rope_.prepare(kPositions);
    qkv_ = random_values(random_, static_cast<std::size_t>(c.rows * stride_), c.qkv_dtype);
    qkv_[qkv_.size() / 2] = kPoison;
    std::vector<std::int64_t> free(static_cast<std::size_t>(blocks_ << c.block_shift));
    for (std::size_t i = 0; i < free.size(); ++i) free[i] = static_cast<std::int64_t>(i);
    std::shuffle(free.begin(), free.end(), random_);
    for (std::int64_t row = 0; row < c.rows; ++row) {
      const bool unknown = random_() % 16 == 0;
      positions_.push_back(unknown ? (random_() % 2 == 0 ? -1 : kPositions)
                                   : static_cast<std::int32_t>(random_() % kPositions));
      slots_.push_back(random_() % 5 == 0 ? -1 : free[static_cast<std::size_t>(row)]);
    }
  }

  void expect_cpus_bits(Run run) {
    const DeviceTensor input(qkv_, c_.qkv_dtype);
    const DeviceTensor apart(static_cast<std::size_t>(c_.rows * q_stride()), c_.dtype);
    const DeviceTensor cache(static_cast<std::size_t>(2 * elements_), c_.dtype);
    std::vector<float> table;
    for (std::int32_t position = 0; position < kPositions; ++position) {
      const auto entry = rope_.cos_sin(position);
      table.insert(table.end(), entry.begin(), entry.end());
    }
    const DeviceBuffer<float> cos_sin(table);
    const DeviceBuffer<std::int32_t> positions(positions_);
    const DeviceBuffer<std::int64_t> slots(slots_);
    const std::int64_t value_at = c_.layout == CacheLayout::packed ? c_.dims : elements_;
    run({.qkv = input.data(),
         .q = c_.in_place ? input.data() : apart.data(),
         .qkv_stride = stride_,
         .q_stride = q_stride(),
         .positions = positions.data(),
         .slots = slots.data(),
         .cos_sin = cos_sin.data(),
         .key = target_of(c_, cache.data()),
         .value = target_of(c_, cache.at(static_cast<std::size_t>(value_at))),
         .rows = c_.rows,
         .max_positions = kPositions,
         .heads = static_cast<std::int32_t>(c_.heads),
         .kv_heads = static_cast<std::int32_t>(c_.kv_heads),
         .head_dim = static_cast<std::int32_t>(c_.dims),
         .block_shift = c_.block_shift,
         .has_q_norm = c_.has_norms,
         .has_k_norm = c_.has_norms,
         .q_norm = q_norm_.on_device(),
         .k_norm = k_norm_.on_device()},
        c_.dtype, c_.qkv_dtype, nullptr);
    std::vector<float> q(static_cast<std::size_t>(c_.rows * q_stride()), kPoison);
    if (c_.in_place) q = qkv_;
    std::vector<float> kv(static_cast<std::size_t>(2 * elements_), kPoison);
    run_on_cpu(q, kv, value_at);
    const std::string what = std::string(name(c_.dtype)) + " rows " + std::to_string(c_.rows) + " heads " +
                             std::to_string(c_.heads) + " dims " + std::to_string(c_.dims);
    expect_same((c_.in_place ? input : apart).values(), q, what + ", q");
    expect_same(cache.values(), kv, what + ", cache");
  }

 private:
  static constexpr std::int32_t kPositions = 3000;

  std::int64_t q_stride() const { return c_.in_place ? stride_ : c_.heads * c_.dims; }

  void run_on_cpu(std::vector<float>& q, std::vector<float>& kv, std::int64_t value_at) {
    ThreadPool pool(1);
    const OpContext context(pool, TestCase::isa(), Precision::fp32);
    const KvTarget at = target_of(c_, nullptr);
    for (std::int64_t row = 0; row < c_.rows; ++row)
      for (std::int64_t head = 0; head < c_.heads + 2 * c_.kv_heads; ++head) {
        const auto from = qkv_.begin() + row * stride_ + head * c_.dims;
        std::vector<float> vector(from, from + c_.dims);
        const bool is_query = head < c_.heads;
        const bool is_key = !is_query && head < c_.heads + c_.kv_heads;
        if (is_query || is_key) {
          const Norm& norm = (is_query ? q_norm_ : k_norm_).norm();
          if (c_.has_norms) norm.apply(context, vector.data(), vector.data(), false);
          const std::int32_t position = positions_[static_cast<std::size_t>(row)];
          if (position >= 0 && position < kPositions)
            rope_.apply(context, vector.data(), position);
          else
            vector.assign(vector.size(), kPoison);
        }
        for (float& value : vector) value = rounded(value, c_.dtype);
        const std::int64_t slot = slots_[static_cast<std::size_t>(row)];
        if (is_query) {
          std::copy(vector.begin(), vector.end(), q.begin() + row * q_stride() + head * c_.dims);
        } else if (slot >= 0) {
          const std::int64_t kv_head = (head - c_.heads) % c_.kv_heads;
          const std::int64_t size = std::int64_t{1} << c_.block_shift;
          std::copy(vector.begin(), vector.end(),
                    kv.begin() + slot / size * at.block_stride + kv_head * at.head_stride +
                        slot % size * at.token_stride + (is_key ? 0 : value_at));
        }
      }
  }

  Case c_;
  std::mt19937 random_;
  std::int64_t columns_, stride_, blocks_, elements_;
  TestCase q_norm_, k_norm_;
  Rope rope_;
  std::vector<float> qkv_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int64_t> slots_;
};

template <class TestCase, class Args>
void expect_cpus_bits(void (*run)(const Args&, DType, DType, cudaStream_t)) {
  std::mt19937 random(6);
  unsigned seed = 0;
  for (const DType dtype : kFloatTypes)
    for (const CacheLayout layout : {CacheLayout::own, CacheLayout::flash, CacheLayout::packed})
      for (const std::int32_t shift : {3, 4, 7})
        for (int round = 0; round < 4; ++round) {
          const DType qkv_dtype = round == 0 ? DType::f32 : dtype;
          const std::int64_t kv_heads = 1 + static_cast<std::int64_t>(random() % 3);
          const std::int64_t dims[] = {16, 64, 128, 256};
          const std::int64_t rows[] = {1, 3, 40, 900};
          FinishQkv<TestCase, Args>({.dtype = dtype,
                                     .qkv_dtype = qkv_dtype,
                                     .rows = rows[random() % 4],
                                     .heads = kv_heads * (1 + static_cast<std::int64_t>(random() % 4)),
                                     .kv_heads = kv_heads,
                                     .dims = dims[random() % 4],
                                     .block_shift = shift,
                                     .layout = layout,
                                     .has_norms = random() % 4 != 0,
                                     .in_place = qkv_dtype == dtype && random() % 2 == 0},
                                    ++seed)
              .expect_cpus_bits(run);
        }
  // many rows
  for (const DType dtype : kFloatTypes)
    FinishQkv<TestCase, Args>({.dtype = dtype,
                               .qkv_dtype = dtype,
                               .rows = 1500,
                               .heads = 8,
                               .kv_heads = 4,
                               .dims = 128,
                               .block_shift = 4,
                               .layout = CacheLayout::flash,
                               .has_norms = true,
                               .in_place = true},
                              77)
        .expect_cpus_bits(run);
}

TEST(FinishQkvOnDevice, gives_the_cpus_bits_in_every_layout) { expect_cpus_bits<TestNorm>(run_finish_qkv); }
TEST(RmsFinishQkvOnDevice, gives_the_cpus_bits_in_every_layout) {
  expect_cpus_bits<TestRmsNorm>(run_rms_finish_qkv);
}

TEST(FinishQkvOnDevice, errors_name_what_is_wrong) {
  const DeviceBuffer<float> data(std::vector<float>(1024, 1.F));
  const DeviceBuffer<std::int32_t> positions(std::vector<std::int32_t>{0});
  const DeviceBuffer<std::int64_t> slots(std::vector<std::int64_t>{-1});
  const auto expect = [&](auto change, DType dtype, DType qkv_dtype, const char* words) {
    FinishQkvArgs args = {.qkv = data.data(),
                          .q = data.data(),
                          .qkv_stride = 192,
                          .q_stride = 192,
                          .positions = positions.data(),
                          .slots = slots.data(),
                          .cos_sin = data.data(),
                          .key = {data.data(), 64, 64, 64},
                          .value = {data.data(), 64, 64, 64},
                          .rows = 1,
                          .max_positions = 1,
                          .heads = 1,
                          .kv_heads = 1,
                          .head_dim = 64};
    change(args);
    expect_error([&] { run_finish_qkv(args, dtype, qkv_dtype, nullptr); }, words);
  };
  expect([](FinishQkvArgs&) {}, DType::bf16, DType::f32, "q lies over qkv");
  expect([](FinishQkvArgs& args) { args.q_stride = 64; }, DType::f32, DType::f32, "q lies over qkv");
  expect([](FinishQkvArgs& args) { args.head_dim = 24; }, DType::bf16, DType::bf16,
         "half a head of 24 bytes");
  expect([](FinishQkvArgs& args) { args.head_dim = 9; }, DType::bf16, DType::bf16, "head_dim 9");
  expect([](FinishQkvArgs& args) { args.kv_heads = 0; }, DType::bf16, DType::bf16, "0 heads of 64");
  expect([](FinishQkvArgs& args) { args.key.token_stride = 3; }, DType::bf16, DType::bf16,
         "a token's stride");
  expect([](FinishQkvArgs& args) { args.value.data = nullptr; }, DType::bf16, DType::bf16, "no cache");
  expect([](FinishQkvArgs& args) { args.slots = nullptr; }, DType::bf16, DType::bf16, "no slots");
  expect([](FinishQkvArgs& args) { args.has_k_norm = true; }, DType::bf16, DType::bf16, "no alpha");
  expect([](FinishQkvArgs& args) { args.block_shift = -1; }, DType::bf16, DType::bf16, "blocks of 2^-1");
}

}  // namespace
}  // namespace asynct::cuda
