#include "asynct/eval/metrics.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "asynct/eval/python_random.h"

namespace asynct {
namespace {

double mean(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double sample_deviation(std::span<const double> values) {
  const double mu = mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - mu) * (value - mu);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

std::vector<double> plain(std::span<const MetricValue> values) {
  std::vector<double> out;
  out.reserve(values.size());
  for (const MetricValue& value : values) out.push_back(value.value);
  return out;
}

double weighted_log(std::span<const MetricValue> values) {
  double sum = 0, weight = 0;
  for (const MetricValue& value : values) sum += value.value, weight += value.weight;
  return sum / weight;
}

/// 1,000 perplexities of resampled documents, drawn from Random(seed).
void resample(std::uint32_t seed, std::span<const double> values, std::span<double> out) {
  PythonRandom random(seed);
  const auto n = static_cast<double>(values.size());
  for (double& perplexity : out) {
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      sum += values[static_cast<std::size_t>(random.random() * n)];
    perplexity = std::exp(-(sum / n));
  }
}

double bootstrap_perplexity(std::span<const double> values, ThreadPool& pool) {
  constexpr std::size_t kSeeds = 100, kDraws = 1000;
  std::vector<double> results(kSeeds * kDraws);
  pool.parallel_for(kSeeds, 1, [&](std::int64_t begin, std::int64_t end, int /*worker*/) {
    for (auto seed = static_cast<std::size_t>(begin); seed < static_cast<std::size_t>(end); ++seed)
      resample(static_cast<std::uint32_t>(seed), values, std::span(results).subspan(seed * kDraws, kDraws));
  });
  return sample_deviation(results);
}

}  // namespace

double aggregate(Metric metric, std::span<const MetricValue> values) {
  switch (metric) {
    case Metric::acc:
    case Metric::acc_norm:
    case Metric::exact_match:
      return mean(plain(values));
    case Metric::perplexity:
      return std::exp(-mean(plain(values)));
    case Metric::word_perplexity:
    case Metric::byte_perplexity:
      return std::exp(-weighted_log(values));
    case Metric::bits_per_byte:
      return -weighted_log(values) / std::numbers::ln2;
  }
  return 0;
}

std::optional<double> standard_error(Metric metric, std::span<const MetricValue> values, ThreadPool& pool) {
  if (values.size() < 2) return std::nullopt;
  switch (metric) {
    case Metric::acc:
    case Metric::acc_norm:
    case Metric::exact_match: {
      const auto scores = plain(values);
      return sample_deviation(scores) / std::sqrt(static_cast<double>(scores.size()));
    }
    case Metric::perplexity:
      return bootstrap_perplexity(plain(values), pool);
    default:
      return std::nullopt;
  }
}

double weighted_mean(std::span<const double> means, std::span<const std::size_t> sizes) {
  double sum = 0, total = 0;
  for (std::size_t i = 0; i < means.size(); ++i) {
    sum += means[i] * static_cast<double>(sizes[i]);
    total += static_cast<double>(sizes[i]);
  }
  return sum / total;
}

double pooled_error(std::span<const double> errors, std::span<const std::size_t> sizes) {
  double variance = 0, total = 0;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    const auto size = static_cast<double>(sizes[i]);
    variance += (size - 1) * (errors[i] * errors[i]) * size;
    total += size;
  }
  return std::sqrt(variance / (total - static_cast<double>(errors.size())) / total);
}

std::size_t argmax(std::span<const double> values) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) return i;
    if (values[i] > values[best]) best = i;
  }
  return best;
}

}  // namespace asynct
