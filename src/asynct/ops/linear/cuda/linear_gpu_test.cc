// Products on the device against the double reference, and against themselves: a row's bits do not depend on
// the rows beside it, a product's not on what runs before and after.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "asynct/base/error.h"
#include "asynct/ops/cuda/device_buffer.h"
#include "asynct/ops/linear/cuda/launch.h"
#include "asynct/ops/linear/cuda/linear.h"
#include "asynct/tensor/dtype.h"

namespace asynct::cuda {
namespace {

using Random = std::mt19937;
using Bits = std::vector<std::uint16_t>;

int pick(Random& random, int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }
int pick_of(Random& random, const std::vector<int>& values) {
  return values[static_cast<std::size_t>(pick(random, 0, static_cast<int>(values.size()) - 1))];
}
std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// A matrix of bf16 values in memory with gaps between its rows, which hold NaN.
struct TestMatrix {
  TestMatrix(Random& random, std::int32_t row_count, std::int32_t column_count, float scale, int gap)
      : rows(row_count), columns(column_count), stride(column_count + 8 * gap) {
    std::normal_distribution<float> normal(0, scale);
    bits.assign(at(rows * stride), 0xFFFF);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) bits[at(r * stride + c)] = to_bf16(normal(random)).bits;
    device = DeviceBuffer<std::uint16_t>(bits);
  }
  float value(std::int64_t r, std::int64_t c) const { return to_float(Bf16{bits[at(r * stride + c)]}); }

  std::int32_t rows, columns;
  std::int64_t stride;
  Bits bits;
  DeviceBuffer<std::uint16_t> device;
};

struct Product {
  Product(Random& random, std::int32_t rows, std::int32_t outputs, std::int32_t inputs)
      : x(random, rows, inputs, 1, pick(random, 0, 2)),
        weight(random, outputs, inputs, 1 / std::sqrt(static_cast<float>(inputs)), pick(random, 0, 2)),
        plan(make_linear_weight(weight.device.data(), outputs, inputs, weight.stride)) {}

  LinearInput rows_from(std::int32_t first) const {
    return make_linear_input(x.device.data() + first * x.stride, x.rows - first, x.columns, x.stride);
  }
  double reference(std::int64_t row, std::int64_t n) const {
    double sum = 0;
    for (std::int64_t k = 0; k < x.columns; ++k) sum += double{x.value(row, k)} * weight.value(n, k);
    return sum;
  }

  TestMatrix x, weight;
  LinearWeight plan;
};

/// What a launch wrote, rows `stride` apart; everything else must still be poison.
template <class Element>
struct Output {
  Output(std::int32_t row_count, std::int32_t column_count, int gap)
      : rows(row_count),
        columns(column_count),
        stride(column_count + 2 * gap),
        buffer(at((rows + 1) * stride)) {
    buffer.fill_bytes(0xFF);
  }
  std::vector<Element> finished() const {
    const std::vector<Element> all = buffer.download();
    std::vector<Element> values;
    std::array<unsigned char, sizeof(Element)> poison;
    poison.fill(0xFF);
    for (std::int64_t i = 0; i < std::ssize(all); ++i) {
      if (i / stride < rows && i % stride < columns)
        values.push_back(all[at(i)]);
      else
        EXPECT_EQ(std::memcmp(&all[at(i)], poison.data(), sizeof(Element)), 0)
            << "written outside, element " << i;
    }
    return values;
  }

  std::int32_t rows, columns;
  std::int64_t stride;
  DeviceBuffer<Element> buffer;
};

/// By a tile of kLinearTiles; null: the streaming kernel.
template <class Epilogue>
void launch(const LinearTile* tile, const Product& product, const LinearInput& x, std::int32_t rows,
            const Epilogue& epilogue) {
  if (tile == nullptr)
    launch_stream(product.plan, x, rows, epilogue, nullptr);
  else if (tile->slices)
    launch_slices(*tile, product.plan, x, rows, epilogue, nullptr);
  else
    launch_tiles(*tile, product.plan, x, rows, epilogue, nullptr);
}

Bits multiply(const Product& product, std::int32_t first_row, std::int32_t rows) {
  const Output<std::uint16_t> out(rows, product.weight.rows, 1);
  run_linear(product.plan, product.rows_from(first_row), rows,
             StoreBf16{.out = out.buffer.data(), .stride = out.stride}, nullptr);
  return out.finished();
}

Bits multiply_by(const LinearTile* tile, const Product& product, std::int32_t first_row, std::int32_t rows,
                 int gap) {
  const Output<std::uint16_t> out(rows, product.weight.rows, gap);
  launch(tile, product, product.rows_from(first_row), rows,
         StoreBf16{.out = out.buffer.data(), .stride = out.stride});
  return out.finished();
}

std::string name_of(const LinearTile& tile) {
  return std::to_string(tile.tokens) + " x " + std::to_string(tile.outputs) + (tile.slices ? " slices" : "");
}

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

/// Factors of a norm and the same on the device.
struct TestNorm {
  TestNorm(Random& random, std::int32_t size, bool with_beta) {
    std::uniform_real_distribution<float> around(0.5F, 1.5F);
    for (std::int32_t i = 0; i < size; ++i) {
      alpha.push_back(around(random));
      gamma.push_back(around(random));
      if (with_beta) beta.push_back(around(random) - 1);
    }
    for (const auto* values : {&alpha, &gamma, &beta}) device.emplace_back(*values);
    view = {device[0].data(), device[1].data(), device[2].data(), -0.9F, 1.1F};
  }
  double apply(std::int64_t n, double x) const {
    const double t = alpha[at(n)] * x + (beta.empty() ? 0 : beta[at(n)]);
    return gamma[at(n)] * std::clamp(t, -0.9, 1.1);
  }

