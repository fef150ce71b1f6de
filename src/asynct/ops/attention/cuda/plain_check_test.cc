// What run_plain() refuses: no device is needed for that.

#include <cstdint>
#include <type_traits>

#include "asynct/ops/attention/cuda/plain.h"
#include "asynct/ops/cuda/gpu_testing.h"

namespace asynct::cuda {
namespace {

/// Nothing of it is read.
PlainArgs complete_args() {
  alignas(16) static char memory[32];
  const KvView rows = {memory, 16 * 128, 128, 128};
  return {.query = memory,
          .out = memory,
          .query_stride = 128,
          .out_stride = 128,
          .key = rows,
          .value = rows,
          .block_table = reinterpret_cast<const std::int32_t*>(memory),
          .factors = reinterpret_cast<const HeadFactors*>(memory),
          .few = reinterpret_cast<const DecodeUnit*>(memory),
          .many = reinterpret_cast<const PrefillUnit*>(memory),
          .partial = reinterpret_cast<float*>(memory),
          .arrived = reinterpret_cast<std::uint32_t*>(memory),
          .sums = reinterpret_cast<float*>(memory),
          .slots = 1,
          .few_count = 1,
          .many_count = 1,
          .max_blocks = 65};
}

struct Refusal {
  void (*spoil)(PlainArgs& args);
  const char* words;
};

/// The same place, `bytes` further.
template <class T>
void move(T*& pointer, int bytes) {
  pointer =
      reinterpret_cast<T*>(reinterpret_cast<char*>(const_cast<std::remove_const_t<T>*>(pointer)) + bytes);
}
void move(const void*& pointer, int bytes) { pointer = static_cast<const char*>(pointer) + bytes; }
void move(void*& pointer, int bytes) { pointer = static_cast<char*>(pointer) + bytes; }

TEST(PlainErrors, name_what_is_not_there) {
  const Refusal refusals[] = {
      {[](PlainArgs& args) { args.few_count = -1; }, "-1 units of few rows"},
      {[](PlainArgs& args) { args.many_count = -1; }, "-1 of many"},
      {[](PlainArgs& args) { args.group = 17; }, "17 query heads"},
      {[](PlainArgs& args) { args.group = 0; }, "0 query heads"},
      {[](PlainArgs& args) { args.block_table = nullptr; }, "neither a block table"},
      {[](PlainArgs& args) { args.block_size = 0; }, "blocks of 0"},
      {[](PlainArgs& args) { args.max_blocks = 0; }, "0 blocks a row of the block table"},
      {[](PlainArgs& args) { args.query = nullptr; }, "no query"},
      {[](PlainArgs& args) { move(args.query, 2); }, "query does not begin at a multiple of 4 bytes"},
      {[](PlainArgs& args) { args.query_stride = 129; }, "rows of query 129 elements apart"},
      {[](PlainArgs& args) { args.out = nullptr; }, "no output"},
      {[](PlainArgs& args) { move(args.out, 2); }, "output does not begin at a multiple of 4 bytes"},
      {[](PlainArgs& args) { args.out_stride = 129; }, "rows of output 129 elements apart"},
      {[](PlainArgs& args) { args.key.data = nullptr; }, "no keys"},
      {[](PlainArgs& args) { move(args.key.data, 8); }, "keys does not begin at a multiple of 16 bytes"},
      {[](PlainArgs& args) { args.key.token_stride = 132; }, "the keys' token stride of 264 bytes"},
      {[](PlainArgs& args) { args.key.head_stride = 132; }, "the keys' head stride of 264 bytes"},
      {[](PlainArgs& args) { args.key.block_stride = 132; }, "the keys' block stride of 264 bytes"},
      {[](PlainArgs& args) { args.value.data = nullptr; }, "no values"},
      {[](PlainArgs& args) { move(args.value.data, 8); }, "values does not begin at a multiple of 16 bytes"},
      {[](PlainArgs& args) { args.value.token_stride = 132; }, "the values' token stride of 264 bytes"},
      {[](PlainArgs& args) { args.value.head_stride = 132; }, "the values' head stride of 264 bytes"},
      {[](PlainArgs& args) { args.value.block_stride = 132; }, "the values' block stride of 264 bytes"},
      {[](PlainArgs& args) { args.factors = nullptr; }, "no factors"},
      {[](PlainArgs& args) { args.few = nullptr; }, "no units of few rows"},
      {[](PlainArgs& args) { move(args.few, 8); }, "units of few rows does not begin"},
      {[](PlainArgs& args) { args.many = nullptr; }, "no units of many rows"},
      {[](PlainArgs& args) { args.partial = nullptr; }, "no memory for partial sums"},
      {[](PlainArgs& args) { move(args.partial, 8); }, "memory for partial sums does not begin"},
      {[](PlainArgs& args) { args.arrived = nullptr; }, "no counters"},
      {[](PlainArgs& args) { args.slots = 0; }, "0 partial sums"},
      {[](PlainArgs& args) { args.sums = nullptr; }, "no memory for sums of many rows"},
      // Where nothing says that contexts are short.
      {[](PlainArgs& args) {
         args.block_table = nullptr;
         args.first_key = reinterpret_cast<const std::int64_t*>(args.query);
         args.max_blocks = 0;
         args.sums = nullptr;
       },
       "no memory for sums of many rows"},
  };
  for (const Refusal& refusal : refusals) {
    PlainArgs args = complete_args();
    refusal.spoil(args);
    expect_error([&] { run_plain(args, DType::bf16, 128, 3, nullptr); }, refusal.words);
  }
}

TEST(PlainErrors, name_numbers_without_a_kernel) {
  const PlainArgs args = complete_args();
  expect_error([&] { run_plain(args, DType::bf16, 96, 3, nullptr); }, "head_dim 96");
  expect_error([&] { run_plain(args, DType::bf16, 128, 4, nullptr); }, "pool_size 4");
  expect_error([&] { run_plain(args, DType::f32, 128, 3, nullptr); }, "dtype fp32");
}

void leave_out_sums_of_few_rows(PlainArgs& args) {
  args.partial = nullptr;
  args.arrived = nullptr;
  args.slots = 0;
}

/// What the units cannot need may be missing: head_dim is refused last.
TEST(PlainErrors, are_none_for_what_is_not_needed) {
  const auto expect = [](const auto& leave_out) {
    PlainArgs args = complete_args();
    leave_out(args);
    expect_error([&] { run_plain(args, DType::bf16, 96, 3, nullptr); }, "head_dim 96");
  };
  expect([](PlainArgs& args) {
    args.max_blocks = 64;  // 1,024 keys: one chunk
    leave_out_sums_of_few_rows(args);
    args.sums = nullptr;
  });
  expect([](PlainArgs& args) {
    args.few_count = 0;
    args.few = nullptr;
    leave_out_sums_of_few_rows(args);
  });
  expect([](PlainArgs& args) {
    args.many_count = 0;
    args.many = nullptr;
    args.sums = nullptr;
  });
}

}  // namespace
}  // namespace asynct::cuda
