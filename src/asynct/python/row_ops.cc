#include "asynct/python/row_ops.h"

#include "asynct/ops/feed_forward/cuda/reglu.h"
#include "asynct/ops/norm/cuda/norm.h"
#include "asynct/python/device_guard.h"

namespace asynct::extension {
namespace {

/// [rows, columns] of a dtype that the element-wise kernels take.
void check_rows(std::string_view name, TensorRef& tensor) {
  expect_dtype(name, tensor, {DType::bf16, DType::f16, DType::f32});
  expect_shape(name, tensor, {-1, -1});
  if (!tensor.on_cuda) fail(name, ": on the CPU, expected on a CUDA device");
  expect_rows(name, tensor);
}

/// The same of a tensor that goes with `other`.
void check_beside(std::string_view name, TensorRef& tensor, const TensorRef& other) {
  expect_dtype(name, tensor, {*other.dtype});
  expect_shape(name, tensor, {other.shape[0], other.shape[1]});
  expect_device(name, tensor, other.device);
  expect_rows(name, tensor);
}

cuda::ChannelParam channel_param(std::string_view name, const TensorRef& tensor, const TensorRef& x) {
  expect_dtype(name, tensor, {DType::f32});
  expect_device(name, tensor, x.device);
  const std::int64_t size = tensor.shape.empty() ? 1 : tensor.shape[0];
  if (tensor.shape.size() > 1 || (size != 1 && size != x.shape[1]))
    fail(name, ": shape ", shape_text(tensor.shape), ", expected 1 or ", x.shape[1], " elements");
  expect_room(name, tensor, size);
  return {static_cast<const float*>(tensor.data), size > 1};
}

/// These have no plan that has seen to it.
void expect_capability_of(int device) {
  cuda::expect_capability(cat("cuda:", device), cuda::compute_capability(device));
}

}  // namespace

void run_dyht(TensorRef x, TensorRef y, const DyhtTensors& norm, cudaStream_t stream) {
  check_rows("x", x);
  check_beside("y", y, x);
  cuda::NormArgs args = {.x = x.data,
                         .y = y.data,
                         .x_row_stride = x.stride[0],
                         .y_row_stride = y.stride[0],
                         .rows = x.shape[0],
                         .dims = static_cast<std::int32_t>(x.shape[1]),
                         .norm = {.alpha = channel_param("alpha", norm.alpha, x),
                                  .gamma = channel_param("gamma", norm.gamma, x),
                                  .low = norm.low,
                                  .high = norm.high}};
  if (norm.beta.data != nullptr) args.norm.beta = channel_param("beta", norm.beta, x);
  if (args.rows == 0) return;
  expect_capability_of(x.device);
  const DeviceGuard guard(x.device);
  cuda::run_norm(args, *x.dtype, stream);
}

void run_reglu(TensorRef gate, TensorRef up, TensorRef out, cudaStream_t stream) {
  check_rows("gate", gate);
  check_beside("up", up, gate);
  check_beside("out", out, gate);
  if (gate.stride[0] != up.stride[0])
    fail("up: rows are ", up.stride[0], " apart, expected ", gate.stride[0], " as gate's");
  if (gate.shape[0] == 0) return;
  expect_capability_of(gate.device);
  const DeviceGuard guard(gate.device);
  cuda::run_reglu({.gate = gate.data,
                   .up = up.data,
                   .out = out.data,
                   .input_stride = gate.stride[0],
                   .out_stride = out.stride[0],
                   .rows = gate.shape[0],
                   .neurons = static_cast<std::int32_t>(gate.shape[1])},
                  *gate.dtype, *gate.dtype, stream);
}

}  // namespace asynct::extension
