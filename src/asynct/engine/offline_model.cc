#include "asynct/engine/offline_model.h"

#include <algorithm>
#include <unordered_map>

#include "asynct/base/error.h"
#include "asynct/base/interrupt.h"
#include "asynct/engine/request_trees.h"
#include "asynct/text/stop_matcher.h"
#include "asynct/text/stream_decoder.h"

namespace asynct {
namespace {

// Trees are submitted a little ahead of the engine, so that memory holds few requests twice.
constexpr std::size_t kSubmittedAhead = 512;

/// Feeds trees to an engine until all are done or the user interrupts; counts rows as they are computed.
bool drive(Engine& engine, EngineListener& listener, std::size_t trees, std::int64_t& rows,
           FunctionRef<void(std::size_t tree)> submit) {
  const std::int64_t rows_before = rows;
  std::size_t next = 0;
  while (true) {
    while (next < trees && engine.live_requests() < kSubmittedAhead) submit(next++);
    const bool more = engine.step(listener);
    rows = rows_before + engine.rows_processed();
    if (!more && next == trees) return true;
    if (InterruptGuard::requested()) return false;
  }
}

void fail_on_error(FinishReason reason, std::string_view error) {
  if (reason == FinishReason::failed) fail("the model failed: ", error);
  if (reason == FinishReason::stuck) fail(error);
}

class ScoreListener : public EngineListener {
 public:
  using Done = FunctionRef<void(std::size_t, const SequenceScore&)>;
  ScoreListener(std::span<const ScoreRequest> requests, Done done) : done_(done), results_(requests.size()) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const auto scored = static_cast<std::int64_t>(requests[i].tokens.size()) - requests[i].score_begin;
      results_[i].missing = scored;
      results_[i].logprobs.resize(static_cast<std::size_t>(scored));
    }
  }

  void own(RequestId first, std::vector<std::vector<TargetOwner>> owners) {
    for (auto& targets : owners) owners_[first++] = std::move(targets);
  }

  void on_scores(RequestId id, std::size_t first, std::span<const TokenScore> scores) override {
    const auto& owners = owners_.at(id);
    for (std::size_t i = 0; i < scores.size(); ++i) take(owners[first + i], scores[i]);
  }
  bool on_token(RequestId /*id*/, Token /*token*/, std::span<const TokenLogprob> /*logprobs*/) override {
    return true;
  }
  void on_finished(RequestId id, FinishReason reason, std::string_view error) override {
    owners_.erase(id);
    fail_on_error(reason, error);
  }

 private:
  struct Result {
    std::int64_t missing = 0;
    bool greedy = true;
    std::vector<float> logprobs;
  };

  void take(const TargetOwner& owner, const TokenScore& score) {
    Result& result = results_[static_cast<std::size_t>(owner.index)];
    result.logprobs[static_cast<std::size_t>(owner.position)] = score.logprob;
    result.greedy = result.greedy && score.argmax == owner.token;
    if (--result.missing > 0) return;
    // Summed in the order of the tokens, whatever order they arrived in.
    SequenceScore sum{.logprob = 0, .greedy = result.greedy};
    for (const float logprob : result.logprobs) sum.logprob += logprob;
    result.logprobs = {};
    done_(static_cast<std::size_t>(owner.index), sum);
  }

  Done done_;
  std::vector<Result> results_;
  std::unordered_map<RequestId, std::vector<TargetOwner>> owners_;
};

class GenerateListener : public EngineListener {
 public:
  using Done = FunctionRef<void(std::size_t, const GeneratedText&)>;
  GenerateListener(const Tokenizer& tokenizer, std::span<const GenerateRequest> requests, Done done)
      : tokenizer_(tokenizer), requests_(requests), done_(done) {}

  void own(RequestId first, const std::vector<std::int32_t>& owners) {
    for (const std::int32_t owner : owners) {
      if (owner >= 0) {
        const auto index = static_cast<std::size_t>(owner);
        texts_.emplace(first,
                       Text{index, StreamDecoder(tokenizer_, true), StopMatcher(requests_[index].stop), {}});
      }
      ++first;
    }
  }

  void on_scores(RequestId /*id*/, std::size_t /*first*/, std::span<const TokenScore> /*scores*/) override {}
  bool on_token(RequestId id, Token token, std::span<const TokenLogprob> /*logprobs*/) override {
    Text& text = texts_.at(id);
    ++text.result.new_tokens;
    text.result.text += text.matcher.push(text.decoder.push(token));
    return !text.matcher.stopped();
  }
  void on_finished(RequestId id, FinishReason reason, std::string_view error) override {
    fail_on_error(reason, error);
    const auto found = texts_.find(id);
    if (found == texts_.end()) return;
    Text& text = found->second;
    text.result.text += text.matcher.push(text.decoder.finish());
    text.result.text += text.matcher.finish();
    done_(text.index, text.result);
    texts_.erase(found);
  }

 private:
  struct Text {
    std::size_t index;
    StreamDecoder decoder;
    StopMatcher matcher;
    GeneratedText result;
  };

  const Tokenizer& tokenizer_;
  std::span<const GenerateRequest> requests_;
  Done done_;
  std::unordered_map<RequestId, Text> texts_;
};

}  // namespace

OfflineModel::OfflineModel(std::unique_ptr<ModelRunner> runner, Tokenizer tokenizer,
                           std::vector<Token> end_tokens, const EngineOptions& options)
    : runner_(std::move(runner)),
      tokenizer_(std::move(tokenizer)),
      end_tokens_(std::move(end_tokens)),
      options_(options) {}

bool OfflineModel::score(std::span<const ScoreRequest> requests,
                         FunctionRef<void(std::size_t, const SequenceScore&)> done) {
  const ScoreTrees trees(requests);
  ScoreListener listener(requests, done);
  Engine engine(*runner_, options_);
  return drive(engine, listener, trees.count(), tokens_processed_, [&](std::size_t index) {
    std::vector<std::vector<TargetOwner>> owners;
    std::vector<Request> tree = trees.tree(index, owners);
    listener.own(engine.submit(std::move(tree)), std::move(owners));
  });
}

bool OfflineModel::generate(std::span<const GenerateRequest> requests,
                            FunctionRef<void(std::size_t, const GeneratedText&)> done) {
  const GenerateTrees trees(requests, end_tokens_);
  GenerateListener listener(tokenizer_, requests, done);
  Engine engine(*runner_, options_);
  return drive(engine, listener, trees.count(), tokens_processed_, [&](std::size_t index) {
    std::vector<std::int32_t> owners;
    std::vector<Request> tree = trees.tree(index, owners);
    listener.own(engine.submit(std::move(tree)), owners);
  });
}

}  // namespace asynct
