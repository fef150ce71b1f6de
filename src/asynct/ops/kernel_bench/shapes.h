#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace asynct::kernel_bench {

/// What a kernel must move and compute at the least.
struct Floor {
  double bytes = 0;
  double flops = 0;
};

/// `batch` sequences of one token each, which sees `context` keys.
struct DecodeShape {
  std::int32_t batch = 1;
  std::int32_t context = 1;
  std::int32_t heads = 1;
  std::int32_t kv_heads = 1;
  std::int32_t head_dim = 128;

  /// "B,T,H,Hk,D"; `option` opens an Error.
  static DecodeShape parse(std::string_view text, std::string_view option);
  std::string text() const;
  /// Keys, the share `density` of values that some query head of a KV head gives weight, queries, output.
  Floor floor(double density) const;
};

/// `batch` sequences of `context` tokens, causal, from the first.
struct PrefillShape {
  std::int32_t batch = 1;
  std::int32_t context = 1;
  std::int32_t heads = 1;
  std::int32_t kv_heads = 1;
  std::int32_t head_dim = 128;

  static PrefillShape parse(std::string_view text, std::string_view option);
  std::string text() const;
  /// Half of all pairs of positions, the usual way to count, and each tensor once.
  Floor floor() const;
};

/// One step of a server: `prefills` chunks of `rows` tokens that end at `context` keys, and `decodes`
/// sequences of one token and `decode_context` keys.
struct MixedShape {
  std::int32_t prefills = 1;
  std::int32_t rows = 1;
  std::int32_t context = 1;
  std::int32_t decodes = 1;
  std::int32_t decode_context = 1;
  std::int32_t heads = 1;
  std::int32_t kv_heads = 1;
  std::int32_t head_dim = 128;

  /// "PREFILLS,ROWS,CONTEXT,DECODES,DECODE_CONTEXT,H,Hk,D".
  static MixedShape parse(std::string_view text, std::string_view option);
  std::string text() const;
  Floor prefill_floor() const;
  Floor decode_floor() const;
  Floor floor() const;
};

/// A product of `rows` rows with a weight matrix [outputs, inputs].
struct LinearShape {
  std::int32_t rows = 1;
  std::int32_t outputs = 1;
  std::int32_t inputs = 1;

  /// "M,N,K"; N and K multiples of 8.
  static LinearShape parse(std::string_view text, std::string_view option);
  std::string text() const;
  Floor floor() const;
};

/// `rows` rows of a model's layer and head, for the kernels besides attention and products.
struct LayerShape {
  std::int32_t rows = 1;
  std::int32_t hidden = 1;
  std::int32_t heads = 1;
  std::int32_t kv_heads = 1;
  std::int32_t head_dim = 128;
  std::int32_t neurons = 1;
  std::int32_t vocabulary = 1;

  /// "M,d,H,Hk,D,F,V"; d and F multiples of 8.
  static LayerShape parse(std::string_view text, std::string_view option);
  std::string text() const;
};

/// The shapes whose targets the documents name.
std::vector<DecodeShape> default_decode_shapes();
std::vector<PrefillShape> default_prefill_shapes();
std::vector<MixedShape> default_mixed_shapes();
std::vector<LinearShape> default_linear_shapes();
std::vector<LayerShape> default_layer_shapes();

/// Exactly round(density * context) keys of each of `rows` runs of `context`, at random places: 1 where a key
/// is needed. The same seed gives the same keys.
std::vector<std::uint8_t> needed_keys(std::int64_t rows, std::int32_t context, double density, unsigned seed);

/// Input sets over which calls rotate so that the cache of `cache_bytes` holds nothing that comes again.
int rotating_sets(double bytes_a_set, double cache_bytes);

}  // namespace asynct::kernel_bench
