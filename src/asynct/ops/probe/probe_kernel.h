#pragma once

// Included by one unit a kernel family, after its vec_<isa>.h.

namespace asynct {
namespace {

// Twelve chains cover the latency of two FMA units and fit sixteen registers with their operands.
constexpr int kChains = 12;

double multiply_add(std::int64_t rounds, float* sink) {
  Vec sum[kChains];
  for (auto& chain : sum) chain = Vec::all(*sink);
  const Vec factor = Vec::all(0.999F);
  const Vec addend = Vec::all(1e-3F);
  for (std::int64_t round = 0; round < rounds; ++round)
    for (auto& chain : sum) chain = Vec::fma(chain, factor, addend);
  for (const auto& chain : sum) {
    float lanes[Vec::kLanes];
    chain.store(lanes);
    *sink += lanes[0];
  }
  return 2.0 * Vec::kLanes * kChains * static_cast<double>(rounds);
}

float read(const float* data, std::int64_t count) {
  constexpr int kStreams = 8;
  Vec sum[kStreams];
  for (auto& stream : sum) stream = Vec::zero();
  const Vec one = Vec::all(1.0F);
  for (std::int64_t i = 0; i < count; i += kStreams * Vec::kLanes)
    for (int s = 0; s < kStreams; ++s) sum[s] = Vec::fma(Vec::load(data + i + s * Vec::kLanes), one, sum[s]);
  float total = 0;
  for (const auto& stream : sum) {
    float lanes[Vec::kLanes];
    stream.store(lanes);
    total += lanes[0];
  }
  return total;
}

}  // namespace
}  // namespace asynct
