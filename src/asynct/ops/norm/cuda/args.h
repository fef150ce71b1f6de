#pragma once

#include <cstdint>

namespace asynct::cuda {

/// Of a DyHT, on the device: one value, or one a channel, which then begins at a multiple of 16 bytes.
struct ChannelParam {
  const float* values = nullptr;
  bool per_channel = false;
};

/// y = gamma * clamp(alpha * x + beta, low, high); no addition where beta is absent.
struct DyhtParams {
  ChannelParam alpha;
  ChannelParam gamma;
  ChannelParam beta;  // values null: absent
  float low = -1;
  float high = 1;
};

/// y = gamma * x / sqrt(mean(x^2) + epsilon).
struct RmsParams {
  ChannelParam gamma;
  float epsilon = 1e-6F;
};

/// x and y [rows, heads, dims] with contiguous dims; strides in elements. A plain matrix has one head.
template <class Params>
struct NormArgsOf {
  const void* x = nullptr;
  void* y = nullptr;  // may be x
  std::int64_t x_row_stride = 0;
  std::int64_t x_head_stride = 0;
  std::int64_t y_row_stride = 0;
  std::int64_t y_head_stride = 0;
  std::int64_t rows = 0;
  std::int32_t heads = 1;
  std::int32_t dims = 0;  // the length of what is normalized
  Params norm;
};
using NormArgs = NormArgsOf<DyhtParams>;
using RmsNormArgs = NormArgsOf<RmsParams>;

}  // namespace asynct::cuda
