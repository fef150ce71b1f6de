#include "asynct/serve/score.h"

#include <mutex>
#include <utility>

#include "asynct/engine/request_trees.h"
#include "asynct/eval/encoding.h"
#include "asynct/serve/answer_parts.h"
#include "asynct/serve/completions.h"
#include "asynct/serve/http/error_json.h"
#include "asynct/serve/json_writer.h"
#include "asynct/serve/publisher.h"
#include "asynct/serve/request_fields.h"
#include "asynct/serve/submissions.h"

namespace asynct::serve {
namespace {

/// All continuations of one request on their way through the engine.
class Scoring : public Publication, public std::enable_shared_from_this<Scoring> {
 public:
  Scoring(const Context& context, std::string id, std::vector<ScoreRequest> requests,
          std::shared_ptr<http::Responder> responder)
      : context_(context),
        submissions_(context.engine),
        id_(std::move(id)),
        requests_(std::move(requests)),
        responder_(std::move(responder)) {
    for (const ScoreRequest& request : requests_) {
      const auto scored = std::ssize(request.tokens) - request.score_begin;
      scores_.emplace_back(static_cast<std::size_t>(scored));
    }
  }

  void start(const Fields& fields);
  void publish() override;

 private:
  using Owners = std::vector<std::vector<TargetOwner>>;

  /// Hears about one tree.
  class Sink : public SubmissionListener {
   public:
    Sink(std::shared_ptr<Scoring> scoring, Owners owners)
        : scoring_(std::move(scoring)), owners_(std::move(owners)), live_(owners_.size()) {}
    void on_rejected(std::string_view error) override {
      live_ = 1;
      end(error, true);
    }
    void on_scores(std::size_t request, std::size_t first, std::span<const TokenScore> scores) override {
      const std::lock_guard lock(scoring_->mutex_);
      for (std::size_t i = 0; i < scores.size(); ++i) {
        const TargetOwner& owner = owners_[request][first + i];
        scoring_->scores_[static_cast<std::size_t>(owner.index)][static_cast<std::size_t>(owner.position)] =
            scores[i];
      }
    }
    bool on_token(std::size_t /*request*/, Token /*token*/,
                  std::span<const TokenLogprob> /*logprobs*/) override {
      return true;
    }
    void on_finished(std::size_t /*request*/, FinishReason reason, std::string_view error) override {
      end(reason == FinishReason::failed ? error : std::string_view(), false);
    }

   private:
    void end(std::string_view error, bool rejected) {
      const std::lock_guard lock(scoring_->mutex_);
      if (!error.empty()) scoring_->error_ = error;
      scoring_->rejected_ = scoring_->rejected_ || rejected;
      if (--live_ > 0 || --scoring_->missing_ > 0) return;
      scoring_->context_.publisher.add(scoring_);
    }
    const std::shared_ptr<Scoring> scoring_;
    const Owners owners_;
    std::size_t live_;
  };

  const Context& context_;
  Submissions submissions_;
  const std::string id_;
  const std::vector<ScoreRequest> requests_;
  const std::shared_ptr<http::Responder> responder_;

