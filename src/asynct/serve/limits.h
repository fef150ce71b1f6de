#pragma once

#include <cstddef>
#include <cstdint>

namespace asynct::serve {

/// Of one request; what exceeds them is refused with the field's name.
struct RequestLimits {
  std::size_t prompts = 256;
  std::size_t prompt_bytes = std::size_t{8} << 20;
  std::int64_t choices = 128;       // n
  std::size_t total_choices = 512;  // prompts x n
  std::int32_t top_logprobs = 20;   // beside a token
  double length_penalty = 5;        // of a beam search, at most, and at least -5
  std::size_t stops = 16;           // stop strings; more than OpenAI's 4, as vLLM and llama.cpp take
  std::size_t stop_bytes = 256;
  std::size_t stop_tokens = 128;
  std::size_t messages = 4096;
  std::size_t continuations = 1024;  // /v1/score
  std::size_t salt_bytes = 256;
};

}  // namespace asynct::serve
