#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "asynct/serve/choice.h"
#include "asynct/serve/context.h"
#include "asynct/serve/generation_options.h"
#include "asynct/serve/http/server.h"
#include "asynct/serve/publisher.h"
#include "asynct/serve/submissions.h"

namespace asynct::serve {

/// A prompt and what became known of it.
struct Prompt {
  std::vector<Token> tokens;
  std::string text;  // for `echo`

  // Of tokens[1..], when `echo` asks for log-probabilities.
  std::vector<TokenScore> scores;
  std::vector<std::vector<TokenLogprob>> tops;  // with more than one alternative a token
};

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
};

class Generation;

/// How answers are written: as completions or as chat.
class ResponseFormat {
 public:
  virtual ~ResponseFormat() = default;
  /// Events that open a stream.
  virtual void open(const Generation& generation, std::string& out) = 0;
  /// One event with what is new of a choice.
  virtual void add_delta(const Generation& generation, std::size_t index, const ChoiceDelta& delta,
                         std::string& out) = 0;
  /// The last event but [DONE], when usage was asked for.
  virtual void add_usage(const Generation& generation, const Usage& usage, std::string& out) = 0;
  /// The whole answer of a request that does not stream.
  virtual void whole(const Generation& generation, const std::vector<ChoiceDelta>& choices,
                     const Usage& usage, std::string& out) = 0;
};

/// A request for text on its way through the engine: prompts x n choices, one answer.
class Generation : public Publication, public std::enable_shared_from_this<Generation> {
 public:
  struct Ask {
    std::string id;  // of the answer
    GenerationOptions options;
    std::vector<Prompt> prompts;
    bool echo = false;
    bool score_prompt = false;  // log-probabilities of the prompt's tokens
    std::int64_t max_tokens = 16;
  };

  Generation(const Context& context, Ask ask, std::unique_ptr<ResponseFormat> format,
             std::shared_ptr<http::Responder> responder);

  /// Submits everything, or nothing: RequestError when the queue has no room for all.
  void start();

  const Context& context() const { return context_; }
  const Ask& ask() const { return ask_; }
  std::int64_t created() const { return created_; }
  const Prompt& prompt_of(std::size_t choice) const {
    return ask_.prompts[choice / static_cast<std::size_t>(ask_.options.n)];
  }

  void publish() override;

 private:
  class Sink;
  class Search;

  Request leaf(std::vector<Token> tokens, std::int64_t seed_offset) const;
  std::vector<Token> end_tokens() const;
  void want_scores(const Prompt& prompt, Request& request) const;
  void add(std::size_t prompt, std::vector<Submission>& submissions);
  void add_search(std::size_t prompt, std::vector<Submission>& submissions);
  void note_scores(std::size_t prompt, std::size_t first, std::span<const TokenScore> scores);
  void note_tops(std::size_t prompt, std::size_t target, std::span<const TokenLogprob> logprobs);
  void note_news(bool always);
  void note_token(std::size_t choice);
  void end_choice(std::size_t choice, FinishReason reason, std::string_view error);
  void reject();
  struct News {
    std::vector<std::pair<std::size_t, ChoiceDelta>> deltas;  // by choice
    Usage usage;
    std::string error;
    bool rejected = false;
    bool done = false;
  };
  News take_news();
  void publish_stream(const News& news);
  void publish_whole(News news);

  const Context& context_;
  Submissions submissions_;
  Ask ask_;
  std::unique_ptr<ResponseFormat> format_;
  std::shared_ptr<http::Responder> responder_;
  const std::int64_t created_;
  const std::chrono::steady_clock::time_point arrived_ = std::chrono::steady_clock::now();

  std::mutex mutex_;  // of what follows: the engine's thread fills, the publisher's takes
  std::vector<Choice> choices_;
  std::vector<std::chrono::steady_clock::time_point> last_token_;  // [choices]
  std::size_t missing_ = 0;                                        // choices that have not ended
  std::string error_;                                              // of the engine
  bool rejected_ = false;                                          // it is the client's fault
  bool noted_ = false;                                             // the publisher knows that there is news

  // Of the publisher's thread.
  bool opened_ = false;
  bool closed_ = false;
};

}  // namespace asynct::serve
