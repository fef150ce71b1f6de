#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "asynct/engine/request.h"
#include "asynct/serve/limits.h"
#include "asynct/serve/request_fields.h"

namespace asynct::serve {

/// What requests for text have in common; names of the fields are OpenAI's and vLLM's.
struct GenerationOptions {
  std::optional<std::int64_t> max_tokens;
  std::int64_t n = 1;
  struct BeamSearch {
    double length_penalty = 1;
    bool early_stopping = false;
  };
  std::optional<BeamSearch>
      beam_search;          // of n > 1 beams, which are the answers; a single one is greedy text
  SamplingParams sampling;  // choice i draws with seed + i
  std::vector<std::string> stop;
  std::vector<Token> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop = false;  // in the text
  bool skip_special_tokens = true;
  std::shared_ptr<const Constraint> constraint;  // of the text; null: none
  std::int32_t logprobs = -1;                    // of the most probable tokens beside each; -1: none wanted
  bool stream = false;
  bool include_usage = false;  // a last chunk of a stream
  std::int64_t priority = 0;
  std::string cache_salt;
};

/// RequestError for values out of range and for what cannot be done (`suffix`, `best_of` above n, ...).
GenerationOptions generation_options(const Fields& fields, std::int64_t vocabulary,
                                     const RequestLimits& limits);

}  // namespace asynct::serve
