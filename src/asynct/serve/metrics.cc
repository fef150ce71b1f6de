#include "asynct/serve/metrics.h"

#include <algorithm>
#include <cstdio>

#include "asynct/base/error.h"

namespace asynct::serve {
namespace {

std::string shown(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

// The value of a label.
std::string quoted(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

class Page {
 public:
  explicit Page(std::string_view model) : label_(cat("model_name=\"", quoted(model), "\"")) {}

  void value(std::string_view name, std::string_view type, std::string_view help, double value,
             std::string_view more = {}) {
    if (name != last_) text_ += cat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
    last_ = name;
    text_ += cat(name, "{", label_, more, "} ", shown(value), "\n");
  }
  void gauge(std::string_view name, std::string_view help, double v) { value(name, "gauge", help, v); }
  void counter(std::string_view name, std::string_view help, double v) { value(name, "counter", help, v); }
  void histogram(std::string_view name, std::string_view help, const Histogram& histogram) {
    histogram.write(text_, name, label_, help);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string label_;
  std::string text_;
  std::string last_;
};

}  // namespace

void Histogram::add(double seconds) {
  const auto at = std::lower_bound(kBounds.begin(), kBounds.end(), seconds) - kBounds.begin();
  counts_[static_cast<std::size_t>(at)].fetch_add(1, std::memory_order_relaxed);
  nanoseconds_.fetch_add(static_cast<std::int64_t>(seconds * 1e9), std::memory_order_relaxed);
}

void Histogram::write(std::string& out, std::string_view name, std::string_view labels,
                      std::string_view help) const {
  out += cat("# HELP ", name, " ", help, "\n# TYPE ", name, " histogram\n");
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    sum += counts_[i].load(std::memory_order_relaxed);
    const std::string bound = i < kBounds.size() ? shown(kBounds[i]) : "+Inf";
    out += cat(name, "_bucket{", labels, ",le=\"", bound, "\"} ", sum, "\n");
  }
  out += cat(name, "_sum{", labels, "} ", shown(1e-9 * static_cast<double>(nanoseconds_.load())), "\n");
  out += cat(name, "_count{", labels, "} ", sum, "\n");
}

void Metrics::count_ending(std::string_view reason) {
  auto& counter = reason == "stop"     ? finished_stop
                  : reason == "length" ? finished_length
                  : reason == "abort"  ? finished_abort
                                       : finished_error;
  counter.fetch_add(1, std::memory_order_relaxed);
}

std::string prometheus_text(const Metrics& metrics, const EngineStatus& engine,
                            std::span<const FeedForward::Counts> layers, std::string_view model) {
  FeedForward::Counts neurons;
  for (const FeedForward::Counts& layer : layers) {
    neurons.neurons += layer.neurons;
    neurons.active += layer.active;
  }
  const auto number = [](auto value) { return static_cast<double>(value); };
  Page page(model);
  page.gauge("vllm:num_requests_running", "Requests that the model works on.", engine.running);
  page.gauge("vllm:num_requests_waiting", "Requests that wait for their start.",
             number(engine.waiting + engine.queued));
  page.gauge("vllm:kv_cache_usage_perc", "Share of the KV cache in use; 1 is all of it.",
             engine.blocks > 0 ? 1 - number(engine.free_blocks) / engine.blocks : 0);
  page.counter("vllm:num_preemptions_total", "Requests set back for want of cache.",
               number(engine.counters.preemptions));
  page.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
               number(engine.counters.prompt_tokens));
  page.counter("vllm:prefix_cache_hits_total", "Of these, tokens found.",
               number(engine.counters.cached_tokens));
  page.counter("vllm:prompt_tokens_total", "Prompt tokens of requests taken.",
               number(metrics.prompt_tokens.load()));
  page.counter("vllm:generation_tokens_total", "Tokens generated.", number(engine.tokens_generated));
  const std::pair<std::string_view, const std::atomic<std::int64_t>*> endings[] = {
      {",finished_reason=\"stop\"", &metrics.finished_stop},
      {",finished_reason=\"length\"", &metrics.finished_length},
      {",finished_reason=\"abort\"", &metrics.finished_abort},
      {",finished_reason=\"error\"", &metrics.finished_error}};
  for (const auto& [label, count] : endings)
    page.value("vllm:request_success_total", "counter", "Choices that ended, by reason.",
               number(count->load()), label);
  page.histogram("vllm:time_to_first_token_seconds", "From a request's arrival to its first token.",
                 metrics.time_to_first_token);
  page.histogram("vllm:inter_token_latency_seconds", "Between two tokens of a choice.",
                 metrics.inter_token_latency);
  page.histogram("vllm:e2e_request_latency_seconds", "From a request's arrival to its end.",
                 metrics.request_latency);
  page.counter("asynct:steps_total", "Forward passes.", number(engine.counters.steps));
  page.counter("asynct:rows_total", "Rows run through the model.", number(engine.counters.rows));
  page.counter("asynct:engine_seconds_total", "Time in steps of the engine.", engine.forward_seconds);
  page.counter("asynct:reglu_neurons_total", "Neurons of ReGLU layers that rows met.",
               number(neurons.neurons));
  page.counter("asynct:reglu_active_neurons_total", "Of these, neurons that were not zero.",
               number(neurons.active));
  page.gauge("asynct:reglu_zero_share", "Share of neurons that were zero, since the start.",
             neurons.neurons > 0 ? 1 - number(neurons.active) / number(neurons.neurons) : 0);
  return page.take();
}

}  // namespace asynct::serve
