#include "asynct/python/tensor_ref.h"

#include <gtest/gtest.h>

#include "asynct/python/device_guard.h"
#include "asynct/python/row_ops.h"

namespace asynct::extension {
namespace {

alignas(16) char memory[64];

TensorRef tensor(std::vector<std::int64_t> shape, std::vector<std::int64_t> stride,
                 DType dtype = DType::bf16) {
  return {.data = memory,
          .dtype = dtype,
          .on_cuda = true,
          .shape = std::move(shape),
          .stride = std::move(stride)};
}

/// What the call's error says; "" where there is none.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(TensorRef, dtypes_are_type_errors) {
  const TensorRef x = tensor({2, 64}, {64, 1}, DType::i64);
  EXPECT_NO_THROW(expect_dtype("x", x, {DType::f32, DType::i64}));
  EXPECT_THROW(expect_dtype("x", x, {DType::bf16, DType::f16}), TypeError);
  EXPECT_EQ(error_of([&] {
              expect_dtype("x", x, {DType::bf16, DType::f16});
            }),
            std::string("x: dtype ") + std::string(name(DType::i64)) + ", expected bf16 or fp16");
  EXPECT_EQ(error_of([&] { expect_dtype("x", {}, {DType::f32}); }),
            "x: dtype none of the kernels', expected fp32");
}

TEST(TensorRef, devices) {
  TensorRef x = tensor({1}, {1});
  x.device = 1;
  EXPECT_EQ(error_of([&] { expect_device("x", x, 1); }), "");
  EXPECT_EQ(error_of([&] { expect_device("x", x, 0); }), "x: on cuda:1, expected on cuda:0");
  x.on_cuda = false;
  EXPECT_EQ(error_of([&] { expect_device("x", x, 0); }), "x: on the CPU, expected on cuda:0");
}

TEST(TensorRef, shapes) {
  const TensorRef x = tensor({4, 8, 64}, {512, 64, 1});
  EXPECT_EQ(error_of([&] { expect_shape("x", x, {-1, 8, 64}); }), "");
  EXPECT_EQ(error_of([&] {
              expect_shape("x", x, {-1, 8, 128});
            }),
            "x: shape [4, 8, 64], expected [any, 8, 128]");
  EXPECT_EQ(error_of([&] { expect_shape("x", x, {-1, 8}); }), "x: shape [4, 8, 64], expected [any, 8]");
}

TEST(TensorRef, rows_are_moved_16_bytes_at_a_time) {
  const auto error = [](TensorRef x) { return error_of([&] { expect_rows("x", x); }); };
  EXPECT_EQ(error(tensor({4, 8, 64}, {1000, 72, 1})), "");
  EXPECT_NE(error(tensor({4, 8, 64}, {1000, 72, 2})).find("2 apart"), std::string::npos);
  EXPECT_NE(error(tensor({4, 8, 64}, {1000, 68, 1})).find("stride 68 of dimension 1"), std::string::npos);
  EXPECT_NE(error(tensor({4, 64}, {-64, 1})).find("stride -64"), std::string::npos);
  EXPECT_EQ(error(tensor({4, 64}, {68, 1}, DType::f32)), "");
  TensorRef shifted = tensor({4, 64}, {64, 1});
  shifted.data = memory + 2;
  EXPECT_NE(error(shifted).find("16 bytes"), std::string::npos);
  // Of a dimension of one element every stride is right.
  TensorRef one = tensor({1, 64}, {3, 1});
  expect_rows("x", one);
  EXPECT_EQ(one.stride[0], 64);
}

TEST(TensorRef, room) {
  EXPECT_EQ(error_of([] { expect_room("x", tensor({4, 8}, {8, 1}), 32); }), "");
  EXPECT_EQ(error_of([] { expect_room("x", tensor({1, 8}, {1, 1}), 8); }), "");
  EXPECT_EQ(error_of([] {
              expect_room("x", tensor({4, 8}, {8, 1}), 33);
            }),
            "x: 32 elements, expected at least 33");
  EXPECT_EQ(error_of([] { expect_room("x", tensor({4, 8}, {16, 1}), 8); }), "x: not contiguous");
}

TEST(RowOps, arguments_are_checked) {
  const TensorRef x = tensor({4, 64}, {64, 1});
  DyhtTensors norm = {tensor({1}, {1}, DType::f32), tensor({64}, {1}, DType::f32), {}};
  const auto dyht = [&](const TensorRef& y) { return error_of([&] { run_dyht(x, y, norm, nullptr); }); };
  EXPECT_EQ(dyht(tensor({4, 32}, {64, 1})), "y: shape [4, 32], expected [4, 64]");
  norm.gamma = tensor({32}, {1}, DType::f32);
  EXPECT_EQ(dyht(x), "gamma: shape [32], expected 1 or 64 elements");
  norm.alpha.dtype = DType::bf16;
  EXPECT_EQ(dyht(x), "alpha: dtype bf16, expected fp32");
  EXPECT_EQ(error_of([&] {
              run_reglu(x, tensor({4, 64}, {128, 1}), x, nullptr);
            }),
            "up: rows are 128 apart, expected 64 as gate's");
}

TEST(DeviceGuard, a_device_that_is_not_there_is_an_error_of_cuda) {
  EXPECT_THROW(DeviceGuard(1 << 20), cuda::CudaError);
}

}  // namespace
}  // namespace asynct::extension
