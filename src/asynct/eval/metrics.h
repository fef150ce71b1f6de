#pragma once

#include <optional>
#include <span>

#include "asynct/base/thread_pool.h"
#include "asynct/eval/task.h"

namespace asynct {

/// One document's contribution to one metric: a score, or a log-probability with the words or bytes it
/// covers.
struct MetricValue {
  double value = 0;
  double weight = 1;
};

/// Numbers and the order of additions are those of lm-eval, so that sums round alike.
double aggregate(Metric metric, std::span<const MetricValue> values);

/// Closed form for means (sample standard deviation over sqrt(n)), a bootstrap of 100,000 resamples (on all
/// of `pool`, whose size changes no bit) for perplexity, nothing for the rest or for a single document.
std::optional<double> standard_error(Metric metric, std::span<const MetricValue> values, ThreadPool& pool);

/// Mean over tasks, each weighted by its documents, and the pooled standard error of it.
double weighted_mean(std::span<const double> means, std::span<const std::size_t> sizes);
double pooled_error(std::span<const double> errors, std::span<const std::size_t> sizes);

/// Index of the largest value, the first of equals; NaN counts as largest (numpy.argmax).
std::size_t argmax(std::span<const double> values);

}  // namespace asynct
