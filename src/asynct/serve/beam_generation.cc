// Beam search: what Generation does instead of drawing each choice on its own.
#include <algorithm>
#include <exception>
#include <utility>

#include "asynct/engine/beam_search.h"
#include "asynct/serve/generation.h"

namespace asynct::serve {

/// The search from one prompt; its answers are the prompt's choices, which come all at once. Each step is a
/// request for one token a beam: the engine's prefix cache has all rows of it but the last. Steps follow each
/// other on the engine's thread, which alone knows what is in here once start() is through.
class Generation::Search : public std::enable_shared_from_this<Search> {
 public:
  Search(std::shared_ptr<Generation> generation, std::size_t prompt, BeamSearch::Options options)
      : generation_(std::move(generation)), prompt_(prompt), search_(std::move(options)) {}

  /// The first step, to be submitted.
  Submission start();

 private:
  /// Hears about one beam.
  class Sink : public SubmissionListener {
   public:
    Sink(std::shared_ptr<Search> search, std::size_t beam) : search_(std::move(search)), beam_(beam) {}
    void on_rejected(std::string_view error) override {
      search_->generation_->reject();
      search_->end_beam(FinishReason::failed, error);
    }
    void on_scores(std::size_t /*request*/, std::size_t first, std::span<const TokenScore> scores) override {
      search_->generation_->note_scores(search_->prompt_, first, scores);
    }
    void on_target_logprobs(std::size_t /*request*/, std::size_t target,
                            std::span<const TokenLogprob> logprobs) override {
      search_->generation_->note_tops(search_->prompt_, target, logprobs);
    }
    bool on_token(std::size_t /*request*/, Token /*token*/, std::span<const TokenLogprob> logprobs) override {
      search_->next_[beam_].assign(logprobs.begin(), logprobs.end());
      return false;
    }
    void on_finished(std::size_t /*request*/, FinishReason reason, std::string_view error) override {
      search_->end_beam(reason, error);
    }

   private:
    const std::shared_ptr<Search> search_;
    const std::size_t beam_;
  };

  const Prompt& prompt() const { return generation_->ask_.prompts[prompt_]; }
  Request request(std::size_t beam) const;
  void end_beam(FinishReason reason, std::string_view error);
  void note_failure(std::string_view error);
  void list_logprobs();
  void step();
  bool go_on();
  void answer();
  void fail();

