#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>

#include "asynct/base/json.h"
#include "asynct/base/strings.h"
#include "asynct/serve/http/test_client.h"

namespace asynct::http {
namespace {

using Clock = std::chrono::steady_clock;
using Reply = std::shared_ptr<Responder>;

/// Hands responders from handlers to the test, as an engine would take them.
class Desk {
 public:
  void put(Reply reply) {
    const std::lock_guard lock(mutex_);
    replies_.push_back(std::move(reply));
    changed_.notify_all();
  }
  Reply take() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(20), [this] { return !replies_.empty(); }))
      throw std::runtime_error("no request came");
    Reply reply = std::move(replies_.front());
    replies_.erase(replies_.begin());
    return reply;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Reply> replies_;
};

/// GET /wait: on the desk. GET /stream: the same, begun.
struct DeskServer {
  explicit DeskServer(const ServerOptions& options = test_options())
      : server(std::in_place, options, router()) {}
  Router router() {
    Router result;
    result.add("GET", "/wait", [this](const HttpRequest&, Reply reply) { desk.put(std::move(reply)); });
    result.add("GET", "/stream", [this](const HttpRequest&, Reply reply) {
      reply->begin_stream(200, "text/event-stream", {{"Cache-Control", "no-cache"}});
      desk.put(std::move(reply));
    });
    return result;
  }
  int port() const { return server->port(); }

  Desk desk;
  std::optional<Server> server;
};

constexpr std::string_view kStream = "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n";
constexpr std::string_view kWait = "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n";

TEST(HttpStream, ChunksArriveAsTheyAreWritten) {
  DeskServer desk;
  TestClient client(desk.port());
  for (int round = 0; round < 2; ++round) {  // the connection is kept
    client.send(kStream);
    const Reply reply = desk.desk.take();
    const std::string head = client.read_until("\r\n\r\n");
    EXPECT_NE(head.find("Transfer-Encoding: chunked\r\n"), std::string::npos);
    EXPECT_NE(head.find("Content-Type: text/event-stream\r\n"), std::string::npos);
    EXPECT_NE(head.find("Cache-Control: no-cache\r\n"), std::string::npos);
    EXPECT_GT(reply->write("data: 1\n\n"), 0U);
    EXPECT_EQ(client.read_until("\n\n\r\n"), "9\r\ndata: 1\n\n\r\n");
    EXPECT_TRUE(eventually([&] { return reply->write("") == 0; }));  // all taken; nothing is sent for it
    reply->write("data: 2\n\n");
    EXPECT_FALSE(reply->closed());
    EXPECT_TRUE(reply->end());
    EXPECT_TRUE(reply->closed());
    EXPECT_FALSE(reply->end());
    EXPECT_EQ(reply->write("more"), 0U);
    EXPECT_EQ(client.read_until("0\r\n\r\n"), "9\r\ndata: 2\n\n\r\n0\r\n\r\n");
  }
}

TEST(HttpStream, Http10GetsTheBytesAndTheEnd) {
  DeskServer desk;
  TestClient client(desk.port());
  client.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const Reply reply = desk.desk.take();
  reply->write("ab");
  reply->write("cd");
  reply->end();
  const TestResponse response = client.response();
  EXPECT_EQ(response.body, "abcd");
  EXPECT_EQ(response.headers.at("connection"), "close");
}

TEST(HttpStream, AProducerThatGivesUpCutsTheStream) {
  DeskServer desk;
  Router router = desk.router();
  router.add("GET", "/throw", [](const HttpRequest&, const Reply& reply) {
    reply->begin_stream(200, "text/plain");
    reply->write("a");
    throw std::runtime_error("midway");
  });
  Server server(test_options(), std::move(router));
  for (const std::string_view path : {"/stream", "/throw"}) {
    TestClient client(server.port());
    client.send(cat("GET ", path, " HTTP/1.1\r\nHost: a\r\n\r\n"));
    if (path == "/stream") desk.desk.take()->write("a");
    EXPECT_FALSE(client.response().complete);
    EXPECT_TRUE(client.closed_by_server());
  }
}

