#include "asynct/serve/generation.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "asynct/serve/http/error_json.h"
#include "asynct/serve/json_writer.h"

namespace asynct::serve {

/// Hears about one submission: the choices of a prompt, after a request for what they share or without it.
class Generation::Sink : public SubmissionListener {
 public:
  struct Part {
    std::size_t prompt = 0;
    std::size_t first_choice = 0;
    std::size_t choices = 1;
    std::size_t shared = 0;  // requests before those of the choices
  };
  Sink(std::shared_ptr<Generation> generation, const Part& part)
      : generation_(std::move(generation)), part_(part) {}

  void on_rejected(std::string_view error) override {
    generation_->reject();
    for (std::size_t i = 0; i < part_.choices; ++i)
      generation_->end_choice(part_.first_choice + i, FinishReason::failed, error);
  }
  void on_scores(std::size_t /*request*/, std::size_t first, std::span<const TokenScore> scores) override {
    generation_->note_scores(part_.prompt, first, scores);
  }
  void on_target_logprobs(std::size_t /*request*/, std::size_t target,
                          std::span<const TokenLogprob> logprobs) override {
    generation_->note_tops(part_.prompt, target, logprobs);
  }
  bool on_token(std::size_t request, Token token, std::span<const TokenLogprob> logprobs) override {
    const std::lock_guard lock(generation_->mutex_);
    const std::size_t choice = choice_of(request);
    generation_->note_token(choice);
    const bool more = generation_->choices_[choice].push(token, logprobs);
    generation_->note_news(false);
    return more && !generation_->submissions_.cancelled();
  }
  void on_end_token(std::size_t request, Token token, std::span<const TokenLogprob> logprobs) override {
    const std::lock_guard lock(generation_->mutex_);
    const std::size_t choice = choice_of(request);
    generation_->note_token(choice);
    generation_->choices_[choice].push_end(token, logprobs);
  }
  void on_finished(std::size_t request, FinishReason reason, std::string_view error) override {
    if (request < part_.shared) return;  // the prompt; its choices are told the same
    generation_->end_choice(choice_of(request), reason, error);
  }

 private:
  std::size_t choice_of(std::size_t request) const { return part_.first_choice + request - part_.shared; }

  const std::shared_ptr<Generation> generation_;
  const Part part_;
};

Generation::Generation(const Context& context, Ask ask, std::unique_ptr<ResponseFormat> format,
                       std::shared_ptr<http::Responder> responder)
    : context_(context),
      submissions_(context.engine),
      ask_(std::move(ask)),
      format_(std::move(format)),
      responder_(std::move(responder)),
      created_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()) {
  missing_ = ask_.prompts.size() * static_cast<std::size_t>(ask_.options.n);
  choices_.reserve(missing_);
  for (std::size_t i = 0; i < missing_; ++i) choices_.emplace_back(context.tokenizer, ask_.options);
  last_token_.resize(missing_);
}

Request Generation::leaf(std::vector<Token> tokens, std::int64_t seed_offset) const {
  const GenerationOptions& options = ask_.options;
  Request request{.tokens = std::move(tokens),
                  .max_new_tokens = ask_.max_tokens,
                  .sampling = options.sampling,
                  .end_tokens = end_tokens(),
                  .constraint = options.constraint,
                  .logprobs = options.logprobs,
                  .priority = options.priority,
                  .cache_salt = options.cache_salt};
  request.sampling.seed += static_cast<std::uint64_t>(seed_offset);
  return request;
}

std::vector<Token> Generation::end_tokens() const {
  std::vector<Token> tokens = ask_.options.stop_token_ids;
  if (!ask_.options.ignore_eos)
    tokens.insert(tokens.end(), context_.end_tokens.begin(), context_.end_tokens.end());
  return tokens;
}

// Log-probabilities of the prompt, of which `request` begins with at least all tokens but the last.
void Generation::want_scores(const Prompt& prompt, Request& request) const {
  if (!ask_.score_prompt) return;
  for (std::size_t i = 1; i < prompt.tokens.size(); ++i)
    request.targets.push_back({.row = static_cast<std::int32_t>(i) - 1, .token = prompt.tokens[i]});
  request.target_logprobs = std::max(ask_.options.logprobs, 0);
}

// The choices of one prompt: one submission, in which they share all but the prompt's last token.
void Generation::add(std::size_t index, std::vector<Submission>& submissions) {
  const Prompt& prompt = ask_.prompts[index];
  const auto n = static_cast<std::size_t>(ask_.options.n);
  Sink::Part part{.prompt = index, .first_choice = index * n, .choices = n};
  std::vector<Request> tree;
  if (n == 1) {
    tree.push_back(leaf(prompt.tokens, 0));
  } else if (prompt.tokens.size() > 1) {
    part.shared = 1;
    tree.push_back({.tokens = {prompt.tokens.begin(), prompt.tokens.end() - 1},
                    .priority = ask_.options.priority,
                    .cache_salt = ask_.options.cache_salt});
    for (std::size_t i = 0; i < n; ++i) {
      tree.push_back(leaf({prompt.tokens.back()}, static_cast<std::int64_t>(i)));
      tree.back().parent = 0;
    }
  } else {  // nothing to share
    part.choices = 1;
    for (std::size_t i = 0; i < n; ++i, ++part.first_choice)
      submissions.push_back({{leaf(prompt.tokens, static_cast<std::int64_t>(i))},
                             std::make_shared<Sink>(shared_from_this(), part)});
    return;
  }
  want_scores(prompt, tree.front());
  submissions.push_back({std::move(tree), std::make_shared<Sink>(shared_from_this(), part)});
}

