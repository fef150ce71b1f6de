// Products on the device against the double reference.

#include <functional>
#include <string>

#include "asynct/base/error.h"
#include "asynct/ops/linear/cuda/linear_testing.h"

namespace asynct::cuda {
namespace {

void expect_close(const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  double error = 0;
  double norm = 1e-30;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(std::isfinite(got[i])) << i;
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  EXPECT_LT(std::sqrt(error / norm), tolerance);
}

std::vector<double> values_of(const Bits& bits) {
  std::vector<double> values;
  for (const std::uint16_t b : bits) values.push_back(to_float(Bf16{b}));
  return values;
}

Product random_product(Random& random) {
  const int inputs = pick_of(random, {64, 128, 192, 256, 384, 448, 512, 1024, 3072});
  const int outputs = 8 * pick_of(random, {1, 3, 7, 8, 9, 16, 25, 64, 128, 129});
  const int border = pick_of(random, {1, 8, 16, 32, 64, 128, 256, 300, 500});
  const int most = 60'000'000 / inputs / outputs;
  return {random, std::clamp(border + pick(random, -1, 1), 1, std::min(500, most)), outputs, inputs};
}

class LinearRandom : public ::testing::TestWithParam<int> {};

TEST_P(LinearRandom, equals_the_reference) {
  Random random(static_cast<unsigned>(GetParam()));
  const Product product = random_product(random);
  const std::int32_t rows = product.x.rows;
  const std::int32_t outputs = product.weight.rows;
  SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(outputs) + " outputs, " +
               std::to_string(product.x.columns) + " inputs");
  std::vector<double> want;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t n = 0; n < outputs; ++n) want.push_back(product.reference(r, n));

  expect_close(values_of(multiply(product, 0, rows)), want, 4e-3);

  const Output<float> floats(rows, outputs, pick(random, 0, 2));
  run_linear(product.plan, product.rows_from(0), rows,
             StoreFloat{.out = floats.buffer.data(), .stride = floats.stride}, nullptr);
  const std::vector<float> got = floats.finished();
  expect_close({got.begin(), got.end()}, want, 1e-5);

  const Output<std::uint16_t> neurons(rows, outputs / 2, pick(random, 0, 2));
  run_linear(product.plan, product.rows_from(0), rows,
             StoreReglu{.out = neurons.buffer.data(), .stride = neurons.stride}, nullptr);
  std::vector<double> active;
  for (std::size_t i = 0; i < want.size(); i += 2) active.push_back(std::max(want[i], 0.0) * want[i + 1]);
  expect_close(values_of(neurons.finished()), active, 4e-3);
}

INSTANTIATE_TEST_SUITE_P(Cases, LinearRandom, ::testing::Range(0, 60));

TEST(LinearResidual, equals_the_reference) {
  Random random(7);
  for (int round = 0; round < 24; ++round) {
    const Product product = random_product(random);
    const std::int32_t rows = product.x.rows;
    const std::int32_t outputs = product.weight.rows;
    const TestMatrix residual(random, rows + 1, outputs, 1, 1);
    const bool with_post = round % 2 == 0;
    const bool with_next = round % 3 != 0;
    const EpilogueNorm post(random, outputs, round % 4 < 2);
    const EpilogueNorm next(random, outputs, round % 4 < 1);
    const Output<std::uint16_t> input(rows, outputs, 1);
    AddResidual add = {
        .residual = residual.device.data(), .residual_stride = residual.stride, .next = next.view};
    if (with_post) add.post = post.view;
    if (with_next) add.next_input = input.buffer.data(), add.next_stride = input.stride;
    run_linear(product.plan, product.rows_from(0), rows, add, nullptr);
    const Bits sums = residual.device.download();
    std::vector<double> got, want, want_next;
    for (std::int64_t r = 0; r <= rows; ++r)
      for (std::int64_t n = 0; n < residual.stride; ++n) {
        const std::size_t i = at(r * residual.stride + n);
        if (r == rows || n >= outputs) {
          EXPECT_EQ(sums[i], residual.bits[i]);
          continue;
        }
        const double y = product.reference(r, n);
        got.push_back(to_float(Bf16{sums[i]}));
        want.push_back(residual.value(r, n) + (with_post ? post.apply(n, y) : y));
        want_next.push_back(next.apply(n, got.back()));
      }
    expect_close(got, want, 4e-3);
    const Bits inputs = input.finished();
    if (with_next) {
      expect_close(values_of(inputs), want_next, 4e-3);
    } else {
      EXPECT_EQ(std::count(inputs.begin(), inputs.end(), 0xFFFF), std::ssize(inputs));
    }
  }
}

TEST(LinearNan, stays_in_its_row_and_is_not_clamped) {
  Random random(14);
  Product product(random, 20, 128, 512);
  Bits bits = product.x.bits;
  bits[at(5 * product.x.stride + 100)] = 0x7FC0;
  product.x.device.upload(bits);
  const EpilogueNorm norm(random, 128, true);
  const TestMatrix residual(random, 20, 128, 1, 0);
  const Output<std::uint16_t> next(20, 128, 0);
  const Output<std::uint16_t> neurons(20, 64, 0);
  run_linear(product.plan, product.rows_from(0), 20,
             AddResidual{residual.device.data(), residual.stride, next.buffer.data(), next.stride, norm.view,
                         norm.view},
             nullptr);
  run_linear(product.plan, product.rows_from(0), 20, StoreReglu{neurons.buffer.data(), neurons.stride},
             nullptr);
  const std::vector<double> sums = values_of(residual.device.download());
  const std::vector<double> inputs = values_of(next.finished());
  const std::vector<double> active = values_of(neurons.finished());
  for (std::size_t i = 0; i < 20 * 128; ++i) {
    EXPECT_EQ(std::isnan(sums[i]), i / 128 == 5) << i;
    EXPECT_EQ(std::isnan(inputs[i]), i / 128 == 5) << i;
    EXPECT_EQ(std::isnan(active[i / 2]), i / 128 == 5) << i;
  }
}

TEST(LinearErrors, name_what_is_wrong) {
  const DeviceBuffer<std::uint16_t> memory(64 * 1024);
  const auto expect = [](const std::function<void()>& call, const std::string& words) {
    try {
      call();
      FAIL() << words;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  const std::uint16_t* const data = memory.data();
  expect([&] { make_linear_weight(data, 64, 96, 96); }, "weight of 96 inputs");
  expect([&] { make_linear_weight(data, 60, 128, 128); }, "60 outputs");
  expect([&] { make_linear_weight(data, 64, 128, 100); }, "100 elements apart");
  expect([&] { make_linear_weight(data + 1, 64, 128, 128); }, "multiple of 16 bytes");
  expect([&] { make_linear_input(data, 0, 128, 128); }, "input of 0 rows");
  const LinearWeight weight = make_linear_weight(data, 64, 128, 128);
  const StoreBf16 out = {.out = memory.data(), .stride = 64};
  expect([&] { run_linear(weight, make_linear_input(data, 4, 64, 64), 1, out, nullptr); }, "64 columns");
  expect([&] { run_linear(weight, make_linear_input(data, 4, 128, 128), 5, out, nullptr); }, "5 rows");
  run_linear(weight, make_linear_input(data, 4, 128, 128), 0, out, nullptr);
}

}  // namespace
}  // namespace asynct::cuda
