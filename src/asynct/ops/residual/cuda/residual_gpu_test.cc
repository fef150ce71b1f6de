// Residual add and norms on the device give the bits of the CPU's epilogue.

#include "asynct/ops/residual/cuda/residual.h"

#include "asynct/ops/norm/cuda/norm_test_case.h"
#include "asynct/ops/residual/residual_epilogue.h"

namespace asynct::cuda {
namespace {

struct Rows {
  std::vector<float> product, residual, next;
};

/// The CPU's epilogue in fp32 and bf16; the same with fp16's rounding, which the CPU does not have.
void run_on_cpu(Rows& rows, const Norm* post, const Norm& next, std::int64_t size, DType dtype, Isa isa) {
  ThreadPool pool(1);
  const OpContext context(pool, isa, dtype == DType::bf16 ? Precision::bf16 : Precision::fp32);
  const auto count = std::ssize(rows.residual) / size;
  if (dtype != DType::f16) {
    ResidualEpilogue{context,
                     Matrix(rows.product.data(), count, size),
                     Matrix(rows.residual.data(), count, size),
                     Matrix(rows.next.data(), count, size),
                     post,
                     next}(0, count, 0);
    return;
  }
  for (std::int64_t row = 0; row < count; ++row) {
    float* const product = rows.product.data() + row * size;
    float* const residual = rows.residual.data() + row * size;
    float* const out = rows.next.data() + row * size;
    if (post != nullptr) post->apply(context, product, product, false);
    for (std::int64_t i = 0; i < size; ++i) residual[i] = rounded(residual[i] + product[i], dtype);
    next.apply(context, residual, out, false);
    for (std::int64_t i = 0; i < size; ++i) out[i] = rounded(out[i], dtype);
  }
}

template <class TestCase, class Args>
void expect_cpus_bits(void (*run)(const Args&, DType, DType, cudaStream_t)) {
  std::mt19937 random(2);
  for (const DType dtype : kFloatTypes)
    for (const DType product_dtype : {dtype, DType::f32})
      for (const auto& [count, size] : {std::pair{1, 8}, {1, 1024}, {7, 72}, {2048, 64}, {129, 1096}})
        for (const bool has_post : {false, true}) {
          const auto elements = static_cast<std::size_t>(count * size);
          const TestCase post(random, size), next(random, size);
          Rows rows = {random_values(random, elements, product_dtype), random_values(random, elements, dtype),
                       std::vector<float>(elements)};
          rows.product[elements / 2] = kPoison;
          rows.residual[elements / 3] = kPoison;
          const bool over_product = product_dtype == dtype && random() % 2 == 0;
          const DeviceTensor product(rows.product, product_dtype), residual(rows.residual, dtype);
          const DeviceTensor apart(elements, dtype);
          const DeviceTensor& out = over_product ? product : apart;
          run({.product = product.data(),
               .residual = residual.data(),
               .next_input = out.data(),
               .product_stride = size,
               .residual_stride = size,
               .next_stride = size,
               .rows = count,
               .size = size,
               .has_post = has_post,
               .post = post.on_device(),
               .next = next.on_device()},
              dtype, product_dtype, nullptr);
          run_on_cpu(rows, has_post ? &post.norm() : nullptr, next.norm(), size, dtype, TestCase::isa());
          const std::string what =
              std::string(name(dtype)) + " rows " + std::to_string(count) + " size " + std::to_string(size);
          expect_same(residual.values(), rows.residual, what + ", residual");
          expect_same(out.values(), rows.next, what + ", next input");
        }
}

TEST(ResidualOnDevice, gives_the_cpus_bits) { expect_cpus_bits<TestNorm>(run_residual); }
TEST(RmsResidualOnDevice, gives_the_cpus_bits) { expect_cpus_bits<TestRmsNorm>(run_rms_residual); }

TEST(ResidualOnDevice, strides_leave_what_lies_between) {
  std::mt19937 random(3);
  const TestNorm norm(random, 16);
  const DeviceTensor product(random_values(random, 3 * 16, DType::bf16), DType::bf16);
  const DeviceTensor residual(random_values(random, 3 * 24, DType::bf16), DType::bf16);
  const DeviceTensor out(std::size_t{3 * 32}, DType::bf16);
  const std::vector<float> before = residual.values();
  run_residual({.product = product.data(),
                .residual = residual.data(),
                .next_input = out.data(),
                .product_stride = 16,
                .residual_stride = 24,
                .next_stride = 32,
                .rows = 3,
                .size = 16,
                .next = norm.on_device()},
               DType::bf16, DType::bf16, nullptr);
  const std::vector<float> after = residual.values(), next = out.values(), added = product.values();
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t i = 0; i < 24; ++i)
      EXPECT_EQ(after[24 * row + i],
                i < 16 ? round_to_bf16(before[24 * row + i] + added[16 * row + i]) : before[24 * row + i]);
    for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(std::isnan(next[32 * row + i]), i >= 16);
  }
}

TEST(ResidualOnDevice, errors_name_what_is_wrong) {
  const DeviceBuffer<float> one(std::vector<float>(16, 1.F)), other(std::vector<float>(16, 1.F));
  const DyhtParams norm = {.alpha = {one.data()}, .gamma = {one.data()}};
  const auto expect = [&](auto change, DType dtype, DType product, const char* words) {
    ResidualArgs args = {.product = one.data(),
                         .residual = other.data(),
                         .next_input = one.data(),
                         .product_stride = 16,
                         .residual_stride = 16,
                         .next_stride = 16,
                         .rows = 1,
                         .size = 8,
                         .next = norm};
    change(args);
    expect_error([&] { run_residual(args, dtype, product, nullptr); }, words);
  };
  expect([](ResidualArgs& args) { args.next_input = args.residual; }, DType::bf16, DType::f16,
         "input of dtype fp16");
  expect([](ResidualArgs&) {}, DType::bf16, DType::f32, "lies over a product");
  expect([](ResidualArgs& args) { args.size = 4; }, DType::bf16, DType::bf16, "rows of 8 bytes");
  expect([](ResidualArgs& args) { args.has_post = true; }, DType::f32, DType::f32, "no alpha");
  expect([](ResidualArgs& args) { args.residual = nullptr; }, DType::f32, DType::f32, "no residual");
}

}  // namespace
}  // namespace asynct::cuda
