#pragma once

#include "asynct/base/error.h"
#include "asynct/ops/attention/cuda/plain.h"
#include "asynct/ops/cuda/by_dtype.h"

namespace asynct::cuda {

/// Queries or output, which go in pairs of elements.
inline void expect_pairs(const char* what, const void* data, std::int64_t stride) {
  if (data == nullptr) fail("plain attention: no ", what);
  if (reinterpret_cast<std::uintptr_t>(data) % 4 != 0)
    fail("plain attention: ", what, " does not begin at a multiple of 4 bytes");
  if (stride % 2 != 0)
    fail("plain attention: rows of ", what, " ", stride, " elements apart, expected an even number");
}

/// What both kernels read and write; Error that names what is not there or not where it can be read.
inline void expect_plain(const PlainArgs& args) {
  constexpr const char* kName = "plain attention";
  if (args.few_count < 0 || args.many_count < 0)
    fail(kName, ": ", args.few_count, " units of few rows and ", args.many_count,
         " of many, expected 0 or more");
  if (args.group < 1 || args.group > kDecodeRows)
    fail(kName, ": ", args.group, " query heads a KV head, expected 1 to ", kDecodeRows);
  const bool in_blocks = args.block_table != nullptr;
  if (!in_blocks && args.first_key == nullptr)
    fail(kName, ": neither a block table nor where each sequence's keys begin");
  if (in_blocks && args.block_size < 1)
    fail(kName, ": blocks of ", args.block_size, " tokens, expected at least 1");
  if (in_blocks && args.max_blocks < 1)
    fail(kName, ": ", args.max_blocks, " blocks a row of the block table, expected at least 1");
  expect_pairs("query", args.query, args.query_stride);
  expect_pairs("output", args.out, args.out_stride);
  expect_aligned(kName, "keys", args.key.data);
  expect_aligned(kName, "the keys' token stride", 2 * args.key.token_stride);
  expect_aligned(kName, "the keys' head stride", 2 * args.key.head_stride);
  expect_aligned(kName, "values", args.value.data);
  expect_aligned(kName, "the values' token stride", 2 * args.value.token_stride);
  expect_aligned(kName, "the values' head stride", 2 * args.value.head_stride);
  if (in_blocks) {
    expect_aligned(kName, "the keys' block stride", 2 * args.key.block_stride);
    expect_aligned(kName, "the values' block stride", 2 * args.value.block_stride);
  }
  if (args.factors == nullptr) fail(kName, ": no factors of the heads");
  if (args.few_count > 0) expect_aligned(kName, "units of few rows", args.few);
  if (args.many_count > 0) expect_aligned(kName, "units of many rows", args.many);

  // How long contexts are, units know; here only what a row of the block table holds.
  if (in_blocks && std::int64_t{args.max_blocks} * args.block_size <= kChunkKeys) return;
  if (args.few_count > 0) {
    expect_aligned(kName, "memory for partial sums", args.partial);
    if (args.arrived == nullptr) fail(kName, ": no counters of the sums that have arrived");
    if (args.slots < 1) fail(kName, ": ", args.slots, " partial sums, expected at least 1");
  }
  if (args.many_count > 0) expect_aligned(kName, "memory for sums of many rows", args.sums);
}

}  // namespace asynct::cuda
