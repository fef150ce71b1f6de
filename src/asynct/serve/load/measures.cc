#include "asynct/serve/load/measures.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "asynct/base/error.h"

namespace asynct::load {

std::string_view name(Failure failure) {
  constexpr std::string_view kNames[kFailures] = {"none",       "cancelled", "connection_refused",
                                                  "connection", "http",      "timeout",
                                                  "malformed",  "server",    "wrong_token_count"};
  return kNames[static_cast<int>(failure)];
}

std::optional<double> Record::ttft() const {
  if (!streamed || first_token == 0) return std::nullopt;
  return first_token - start;
}

std::optional<double> Record::tpot() const {
  if (!streamed || first_token == 0 || output_tokens < 2) return std::nullopt;
  return (last_token - first_token) / static_cast<double>(output_tokens - 1);
}

double percentile(std::span<const double> sorted, double share) {
  const double rank = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (rank - std::floor(rank)) * (sorted[above] - sorted[below]);
}

Summary summarize(std::vector<double> values) {
  Summary result;
  result.count = values.size();
  if (values.empty()) return result;
  std::sort(values.begin(), values.end());
  result.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  result.p50 = percentile(values, 0.50);
  result.p90 = percentile(values, 0.90);
  result.p99 = percentile(values, 0.99);
  result.max = values.back();
  return result;
}

Goodput Goodput::parse(std::string_view text, std::string_view what) {
  Goodput result;
  const std::string_view all = text;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    const std::size_t colon = std::min(item.find(':'), item.size());
    const std::string_view key = item.substr(0, colon);
    const std::string_view value = item.substr(std::min(colon + 1, item.size()));
    std::optional<double>* const limit = key == "ttft"   ? &result.ttft
                                         : key == "tpot" ? &result.tpot
                                         : key == "e2el" ? &result.latency
                                                         : nullptr;
    double milliseconds = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), milliseconds);
    if (limit == nullptr || *limit || error != std::errc{} || end != value.data() + value.size() ||
        !(milliseconds >= 0 && milliseconds <= 1e9))
      fail(what, ": expected ttft:MS, tpot:MS and e2el:MS, each at most once, with commas between, found \"",
           all, "\"");
    *limit = milliseconds / 1e3;
  }
  return result;
}

bool Goodput::good(const Record& record) const {
  if (!record.completed()) return false;
  if (ttft && !(record.ttft() && *record.ttft() <= *ttft)) return false;
  if (tpot && record.output_tokens > 1 && !(record.tpot() && *record.tpot() <= *tpot)) return false;
  return !latency || record.latency() <= *latency;
}

}  // namespace asynct::load
