#include "asynct/engine/engine_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "asynct/engine/engine_testing.h"

namespace asynct {
namespace {

// Waits for one submission of one request.
class Waiter : public SubmissionListener {
 public:
  void on_rejected(std::string_view error) override { end(FinishReason::failed, error); }
  void on_scores(std::size_t /*request*/, std::size_t /*first*/,
                 std::span<const TokenScore> /*scores*/) override {}
  bool on_token(std::size_t /*request*/, Token token, std::span<const TokenLogprob> /*logprobs*/) override {
    const std::lock_guard lock(mutex_);
    outcome_.tokens.push_back(token);
    changed_.notify_all();
    return true;
  }
  void on_finished(std::size_t /*request*/, FinishReason reason, std::string_view error) override {
    end(reason, error);
  }

  Outcome wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return outcome_.finished > 0; }));
    return outcome_;
  }
  void wait_for_tokens(std::size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return outcome_.tokens.size() >= count; }));
  }

 private:
  void end(FinishReason reason, std::string_view error) {
    const std::lock_guard lock(mutex_);
    ++outcome_.finished;
    outcome_.reason = reason;
    outcome_.error = error;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  Outcome outcome_;
};

EngineThread::Options options(std::int64_t max_queue = 1024) {
  return {.engine = {.blocks = 60,
                     .block_size = kBlock,
                     .batch_tokens = 32,
                     .max_sequences = 8,
                     .prefix_cache = true},
          .max_queue = max_queue};
}

TEST(EngineThread, ManyClientsAtOnceGetTheirOwnTexts) {
  FakeRunner model(60);
  EngineThread engine(model, options());
  std::vector<std::thread> clients;
  for (unsigned client = 0; client < 4; ++client)
    clients.emplace_back([&, client] {
      std::mt19937 random(client);
      for (int i = 0; i < 50; ++i) {
        const auto tokens = random_tokens(random, 1 + random() % 20);
        const auto count = static_cast<std::int64_t>(1 + random() % 12);
        const auto waiter = std::make_shared<Waiter>();
        const auto ticket = engine.submit({{.tokens = tokens, .max_new_tokens = count}}, waiter);
        ASSERT_TRUE(ticket.has_value());
        const bool cancelled = random() % 4 == 0;
        if (cancelled) engine.cancel(*ticket);
        const Outcome outcome = waiter->wait();
        EXPECT_EQ(outcome.finished, 1);
        if (!cancelled) {
          EXPECT_EQ(outcome.tokens, expected_text(tokens, count, {}));
        }
      }
    });
  for (auto& client : clients) client.join();
  engine.shut_down(std::chrono::seconds(10));
  const EngineStatus status = engine.status();
  EXPECT_EQ(status.free_blocks, status.blocks);
  EXPECT_EQ(status.running + status.waiting + status.queued, 0);
  EXPECT_GT(status.tokens_generated, 200);
}

TEST(EngineThread, RefusedSubmissionsAreToldWhy) {
  FakeRunner model(60);
  EngineThread engine(model, options());
  const auto waiter = std::make_shared<Waiter>();
  engine.submit({{.tokens = {kVocabulary}}}, waiter);
  EXPECT_NE(waiter->wait().error.find("not in the vocabulary"), std::string::npos);
}

TEST(EngineThread, AFullQueueTakesNothing) {
  FakeRunner model(60);
  EngineThread engine(model, options(0));
  EXPECT_FALSE(engine.submit({{.tokens = {1}}}, std::make_shared<Waiter>()).has_value());
}

