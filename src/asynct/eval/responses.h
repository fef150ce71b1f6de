#pragma once

#include <string>

namespace asynct {

/// The model's answer to one request.
struct Response {
  bool done = false;
  bool generated = false;  // `text` counts; else logprob and greedy
  double logprob = 0;
  bool greedy = false;
  std::string text;
};

}  // namespace asynct
