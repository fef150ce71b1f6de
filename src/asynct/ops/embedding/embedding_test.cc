#include "asynct/ops/embedding/embedding.h"

#include <gtest/gtest.h>

#include <vector>

namespace asynct {
namespace {

TEST(Embedding, ScalesTheRowsOfTokens) {
  std::vector<Isa> isas = {Isa::scalar};
  if (cpu_features().avx2) isas.push_back(Isa::avx2);
  if (cpu_features().avx512) isas.push_back(Isa::avx512);
  ThreadPool pool(2);
  for (const std::int64_t size : {1, 7, 16, 40, 64})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const Tensor table(dtype, {5, size});
      for (std::int64_t i = 0; i < 5 * size; ++i) {
        const float value = static_cast<float>(i * 37 % 101 - 50) / 64;
        const auto at = static_cast<std::size_t>(i);
        if (dtype == DType::f32) table.values<float>()[at] = value;
        if (dtype == DType::bf16) table.values<Bf16>()[at] = to_bf16(value);
        if (dtype == DType::f16) table.values<F16>()[at] = to_f16(value);
      }
      const std::vector<std::int32_t> tokens = {4, 0, 4, 2, 3, 1};
      for (const Isa isa : isas)
        for (const Precision precision : {Precision::fp32, Precision::bf16}) {
          OpContext context(pool, isa, precision);
          std::vector<float> out(static_cast<std::size_t>(6 * (size + 1)), -77);
          Embedding(table.view(), 3.3F).run(context, tokens, Matrix(out.data(), 6, size, size + 1));
          for (std::int64_t row = 0; row < 6; ++row) {
            for (std::int64_t i = 0; i < size; ++i) {
              const float exact = 3.3F * table.view().at(tokens[static_cast<std::size_t>(row)] * size + i);
              const float want = precision == Precision::bf16 ? round_to_bf16(exact) : exact;
              EXPECT_EQ(out[static_cast<std::size_t>(row * (size + 1) + i)], want)
                  << name(isa) << " " << size;
            }
            EXPECT_EQ(out[static_cast<std::size_t>(row * (size + 1) + size)], -77);
          }
        }
    }
}

}  // namespace
}  // namespace asynct
