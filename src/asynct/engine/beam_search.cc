#include "asynct/engine/beam_search.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

namespace asynct {

BeamSearch::BeamSearch(Options options) : options_(std::move(options)) {
  assert(options_.width >= 1 && options_.max_new_tokens >= 1);
}

float BeamSearch::score(float logprob, std::int64_t tokens) const {
  return logprob / static_cast<float>(std::pow(static_cast<double>(tokens), options_.length_penalty));
}

void BeamSearch::collect(std::span<const std::vector<TokenLogprob>> next) {
  assert(next.size() == beams_.size());
  const std::vector<Token>& ends = options_.end_tokens;
  candidates_.clear();
  for (std::size_t beam = 0; beam < beams_.size(); ++beam)
    for (std::size_t rank = 0; rank < next[beam].size(); ++rank) {
      const TokenLogprob& token = next[beam][rank];
      candidates_.push_back(
          {.logprob = token.logprob + beams_[beam].logprob,
           .from = {.beam = static_cast<std::int32_t>(beam), .rank = static_cast<std::int32_t>(rank)},
           .before = beams_[beam].last,
           .token = token.token,
           .ends = std::find(ends.begin(), ends.end(), token.token) != ends.end()});
    }
  std::stable_sort(candidates_.begin(), candidates_.end(),
                   [](const Candidate& a, const Candidate& b) { return a.logprob > b.logprob; });
}

BeamSearch::Place BeamSearch::add(const Candidate& candidate) {
  tokens_.push_back({.before = candidate.before, .token = candidate.token});
  steps_.push_back(candidate.from);
  return static_cast<Place>(tokens_.size() - 1);
}

// Only the best `width` candidates may become answers: what is behind them would be no beam either.
void BeamSearch::add_answers(bool last) {
  const auto width = static_cast<std::size_t>(options_.width);
  for (std::size_t i = 0; i < std::min(width, candidates_.size()); ++i) {
    const Candidate& candidate = candidates_[i];
    if (!candidate.ends && !last) continue;
    const float score = this->score(candidate.logprob, length_);
    const auto place = std::find_if(answers_.begin(), answers_.end(),
                                    [&](const Answer& other) { return other.score < score; });
    if (place == answers_.end() && answers_.size() == width) continue;
    answers_.insert(place, {.last = add(candidate), .score = score, .ended = candidate.ends});
    if (answers_.size() > width) answers_.pop_back();
  }
}

void BeamSearch::choose_beams() {
  beams_.clear();
  for (const Candidate& candidate : candidates_) {
    if (candidate.ends) continue;
    if (std::ssize(beams_) == options_.width) break;
    beams_.push_back({.last = add(candidate), .logprob = candidate.logprob});
  }
}

void BeamSearch::advance(std::span<const std::vector<TokenLogprob>> next) {
  assert(!done_);
  collect(next);
  steps_.clear();
  ++length_;
  const bool last = length_ == options_.max_new_tokens;
  add_answers(last);
  if (last) {
    done_ = true;
    return;
  }
  choose_beams();
  if (std::ssize(answers_) < options_.width) return;
  done_ = options_.early_stopping || !(score(beams_.front().logprob, length_) > answers_.back().score);
}

std::vector<Token> BeamSearch::tokens(Place last) const {
  std::vector<Token> tokens;
  for (Place place = last; place != kPrompt; place = before(place)) tokens.push_back(token(place));
  std::reverse(tokens.begin(), tokens.end());
  return tokens;
}

}  // namespace asynct
