// Runs against a server that answers with any bytes.

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "asynct/base/error.h"
#include "asynct/base/json.h"
#include "asynct/serve/load/fake_server.h"
#include "asynct/serve/load/report.h"
#include "asynct/serve/load/run.h"

namespace asynct::load {
namespace {

using std::chrono::milliseconds;

LoadOptions options_for(const FakeServer& server, std::int64_t requests = 4, std::int64_t concurrency = 2) {
  LoadOptions options;
  options.url = server.url();
  options.model = "m";
  options.vocabulary = 100;
  options.requests = requests;
  options.concurrency = concurrency;
  options.prompt_tokens = LengthDistribution::parse("5", "p");
  options.output_tokens = LengthDistribution::parse("3", "o");
  options.timeout = 20;
  return options;
}

/// What becomes of requests that are all answered so.
LoadResult run_against(const std::function<void(FakeExchange&)>& handler,
                       const std::function<void(LoadOptions&)>& change = {}) {
  const FakeServer server(handler);
  LoadOptions options = options_for(server);
  if (change) change(options);
  return run_load(options);
}

void expect_all(const LoadResult& result, Failure failure, std::string_view detail) {
  EXPECT_EQ(result.records.size(), 4U);
  for (const Record& record : result.records) {
    EXPECT_EQ(name(record.failure), name(failure)) << record.detail;
    EXPECT_NE(record.detail.find(detail), std::string::npos) << record.detail;
  }
}

TEST(Load, StreamsAreMeasured) {
  const LoadResult result = run_against([](FakeExchange& exchange) {
    EXPECT_EQ(exchange.line, "POST /v1/completions");
    const Json body = parse_json(exchange.body, "request");
    EXPECT_EQ(body["prompt"].size(), 5U);
    std::this_thread::sleep_for(milliseconds(30));
    exchange.stream({}, false);
    for (int i = 0; i < 3; ++i) {
      std::this_thread::sleep_for(milliseconds(20));
      exchange.send("26\r\ndata: {\"choices\":[{\"text\":\"token\"}]}\n\n\r\n");
    }
    exchange.send("5\r\n: a c\r\n");
    exchange.send("9\r\nomment\n\n\n\r\n");
    const std::string rest =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n";
    char size[10];
    std::snprintf(size, sizeof size, "%zx\r\n", rest.size());
    exchange.send(size + rest + "\r\n0\r\n\r\n");
  });
  expect_all(result, Failure::none, "");
  for (const Record& record : result.records) {
    // The server's sleeps bound what counts from the start; gaps also depend on when this thread gets to run.
    EXPECT_GE(*record.ttft(), 0.050);
    EXPECT_GE(record.latency(), 0.090);
    ASSERT_EQ(record.gaps.size(), 2U);
    EXPECT_NEAR(record.gaps[0] + record.gaps[1], record.last_token - record.first_token, 1e-4);
    EXPECT_GE(record.end, record.last_token);
    EXPECT_EQ(record.prompt_tokens, 5);
    EXPECT_EQ(record.output_tokens, 3);
  }
  const Json report = report_json(result);
  EXPECT_EQ(report["completed"], 4);
  EXPECT_EQ(report["total_output_tokens"], 12);
  EXPECT_EQ(report["itl_ms"]["count"], 8);
  EXPECT_NEAR(report["output_throughput"].get<double>(), 12 / result.duration, 1e-9);
}

TEST(Load, ConnectionsAreKeptAndAsManyAsAsked) {
  std::atomic<int> now = 0, most = 0;
  const FakeServer server([&](FakeExchange& exchange) {
    int seen = ++now;
    for (int old = most; old < seen && !most.compare_exchange_weak(old, seen);) {
    }
    std::this_thread::sleep_for(milliseconds(10));
    --now;
    exchange.complete(5, 3);
  });
  const LoadResult result = run_load(options_for(server, 30, 5));
  EXPECT_EQ(failures(result), 0);
  EXPECT_EQ(result.records.size(), 30U);
  EXPECT_EQ(server.connections(), 5);
  EXPECT_LE(most, 5);
  EXPECT_GE(most, 2);
}

TEST(Load, AKeptConnectionThatWasClosedIsNoFailure) {
  const LoadResult result = run_against([](FakeExchange& exchange) {
    exchange.complete(5, 3);
    exchange.keep = false;  // without "Connection: close"
  });
  expect_all(result, Failure::none, "");
}

TEST(Load, HostileAnswersAreMalformed) {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
  const std::pair<std::string, const char*> kAnswers[] = {
      {"nonsense\r\n\r\n", "not a valid HTTP"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "not text/event-stream"},
      {head + "\r\ndata: {\"choices\":[{\"text\":\"a\"}]}\n\n", "[DONE]"},
      {head + "\r\ndata: [DONE]", "[DONE]"},
      {head + "\r\ndata: [DONE]\n\ndata: [DONE]\n\n", "after [DONE]"},
      {head + "\r\ndata: [DONE]\n\ndata: a", "[DONE]"},
      {head + "\r\ndata: {\n\n", "response"},
      {head + "\r\ndata: {\"choices\":7}\n\n", "choices"},
      {head + "Content-Length: 100\r\n\r\ndata: ", "closed amid"},
      {head + "Transfer-Encoding: chunked\r\n\r\n5\r\ndata:\r\n", "closed amid"},
      {head + "Transfer-Encoding: chunked\r\n\r\nzzzz\r\n", "not a valid HTTP"},
      {head + "\r\ndata: " + std::string(5 << 20, 'x'), "too large"},
      {"HTTP/1.1 200 OK\r\nA: " + std::string(100000, 'x'), "too large"},
  };
  for (const auto& [answer, problem] : kAnswers) {
    const LoadResult result = run_against([&text = answer](FakeExchange& exchange) {
      exchange.send(text);
      exchange.keep = false;
    });
    SCOPED_TRACE(answer.substr(0, 100));
    expect_all(result, Failure::malformed, problem);
  }
}

TEST(Load, FailuresHaveTheirKind) {
  expect_all(run_against([](FakeExchange& e) { e.respond(503, R"({"error":{"message":"busy"}})"); }),
             Failure::http_status, "busy");
  expect_all(run_against([](FakeExchange& e) {
               e.stream({R"({"error":{"message":"broken"}})", "[DONE]"});
             }),
             Failure::server_error, "broken");
  expect_all(run_against([](FakeExchange& e) { e.complete(5, 2); }), Failure::wrong_tokens,
             "2 output tokens");
  expect_all(run_against([](FakeExchange& e) { e.complete(6, 3); }), Failure::wrong_tokens,
             "6 prompt tokens");
  expect_all(run_against([](FakeExchange& e) { e.keep = false; }), Failure::connection,
             "closed by the server");
  expect_all(run_against([](FakeExchange& e) { e.reset(); }), Failure::connection, "reset");
  expect_all(run_against([](FakeExchange& e) { EXPECT_TRUE(e.client_leaves()); },
                         [](LoadOptions& options) { options.timeout = 0.1; }),
             Failure::timeout, "");
  const LoadResult refused = run_against([](FakeExchange&) {},
                                         [](LoadOptions& options) {
                                           const FakeServer gone([](FakeExchange&) {});
                                           options.url = gone.url();
                                         });
  expect_all(refused, Failure::refused, "");
  EXPECT_EQ(report_json(refused)["errors"]["connection_refused"]["count"], 4);
  EXPECT_EQ(failures(refused), 4);
}

TEST(Load, FewerTokensAreFineWithoutIgnoreEos) {
  const auto without = [](LoadOptions& options) { options.ignore_eos = false; };
  expect_all(run_against([](FakeExchange& e) { e.complete(5, 2); }, without), Failure::none, "");
  expect_all(run_against([](FakeExchange& e) { e.complete(5, 4); }, without), Failure::wrong_tokens,
             "4 output");
}

TEST(Load, WithoutUsageChunksAreCounted) {
  const LoadResult result = run_against([](FakeExchange& exchange) {
    exchange.stream({R"({"choices":[{"text":"a"}]})", R"({"choices":[{"text":"b"}]})", "[DONE]"});
  });
  expect_all(result, Failure::none, "");
  for (const Record& record : result.records) EXPECT_EQ(record.output_tokens, 2);
}

TEST(Load, TokensWithoutTextAreSeenAtTheEnd) {
  const LoadResult result = run_against([](FakeExchange& exchange) {
    exchange.stream(
        {R"({"choices":[{"text":""}],"usage":{"prompt_tokens":5,"completion_tokens":3}})", "[DONE]"});
  });
  expect_all(result, Failure::none, "");
  for (const Record& record : result.records) EXPECT_EQ(*record.ttft(), record.latency());
}

TEST(Load, WithoutAStream) {
  const auto no_stream = [](LoadOptions& options) { options.stream = false; };
  const LoadResult result = run_against(
      [](FakeExchange& e) {
        e.respond(200, R"({"choices":[{"text":"abc"}],"usage":{"prompt_tokens":5,"completion_tokens":3}})");
      },
      no_stream);
  expect_all(result, Failure::none, "");
  const Json report = report_json(result);
  EXPECT_EQ(report["total_output_tokens"], 12);
  EXPECT_TRUE(report["ttft_ms"].is_null());
  EXPECT_TRUE(report["e2el_ms"].is_object());
  expect_all(run_against([](FakeExchange& e) { e.respond(200, "{"); }, no_stream), Failure::malformed, "");
}

TEST(Load, CancelledRequestsDisconnect) {
  std::atomic<int> left = 0;
  const LoadResult result = run_against(
      [&](FakeExchange& exchange) {
        exchange.stream(std::vector<std::string>(10, R"({"choices":[{"text":"a"}]})"), false);
        if (exchange.client_leaves()) ++left;
        exchange.keep = false;
      },
      [](LoadOptions& options) {
        options.cancel_share = 1;
        options.output_tokens = LengthDistribution::parse("10", "o");
      });
  expect_all(result, Failure::cancelled, "");
  EXPECT_EQ(failures(result), 0);
  EXPECT_EQ(report_json(result)["cancelled"], 4);
  EXPECT_EQ(left, 4);
}

TEST(Load, OpenLoopDoesNotWaitForAnswers) {
  std::atomic<int> now = 0;
  const auto wait_for_all = [&](FakeExchange& exchange) {
    ++now;
    for (int i = 0; i < 1000 && now < 4; ++i) std::this_thread::sleep_for(milliseconds(10));
    exchange.complete(5, 3);
  };
  for (const double rate : {20.0, static_cast<double>(INFINITY)}) {
    now = 0;
    const LoadResult result = run_against(wait_for_all, [&](LoadOptions& options) { options.rate = rate; });
    expect_all(result, Failure::none, "");
    EXPECT_EQ(now, 4);
    const double last = result.records.back().start;
    EXPECT_TRUE(std::isinf(rate) ? last == 0 : last > 0.02) << last;
    for (const Record& record : result.records)
      EXPECT_GE(record.end, last);  // none was sent before it was due
  }
}

TEST(Load, DurationEndsTheBeginning) {
  for (const bool open : {false, true}) {
    const LoadResult result = run_against(
        [](FakeExchange& exchange) {
          std::this_thread::sleep_for(milliseconds(20));
          exchange.complete(5, 3);
        },
        [&](LoadOptions& options) {
          options.requests = 0;
          options.duration = 0.3;
          if (open) options.rate = 50;
        });
    EXPECT_GE(result.records.size(), 2U);
    EXPECT_LE(result.records.size(), 40U);
    EXPECT_EQ(failures(result), 0);
    for (const Record& record : result.records) EXPECT_LT(record.start, 0.3);
  }
}

TEST(Load, AsksTheServer) {
  for (const bool llama : {false, true}) {
    const LoadResult result = run_against(
        [&](FakeExchange& exchange) {
          if (exchange.line == "GET /v1/models")
            return exchange.respond(200, R"({"data":[{"id":"first","meta":{"n_vocab":40}},{"id":"other"}]})");
          if (exchange.line == "GET /tokenizer_info")
            return exchange.respond(llama ? 404 : 200, R"({"vocab_size":30})");
          EXPECT_NE(exchange.head.find("Authorization: Bearer secret"), std::string::npos);
          EXPECT_EQ(parse_json(exchange.body, "request")["model"], "first");
          exchange.complete(5, 3);
        },
        [](LoadOptions& options) {
          options.model.clear();
          options.vocabulary = 0;
          options.api_key = "secret";
        });
    expect_all(result, Failure::none, "");
    EXPECT_EQ(result.options.vocabulary, llama ? 40 : 30);
  }
}

TEST(Load, SaysWhatTheServerLacks) {
  const auto ask = [](LoadOptions& options) { options.model.clear(); };
  for (const char* const models :
       {"{}", "[]", "{", R"({"data":[]})", R"({"data":[3]})", R"({"data":[{"id":3}]})"})
    EXPECT_THROW(run_against([&](FakeExchange& exchange) { exchange.respond(200, models); }, ask), Error)
        << models;
  EXPECT_THROW(run_against([](FakeExchange& exchange) { exchange.respond(401, "{}"); }, ask), Error);
  EXPECT_THROW(run_against([](FakeExchange& exchange) { exchange.keep = false; }, ask), Error);
}

TEST(Load, HealthIsPolledOverOneMoreConnection) {
  std::atomic<int> polls = 0;
  const auto handler = [&](FakeExchange& exchange) {
    if (exchange.line == "GET /health") {
      exchange.respond(++polls == 2 ? 503 : 200, "");
    } else {
      for (int i = 0; i < 1000 && polls < 3; ++i) std::this_thread::sleep_for(milliseconds(10));
      exchange.complete(5, 3);
    }
  };
  const FakeServer server(handler);
  LoadOptions options = options_for(server);
  options.health = true;
  const LoadResult result = run_load(options);
  EXPECT_GE(polls, 3);
  EXPECT_EQ(server.connections(), 3);
  ASSERT_TRUE(result.health);
  EXPECT_GE(result.health->latency.count, 2U);
  EXPECT_EQ(result.health->failures, 1);
  EXPECT_EQ(result.health->detail, "HTTP status 503");
  EXPECT_EQ(failures(result), 1);
}

TEST(Load, ManyStreamsAtOnce) {
  const FakeServer server([](FakeExchange& exchange) { exchange.complete(5, 20); });
  LoadOptions options = options_for(server, 1000, 300);
  options.output_tokens = LengthDistribution::parse("20", "o");
  const LoadResult result = run_load(options);
  EXPECT_EQ(failures(result), 0);
  EXPECT_EQ(report_json(result)["total_output_tokens"], 20000);
}

}  // namespace
}  // namespace asynct::load
