#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "asynct/serve/load/lengths.h"
#include "asynct/serve/load/measures.h"
#include "asynct/serve/load/url.h"

namespace asynct::load {

enum class Endpoint { completions, chat };

struct LoadOptions {
  Url url;
  std::string model;  // empty: the first of GET /v1/models
  std::string api_key;
  Endpoint endpoint = Endpoint::completions;

  std::int64_t requests = 100;    // 0: until `duration` is over
  double duration = 0;            // seconds in which requests begin; 0: no limit
  std::int64_t concurrency = 16;  // closed loop: as many at any time
  std::optional<double> rate;     // open loop instead: Poisson arrivals a second
  double timeout = 300;           // seconds, of a request from its start
  double cancel_share = 0;        // of requests that disconnect on purpose
  bool health = false;            // poll GET /health meanwhile

  LengthDistribution prompt_tokens;  // of a prompt's own part
  LengthDistribution output_tokens;
  std::int64_t shared_prefix = 0;  // tokens in front of each prompt that others have too
  std::int64_t prefixes = 1;       // different ones, equally likely
  std::string prompts_file;        // JSON lines instead
  std::int64_t vocabulary = 0;     // 0: the server is asked
  std::uint64_t seed = 0;

  bool stream = true;
  bool ignore_eos = true;
  double temperature = 0;
  Goodput goodput;
};

}  // namespace asynct::load
