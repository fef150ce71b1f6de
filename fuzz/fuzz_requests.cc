// A body for one of the routes that reach the scheduler; the first byte chooses the route. Whatever comes is
// answered once, by a refusal that names what is wrong or by an answer, and leaves nothing in the engine.

#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "asynct/serve/chat.h"
#include "asynct/serve/completions.h"
#include "asynct/serve/publisher.h"
#include "asynct/serve/request_fields.h"
#include "asynct/serve/score.h"
#include "asynct/text/chat_template/chat_template.h"
#include "asynct/text/grammar/grammar.h"

namespace {

using namespace asynct;

constexpr std::int32_t kVocabulary = 300;
constexpr std::int32_t kBlocks = 64;

/// A model with a word to say whatever it is asked.
class Babbler : public ModelRunner {
 public:
  std::int64_t vocabulary() const override { return kVocabulary; }
  std::int64_t max_length() const override { return 128; }
  void copy_blocks(std::span<const BlockCopy> /*copies*/) override {}
  void forward(const StepBatch& batch) override { seen_ += static_cast<std::size_t>(batch.rows()); }
  void score(std::span<const ScoreTarget> targets, std::span<TokenScore> scores) override {
    for (std::size_t i = 0; i < targets.size(); ++i)
      scores[i] = {.logprob = -1, .argmax = targets[i].token, .argmax_logprob = -1};
  }
  void greedy(std::span<const std::int32_t> /*rows*/, std::span<std::int32_t> tokens) override {
    for (Token& token : tokens) token = static_cast<Token>(++seen_ % kVocabulary);
  }
  void logits(std::span<const std::int32_t> /*rows*/, std::span<float> logits) override {
    for (float& logit : logits) logit = static_cast<float>(++seen_ % 17);
  }

 private:
  std::size_t seen_ = 0;
};

class Counting : public http::Responder {
 public:
  bool send(int status, std::string_view /*type*/, std::string_view /*body*/,
            const http::Headers& /*headers*/) override {
    if (status >= 500) std::abort();
    return finish();
  }
  bool begin_stream(int /*status*/, std::string_view /*type*/, const http::Headers& /*headers*/) override {
    return true;
  }
  std::size_t write(std::string_view /*chunk*/) override { return 0; }
  bool end() override { return finish(); }
  void on_disconnect(std::function<void()> callback) override { left_ = std::move(callback); }
  bool closed() const override { return finished_; }
  void leave() { left_(); }
  void wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return finished_; });
  }

 private:
  bool finish() {
    const std::lock_guard lock(mutex_);
    if (finished_) std::abort();
    finished_ = true;
    done_.notify_all();
    return true;
  }
  std::mutex mutex_;
  std::condition_variable done_;
  bool finished_ = false;
  std::function<void()> left_;
};

struct Server {
  Tokenizer tokenizer = Tokenizer::load("models/asynct-tiny");
  Babbler model;
  serve::Metrics metrics;
  serve::Publisher publisher;
  EngineThread engine{model,
                      {.engine = {.blocks = kBlocks,
                                  .block_size = 8,
                                  .batch_tokens = 64,
                                  .max_sequences = 16,
                                  .prefix_cache = true}},
                      [this] { publisher.flush(); }};
  ChatTemplate chat_template{"{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"};
  // What is compiled must end within the fuzzer's own limit, under sanitizers.
  GrammarCompiler grammars{tokenizer, kVocabulary, {.work = 200'000}};
  serve::Context context{.tokenizer = tokenizer,
                         .engine = engine,
                         .publisher = publisher,
                         .metrics = metrics,
                         .model_names = {"m"},
                         .end_tokens = {0},
                         .vocabulary = kVocabulary,
                         .max_length = 128,
                         .chat_template = &chat_template,
                         .grammars = &grammars};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Server server;
  if (size == 0) return 0;
  const http::HttpRequest request{
      .method = "POST", .path = "/", .body = {reinterpret_cast<const char*>(data) + 1, size - 1}, .id = "i"};
  const auto responder = std::make_shared<Counting>();
  try {
    switch (data[0] % 3) {
      case 0:
        serve::handle_completions(server.context, request, responder);
        break;
      case 1:
        serve::handle_chat(server.context, request, responder);
        break;
      default:
        serve::handle_score(server.context, request, responder);
    }
  } catch (const serve::RequestError&) {
    return 0;
  }
  if (data[0] >= 128) responder->leave();
  responder->wait();
  return 0;
}