// The client leaves in each of the ways and moments there are; each is noticed, once, and at once.
TEST(HttpStream, LeavingClientsAreNoticed) {
  DeskServer desk;
  const std::vector<std::function<void(TestClient&)>> ways = {
      [](TestClient& client) { client.close(); },
      [](TestClient& client) { client.reset(); },
      [](TestClient& client) { client.shut_down_sending(); },
  };
  for (const std::string_view request : {kWait, kStream}) {
    for (const auto& leave : ways) {
      TestClient client(desk.port());
      client.send(request);
      const Reply reply = desk.desk.take();
      std::atomic<int> called{0};
      reply->on_disconnect([] { ADD_FAILURE() << "replaced, so not called"; });
      reply->on_disconnect([&] {
        ++called;
        throw std::runtime_error("logged, no more");
      });
      if (request == kStream) {
        reply->write("data");
        client.read_until("data\r\n");
      }
      EXPECT_EQ(called, 0);
      const auto begin = Clock::now();
      leave(client);
      EXPECT_TRUE(eventually([&] { return called > 0; }));
      EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));  // milliseconds, on a machine with time
      EXPECT_TRUE(reply->closed());
      EXPECT_EQ(reply->write("late"), 0U);
      EXPECT_FALSE(reply->end());
      EXPECT_FALSE(reply->send(200, "text/plain", "late"));
      EXPECT_EQ(called, 1);
      int at_once = 0;
      reply->on_disconnect([&] { ++at_once; });
      EXPECT_EQ(at_once, 1);
    }
  }
  EXPECT_TRUE(eventually([&] { return desk.server->live_connections() == 0; }));
}

TEST(HttpStream, LeavingIsNoticedBehindPipelinedRequests) {
  DeskServer desk;
  TestClient client(desk.port());
  client.send(cat(kWait, kWait, kWait));
  const Reply reply = desk.desk.take();
  std::atomic<int> called{0};
  reply->on_disconnect([&] { ++called; });
  client.close();
  EXPECT_TRUE(eventually([&] { return called == 1; }));
}

TEST(HttpStream, NothingIsCalledAfterTheEnd) {
  DeskServer desk;
  std::atomic<int> called{0};
  for (const bool stream : {true, false}) {
    TestClient client(desk.port());
    client.send(stream ? kStream : kWait);
    const Reply reply = desk.desk.take();
    reply->on_disconnect([&] { ++called; });
    EXPECT_TRUE(stream ? reply->end() : reply->send(200, "text/plain", "x"));
    reply->on_disconnect([&] { ++called; });
    client.close();
    EXPECT_TRUE(eventually([&] { return desk.server->live_connections() == 0; }));
  }
  EXPECT_EQ(called, 0);
}

