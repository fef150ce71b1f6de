#include "asynct/serve/generation_options.h"

#include <charconv>
#include <cmath>
#include <random>

namespace asynct::serve {
namespace {

// What would change the answer and cannot be done; said, not passed over.
void refuse_what_is_missing(const Fields& fields) {
  const auto refuse = [](const char* name) {
    throw RequestError(cat(name, ": this server cannot do that"), name, 400, "unsupported");
  };
  for (const char* const name : {"suffix", "tools", "functions", "truncate_prompt_tokens", "prompt_logprobs",
                                 "prompt_embeds", "logits_processors", "chat_template"}) {
    const Json* const value = fields.find(name);
    if (value != nullptr && !value->empty()) refuse(name);
  }
  const std::pair<const char*, bool> usual[] = {
      {"detokenize", true}, {"return_tokens_as_token_ids", false}, {"continue_final_message", false}};
  for (const auto& [name, value] : usual)
    if (fields.boolean(name, value) != value) refuse(name);
  if (const Json* const choice = fields.find("tool_choice"))
    if (*choice != "none" && *choice != "auto") refuse("tool_choice");
}

std::vector<LogitBias> logit_bias(const Fields& fields, std::int64_t vocabulary) {
  std::vector<LogitBias> biases;
  const Json* const object = fields.find("logit_bias");
  if (object == nullptr) return biases;
  if (!object->is_object()) throw RequestError("logit_bias: expected an object of token ids", "logit_bias");
  if (object->size() > kMaxLogitBiases)
    throw RequestError(cat("logit_bias: ", object->size(), " tokens, expected at most ", kMaxLogitBiases),
                       "logit_bias");
  for (const auto& [key, value] : object->items()) {
    Token token = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (error != std::errc() || end != key.data() + key.size() || token < 0 || token >= vocabulary)
      throw RequestError(cat("logit_bias: \"", key, "\" is no token of the vocabulary of ", vocabulary),
                         "logit_bias");
    const double bias = value.is_number() ? value.get<double>() : NAN;
    if (!(bias >= -100 && bias <= 100))
      throw RequestError("logit_bias: expected numbers from -100 to 100", "logit_bias");
    biases.push_back({token, static_cast<float>(bias)});
  }
  return biases;
}

// Above 0, also as a float.
float positive(const Fields& fields, const char* name, double most) {
  const auto value = static_cast<float>(fields.number(name, 1, 0, most));
  if (!(value > 0)) throw RequestError(cat(name, ": ", value, ", expected above 0, at most ", most), name);
  return value;
}

SamplingParams sampling_params(const Fields& fields, std::int64_t vocabulary) {
  SamplingParams params{
      .temperature = static_cast<float>(fields.number("temperature", 1, 0, 100)),
      .top_k = static_cast<std::int32_t>(fields.integer("top_k", 0, -1, INT32_MAX)),
      .top_p = positive(fields, "top_p", 1),
      .min_p = static_cast<float>(fields.number("min_p", 0, 0, 1)),
      .repetition_penalty = positive(fields, "repetition_penalty", 1e6),
      .presence_penalty = static_cast<float>(fields.number("presence_penalty", 0, -2, 2)),
      .frequency_penalty = static_cast<float>(fields.number("frequency_penalty", 0, -2, 2)),
      .min_tokens = fields.integer("min_tokens", 0, 0, INT32_MAX),
      .logit_bias = logit_bias(fields, vocabulary),
      .allowed_tokens = fields.tokens("allowed_token_ids", static_cast<std::size_t>(vocabulary), vocabulary),
  };
  params.top_k = std::max(params.top_k, 0);  // vLLM's -1: all
  if (const auto seed = fields.maybe_integer("seed", INT64_MIN, INT64_MAX)) {
    params.seed = static_cast<std::uint64_t>(*seed);
  } else {
    std::random_device device;
    params.seed = std::uint64_t{device()} << 32 | device();
  }
  try {
    validate(params, vocabulary);
  } catch (const Error& error) {
    throw RequestError(error.what(), "");
  }
  return params;
}

// What draws is without a meaning in a beam search, and is ignored as vLLM does. What would change its
// answers is refused.
void read_beam_search(const Fields& fields, const RequestLimits& limits, GenerationOptions& options) {
  const double most = limits.length_penalty;
  const GenerationOptions::BeamSearch search{
      .length_penalty = fields.number("length_penalty", 1, -most, most),
      .early_stopping = fields.boolean("early_stopping", false)};
  if (!fields.boolean("use_beam_search", false)) return;
  const SamplingParams& sampling = options.sampling;
  const std::pair<const char*, bool> asked[] = {
      {"stop", !options.stop.empty()},
      {"repetition_penalty", sampling.repetition_penalty != 1},
      {"presence_penalty", sampling.presence_penalty != 0},
      {"frequency_penalty", sampling.frequency_penalty != 0},
      {"min_tokens", sampling.min_tokens > 0},
      {"logit_bias", !sampling.logit_bias.empty()},
      {"allowed_token_ids", !sampling.allowed_tokens.empty()},
  };
  for (const auto& [name, is_asked] : asked)
    if (is_asked)
      throw RequestError(cat(name, ": this server cannot do that in a beam search"), name, 400,
                         "unsupported");
  options.sampling.temperature = 0;
  if (options.n > 1) options.beam_search = search;
}

}  // namespace

GenerationOptions generation_options(const Fields& fields, std::int64_t vocabulary,
                                     const RequestLimits& limits) {
  refuse_what_is_missing(fields);
  GenerationOptions options;
  options.n = fields.integer("n", 1, 1, limits.choices);
  const std::int64_t best_of = fields.integer("best_of", options.n, 1, limits.choices);
  if (best_of != options.n)
    throw RequestError(cat("best_of: ", best_of, ", expected n (", options.n, ") or nothing"), "best_of");
  options.sampling = sampling_params(fields, vocabulary);
  options.stop = fields.texts("stop", limits.stops, limits.stop_bytes);
  std::erase(options.stop, "");
  options.stop_token_ids = fields.tokens("stop_token_ids", limits.stop_tokens, vocabulary);
  read_beam_search(fields, limits, options);
  options.ignore_eos = fields.boolean("ignore_eos", false);
  options.include_stop = fields.boolean("include_stop_str_in_output", false);
  options.skip_special_tokens = fields.boolean("skip_special_tokens", true);
  options.stream = fields.boolean("stream", false);
  if (const Json* const stream_options = fields.find("stream_options")) {
    if (!options.stream) throw RequestError("stream_options: only with \"stream\": true", "stream_options");
    if (!stream_options->is_object())
      throw RequestError("stream_options: expected an object", "stream_options");
    options.include_usage = Fields(*stream_options).boolean("include_usage", false);
  }
  options.priority = fields.integer("priority", 0, INT32_MIN, INT32_MAX);
  options.cache_salt = fields.text("cache_salt", "", limits.salt_bytes);
  return options;
}

}  // namespace asynct::serve