TEST(EngineThread, TakesAllOrNone) {
  FakeRunner model(60);
  EngineThread engine(model, options(3));
  const auto waiters = [] {
    return std::vector{std::make_shared<Waiter>(), std::make_shared<Waiter>(), std::make_shared<Waiter>()};
  };
  const auto submissions = [](const std::vector<std::shared_ptr<Waiter>>& waiters) {
    std::vector<Submission> all;
    all.reserve(waiters.size());
    for (const auto& waiter : waiters) all.push_back({{{.tokens = {1, 2}, .max_new_tokens = 150}}, waiter});
    return all;
  };
  const auto first = waiters();
  ASSERT_EQ(engine.submit(submissions(first)).value().size(), 3U);
  for (const auto& waiter : first) waiter->wait_for_tokens(1);  // they wait no longer
  auto four = submissions(waiters());
  four.push_back({{{.tokens = {7}}}, std::make_shared<Waiter>()});
  EXPECT_FALSE(engine.submit(std::move(four)).has_value());
  for (const auto& waiter : first) EXPECT_EQ(waiter->wait().tokens.size(), 150U);
  engine.shut_down(std::chrono::seconds(10));
  EXPECT_EQ(engine.status().counters.prompt_tokens, 6) << "nothing of the four has run";
}

// Submits the next request of a chain when one has ended, as long as it is let.
class Chain : public Waiter, public std::enable_shared_from_this<Chain> {
 public:
  Chain(EngineThread& engine, std::int64_t links) : engine_(engine), left_(links) {}
  void on_rejected(std::string_view error) override { ADD_FAILURE() << error; }
  void on_finished(std::size_t request, FinishReason reason, std::string_view error) override {
    ++ended;
    if (reason == FinishReason::length && --left_ > 0 &&
        engine_.submit_more({{{{.tokens = {1, 2, 3}, .max_new_tokens = 1}}, shared_from_this()}}))
      return;
    Waiter::on_finished(request, reason, error);
  }
  std::atomic<std::int64_t> ended = 0;

 private:
  EngineThread& engine_;
  std::int64_t left_;
};

TEST(EngineThread, WhatGoesOnIsTakenByAFullQueueAndUntilTheDeadline) {
  FakeRunner other(60);
  EngineThread full(other, options(0));
  EXPECT_TRUE(full.submit_more({{{{.tokens = {1}}}, std::make_shared<Waiter>()}}).has_value());
  for (const bool drain : {true, false}) {
    FakeRunner model(60);
    EngineThread engine(model, options());
    const std::int64_t links = drain ? 2000 : INT64_MAX;
    const auto chain = std::make_shared<Chain>(engine, links);
    engine.submit({{.tokens = {1, 2, 3}, .max_new_tokens = 1}}, chain);
    while (chain->ended == 0) std::this_thread::yield();
    engine.shut_down(drain ? std::chrono::seconds(60) : std::chrono::seconds(0));
    EXPECT_EQ(chain->wait().finished, 1);
    if (drain) {
      EXPECT_EQ(chain->ended, links);
    }
    EXPECT_EQ(engine.status().free_blocks, 60);
    EXPECT_FALSE(engine.submit_more({{{{.tokens = {1}}}, std::make_shared<Waiter>()}}).has_value());
  }
}

TEST(EngineThread, ShutDownLetsRequestsEndOrCancelsThem) {
  for (const bool drain : {true, false}) {
    FakeRunner model(60);
    EngineThread engine(model, options());
    std::vector<std::shared_ptr<Waiter>> waiters;
    for (int i = 0; i < 20; ++i) {
      waiters.push_back(std::make_shared<Waiter>());
      engine.submit({{.tokens = {i}, .max_new_tokens = drain ? 5 : 150}}, waiters.back());
    }
    engine.shut_down(drain ? std::chrono::seconds(60) : std::chrono::seconds(0));
    for (const auto& waiter : waiters) {
      const Outcome outcome = waiter->wait();
      EXPECT_EQ(outcome.finished, 1);
      if (drain) {
        EXPECT_EQ(outcome.reason, FinishReason::length);
      }
    }
    EXPECT_FALSE(engine.submit({{.tokens = {1}}}, std::make_shared<Waiter>()).has_value());
    EXPECT_EQ(engine.status().free_blocks, 60);
  }
}