void Generation::start() {
  if (ask_.score_prompt)
    for (Prompt& prompt : ask_.prompts) {
      prompt.scores.resize(prompt.tokens.size() - 1);
      if (ask_.options.logprobs > 1) prompt.tops.resize(prompt.tokens.size() - 1);
    }
  responder_->on_disconnect([weak = weak_from_this()] {
    if (const auto generation = weak.lock()) generation->submissions_.cancel();
  });
  std::vector<Submission> submissions;
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < ask_.prompts.size(); ++i) {
    tokens += std::ssize(ask_.prompts[i].tokens);
    if (ask_.options.beam_search && ask_.max_tokens > 0) {
      add_search(i, submissions);
    } else {
      add(i, submissions);
    }
  }
  submissions_.submit(std::move(submissions));
  context_.metrics.prompt_tokens += tokens;
}

// With the mutex held.
void Generation::note_news(bool always) {
  if (noted_ || (!always && !ask_.options.stream)) return;
  context_.publisher.add(shared_from_this());
  noted_ = true;
}

void Generation::note_scores(std::size_t prompt, std::size_t first, std::span<const TokenScore> scores) {
  const std::lock_guard lock(mutex_);
  std::copy(scores.begin(), scores.end(),
            ask_.prompts[prompt].scores.begin() + static_cast<std::ptrdiff_t>(first));
}

void Generation::note_tops(std::size_t prompt, std::size_t target, std::span<const TokenLogprob> logprobs) {
  const std::lock_guard lock(mutex_);
  ask_.prompts[prompt].tops[target].assign(logprobs.begin(), logprobs.end());
}

void Generation::reject() {
  const std::lock_guard lock(mutex_);
  rejected_ = true;
}

// With the mutex held.
void Generation::note_token(std::size_t choice) {
  const auto now = std::chrono::steady_clock::now();
  const auto seconds = [&](auto since) { return std::chrono::duration<double>(now - since).count(); };
  auto& last = last_token_[choice];
  if (last.time_since_epoch().count() == 0) {
    context_.metrics.time_to_first_token.add(seconds(arrived_));
  } else {
    context_.metrics.inter_token_latency.add(seconds(last));
  }
  last = now;
}

void Generation::end_choice(std::size_t index, FinishReason reason, std::string_view error) {
  const std::lock_guard lock(mutex_);
  // What a client that has left is spared is no answer that ended.
  if (submissions_.cancelled() && reason == FinishReason::stopped) reason = FinishReason::cancelled;
  try {
    context_.metrics.count_ending(choices_[index].finish(reason, error));
    if (reason == FinishReason::stuck) rejected_ = true;
    if ((reason == FinishReason::failed || reason == FinishReason::stuck) && error_.empty()) error_ = error;
  } catch (const std::exception& thrown) {  // out of memory: it has ended all the same
    if (error_.empty()) error_ = thrown.what();
  }
  if (--missing_ == 0)
    context_.metrics.request_latency.add(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - arrived_).count());
  note_news(missing_ == 0);
}

// The engine waits for the mutex: what is new is only moved here, and written without it.
Generation::News Generation::take_news() {
  const std::lock_guard lock(mutex_);
  noted_ = false;
  News news{.error = error_, .rejected = rejected_, .done = missing_ == 0};
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    news.usage.completion_tokens += choices_[i].token_count();
    if (choices_[i].has_news() && (ask_.options.stream || news.done))
      news.deltas.emplace_back(i, choices_[i].take());
  }
  for (const Prompt& prompt : ask_.prompts) news.usage.prompt_tokens += std::ssize(prompt.tokens);
  return news;
}

void Generation::publish() {
  if (closed_) return;
  News news = take_news();
  closed_ = news.done;
  if (ask_.options.stream && (opened_ || !news.rejected)) {
    publish_stream(news);
  } else if (news.done) {
    publish_whole(std::move(news));
  }
}

void Generation::publish_stream(const News& news) {
  std::string out;
  if (!std::exchange(opened_, true)) {
    responder_->begin_stream(200, "text/event-stream", {{"cache-control", "no-cache"}});
    format_->open(*this, out);
  }
  for (const auto& [index, delta] : news.deltas)
    if (news.error.empty()) format_->add_delta(*this, index, delta, out);
  if (news.done) {
    if (!news.error.empty()) {
      out += cat("data: ", http::error_json({.status = news.rejected ? 400 : 500, .message = news.error}),
                 "\n\n");
    } else if (ask_.options.include_usage) {
      format_->add_usage(*this, news.usage, out);
    }
    out += "data: [DONE]\n\n";
  }
  responder_->write(out);
  if (news.done) responder_->end();
}

void Generation::publish_whole(News news) {
  if (!news.error.empty()) {
    http::send_error(*responder_, {.status = news.rejected ? 400 : 500, .message = news.error});
    return;
  }
  std::vector<ChoiceDelta> choices;
  for (auto& [index, delta] : news.deltas) choices.push_back(std::move(delta));
  std::string out;
  format_->whole(*this, choices, news.usage, out);
  responder_->send(200, "application/json", out);
}

}  // namespace asynct::serve
