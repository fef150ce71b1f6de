#pragma once

// For tests of handlers: an engine whose model is a fake, and answers that are kept.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>

#include "asynct/engine/engine_testing.h"
#include "asynct/serve/completions.h"
#include "asynct/serve/publisher.h"
#include "asynct/serve/request_fields.h"

namespace asynct::serve {

// Keeps the answer.
class Recording : public http::Responder {
 public:
  bool send(int status, std::string_view /*type*/, std::string_view body,
            const http::Headers& /*headers*/) override {
    return finish([&] {
      this->status = status;
      this->body = body;
    });
  }
  bool begin_stream(int status, std::string_view /*type*/, const http::Headers& /*headers*/) override {
    const std::lock_guard lock(mutex_);
    this->status = status;
    return true;
  }
  std::size_t write(std::string_view chunk) override {
    const std::lock_guard lock(mutex_);
    body += chunk;
    return 0;
  }
  bool end() override {
    return finish([] {});
  }
  void on_disconnect(std::function<void()> callback) override { left_ = std::move(callback); }
  bool closed() const override { return closed_; }

  void wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(done_.wait_for(lock, std::chrono::seconds(60), [&] { return closed_; }));
  }
  void leave() { left_(); }

  int status = 0;
  std::string body;
  int place = 0;  // among all that were answered

 private:
  template <class Change>
  bool finish(Change change) {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(closed_) << "answered twice";
    change();
    static std::atomic<int> answered = 0;
    place = ++answered;
    closed_ = true;
    done_.notify_all();
    return true;
  }
  std::mutex mutex_;
  std::condition_variable done_;
  bool closed_ = false;
  std::function<void()> left_;
};

// Requests to handlers, without HTTP.
class HandlersTest : public testing::Test {
 protected:
  explicit HandlersTest(std::int32_t blocks = 200, std::int64_t max_queue = 100)
      : model(blocks),
        engine(model,
               {.engine = {.blocks = blocks,
                           .block_size = kBlock,
                           .batch_tokens = 32,
                           .max_sequences = 8,
                           .prefix_cache = true},
                .max_queue = max_queue},
               [this] {
                 if (after_step) after_step();
                 publisher.flush();
               }),
        context{.tokenizer = tokenizer,
                .engine = engine,
                .publisher = publisher,
                .metrics = metrics,
                .model_names = {"fake", "alias"},
                .end_tokens = {49},
                .vocabulary = model.vocabulary(),
                .max_length = model.max_length(),
                .created = 1} {}

  std::shared_ptr<Recording> post(const std::string& body,
                                  void (*handle)(const Context&, const http::HttpRequest&,
                                                 std::shared_ptr<http::Responder>) = handle_completions) {
    const auto responder = std::make_shared<Recording>();
    handle(context, {.method = "POST", .path = "/", .body = body, .id = "id"}, responder);
    return responder;
  }
  Json ask(const std::string& body) {
    const auto responder = post(body);
    responder->wait();
    EXPECT_EQ(responder->status, 200) << responder->body;
    return parse_json(responder->body, "answer");
  }
  std::string refusal(const std::string& body) {
    try {
      post(body)->wait();
    } catch (const RequestError& error) {
      return cat(error.status, " ", error.param, ": ", error.what());
    }
    return "accepted";
  }
  // The engine ends with it.
  void expect_nothing_left() {
    engine.shut_down(std::chrono::seconds(30));
    const EngineStatus status = engine.status();
    EXPECT_EQ(status.free_blocks, status.blocks);
    EXPECT_EQ(status.running + status.waiting + status.queued, 0);
  }
  // Sends one request after the other; each client leaves at some moment.
  void leave_often(int requests, std::uint32_t longest, const std::function<std::string(int)>& body) {
    std::mt19937 random(1);
    for (int i = 0; i < requests; ++i) {
      const auto responder = post(body(i));
      for (auto spin = random() % longest; spin > 0; --spin) std::this_thread::yield();
      responder->leave();
      responder->wait();
    }
    expect_nothing_left();
  }

  const Tokenizer tokenizer = Tokenizer::load("models/asynct-tiny");
  FakeRunner model;
  Metrics metrics;
  Publisher publisher;
  std::function<void()> after_step;
  EngineThread engine;
  Context context;
};

}  // namespace asynct::serve
