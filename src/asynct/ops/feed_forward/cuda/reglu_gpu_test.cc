// ReGLU on the device against the formula, rounded once.

#include "asynct/ops/feed_forward/cuda/reglu.h"

#include "asynct/ops/cuda/gpu_testing.h"

namespace asynct::cuda {
namespace {

TEST(RegluOnDevice, gives_the_bits_of_the_formula) {
  std::mt19937 random(4);
  for (const DType dtype : kFloatTypes)
    for (const DType input_dtype : {dtype, DType::f32})
      for (const auto& [rows, neurons] : {std::pair{1, 8}, {1, 3072}, {3, 40}, {2047, 96}, {65, 3080}})
        for (const bool in_place : {false, true}) {
          if (in_place && input_dtype != dtype) continue;
          // gate and up are the halves of one row, 16 elements apart from the next.
          const std::int64_t stride = 2 * neurons + 16;
          std::vector<float> input =
              random_values(random, static_cast<std::size_t>(rows * stride), input_dtype);
          input[0] = kPoison, input[3] = 0, input[5] = -0.0F;
          input[static_cast<std::size_t>(neurons)] = 1;
          for (const int i : {1, 2, 3, 4})
            input[static_cast<std::size_t>(neurons) + static_cast<std::size_t>(i)] = kPoison;
          const DeviceTensor device(input, input_dtype),
              apart(static_cast<std::size_t>(rows * neurons), dtype);
          std::vector<float> want = in_place ? input : std::vector<float>(apart.values().size());
          const std::int64_t out_stride = in_place ? stride : neurons;
          for (std::int64_t row = 0; row < rows; ++row)
            for (std::int64_t i = 0; i < neurons; ++i) {
              const float gate = input[static_cast<std::size_t>(row * stride + i)];
              const float up = input[static_cast<std::size_t>(row * stride + neurons + i)];
              want[static_cast<std::size_t>(row * out_stride + i)] =
                  gate <= 0 ? 0 : rounded(gate * up, dtype);
            }
          run_reglu({.gate = device.data(),
                     .up = device.at(static_cast<std::size_t>(neurons)),
                     .out = in_place ? device.data() : apart.data(),
                     .input_stride = stride,
                     .out_stride = out_stride,
                     .rows = rows,
                     .neurons = neurons},
                    dtype, input_dtype, nullptr);
          expect_same((in_place ? device : apart).values(), want,
                      std::string(name(dtype)) + " rows " + std::to_string(rows) + " neurons " +
                          std::to_string(neurons));
        }
}

TEST(RegluOnDevice, errors_name_what_is_wrong) {
  const DeviceBuffer<float> data(std::vector<float>(64, 1.F));
  const auto expect = [&](auto change, DType dtype, DType input, const char* words) {
    RegluArgs args = {.gate = data.data(),
                      .up = data.data() + 16,
                      .out = data.data() + 32,
                      .input_stride = 32,
                      .out_stride = 16,
                      .rows = 1,
                      .neurons = 16};
    change(args);
    expect_error([&] { run_reglu(args, dtype, input, nullptr); }, words);
  };
  expect([](RegluArgs&) {}, DType::i64, DType::i64, "dtype int64");
  expect([](RegluArgs&) {}, DType::f16, DType::bf16, "input of dtype bf16");
  expect([](RegluArgs& args) { args.neurons = 0; }, DType::f16, DType::f16, "0 neurons");
  expect([](RegluArgs& args) { args.neurons = 3; }, DType::f32, DType::f32, "12 bytes");
  expect([](RegluArgs& args) { args.up = nullptr; }, DType::f32, DType::f32, "no up");
  expect([&](RegluArgs& args) { args.out = data.data(); }, DType::bf16, DType::f32, "lies over an input");
}

}  // namespace
}  // namespace asynct::cuda