TEST(HttpStream, AHalfCloseAfterTheResponseWasHandedOverLosesNothing) {
  Router router;
  const std::string body(std::size_t{8} << 20, 'x');
  router.add("GET", "/big",
             [&](const HttpRequest&, const Reply& reply) { reply->send(200, "text/plain", body); });
  Server server(test_options(), std::move(router));
  TestClient client(server.port(), 4096);
  client.send("GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(client.readable(Milliseconds(10'000)));
  client.shut_down_sending();
  EXPECT_EQ(client.response().body.size(), body.size());
  EXPECT_TRUE(client.closed_by_server());
}

TEST(HttpStream, ASlowReaderIsClosedAndNeverStallsTheProducer) {
  ServerOptions options = test_options();
  options.max_unsent_bytes = 200'000;
  DeskServer desk(options);
  TestClient client(desk.port(), 4096);
  client.send(kStream);
  const Reply reply = desk.desk.take();
  std::atomic<int> called{0};
  reply->on_disconnect([&] { ++called; });
  const std::string chunk(50'000, 'x');
  std::size_t most = 0;
  int written = 0;
  for (; !reply->closed() && written < 2000; ++written) most = std::max(most, reply->write(chunk));
  EXPECT_LT(written, 2000);  // 100 MB: no kernel takes that
  EXPECT_LE(most, 200'100U);
  EXPECT_TRUE(eventually([&] { return called == 1 && desk.server->live_connections() == 0; }));
}

TEST(HttpStream, OneHugeChunkIsOverTheLimitToo) {
  DeskServer desk;
  TestClient client(desk.port());
  client.send(kStream);
  const Reply reply = desk.desk.take();
  EXPECT_EQ(reply->write(std::string((std::size_t{1} << 20) + 1, 'x')), 0U);
  EXPECT_TRUE(reply->closed());
  EXPECT_TRUE(client.closed_by_server());
}

TEST(HttpStream, StoppingLetsAStreamEnd) {
  DeskServer desk;
  TestClient idle(desk.port());
  TestClient client(desk.port());
  client.send(kStream);
  const Reply reply = desk.desk.take();
  EXPECT_TRUE(eventually([&] { return desk.server->live_connections() == 2; }));
  std::atomic<bool> stopped{false};
  std::thread stopper([&] {
    desk.server->stop(std::chrono::seconds(20));
    stopped = true;
  });
  EXPECT_TRUE(idle.closed_by_server());
  EXPECT_TRUE(eventually([&] {
    try {
      TestClient late(desk.port());
      return late.closed_by_server();  // accepted just before
    } catch (const std::runtime_error&) {
      return true;
    }
  }));
  for (int i = 0; i < 5; ++i) {
    reply->write(cat("data: ", i, "\n\n"));
    client.read_until("\n\n\r\n");
  }
  EXPECT_FALSE(stopped);
  EXPECT_TRUE(reply->end());
  EXPECT_EQ(client.read_until("0\r\n\r\n"), "0\r\n\r\n");
  EXPECT_TRUE(client.closed_by_server());
  client.close();
  stopper.join();
  EXPECT_TRUE(stopped);
}

TEST(HttpStream, AResponseSentWhileStoppingSaysClose) {
  DeskServer desk;
  TestClient client(desk.port());
  client.send(kWait);
  const Reply reply = desk.desk.take();
  std::thread stopper([&] { desk.server->stop(std::chrono::seconds(20)); });
  std::this_thread::sleep_for(Milliseconds(20));  // either order is right; this one is the one of interest
  reply->send(200, "text/plain", "done");
  EXPECT_EQ(client.response().body, "done");
  EXPECT_TRUE(client.closed_by_server());
  client.close();
  stopper.join();
}

TEST(HttpStream, StoppingEndsAStreamThatDoesNot) {
  DeskServer desk;
  TestClient client(desk.port());
  client.send(kStream);
  const Reply reply = desk.desk.take();
  std::atomic<int> called{0};
  reply->on_disconnect([&] { ++called; });
  const auto begin = Clock::now();
  desk.server->stop(Milliseconds(100));
  EXPECT_GE(Clock::now() - begin, Milliseconds(100));
  EXPECT_EQ(called, 1);
  EXPECT_EQ(desk.server->live_connections(), 0U);
  EXPECT_FALSE(client.response().complete);
}

TEST(HttpStream, RespondersOutliveTheServer) {
  DeskServer desk;
  TestClient waiting(desk.port());
  TestClient streaming(desk.port());
  waiting.send(kWait);
  Reply one = desk.desk.take();
  streaming.send(kStream);
  Reply two = desk.desk.take();
  desk.server.reset();
  std::thread([&] {
    EXPECT_TRUE(one->closed() && two->closed());
    EXPECT_FALSE(one->send(200, "text/plain", "x"));
    EXPECT_FALSE(one->begin_stream(200, "text/plain"));
    EXPECT_EQ(two->write("x"), 0U);
    EXPECT_FALSE(two->end());
    int called = 0;
    two->on_disconnect([&] { ++called; });
    EXPECT_EQ(called, 1);
    one.reset();
    two.reset();
  }).join();
}

// Producers write and end, clients leave at any moment, the server stops amid it: for the sanitizers, and
// every stream must either end or be told that its client left, never both.
TEST(HttpStream, ChurnOfProducersAndClients) {
  std::atomic<int> ended{0};
  std::atomic<int> left{0};
  std::atomic<int> begun{0};
  Desk desk;
  Router router;
  router.add("GET", "/stream", [&](const HttpRequest&, Reply reply) {
    ++begun;
    reply->on_disconnect([&] { ++left; });
    reply->begin_stream(200, "text/plain");
    desk.put(std::move(reply));
  });
  std::optional<Server> server(std::in_place, test_options(), std::move(router));
  const int port = server->port();
  constexpr int kRounds = 100;
  std::vector<std::thread> threads;
  for (int producer = 0; producer < 2; ++producer) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        const Reply reply = desk.take();
        for (int chunk = 0; chunk < i % 40; ++chunk) reply->write("data: token\n\n");
        ended += reply->end() ? 1 : 0;
      }
    });
    threads.emplace_back([&, producer] {
      for (int i = 0; i < kRounds; ++i) {
        TestClient client(port);
        client.send(kStream);
        client.read_until("\r\n\r\n");
        if ((i + producer) % 3 == 0) {
          EXPECT_TRUE(client.read_until("0\r\n\r\n").ends_with("0\r\n\r\n"));
        }
        if ((i + producer) % 3 == 1) client.reset();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(eventually([&] { return server->live_connections() == 0; }));
  server.reset();
  EXPECT_EQ(begun, 2 * kRounds);
  EXPECT_EQ(ended + left, begun);
  EXPECT_GT(ended, 0);
}

}  // namespace
}  // namespace asynct::http
