#include "asynct/ops/kernel_bench/shapes.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <random>
#include <span>
#include <utility>

#include "asynct/base/error.h"
#include "asynct/base/strings.h"

namespace asynct::kernel_bench {
namespace {

constexpr double kElementBytes = 2;
/// The largest tensor of a shape, in elements: offsets within a sequence stay in 32 bits.
constexpr double kMostElements = 2e10;

template <std::size_t kCount>
std::array<std::int32_t, kCount> parse_numbers(std::string_view text, std::string_view option,
                                               std::string_view form) {
  std::array<std::int32_t, kCount> numbers = {};
  std::string_view rest = text;
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::size_t comma = rest.find(',');
    const bool last = i + 1 == kCount;
    const std::string_view word = rest.substr(0, comma);
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), numbers[i]);
    if (error != std::errc() || end != word.data() + word.size() || numbers[i] < 1 ||
        last != (comma == std::string_view::npos))
      fail(option, ": \"", text, "\", expected ", form, ", numbers from 1");
    if (!last) rest.remove_prefix(comma + 1);
  }
  return numbers;
}

/// Heads that the kernels can group, head sizes that they have.
void check_heads(std::string_view option, std::string_view text, std::int32_t heads, std::int32_t kv_heads,
                 std::int32_t head_dim) {
  if (heads % kv_heads != 0)
    fail(option, ": \"", text, "\": ", heads, " query heads, expected a multiple of the ", kv_heads,
         " KV heads");
  if (head_dim != 64 && head_dim != 128)
    fail(option, ": \"", text, "\": head size ", head_dim, ", expected 64 or 128");
}

void check_size(std::string_view option, std::string_view text, double elements) {
  if (elements > kMostElements)
    fail(option, ": \"", text, "\": ", elements, " elements of one tensor, expected at most ", kMostElements);
}

std::string join(std::span<const std::int32_t> numbers) {
  std::string text;
  for (const std::int32_t n : numbers) text += cat(text.empty() ? "" : ",", n);
  return text;
}

double product(std::int32_t a, std::int32_t b, std::int32_t c, std::int32_t d) {
  return static_cast<double>(a) * b * c * d;
}

/// Rows at the end of `context` keys and the keys that they see.
double pairs(double rows, double context) { return rows * (context - rows) + rows * rows / 2; }

}  // namespace

DecodeShape DecodeShape::parse(std::string_view text, std::string_view option) {
  const auto n = parse_numbers<5>(text, option, "B,T,H,Hk,D");
  check_heads(option, text, n[2], n[3], n[4]);
  check_size(option, text, product(n[0], n[1], n[3], n[4]));
  return {n[0], n[1], n[2], n[3], n[4]};
}

std::string DecodeShape::text() const { return join(std::array{batch, context, heads, kv_heads, head_dim}); }

Floor DecodeShape::floor(double density) const {
  const double side = kElementBytes * product(batch, context, kv_heads, head_dim);
  const double rows = kElementBytes * product(batch, 1, heads, head_dim);
  return {.bytes = side * (1 + density) + 2 * rows,
          .flops = 2 * product(batch, context, heads, head_dim) * (1 + density)};
}

PrefillShape PrefillShape::parse(std::string_view text, std::string_view option) {
  const auto n = parse_numbers<5>(text, option, "B,T,H,Hk,D");
  check_heads(option, text, n[2], n[3], n[4]);
  check_size(option, text, product(n[0], n[1], n[2], n[4]));
  return {n[0], n[1], n[2], n[3], n[4]};
}

std::string PrefillShape::text() const { return join(std::array{batch, context, heads, kv_heads, head_dim}); }

Floor PrefillShape::floor() const {
  return {.bytes = 2 * kElementBytes *
                   (product(batch, context, heads, head_dim) + product(batch, context, kv_heads, head_dim)),
          .flops = 4 * product(batch, heads, head_dim, 1) * pairs(context, context)};
}

MixedShape MixedShape::parse(std::string_view text, std::string_view option) {
  const auto n = parse_numbers<8>(text, option, "PREFILLS,ROWS,CONTEXT,DECODES,DECODE_CONTEXT,H,Hk,D");
  check_heads(option, text, n[5], n[6], n[7]);
  check_size(option, text, product(n[0], n[2], n[5], n[7]) + product(n[3], n[4], n[5], n[7]));
  if (n[1] > n[2])
    fail(option, ": \"", text, "\": chunks of ", n[1], " rows, expected at most the context, ", n[2]);
  return {n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7]};
}

std::string MixedShape::text() const {
  return join(std::array{prefills, rows, context, decodes, decode_context, heads, kv_heads, head_dim});
}

Floor MixedShape::prefill_floor() const {
  return {
      .bytes = 2 * kElementBytes *
               (product(prefills, context, kv_heads, head_dim) + product(prefills, rows, heads, head_dim)),
      .flops = 4 * product(prefills, heads, head_dim, 1) * pairs(rows, context)};
}

