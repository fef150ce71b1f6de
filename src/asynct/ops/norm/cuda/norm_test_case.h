#pragma once

#include <algorithm>

#include "asynct/ops/cuda/gpu_testing.h"
#include "asynct/ops/norm/cuda/args.h"
#include "asynct/ops/norm/norm.h"

namespace asynct::cuda {

/// A DyHT for the CPU with its parameters on the device.
class TestNorm {
 public:
  TestNorm(std::mt19937& random, std::int64_t size)
      : params_(random_params(random, size)), norm_(params_, size) {
    const auto upload = [](const std::vector<float>& values) { return DeviceBuffer<float>(values); };
    alpha_ = upload(params_.alpha);
    gamma_ = upload(params_.gamma);
    beta_ = upload(params_.beta);
  }

  static Isa isa() { return Isa::scalar; }
  const Norm& norm() const { return norm_; }
  DyhtParams on_device() const {
    return {.alpha = {alpha_.data(), alpha_.size() > 1},
            .gamma = {gamma_.data(), gamma_.size() > 1},
            .beta = {beta_.data(), beta_.size() > 1},
            .low = params_.clip_low,
            .high = params_.clip_high};
  }

 private:
  static NormParams random_params(std::mt19937& random, std::int64_t size) {
    const auto one = [&] {
      return random_values(random, random() % 2 == 0 ? 1 : static_cast<std::size_t>(size), DType::f32);
    };
    NormParams params = {.alpha = one(), .gamma = one()};
    if (random() % 2 == 0) params.beta = one();
    if (random() % 2 == 0) params.clip_low = -0.7F, params.clip_high = 0.4F;
    return params;
  }

  NormParams params_;
  Norm norm_;
  DeviceBuffer<float> alpha_, gamma_, beta_;
};

/// An RMS norm, likewise.
class TestRmsNorm {
 public:
  TestRmsNorm(std::mt19937& random, std::int64_t size)
      : params_({.kind = NormKind::rms,
                 .gamma = random_values(random, random() % 2 == 0 ? 1 : static_cast<std::size_t>(size),
                                        DType::f32),
                 .epsilon = random() % 2 == 0 ? 1e-6F : 0.02F}),
        norm_(params_, size),
        gamma_(params_.gamma) {}

  static Isa isa() { return select_isa(); }  // the scalar family has no FMA and rounds squares
  const Norm& norm() const { return norm_; }
  RmsParams on_device() const {
    return {.gamma = {gamma_.data(), gamma_.size() > 1}, .epsilon = params_.epsilon};
  }

 private:
  NormParams params_;
  Norm norm_;
  DeviceBuffer<float> gamma_;
};

}  // namespace asynct::cuda