  const std::shared_ptr<Generation> generation_;
  const std::size_t prompt_;
  BeamSearch search_;
  std::vector<std::vector<TokenLogprob>> next_;      // after each beam
  std::vector<std::vector<TokenLogprob>> logprobs_;  // beside the token of each place, when they are wanted
  std::vector<EngineThread::Ticket> tickets_;        // of the step
  std::size_t missing_ = 0;                          // beams of the step that have not ended
  std::size_t answered_ = 0;                         // choices that have ended
  FinishReason reason_ = FinishReason::length;       // cancelled or failed: there will be no answers
  std::string error_;
};

Request Generation::Search::request(std::size_t beam) const {
  const GenerationOptions& options = generation_->ask_.options;
  const std::vector<Token> tokens = search_.tokens(search_.beams()[beam].last);
  // It is stopped after one token; but what cannot be had to the end is refused at once.
  Request request{.tokens = prompt().tokens,
                  .max_new_tokens = generation_->ask_.max_tokens - std::ssize(tokens),
                  .logprobs = std::max(search_.candidates(), options.logprobs),
                  .priority = options.priority,
                  .cache_salt = options.cache_salt};
  request.tokens.insert(request.tokens.end(), tokens.begin(), tokens.end());
  return request;
}

Submission Generation::Search::start() {
  next_.resize(1);
  missing_ = 1;
  std::vector<Request> tree{request(0)};
  generation_->want_scores(prompt(), tree.front());
  return {std::move(tree), std::make_shared<Sink>(shared_from_this(), 0)};
}

void Generation::Search::end_beam(FinishReason reason, std::string_view error) {
  if (missing_ == 0) return;  // the search has failed since the step was submitted
  if (reason == FinishReason::failed && reason_ != FinishReason::failed) {
    note_failure(error);
  } else if (reason == FinishReason::cancelled && reason_ == FinishReason::length) {
    reason_ = reason;
  }
  if (--missing_ == 0) step();
}

void Generation::Search::note_failure(std::string_view error) {
  reason_ = FinishReason::failed;
  try {
    error_ = error;
  } catch (const std::exception& thrown) {
    error_ = thrown.what();  // short enough to take no memory
  }
}

// All beams of a step have ended.
void Generation::Search::step() {
  if (reason_ == FinishReason::length && generation_->submissions_.cancelled())
    reason_ = FinishReason::cancelled;
  try {
    if (reason_ == FinishReason::length && go_on()) return;
  } catch (const std::exception& error) {  // out of memory
    note_failure(error.what());
  }
  missing_ = 0;
  fail();
}

// False: there is nobody left who wants the answers.
bool Generation::Search::go_on() {
  search_.advance(next_);
  list_logprobs();
  if (search_.done()) {
    answer();
    return true;
  }
  next_.assign(search_.beams().size(), {});
  std::vector<Submission> submissions;
  for (std::size_t i = 0; i < next_.size(); ++i)
    submissions.push_back({{request(i)}, std::make_shared<Sink>(shared_from_this(), i)});
  missing_ = next_.size();
  if (generation_->submissions_.submit_more(std::move(submissions), tickets_)) return true;
  reason_ = FinishReason::cancelled;
  return false;
}

// As the engine lists them for a token that it chose.
void Generation::Search::list_logprobs() {
  const std::int32_t most = generation_->ask_.options.logprobs;
  if (most < 0) return;
  for (const BeamSearch::Step& step : search_.steps()) {
    const auto& all = next_[static_cast<std::size_t>(step.beam)];
    const std::size_t listed = std::min(static_cast<std::size_t>(most), all.size());
    auto& own = logprobs_.emplace_back(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(listed));
    if (step.rank >= most) own.push_back(all[static_cast<std::size_t>(step.rank)]);
  }
}

void Generation::Search::answer() {
  const std::size_t first = prompt_ * static_cast<std::size_t>(generation_->ask_.options.n);
  for (const BeamSearch::Answer& answer : search_.answers()) {
    std::vector<BeamSearch::Place> places;
    for (auto place = answer.last; place != BeamSearch::kPrompt; place = search_.before(place))
      places.push_back(place);
    std::reverse(places.begin(), places.end());
    {
      const std::lock_guard lock(generation_->mutex_);
      Choice& choice = generation_->choices_[first + answered_];
      for (const BeamSearch::Place place : places) {
        const auto logprobs = logprobs_.empty() ? std::span<const TokenLogprob>()
                                                : std::span(logprobs_[static_cast<std::size_t>(place)]);
        if (answer.ended && place == answer.last) {
          choice.push_end(search_.token(place), logprobs);
        } else {
          choice.push(search_.token(place), logprobs);
        }
      }
    }
    generation_->end_choice(first + answered_++,
                            answer.ended ? FinishReason::end_token : FinishReason::length, {});
  }
}

void Generation::Search::fail() {
  const auto n = static_cast<std::size_t>(generation_->ask_.options.n);
  while (answered_ < n) generation_->end_choice(prompt_ * n + answered_++, reason_, error_);
}

void Generation::add_search(std::size_t prompt, std::vector<Submission>& submissions) {
  std::vector<Token> ends = end_tokens();
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  const auto width = static_cast<std::int32_t>(ask_.options.n);
  const auto search =
      std::make_shared<Search>(shared_from_this(), prompt,
                               BeamSearch::Options{.width = width,
                                                   .max_new_tokens = ask_.max_tokens,
                                                   .length_penalty = ask_.options.beam_search->length_penalty,
                                                   .early_stopping = ask_.options.beam_search->early_stopping,
                                                   .end_tokens = ends});
  const std::int64_t most = std::min<std::int64_t>(context_.vocabulary, kMaxTopLogprobs) - std::ssize(ends);
  if (width > most)
    throw RequestError(cat("n: ", width, " beams, expected at most ", most, " with ", ends.size(),
                           " end tokens and a vocabulary of ", context_.vocabulary),
                       "n");
  submissions.push_back(search->start());
}

}  // namespace asynct::serve
