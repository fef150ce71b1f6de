// Norms on the device give the bits of the CPU's, rounded to the dtype once.

#include "asynct/ops/norm/cuda/norm.h"

#include "asynct/ops/norm/cuda/norm_test_case.h"
#include "asynct/ops/norm/cuda/rms_policy.h"

namespace asynct::cuda {
namespace {

struct Shape {
  std::int64_t rows, heads, dims;
};

constexpr Shape kShapes[] = {{1, 1, 8},     {1, 1, 1024},  {3, 1, 72},    {5, 3, 64},    {17, 16, 128},
                             {2050, 1, 64}, {300, 8, 128}, {33, 1, 3080}, {4097, 5, 24}, {1, 1, 16384}};

template <class TestCase, class Args>
void expect_cpus_bits(void (*run)(const Args&, DType, cudaStream_t)) {
  std::mt19937 random(1);
  ThreadPool pool(1);
  const OpContext context(pool, TestCase::isa(), Precision::fp32);
  for (const DType dtype : kFloatTypes)
    for (const Shape& shape : kShapes)
      for (const bool in_place : {false, true}) {
        const TestCase norm(random, shape.dims);
        // Heads lie apart, rows further: x is a part of wider rows.
        const std::int64_t x_head = shape.dims + (random() % 2) * 16,
                           y_head = shape.dims + (random() % 2) * 8;
        const std::int64_t x_row = shape.heads * x_head + 24, y_row = in_place ? x_row : shape.heads * y_head;
        std::vector<float> x = random_values(random, static_cast<std::size_t>(shape.rows * x_row), dtype);
        x[x.size() / 2] = kPoison;
        const std::int64_t out_head = in_place ? x_head : y_head;
        std::vector<float> want(static_cast<std::size_t>(shape.rows * y_row), kPoison);
        if (in_place) want = x;
        std::vector<float> head(static_cast<std::size_t>(shape.dims));
        for (std::int64_t row = 0; row < shape.rows; ++row)
          for (std::int64_t h = 0; h < shape.heads; ++h) {
            norm.norm().apply(context, x.data() + row * x_row + h * x_head, head.data(), false);
            for (std::int64_t i = 0; i < shape.dims; ++i)
              want[static_cast<std::size_t>(row * y_row + h * out_head + i)] =
                  rounded(head[static_cast<std::size_t>(i)], dtype);
          }
        const DeviceTensor input(x, dtype);
        const DeviceTensor output(want.size(), dtype);
        run({.x = input.data(),
             .y = in_place ? input.data() : output.data(),
             .x_row_stride = x_row,
             .x_head_stride = x_head,
             .y_row_stride = y_row,
             .y_head_stride = out_head,
             .rows = shape.rows,
             .heads = static_cast<std::int32_t>(shape.heads),
             .dims = static_cast<std::int32_t>(shape.dims),
             .norm = norm.on_device()},
            dtype, nullptr);
        expect_same((in_place ? input : output).values(), want,
                    std::string(name(dtype)) + " rows " + std::to_string(shape.rows) + " dims " +
                        std::to_string(shape.dims));
      }
}

TEST(NormOnDevice, gives_the_cpus_bits) { expect_cpus_bits<TestNorm>(run_norm); }
TEST(RmsNormOnDevice, gives_the_cpus_bits) { expect_cpus_bits<TestRmsNorm>(run_rms_norm); }

TEST(NormOnDevice, nan_stays_and_infinity_is_clamped) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const DeviceBuffer<float> one(std::vector<float>{1});
  for (const DType dtype : kFloatTypes) {
    const DeviceTensor x({kPoison, kInfinity, -kInfinity, -0.0F, 0.5F, 3, -3, 0}, dtype);
    const DeviceTensor y(8, dtype);
    run_norm({.x = x.data(),
              .y = y.data(),
              .x_row_stride = 8,
              .y_row_stride = 8,
              .rows = 1,
              .dims = 8,
              .norm = {.alpha = {one.data()}, .gamma = {one.data()}}},
             dtype, nullptr);
    expect_same(y.values(), {kPoison, 1, -1, -0.0F, 0.5F, 1, -1, 0}, std::string(name(dtype)));
  }
}

TEST(RmsNormOnDevice, nan_stays_in_its_vector) {
  const DeviceBuffer<float> one(std::vector<float>{1});
  for (const DType dtype : kFloatTypes) {
    const std::int64_t dims = 24, rows = 40;
    std::mt19937 random(2);
    std::vector<float> values = random_values(random, static_cast<std::size_t>(rows * dims), dtype);
    values[7 * dims + 5] = kPoison;
    values[9 * dims + 23] = std::numeric_limits<float>::infinity();  // 0 times infinity
    const DeviceTensor x(values, dtype), y(values.size(), dtype);
    run_rms_norm({.x = x.data(),
                  .y = y.data(),
                  .x_row_stride = dims,
                  .y_row_stride = dims,
                  .rows = rows,
                  .dims = dims,
                  .norm = {.gamma = {one.data()}}},
                 dtype, nullptr);
    const std::vector<float> got = y.values();
    for (std::int64_t i = 0; i < rows * dims; ++i)
      EXPECT_EQ(std::isnan(got[static_cast<std::size_t>(i)]), i / dims == 7 || i == 9 * dims + 23) << i;
  }
}

TEST(RmsNormOnDevice, does_not_depend_on_the_batch) {
  std::mt19937 random(3);
  const std::int64_t dims = 1024, rows = 3000;
  const DeviceTensor x(random_values(random, static_cast<std::size_t>(rows * dims), DType::bf16),
                       DType::bf16);
  const TestRmsNorm norm(random, dims);
  const auto run = [&](std::int64_t first, std::int64_t count) {
    const DeviceTensor y(static_cast<std::size_t>(count * dims), DType::bf16);
    run_rms_norm({.x = x.at(static_cast<std::size_t>(first * dims)),
                  .y = y.data(),
                  .x_row_stride = dims,
                  .y_row_stride = dims,
                  .rows = count,
                  .dims = dims,
                  .norm = norm.on_device()},
                 DType::bf16, nullptr);
    return y.values();
  };
  const std::vector<float> all = run(0, rows);
  for (const std::int64_t count : {1, 5, 700}) {
    const auto begin = all.begin() + 2000 * dims;
    expect_same(run(2000, count), std::vector<float>(begin, begin + count * dims), std::to_string(count));
  }
}

TEST(NormOnDevice, errors_name_what_is_wrong) {
  const DeviceBuffer<float> one(std::vector<float>(16, 1.F));
  const auto expect = [&](auto change, DType dtype, const char* words) {
    NormArgs args = {.x = one.data(),
                     .y = one.data(),
                     .x_row_stride = 16,
                     .y_row_stride = 16,
                     .rows = 1,
                     .dims = 16,
                     .norm = {.alpha = {one.data()}, .gamma = {one.data()}}};
    change(args);
    expect_error([&] { run_norm(args, dtype, nullptr); }, words);
  };
  expect([](NormArgs&) {}, DType::i32, "dtype int32");
  expect([](NormArgs& args) { args.dims = 12; }, DType::bf16, "24 bytes");
  expect([](NormArgs& args) { args.dims = 0; }, DType::bf16, "heads of 0");
  expect([](NormArgs& args) { args.rows = -1; }, DType::bf16, "-1 rows");
  expect([](NormArgs& args) { args.x_row_stride = 17; }, DType::f32, "x's row stride");
  expect([](NormArgs& args) { args.x = nullptr; }, DType::f32, "no x");
  expect([](NormArgs& args) { args.y = static_cast<float*>(args.y) + 1; }, DType::f32, "y does not begin");
  expect([](NormArgs& args) { args.norm.alpha = {}; }, DType::f32, "no alpha");
  expect([](NormArgs& args) { args.norm.low = 2; }, DType::f32, "clip from 2");
  run_norm({}, DType::bf16, nullptr);  // no rows, nothing to do
}

TEST(RmsNormOnDevice, errors_name_what_is_wrong) {
  const DeviceBuffer<float> one(std::vector<float>(16, 1.F));
  const auto expect = [&](auto change, const char* words) {
    RmsNormArgs args = {.x = one.data(),
                        .y = one.data(),
                        .x_row_stride = 16,
                        .y_row_stride = 16,
                        .rows = 1,
                        .dims = 16,
                        .norm = {.gamma = {one.data()}}};
    change(args);
    expect_error([&] { run_rms_norm(args, DType::f32, nullptr); }, words);
  };
  expect([](RmsNormArgs& args) { args.norm.gamma = {}; }, "no gamma");
  expect([](RmsNormArgs& args) { args.norm.epsilon = -1; }, "epsilon -1");
  expect([](RmsNormArgs& args) { args.dims = 15; }, "60 bytes");
  expect([](RmsNormArgs& args) { args.rows = -1; }, "-1 rows");
  expect([](RmsNormArgs& args) { args.dims = kMostRmsDims + 16; }, "expected at most");
  run_rms_norm({}, DType::bf16, nullptr);
}

}  // namespace
}  // namespace asynct::cuda