  std::vector<float> alpha, gamma, beta;
  std::vector<DeviceBuffer<float>> device;
  DyhtView view;
};

TEST(LinearResidual, equals_the_reference) {
  Random random(7);
  for (int round = 0; round < 24; ++round) {
    const Product product = random_product(random);
    const std::int32_t rows = product.x.rows;
    const std::int32_t outputs = product.weight.rows;
    const TestMatrix residual(random, rows + 1, outputs, 1, 1);
    const bool with_post = round % 2 == 0;
    const bool with_next = round % 3 != 0;
    const TestNorm post(random, outputs, round % 4 < 2);
    const TestNorm next(random, outputs, round % 4 < 1);
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

/// The source model's shapes, a short head, and what none of their tiles divides.
const std::vector<std::pair<int, int>> kShapes = {{2048, 1024}, {1024, 1024}, {6144, 1024}, {1024, 3072},
                                                  {40000, 128}, {200, 448},   {1000, 512},  {328, 1536}};

TEST(LinearBits, do_not_depend_on_the_rows_beside) {
  Random random(11);
  for (const auto& [outputs, inputs] : kShapes) {
    const Product product(random, 300, outputs, inputs);
    const Bits all = multiply_by(nullptr, product, 0, 300, 1);
    for (const int rows : {1, 2, 7, 8, 9, 16, 17, 32, 64, 65, 128, 129, 200}) {
      const int first = pick(random, 0, 300 - rows);
      const Bits some = multiply(product, first, rows);
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + std::ptrdiff_t{first} * outputs))
          << rows << " rows, " << outputs << " x " << inputs;
    }
  }
}

TEST(LinearBits, do_not_depend_on_the_tile) {
  Random random(15);
  for (const auto& [outputs, inputs] : kShapes) {
    const Product product(random, 600, outputs, inputs);
    const Bits all = multiply_by(nullptr, product, 0, 600, 1);
    for (const LinearTile& tile : kLinearTiles) {
      if (!tile.suits(product.plan.parts)) continue;
      for (const int rows : {1, 63, 128, 257, 600}) {
        const int first = pick(random, 0, 600 - rows);
        // Rows 16 bytes apart, where whole pieces are written, and not.
        const Bits some = multiply_by(&tile, product, first, rows, rows % 2 == 0 ? 4 : 1);
        EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + std::ptrdiff_t{first} * outputs))
            << rows << " rows, " << outputs << " x " << inputs << ", tile " << name_of(tile);
      }
    }
  }
}

/// What a product leaves behind with an epilogue, by the tile.
template <class Element>
std::vector<Element> left_by(const LinearTile* tile, const Product& product, std::int32_t columns, int gap,
                             const std::function<void(const Output<Element>& out)>& launch_into) {
  const Output<Element> out(product.x.rows, columns, gap);
  launch_into(out);
  SCOPED_TRACE(tile == nullptr ? "streaming" : name_of(*tile));
  return out.finished();
}