TEST(EngineThread, DestructionEndsEveryRequest) {
  FakeRunner model(60);
  const auto waiter = std::make_shared<Waiter>();
  {
    EngineThread engine(model, options());
    engine.submit({{.tokens = {1}, .max_new_tokens = 190}}, waiter);
  }
  EXPECT_EQ(waiter->wait().finished, 1);
}

// Throws where it is told to, but counts all it hears.
class Thrower : public Waiter {
 public:
  enum class At { token, end, token_and_end };
  Thrower(At at, int times) : at_(at), left_(times) {}
  bool on_token(std::size_t request, Token token, std::span<const TokenLogprob> logprobs) override {
    Waiter::on_token(request, token, logprobs);
    if (at_ != At::end) fall();
    return true;
  }
  void on_rejected(std::string_view error) override {
    Waiter::on_rejected(error);
    fall();
  }
  void on_finished(std::size_t request, FinishReason reason, std::string_view error) override {
    Waiter::on_finished(request, reason, error);
    if (at_ != At::token) fall();
  }

 private:
  void fall() {
    if (left_-- > 0) throw std::runtime_error("the listener fell");
  }
  const At at_;
  int left_;
};

TEST(EngineThread, AListenerThatThrowsEndsNeitherTheEngineNorTwice) {
  for (const Thrower::At at : {Thrower::At::token, Thrower::At::end, Thrower::At::token_and_end})
    for (const int times : {1, 1000}) {
      FakeRunner model(60);
      EngineThread engine(model, options());
      model.paused = true;  // until all are there
      const auto other = std::make_shared<Waiter>();
      engine.submit({{.tokens = {7, 8}, .max_new_tokens = 4}}, other);
      std::vector<std::shared_ptr<Thrower>> throwers;
      for (int i = 0; i < 3; ++i) {
        throwers.push_back(std::make_shared<Thrower>(at, times));
        engine.submit({{.tokens = {i, 1}, .max_new_tokens = 4}}, throwers.back());
      }
      const auto refused = std::make_shared<Thrower>(at, times);
      engine.submit({{.tokens = {kVocabulary}}}, refused);
      const auto cancelled = std::make_shared<Thrower>(at, times);
      engine.cancel(engine.submit({{.tokens = {1}, .max_new_tokens = 9}}, cancelled).value());
      model.paused = false;
      const bool whole = at == Thrower::At::end;  // what has ended harms nobody
      for (const auto& thrower : throwers) {
        const Outcome outcome = thrower->wait();
        EXPECT_EQ(outcome.reason, whole ? FinishReason::length : FinishReason::failed);
        EXPECT_EQ(outcome.error, whole ? "" : "the listener fell");
      }
      EXPECT_EQ(other->wait().reason == FinishReason::length, whole);
      refused->wait();
      cancelled->wait();
      const auto later = std::make_shared<Waiter>();
      engine.submit({{.tokens = {3, 4}, .max_new_tokens = 5}}, later);
      EXPECT_EQ(later->wait().tokens, expected_text({3, 4}, 5, {}));
      engine.shut_down(std::chrono::seconds(10));
      for (const auto& thrower : throwers) EXPECT_EQ(thrower->wait().finished, 1);
      for (const auto& thrower : {refused, cancelled}) EXPECT_EQ(thrower->wait().finished, 1);
      EXPECT_EQ(engine.status().free_blocks, 60);
    }
}

TEST(EngineThread, TheCacheIsResetOnlyWhileNobodyRuns) {
  FakeRunner model(60);
  EngineThread engine(model, options());
  EXPECT_TRUE(engine.reset_prefix_cache());
  std::atomic<int> steps = 0;
  {
    EngineThread other(model, options(), [&] { ++steps; });
    const auto waiter = std::make_shared<Waiter>();
    other.submit({{.tokens = {1}, .max_new_tokens = 5}}, waiter);
    waiter->wait();
    other.shut_down(std::chrono::seconds(10));
  }  // its thread has ended: the last call may come after shut_down() has returned
  EXPECT_GE(steps, 5);
}

}  // namespace
}  // namespace asynct
