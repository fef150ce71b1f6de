#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace asynct::load {

enum class Failure {
  none,
  cancelled,     // on purpose, --cancel-share: no failure
  refused,       // connection refused
  connection,    // another error of the connection before the response was complete
  http_status,   // not 200
  timeout,       // of the whole request
  malformed,     // not HTTP, not server-sent events, not JSON, or cut off
  server_error,  // an error object in a response that began with 200
  wrong_tokens,  // another number of tokens than asked for
};
inline constexpr int kFailures = 9;
std::string_view name(Failure failure);

/// What was seen of one request. Times are seconds from the start of the run.
struct Record {
  double start = 0;        // when it was due (open loop) or begun (closed loop), before connecting
  double first_token = 0;  // of first and last chunk with text or tokens; 0: none
  double last_token = 0;
  double end = 0;
  std::int64_t prompt_tokens = 0;  // from usage; without usage those sent
  std::int64_t output_tokens = 0;  // from usage; without usage the chunks with text or tokens
  std::vector<float> gaps;         // seconds between these chunks
  bool streamed = true;
  Failure failure = Failure::none;
  int status = 0;      // HTTP; 0: none came
  std::string detail;  // of the failure

  bool completed() const { return failure == Failure::none; }
  bool failed() const { return failure != Failure::none && failure != Failure::cancelled; }

  // Seconds; nothing where the request has no such measure.
  std::optional<double> ttft() const;  // time to the first token; streams only
  std::optional<double> tpot()
      const;  // time per output token after the first; streams of two tokens and more
  double latency() const { return end - start; }
};

struct Summary {
  std::size_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};
/// Percentiles interpolate linearly between the two nearest ranks, as NumPy's default does. All 0 when empty.
Summary summarize(std::vector<double> values);

/// Value at `share` (0 to 1) of ascending values, not empty.
double percentile(std::span<const double> sorted, double share);

/// Limits that a request must keep to count as good: "ttft:200,tpot:50,e2el:5000", in milliseconds. A request
/// that lacks the measure (no stream) does not keep a limit of it; one of a single token keeps any of tpot.
struct Goodput {
  std::optional<double> ttft, tpot, latency;  // seconds

  static Goodput parse(std::string_view text, std::string_view what);
  bool any() const { return ttft || tpot || latency; }
  bool good(const Record& record) const;
};

}  // namespace asynct::load
