#include "asynct/serve/choice.h"

#include <algorithm>
#include <utility>

namespace asynct::serve {

Choice::Choice(const Tokenizer& tokenizer, const GenerationOptions& options)
    : options_(options), decoder_(tokenizer, options.skip_special_tokens), matcher_(options.stop) {}

void Choice::list(Token token, std::span<const TokenLogprob> logprobs) {
  ++token_count_;
  if (options_.logprobs >= 0) delta_.tokens.push_back({token, {logprobs.begin(), logprobs.end()}});
}

bool Choice::push(Token token, std::span<const TokenLogprob> logprobs) {
  list(token, logprobs);
  const std::string text = decoder_.push(token);
  // As vLLM does: stop strings are looked for in what comes after the first min_tokens.
  delta_.text += token_count_ <= options_.sampling.min_tokens ? text : matcher_.push(text);
  return !matcher_.stopped();
}

void Choice::push_end(Token token, std::span<const TokenLogprob> logprobs) {
  list(token, logprobs);
  end_token_ = token;
}

std::string_view Choice::finish(FinishReason reason, std::string_view error) {
  delta_.text += matcher_.push(decoder_.finish());
  delta_.text += matcher_.finish();
  Ending& end = delta_.ending.emplace();
  if (matcher_.stopped()) {  // a held-back character may complete a stop string at the very end
    end.reason = "stop";
    end.stop_string = options_.stop[static_cast<std::size_t>(matcher_.stop_index())];
    if (options_.include_stop) delta_.text += *end.stop_string;
    return end.reason;
  }
  switch (reason) {
    case FinishReason::end_token:
    case FinishReason::stopped:
      end.reason = "stop";
      if (end_token_ && std::find(options_.stop_token_ids.begin(), options_.stop_token_ids.end(),
                                  *end_token_) != options_.stop_token_ids.end())
        end.stop_token = end_token_;
      break;
    case FinishReason::prompt:
    case FinishReason::length:
      end.reason = "length";
      break;
    case FinishReason::cancelled:
      end.reason = "abort";
      break;
    case FinishReason::failed:
    case FinishReason::stuck:
      end.reason = "error";
      end.error = error;
      break;
  }
  return end.reason;
}

ChoiceDelta Choice::take() { return std::exchange(delta_, {}); }

}  // namespace asynct::serve
