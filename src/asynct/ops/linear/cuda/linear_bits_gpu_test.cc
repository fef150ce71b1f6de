// A row's bits do not depend on the rows beside it, nor on the kernel and its tile, a product's not on what
// runs before and after.

#include <functional>
#include <string>

#include "asynct/ops/cuda/error.h"
#include "asynct/ops/linear/cuda/launch.h"
#include "asynct/ops/linear/cuda/linear_testing.h"

namespace asynct::cuda {
namespace {

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
  for (const auto& [of_outputs, inputs] :
       std::vector<std::pair<int, int>>{{328, 512}, {344, 1024}, {1024, 384}, {40000, 64}}) {
    const std::int32_t rows = 150;
    const std::int32_t outputs = of_outputs;  // clang 14 captures no structured binding
    const Product product(random, rows, outputs, inputs);
    const LinearInput x = product.rows_from(0);
    const EpilogueNorm post(random, outputs, true);
    const EpilogueNorm next(random, outputs, false);
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

}  // namespace
}  // namespace asynct::cuda
