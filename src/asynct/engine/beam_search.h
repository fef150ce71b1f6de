#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "asynct/engine/logprobs.h"
#include "asynct/text/token.h"

namespace asynct {

/// What a beam search does with the candidates that a model gives it; the model is its owner's business:
///
///   BeamSearch search({.width = 4, .max_new_tokens = 64, .end_tokens = {0}});
///   while (!search.done()) search.advance(the most probable next tokens of each of search.beams());
///
/// The search of transformers' generate(num_beams=width), float by float. Beams are ordered by the sum of
/// their log-probabilities. One that ends, by an end token among the best `width` continuations or by its
/// length, competes with the other answers by sum / tokens ** length_penalty; the prompt is not counted, the
/// end token is. It is over when there are `width` answers and the best beam, scored as if it ended now, is
/// no better than the worst of them, or at max_new_tokens.
class BeamSearch {
 public:
  struct Options {
    std::int32_t width = 2;
    std::int64_t max_new_tokens = 16;  // at least 1
    double length_penalty = 1;         // above 0 favours long answers
    bool early_stopping = false;       // it is over when there are `width` answers
    std::vector<Token> end_tokens;     // each once
  };

  /// A token of a beam or an answer, after others: an index into what was ever continued.
  using Place = std::int32_t;
  static constexpr Place kPrompt = -1;

  struct Beam {
    Place last = kPrompt;
    float logprob = 0;  // sum over its tokens
  };
  struct Answer {
    Place last = kPrompt;
    float score = 0;
    bool ended = false;  // its last token is an end token
  };

  explicit BeamSearch(Options options);

  /// So many of the most probable tokens must be known after each beam.
  std::int32_t candidates() const {
    return options_.width + static_cast<std::int32_t>(options_.end_tokens.size());
  }

  /// At first the prompt alone. Best first.
  std::span<const Beam> beams() const { return beams_; }
  /// One token further. next[i]: the candidates() most probable tokens after beams()[i], in their order; of
  /// equals the first stays.
  void advance(std::span<const std::vector<TokenLogprob>> next);
  bool done() const { return done_; }

  /// Best first; `width` of them when done().
  std::span<const Answer> answers() const { return answers_; }

  /// Each place has one before it, so what is kept for places may lie in an array of places() entries.
  std::size_t places() const { return tokens_.size(); }
  struct Step {
    std::int32_t beam = 0;  // of beams() before the last advance()
    std::int32_t rank = 0;  // in its candidates
  };
  /// Where places [places() - steps().size(), places()) come from: those of the last advance().
  std::span<const Step> steps() const { return steps_; }
  Place before(Place place) const { return tokens_[static_cast<std::size_t>(place)].before; }
  Token token(Place place) const { return tokens_[static_cast<std::size_t>(place)].token; }
  /// All tokens up to a place, without the prompt.
  std::vector<Token> tokens(Place last) const;

 private:
  struct Entry {
    Place before = kPrompt;
    Token token = 0;
  };
  struct Candidate {
    float logprob = 0;  // of the whole
    Step from;
    Place before = kPrompt;
    Token token = 0;
    bool ends = false;
  };

  void collect(std::span<const std::vector<TokenLogprob>> next);
  Place add(const Candidate& candidate);
  float score(float logprob, std::int64_t tokens) const;
  void add_answers(bool last);
  void choose_beams();

  Options options_;
  std::vector<Entry> tokens_;
  std::vector<Step> steps_;
  std::vector<Candidate> candidates_;  // of one advance(), best first
  std::vector<Beam> beams_{Beam{}};
  std::vector<Answer> answers_;
  std::int64_t length_ = 0;  // of the beams
  bool done_ = false;
};

}  // namespace asynct
