#include "asynct/ops/probe/probe.h"

#include <algorithm>
#include <chrono>

#include "asynct/base/limits.h"
#include "asynct/ops/kernel_tables.h"
#include "asynct/ops/probe/kernels.h"
#include "asynct/tensor/tensor.h"

namespace asynct {
namespace {

constexpr int kRounds = 7;
constexpr std::int64_t kFmaRounds = 4'000'000;
constexpr std::int64_t kReadBytes = std::int64_t{1} << 30;  // beyond the largest cache of a socket

const probe::KernelTable& kernels(Isa isa) {
  return select_kernels(isa, probe::kScalarKernels, probe::kAvx2Kernels, probe::kAvx512Kernels);
}

template <class Work>
double best_rate(double amount, Work&& work) {
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, amount / seconds.count());
  }
  return best;
}

}  // namespace

double measure_fma_peak(ThreadPool& pool, Isa isa) {
  const auto& kernel = kernels(isa);
  float unused = 1.0F;
  const std::int64_t rounds = isa == Isa::scalar ? kFmaRounds / 256 : kFmaRounds;
  const double flops = kernel.multiply_add(1, &unused) * static_cast<double>(rounds) * pool.size();
  return best_rate(flops, [&] {
    pool.run([&](int /*worker*/) {
      float sink = 1.0F;
      kernel.multiply_add(rounds, &sink);
      volatile float keep = sink;
      (void)keep;
    });
  });
}

double measure_read_bandwidth(ThreadPool& pool, Isa isa) {
  const auto& kernel = kernels(isa);
  constexpr std::int64_t kPiece = 1 << 18;  // floats, 1 MiB
  // Half of what the process may have, where that is less: a probe must not run out of memory.
  const std::int64_t room = memory_budget(pool.size()).bytes / 2;
  const auto floats =
      std::clamp<std::int64_t>(room, kPiece * 4, kReadBytes) / (kPiece * 4) * kPiece;  // whole pieces
  const std::size_t bytes = static_cast<std::size_t>(floats) * sizeof(float);
  const Buffer buffer(bytes);
  pool.parallel_for(floats, kPiece, [&](std::int64_t begin, std::int64_t end, int /*worker*/) {
    std::fill(buffer.as<float>() + begin, buffer.as<float>() + end, 1.0F);
  });
  return best_rate(static_cast<double>(bytes), [&] {
    pool.parallel_for(floats, kPiece, [&](std::int64_t begin, std::int64_t end, int /*worker*/) {
      volatile float keep = kernel.read(buffer.as<float>() + begin, end - begin);
      (void)keep;
    });
  });
}

}  // namespace asynct