  std::mutex mutex_;
  std::vector<std::vector<TokenScore>> scores_;  // of each request's scored tokens
  std::size_t missing_ = 0;                      // trees
  bool rejected_ = false;
  std::string error_;
};

void Scoring::start(const Fields& fields) {
  const ScoreTrees trees(requests_);
  missing_ = trees.count();
  responder_->on_disconnect([weak = weak_from_this()] {
    if (const auto scoring = weak.lock()) scoring->submissions_.cancel();
  });
  std::vector<Submission> submissions;
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < trees.count(); ++i) {
    Owners owners;
    std::vector<Request> tree = trees.tree(i, owners);
    tree.front().priority = fields.integer("priority", 0, INT32_MIN, INT32_MAX);
    tree.front().cache_salt = fields.text("cache_salt", "", context_.limits.salt_bytes);
    for (const Request& request : tree) tokens += std::ssize(request.tokens);
    submissions.push_back({std::move(tree), std::make_shared<Sink>(shared_from_this(), std::move(owners))});
  }
  submissions_.submit(std::move(submissions));
  context_.metrics.prompt_tokens += tokens;
}

void Scoring::publish() {
  if (!error_.empty()) {
    http::send_error(*responder_, {.status = rejected_ ? 400 : 500, .message = error_});
    return;
  }
  Usage usage;
  std::string out = "{\"id\":";
  append_json(out, std::string_view(id_));
  out += ",\"object\":\"list\",\"model\":";
  append_json(out, std::string_view(context_.model_names.front()));
  out += ",\"data\":[";
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    double sum = 0;  // in the order of the tokens, as the evaluator adds
    bool greedy = true;
    for (std::size_t t = 0; t < scores_[i].size(); ++t) {
      sum += scores_[i][t].logprob;
      const auto at = static_cast<std::size_t>(requests_[i].score_begin) + t;
      greedy = greedy && scores_[i][t].argmax == requests_[i].tokens[at];
    }
    out += i > 0 ? ",{\"index\":" : "{\"index\":";
    append_json(out, static_cast<std::int64_t>(i));
    out += ",\"object\":\"score\",\"logprob\":";
    char digits[32];
    out.append(digits, std::to_chars(digits, digits + sizeof digits, sum).ptr);
    out += greedy ? ",\"greedy\":true,\"tokens\":" : ",\"greedy\":false,\"tokens\":";
    append_json(out, static_cast<std::int64_t>(scores_[i].size()));
    out += '}';
    usage.prompt_tokens += std::ssize(requests_[i].tokens);
  }
  out += ']';
  append_usage(out, usage);
  out += '}';
  responder_->send(200, "application/json", out);
}

RequestError too_long(std::size_t continuation, std::size_t most) {
  const std::string name = cat("continuations[", continuation, "]");
  return RequestError(cat(name, ": more than ", most, " tokens with the context"), name, 400,
                      "context_length_exceeded");
}

std::vector<ScoreRequest> score_requests(const Context& context, const Fields& fields) {
  const Json* const before = fields.find("context");
  const Json* const after = fields.find("continuations");
  if (before == nullptr) throw RequestError("context: missing", "context");
  if (after == nullptr || !after->is_array() || after->empty())
    throw RequestError("continuations: expected a list of at least one", "continuations");
  if (after->size() > context.limits.continuations)
    throw RequestError(
        cat("continuations: ", after->size(), " of them, expected at most ", context.limits.continuations),
        "continuations");
  std::vector<ScoreRequest> requests;
  const auto most = static_cast<std::size_t>(context.max_length) + 1;
  const auto add = [&](std::vector<Token> head, const std::vector<Token>& tail) {
    if (head.empty()) throw RequestError("context: no tokens; scoring needs at least one", "context");
    if (tail.empty()) throw RequestError("continuations: one has no tokens", "continuations");
    const auto begin = static_cast<std::int64_t>(head.size());
    head.insert(head.end(), tail.begin(), tail.end());
    if (head.size() > most) throw too_long(requests.size(), most);
    requests.push_back({std::move(head), begin});
  };
  if (before->is_string()) {
    const auto texts =
        fields.texts("continuations", context.limits.continuations, context.limits.prompt_bytes);
    const std::string text = fields.text("context", {}, context.limits.prompt_bytes);
    try {
      const PromptEncoder encoder(context.tokenizer, BosMode::tokenizer, most);
      for (TokenPair& pair : encoder.encode_pairs(text, texts))
        add(std::move(pair.context), pair.continuation);
    } catch (const ContinuationTooLong& error) {
      throw too_long(error.index, most);
    } catch (const TooManyTokens&) {
      throw RequestError(cat("context: more than ", most, " tokens"), "context", 400,
                         "context_length_exceeded");
    }
  } else if (before->is_array()) {
    const auto head = token_ids(*before, "context", most, context.vocabulary);
    for (const Json& ids : *after) {
      if (!ids.is_array())
        throw RequestError("continuations: expected lists of token ids, as context is", "continuations");
      if (ids.size() > most) throw too_long(requests.size(), most);
      add(head, token_ids(ids, "continuations", most, context.vocabulary));
    }
  } else {
    throw RequestError("context: expected a string or a list of token ids", "context");
  }
  return requests;
}

}  // namespace

void handle_score(const Context& context, const http::HttpRequest& request,
                  std::shared_ptr<http::Responder> responder) {
  const Json body = Fields::parse(request.body);
  const Fields fields(body);
  check_model(context, fields);
  std::make_shared<Scoring>(context, "score-" + request.id, score_requests(context, fields),
                            std::move(responder))
      ->start(fields);
}

}  // namespace asynct::serve