TEST(LinearBits, of_every_epilogue_do_not_depend_on_the_tile) {
  Random random(16);
  for (const auto& [outputs, inputs] :
       std::vector<std::pair<int, int>>{{328, 512}, {344, 1024}, {1024, 384}, {40000, 64}}) {
    const std::int32_t rows = 150;
    const Product product(random, rows, outputs, inputs);
    const LinearInput x = product.rows_from(0);
    const TestNorm post(random, outputs, true);
    const TestNorm next(random, outputs, false);
    for (const int gap : {1, 4}) {  // of 2 elements: rows on 4 bytes, on 16
      const TestMatrix start(random, rows, outputs, 1, 1);
      const auto results = [&](const LinearTile* tile) {
        const auto floats = left_by<float>(tile, product, outputs, gap, [&](const Output<float>& out) {
          launch(tile, product, x, rows, StoreFloat{.out = out.buffer.data(), .stride = out.stride});
        });
        Bits bits(2 * floats.size());
        std::memcpy(bits.data(), floats.data(), floats.size() * sizeof(float));
        const Bits neurons =
            left_by<std::uint16_t>(tile, product, outputs / 2, gap, [&](const Output<std::uint16_t>& out) {
              launch(tile, product, x, rows, StoreReglu{.out = out.buffer.data(), .stride = out.stride});
            });
        const Output<std::uint16_t> sums(rows, outputs, gap);
        check(cudaMemcpy2D(sums.buffer.data(), at(2 * sums.stride), start.device.data(), at(2 * start.stride),
                           at(2 * outputs), at(rows), cudaMemcpyDeviceToDevice),
              "cudaMemcpy2D");
        const Bits inputs_of_next =
            left_by<std::uint16_t>(tile, product, outputs, gap, [&](const Output<std::uint16_t>& out) {
              launch(tile, product, x, rows,
                     AddResidual{sums.buffer.data(), sums.stride, out.buffer.data(), out.stride, post.view,
                                 next.view});
            });
        for (const Bits& more : {neurons, inputs_of_next, sums.finished()})
          bits.insert(bits.end(), more.begin(), more.end());
        return bits;
      };
      const Bits want = results(nullptr);
      for (const LinearTile& tile : kLinearTiles)
        if (tile.suits(product.plan.parts)) {
          EXPECT_TRUE(results(&tile) == want)
              << outputs << " x " << inputs << ", tile " << name_of(tile) << ", gap " << gap;
        }
    }
  }
}

TEST(LinearBits, follow_the_order_of_parts) {
  // One large value in each part and its negative in the last: the sum tells in which order parts were added.
  Random random(12);
  Product product(random, 1, 1024, 3072);
  const std::int32_t parts = product.plan.parts;
  ASSERT_GE(parts, 4);
  const std::int32_t inputs = 3072 / parts;
  std::vector<float> value(at(parts));
  for (std::int32_t p = 0; p < parts; ++p) value[at(p)] = p == parts - 1 ? -0x1p30F : p == 1 ? 0x1p30F : 1;
  Bits x(3072, 0);
  for (std::int32_t p = 0; p < parts; ++p) x[at(p * inputs)] = to_bf16(value[at(p)]).bits;
  product.x.device.upload(x);
  product.weight.device.upload(Bits(product.weight.bits.size(), to_bf16(1).bits));
  float want = 0;
  for (const float v : value) want += v;
  const DeviceBuffer<float> out(1024);
  run_linear(product.plan, make_linear_input(product.x.device.data(), 1, 3072, product.x.stride), 1,
             StoreFloat{.out = out.data(), .stride = 1024}, nullptr);
  for (const float v : out.download()) ASSERT_EQ(v, want);
}

/// Products each of which needs the one before, over two buffers that they overwrite in turn: launched as
/// fast as the stream takes them they give what they give one by one.
TEST(LinearChain, does_not_overtake_itself) {
  Random random(13);
  for (const int rows : {1, 16, 100, 290}) {
    std::vector<Product> products;
    for (const auto& [outputs, inputs] :
         std::vector<std::pair<int, int>>{{2048, 1024}, {1024, 2048}, {20480, 1024}, {1024, 1024}})
      products.emplace_back(random, 1, outputs, inputs);
    const TestMatrix start(random, rows, 1024, 1, 0);
    const auto chain = [&](bool one_by_one) {
      const DeviceBuffer<std::uint16_t> buffers[2] = {DeviceBuffer<std::uint16_t>(at(rows * 20480)),
                                                      DeviceBuffer<std::uint16_t>(at(rows * 20480))};
      std::vector<LinearInput> inputs;
      for (int i = 0; i < 32; ++i)
        inputs.push_back(
            make_linear_input(buffers[i % 2].data(), rows, products[at(i % 4)].plan.inputs, 20480));
      check(cudaMemcpy2D(buffers[0].data(), 40960, start.device.data(), 2048, 2048, at(rows),
                         cudaMemcpyDeviceToDevice),
            "cudaMemcpy2D");
      for (int i = 0; i < 32; ++i) {
        run_linear(products[at(i % 4)].plan, inputs[at(i)], rows,
                   StoreBf16{.out = buffers[(i + 1) % 2].data(), .stride = 20480}, nullptr);
        if (one_by_one) check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      }
      Bits out(at(rows * 1024));
      check(cudaMemcpy2D(out.data(), 2048, buffers[0].data(), 40960, 2048, at(rows), cudaMemcpyDeviceToHost),
            "cudaMemcpy2D");
      return out;
    };
    const Bits want = chain(true);
    EXPECT_GT(std::count_if(want.begin(), want.end(), [](std::uint16_t b) { return (b & 0x7FFF) > 0x3000; }),
              100);
    for (int round = 0; round < 10; ++round) EXPECT_EQ(chain(false), want) << rows << " rows";
  }
}

TEST(LinearNan, stays_in_its_row_and_is_not_clamped) {
  Random random(14);
  Product product(random, 20, 128, 512);
  Bits bits = product.x.bits;
  bits[at(5 * product.x.stride + 100)] = 0x7FC0;
  product.x.device.upload(bits);
  const TestNorm norm(random, 128, true);
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
