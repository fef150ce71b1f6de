// Rows of the table on the device are the CPU operator's.

#include "asynct/ops/embedding/cuda/embedding.h"

#include "asynct/ops/cuda/gpu_testing.h"
#include "asynct/ops/embedding/embedding.h"

namespace asynct::cuda {
namespace {

TEST(EmbeddingOnDevice, gives_the_cpus_bits) {
  std::mt19937 random(5);
  ThreadPool pool(1);
  for (const DType dtype : kFloatTypes)
    for (const auto& [rows, size] : {std::pair{1, 1024}, {3, 8}, {700, 136}, {2100, 512}})
      for (const float multiplier : {1.F, 50.F}) {
        constexpr std::int32_t kVocabulary = 500;
        const std::vector<float> table =
            random_values(random, static_cast<std::size_t>(std::int64_t{kVocabulary} * size), dtype);
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows));
        for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random() % kVocabulary);
        tokens.back() = kVocabulary - 1;
        // The table holds what the dtype can, so the CPU reads it as floats.
        OpContext context(pool, Isa::scalar, dtype == DType::bf16 ? Precision::bf16 : Precision::fp32);
        std::vector<float> want(static_cast<std::size_t>(rows * size));
        const TensorView view = {.data = table.data(), .dtype = DType::f32, .shape = {kVocabulary, size}};
        Embedding(view, multiplier).run(context, tokens, Matrix(want.data(), rows, size));
        for (float& value : want) value = rounded(value, dtype);

        const DeviceTensor on_device(table, dtype), out(want.size(), dtype);
        const DeviceBuffer<std::int32_t> token_ids(tokens);
        run_embedding({.table = on_device.data(),
                       .tokens = token_ids.data(),
                       .out = out.data(),
                       .out_stride = size,
                       .rows = rows,
                       .vocabulary = kVocabulary,
                       .size = size,
                       .multiplier = multiplier},
                      dtype, nullptr);
        expect_same(out.values(), want, std::string(name(dtype)) + " rows " + std::to_string(rows));
      }
}

TEST(EmbeddingOnDevice, a_token_that_is_not_there_gives_nan) {
  const DeviceTensor table(std::vector<float>(4 * 8, 1.F), DType::bf16), out(std::size_t{4 * 8}, DType::bf16);
  const DeviceBuffer<std::int32_t> tokens(std::vector<std::int32_t>{0, -1, 4, 3});
  run_embedding({.table = table.data(),
                 .tokens = tokens.data(),
                 .out = out.data(),
                 .out_stride = 8,
                 .rows = 4,
                 .vocabulary = 4,
                 .size = 8},
                DType::bf16, nullptr);
  const std::vector<float> values = out.values();
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(std::isnan(values[i]), i / 8 == 1 || i / 8 == 2) << i;
}

TEST(EmbeddingOnDevice, errors_name_what_is_wrong) {
  const DeviceBuffer<float> data(std::vector<float>(64, 1.F));
  const DeviceBuffer<std::int32_t> tokens(std::vector<std::int32_t>{0});
  const auto expect = [&](auto change, DType dtype, const char* words) {
    EmbeddingArgs args = {.table = data.data(),
                          .tokens = tokens.data(),
                          .out = data.data() + 32,
                          .out_stride = 8,
                          .rows = 1,
                          .vocabulary = 2,
                          .size = 8};
    change(args);
    expect_error([&] { run_embedding(args, dtype, nullptr); }, words);
  };
  expect([](EmbeddingArgs&) {}, DType::i32, "dtype int32");
  expect([](EmbeddingArgs& args) { args.size = 4; }, DType::bf16, "rows of 8 bytes");
  expect([](EmbeddingArgs& args) { args.vocabulary = 0; }, DType::bf16, "table of [0, 8]");
  expect([](EmbeddingArgs& args) { args.tokens = nullptr; }, DType::bf16, "no tokens");
}

}  // namespace
}  // namespace asynct::cuda
