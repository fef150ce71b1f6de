#include "asynct/serve/load/report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "asynct/base/printable.h"
#include "asynct/base/strings.h"

namespace asynct::load {
namespace {

struct Totals {
  std::int64_t completed = 0, failed = 0, cancelled = 0, good = 0;
  std::int64_t input_tokens = 0, output_tokens = 0;
  Summary ttft, tpot, gap, latency;  // seconds
};

Totals total(const LoadResult& result) {
  Totals totals;
  std::vector<double> ttft, tpot, gaps, latencies;
  for (const Record& record : result.records) {
    totals.failed += record.failed() ? 1 : 0;
    totals.cancelled += record.failure == Failure::cancelled ? 1 : 0;
    if (!record.completed()) continue;
    ++totals.completed;
    totals.good += result.options.goodput.good(record) ? 1 : 0;
    totals.input_tokens += record.prompt_tokens;
    totals.output_tokens += record.output_tokens;
    latencies.push_back(record.latency());
    if (record.ttft()) ttft.push_back(*record.ttft());
    if (record.tpot()) tpot.push_back(*record.tpot());
    gaps.insert(gaps.end(), record.gaps.begin(), record.gaps.end());
  }
  totals.ttft = summarize(std::move(ttft));
  totals.tpot = summarize(std::move(tpot));
  totals.gap = summarize(std::move(gaps));
  totals.latency = summarize(std::move(latencies));
  return totals;
}

/// "http_503" and the like with their number and the first one's text.
struct Errors {
  std::int64_t count = 0;
  std::string detail;
};
std::map<std::string, Errors> errors_by_kind(const LoadResult& result) {
  std::map<std::string, Errors> errors;
  for (const Record& record : result.records) {
    if (!record.failed()) continue;
    std::string kind(name(record.failure));
    if (record.failure == Failure::http_status) kind += cat('_', record.status);
    Errors& entry = errors[kind];
    if (entry.count++ == 0) entry.detail = record.detail;
  }
  return errors;
}

double rate(std::int64_t count, const LoadResult& result) {
  return result.duration > 0 ? static_cast<double>(count) / result.duration : 0;
}

Json milliseconds(const Summary& summary) {
  if (summary.count == 0) return {};
  return {{"count", summary.count},   {"mean", summary.mean * 1e3}, {"p50", summary.p50 * 1e3},
          {"p90", summary.p90 * 1e3}, {"p99", summary.p99 * 1e3},   {"max", summary.max * 1e3}};
}

Json load_json(const LoadOptions& options) {
  Json json;
  json["url"] = cat("http://", options.url.authority, options.url.base);
  json["model"] = options.model;
  json["endpoint"] = options.endpoint == Endpoint::chat ? "chat" : "completions";
  json["stream"] = options.stream;
  json["seed"] = options.seed;
  json["concurrency"] = options.rate ? Json() : Json(options.concurrency);
  if (!options.rate)
    json["request_rate"] = nullptr;
  else
    json["request_rate"] = std::isinf(*options.rate) ? Json("inf") : Json(*options.rate);
  json["vocabulary"] = options.vocabulary > 0 ? Json(options.vocabulary) : Json();
  return json;
}

void print_line(std::FILE* out, const char* name, const Summary& s, double scale = 1e3) {
  if (s.count == 0) return;
  std::fprintf(out, "%-22s %10.2f %10.2f %10.2f %10.2f %10.2f\n", name, s.mean * scale, s.p50 * scale,
               s.p90 * scale, s.p99 * scale, s.max * scale);
}

}  // namespace

std::int64_t failures(const LoadResult& result) {
  const auto failed = std::count_if(result.records.begin(), result.records.end(),
                                    [](const Record& record) { return record.failed(); });
  return failed + (result.health ? result.health->failures : 0);
}

Json report_json(const LoadResult& result) {
  const Totals totals = total(result);
  Json json = load_json(result.options);
  json["duration"] = result.duration;
  json["completed"] = totals.completed;
  json["failed"] = totals.failed;
  json["cancelled"] = totals.cancelled;
  json["interrupted"] = result.signal != 0;
  json["total_input_tokens"] = totals.input_tokens;
  json["total_output_tokens"] = totals.output_tokens;
  json["request_throughput"] = rate(totals.completed, result);
  json["input_throughput"] = rate(totals.input_tokens, result);
  json["output_throughput"] = rate(totals.output_tokens, result);
  json["total_token_throughput"] = rate(totals.input_tokens + totals.output_tokens, result);
  json["request_goodput"] = result.options.goodput.any() ? Json(rate(totals.good, result)) : Json();
  json["ttft_ms"] = milliseconds(totals.ttft);
  json["tpot_ms"] = milliseconds(totals.tpot);
  json["itl_ms"] = milliseconds(totals.gap);
  json["e2el_ms"] = milliseconds(totals.latency);
  json["errors"] = Json::object();
  for (const auto& [kind, errors] : errors_by_kind(result))
    json["errors"][kind] = {{"count", errors.count}, {"first", errors.detail}};
  json["health"] = nullptr;
  if (result.health)
    json["health"] = {{"latency_ms", milliseconds(result.health->latency)},
                      {"failed", result.health->failures},
                      {"first", result.health->detail}};
  return json;
}

Json records_json(const LoadResult& result) {
  Json json;
  for (const char* const key :
       {"start_s", "ttft_ms", "tpot_ms", "e2el_ms", "input_tokens", "output_tokens", "status", "error"})
    json[key] = Json::array();
  const auto optional = [](std::optional<double> seconds) { return seconds ? Json(*seconds * 1e3) : Json(); };
  for (const Record& record : result.records) {
    json["start_s"].push_back(record.start);
    json["ttft_ms"].push_back(optional(record.ttft()));
    json["tpot_ms"].push_back(optional(record.tpot()));
    json["e2el_ms"].push_back(record.latency() * 1e3);
    json["input_tokens"].push_back(record.prompt_tokens);
    json["output_tokens"].push_back(record.output_tokens);
    json["status"].push_back(record.status);
    json["error"].push_back(record.completed() ? Json() : Json(name(record.failure)));
  }
  return json;
}

void print_report(const LoadResult& result, std::FILE* out) {
  const Totals totals = total(result);
  const auto whole = [](std::int64_t value) { return static_cast<long long>(value); };
  std::fprintf(out, "model %s, %s; %.2f s\n", printable(result.options.model).c_str(),
               result.options.rate ? cat("rate ", *result.options.rate, "/s").c_str()
                                   : cat("concurrency ", result.options.concurrency).c_str(),
               result.duration);
  std::fprintf(out, "requests   %lld completed, %lld failed", whole(totals.completed), whole(totals.failed));
  if (totals.cancelled > 0) std::fprintf(out, ", %lld cancelled", whole(totals.cancelled));
  std::fprintf(out, "; %.2f/s", rate(totals.completed, result));
  if (result.options.goodput.any()) std::fprintf(out, ", good %.2f/s", rate(totals.good, result));
  std::fprintf(out, "\ntokens     %lld in, %.1f/s; %lld out, %.1f/s\n\n", whole(totals.input_tokens),
               rate(totals.input_tokens, result), whole(totals.output_tokens),
               rate(totals.output_tokens, result));
  if (totals.completed > 0 || result.health)
    std::fprintf(out, "%-22s %10s %10s %10s %10s %10s\n", "ms", "mean", "p50", "p90", "p99", "max");
  print_line(out, "time to first token", totals.ttft);
  print_line(out, "time per output token", totals.tpot);
  print_line(out, "inter-token latency", totals.gap);
  print_line(out, "end-to-end latency", totals.latency);
  if (result.health) print_line(out, "GET /health", result.health->latency);
  for (const auto& [kind, errors] : errors_by_kind(result))
    std::fprintf(out, "%lld x %s: %s\n", whole(errors.count), kind.c_str(), printable(errors.detail).c_str());
  if (result.health && result.health->failures > 0)
    std::fprintf(out, "%lld x GET /health: %s\n", whole(result.health->failures),
                 printable(result.health->detail).c_str());
}

}  // namespace asynct::load