Floor MixedShape::decode_floor() const {
  return DecodeShape{decodes, decode_context, heads, kv_heads, head_dim}.floor(1);
}

Floor MixedShape::floor() const {
  return {.bytes = prefill_floor().bytes + decode_floor().bytes,
          .flops = prefill_floor().flops + decode_floor().flops};
}

LinearShape LinearShape::parse(std::string_view text, std::string_view option) {
  const auto n = parse_numbers<3>(text, option, "M,N,K");
  if (n[1] % 8 != 0 || n[2] % 8 != 0)
    fail(option, ": \"", text, "\": ", n[1], " outputs and ", n[2], " inputs, expected multiples of 8");
  check_size(option, text,
             std::max({product(n[1], n[2], 1, 1), product(n[0], n[1], 1, 1), product(n[0], n[2], 1, 1)}));
  return {n[0], n[1], n[2]};
}

std::string LinearShape::text() const { return join(std::array{rows, outputs, inputs}); }

Floor LinearShape::floor() const {
  return {.bytes = kElementBytes * (product(outputs, inputs, 1, 1) + product(rows, inputs, 1, 1) +
                                    product(rows, outputs, 1, 1)),
          .flops = 2 * product(rows, outputs, inputs, 1)};
}

LayerShape LayerShape::parse(std::string_view text, std::string_view option) {
  const auto n = parse_numbers<7>(text, option, "M,d,H,Hk,D,F,V");
  check_heads(option, text, n[2], n[3], n[4]);
  if (n[1] % 8 != 0 || n[5] % 8 != 0)
    fail(option, ": \"", text, "\": hidden size ", n[1], " and ", n[5], " neurons, expected multiples of 8");
  check_size(option, text,
             std::max({product(n[0], n[1], 1, 1), product(n[0], n[2] + 2 * n[3], n[4], 1),
                       product(n[0], 2, n[5], 1), product(n[1], n[6], 1, 1)}));
  return {n[0], n[1], n[2], n[3], n[4], n[5], n[6]};
}

std::string LayerShape::text() const {
  return join(std::array{rows, hidden, heads, kv_heads, head_dim, neurons, vocabulary});
}

std::vector<DecodeShape> default_decode_shapes() {
  return {{32, 1024, 8, 4, 128},
          {256, 1024, 8, 4, 128},
          {32, 8192, 8, 4, 128},
          {1, 65536, 8, 4, 128},
          {256, 1024, 32, 8, 128}};
}

std::vector<PrefillShape> default_prefill_shapes() {
  return {{16, 1024, 16, 16, 128}, {4, 4096, 16, 16, 128}, {2, 8192, 16, 16, 128}, {1, 16384, 16, 16, 128},
          {16, 1024, 8, 4, 128},   {1, 16384, 8, 4, 128},  {4, 4096, 16, 16, 64},  {1, 16384, 16, 16, 64}};
}

std::vector<MixedShape> default_mixed_shapes() {
  return {{8, 512, 2560, 128, 1024, 8, 4, 128}, {8, 512, 2560, 128, 1024, 32, 8, 128}};
}

std::vector<LinearShape> default_linear_shapes() {
  std::vector<LinearShape> shapes;
  for (const auto& [outputs, inputs] : {std::pair(2048, 1024), std::pair(1024, 1024), std::pair(6144, 1024),
                                        std::pair(1024, 3072), std::pair(151936, 1024)})
    for (const std::int32_t rows : {1, 8, 32, 64, 256, 2048}) shapes.push_back({rows, outputs, inputs});
  return shapes;
}

std::vector<LayerShape> default_layer_shapes() {
  std::vector<LayerShape> shapes;
  for (const std::int32_t rows : {1, 32, 256, 8192}) shapes.push_back({rows, 1024, 8, 4, 128, 3072, 151936});
  return shapes;
}

std::vector<std::uint8_t> needed_keys(std::int64_t rows, std::int32_t context, double density,
                                      unsigned seed) {
  const auto length = static_cast<std::ptrdiff_t>(context);
  const std::ptrdiff_t wanted = std::lround(density * context);
  std::vector<std::uint8_t> needed(static_cast<std::size_t>(rows * context));
  std::mt19937 random(seed);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto begin = needed.begin() + row * length;
    std::fill(begin, begin + wanted, std::uint8_t{1});
    std::shuffle(begin, begin + length, random);
  }
  return needed;
}

int rotating_sets(double bytes_a_set, double cache_bytes) {
  constexpr double kTimesTheCache = 8;
  constexpr double kMostSets = 64;
  return static_cast<int>(std::clamp(std::ceil(kTimesTheCache * cache_bytes / bytes_a_set), 2.0, kMostSets));
}

}  // namespace asynct::kernel_bench
