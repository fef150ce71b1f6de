#include "asynct/python/attention_tensors.h"

namespace asynct::extension {
namespace {

void check_block_table(const TensorRef& table, const StepRoom& room) {
  expect_dtype("block_table", table, {DType::i32});
  expect_shape("block_table", table, {-1, -1});
  if (table.shape[0] < room.sequences)
    fail("block_table: ", table.shape[0], " rows, expected at least ", room.sequences, ", one a sequence");
  if (room.sequences > 0 && table.shape[1] * room.shape.block_size < room.context)
    fail("block_table: ", table.shape[1], " blocks a row, expected enough for ", room.context, " tokens");
  if (table.shape[1] > 1 && table.stride[1] != 1)
    fail("block_table: blocks of a row are ", table.stride[1], " apart, expected contiguous rows");
}

}  // namespace

void check_memory(const StepMemory& memory, const StepRoom& room, bool counts_values, int device) {
  const auto check = [&](std::string_view name, const TensorRef& tensor, DType dtype, std::int64_t elements) {
    if (elements == 0) return;
    expect_dtype(name, tensor, {dtype});
    expect_device(name, tensor, device);
    expect_room(name, tensor, elements);
  };
  check("units", memory.units, DType::i32, 8 * room.unit_rows());
  check("partial sums", memory.partial, DType::f32, room.partial_floats());
  check("arrival counters", memory.arrived, DType::i32, room.arrived_words());
  check("span sums", memory.span_sums, DType::f32, room.span_sum_floats());
  check("value counter", memory.value_count, DType::i64, counts_values ? 1 : 0);
  if (room.shape.block_size == 0) return check("first_key", memory.places, DType::i64, room.sequences);
  expect_device("block_table", memory.places, device);
  check_block_table(memory.places, room);
}

void check_layer(LayerTensors& layer, const StepRoom& room, std::int64_t key_blocks) {
  const auto& [heads, kv_heads, head_dim, block_size] = room.shape;
  TensorRef& query = layer.query;
  TensorRef& key = layer.key;
  TensorRef& out = layer.out;
  expect_dtype("query", query, {DType::bf16, DType::f16});
  if (!query.on_cuda) fail("query: on the CPU, expected on a CUDA device");
  const auto check = [&](std::string_view name, TensorRef& tensor,
                         std::initializer_list<std::int64_t> shape) {
    expect_dtype(name, tensor, {*query.dtype});
    expect_device(name, tensor, query.device);
    expect_shape(name, tensor, shape);
    expect_rows(name, tensor);
  };
  check("query", query, {-1, heads, head_dim});
  if (block_size == 0) {
    check("keys", key, {-1, kv_heads, head_dim});
    check("values", layer.value, {key.shape[0], kv_heads, head_dim});
  } else {
    check("key cache", key, {-1, block_size, kv_heads, head_dim});
    check("value cache", layer.value, {key.shape[0], block_size, kv_heads, head_dim});
  }
  check("out", out, {query.shape[0], heads, head_dim});
  for (const auto* rows : {&query, &out})
    if (rows->stride[1] != head_dim)
      fail(rows == &out ? "out" : "query", ": heads of a row are ", rows->stride[1], " apart, expected ",
           head_dim);
  if (out.shape[0] > 1 && out.stride[0] < std::int64_t{heads} * head_dim)
    fail("out: rows are ", out.stride[0], " apart, expected at least ", std::int64_t{heads} * head_dim,
         ": they would overlap");
  if (query.shape[0] < room.tokens)
    fail("query: ", query.shape[0], " rows, expected at least ", room.tokens,
         room.captured ? ", the most that a captured step may have" : ", those of the plan");
  if (key_blocks > key.shape[0] && block_size == 0)
    fail("keys: ", key.shape[0], " rows, expected at least ", key_blocks, ", those of the plan");
  if (key_blocks > key.shape[0])
    fail("block_table: block ", key_blocks - 1, ", expected less than the ", key.shape[0], " of the cache");
  expect_dtype("factors", layer.factors, {DType::f32});
  expect_device("factors", layer.factors, query.device);
  expect_shape("factors", layer.factors, {heads, 4});
  expect_room("factors", layer.factors, 4 * std::int64_t{heads});
}

}  // namespace asynct::extension
