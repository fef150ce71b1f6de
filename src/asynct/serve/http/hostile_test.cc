#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "asynct/base/json.h"
#include "asynct/base/strings.h"
#include "asynct/serve/http/request_parser.h"
#include "asynct/serve/http/test_client.h"

namespace asynct::http {
namespace {

using Reply = std::shared_ptr<Responder>;

/// Any request that a handler sees counts.
struct CountingServer {
  explicit CountingServer(const ServerOptions& options = test_options()) : server(options, router()) {}
  Router router() {
    Router result;
    const auto handler = [this](const HttpRequest& request, const Reply& reply) {
      ++handled;
      reply->send(200, "text/plain", cat(request.body.size()));
    };
    result.add("GET", "/", handler);
    result.add("POST", "/", handler);
    return result;
  }
  std::atomic<int> handled{0};
  Server server;
};

constexpr std::string_view kPost = "POST / HTTP/1.1\r\nHost: a\r\n";

TEST(HostileHttp, MalformedRequestsAreRefusedAndTheConnectionClosed) {
  using namespace std::string_literals;
  CountingServer counting;
  const std::vector<std::pair<std::string, int>> cases = {
      {"nonsense\r\n\r\n", 400},
      {"GET\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 400},
      {"GET / HTTP/1.1\nHost: a\n\n", 400},
      {"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET hello HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nbad name: b\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nX: \0b\r\n\r\n"s, 400},
      {"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"s, 400},  // TLS
      {std::string(64, 'A') + " / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      // Where two parsers may see two different ends of the body.
      {cat(kPost, "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400},
      {cat(kPost, "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n"), 400},
      {cat(kPost, "Transfer-Encoding: gzip\r\n\r\n"), 501},
      {cat(kPost, "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), 501},
      {cat(kPost, "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"), 501},
      {cat(kPost, "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400},
      {cat(kPost, "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"), 501},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {cat(kPost, "Content-Length: 1\r\nContent-Length: 2\r\n\r\na"), 400},
      {cat(kPost, "Content-Length: 1, 1\r\n\r\na"), 400},
      {cat(kPost, "Content-Length: -1\r\n\r\n"), 400},
      {cat(kPost, "Content-Length: +1\r\n\r\na"), 400},
      {cat(kPost, "Content-Length: 0x1\r\n\r\na"), 400},
      {cat(kPost, "Content-Length: 99999999999999999999\r\n\r\n"), 400},
      {cat(kPost, "Content-Length: \r\n\r\n"), 400},
      {cat(kPost, "Transfer-Encoding: chunked\r\n\r\nxyz\r\n"), 400},
      {cat(kPost, "Transfer-Encoding: chunked\r\n\r\n-1\r\n"), 400},
      {cat(kPost, "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n"), 400},
      {cat(kPost, "Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n"), 400},
      {cat(kPost, "Expect: the-moon\r\nContent-Length: 1\r\n\r\na"), 417},
  };
  for (const auto& [bytes, status] : cases) {
    TestClient client(counting.server.port());
    client.send(bytes);
    const TestResponse response = client.response();
    EXPECT_EQ(response.status, status) << bytes;
    EXPECT_TRUE(response.complete && parse_json(response.body, "body").contains("error")) << bytes;
    EXPECT_EQ(response.headers.at("connection"), "close");
    EXPECT_TRUE(client.closed_by_server());
  }
  EXPECT_EQ(counting.handled, 0);
  TestClient client(counting.server.port());
  client.send("\r\n\r\n");  // empty lines before a request are nothing
  EXPECT_EQ(client.get("/").status, 200);
}

TEST(HostileHttp, EveryPrefixOfARequestIsWaitedForAndThenClosed) {
  CountingServer counting;
  const std::string request = cat(kPost, "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n");
  for (std::size_t length = 0; length <= request.size(); ++length) {
    TestClient client(counting.server.port());
    client.send(request.substr(0, length));
    if (length < request.size()) continue;
    EXPECT_EQ(client.response().body, "2");
  }
  EXPECT_TRUE(eventually([&] { return counting.server.live_connections() == 0; }));
  EXPECT_EQ(counting.handled, 1);
}

TEST(HostileHttp, BytesMayComeOneByOne) {
  CountingServer counting;
  TestClient client(counting.server.port());
  for (const char c : cat(kPost, "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n")) {
    client.send(std::string_view(&c, 1));
    std::this_thread::sleep_for(Milliseconds(1));
  }
  EXPECT_EQ(client.response().body, "2");
}

TEST(HostileHttp, ChunkedBodiesMayBeCutAnywhere) {
  ServerOptions options = test_options();
  for (const std::string_view body :
       {"0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n", "1\r\na\r\n2;x=y\r\nbc\r\n0\r\nt: v\r\n\r\n"}) {
    const std::string request = cat(kPost, "Transfer-Encoding: chunked\r\n\r\n", body);
    for (std::size_t cut = 1; cut < request.size(); ++cut) {
      RequestParser parser(options);
      std::string input;
      RequestParser::Result result = RequestParser::Result::need_more;
      for (const std::string_view part :
           {std::string_view(request).substr(0, cut), std::string_view(request).substr(cut)}) {
        input += part;
        do {
          std::size_t used = 0;
          result = parser.feed(input, used);
          input.erase(0, used);
        } while (result == RequestParser::Result::header);
      }
      EXPECT_EQ(result, RequestParser::Result::done) << body << " cut at " << cut;
    }
  }
}

TEST(HostileHttp, LimitsOnUrlAndHeader) {
  ServerOptions options = test_options();
  options.max_target_bytes = 100;
  options.max_header_bytes = 1000;
  options.max_headers = 20;
  CountingServer counting(options);
  const auto status = [&](const std::string& bytes) {
    TestClient client(counting.server.port());
    client.send(bytes);
    const TestResponse response = client.response();
    EXPECT_TRUE(client.closed_by_server());
    return response.status;
  };
  const std::string end = " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";
  EXPECT_EQ(status("GET /?" + std::string(98, 'a') + end + "\r\n"), 200);
  EXPECT_EQ(status("GET /?" + std::string(99, 'a') + end + "\r\n"), 414);
  EXPECT_EQ(status("GET /?" + std::string(50'000, 'a') + end + "\r\n"), 414);
  EXPECT_EQ(status("GET /?" + std::string(50'000, 'a')), 414);
  EXPECT_EQ(status("GET /" + end + "X: " + std::string(900, 'a') + "\r\n\r\n"), 200);
  EXPECT_EQ(status("GET /" + end + "X: " + std::string(1000, 'a') + "\r\n\r\n"), 431);
  EXPECT_EQ(status("GET /" + end + "X: " + std::string(100'000, 'a')), 431);
  std::string many = "GET /" + end;
  for (int i = 0; i < 18; ++i) many += "X: a\r\n";
  EXPECT_EQ(status(many + "\r\n"), 200);
  EXPECT_EQ(status(many + "X: a\r\n\r\n"), 431);
  const std::string chunked = cat(kPost, "Transfer-Encoding: chunked\r\n\r\n");
  EXPECT_EQ(status(chunked + "1;" + std::string(2000, 'x') + "\r\na\r\n0\r\n\r\n"), 431);
  EXPECT_EQ(status(chunked + "1;" + std::string(9000, 'x')), 431);
  EXPECT_EQ(status(chunked + "0\r\nX: " + std::string(2000, 'x') + "\r\n\r\n"), 431);
}

// Each piece ends a byte into the next line: Beast's own limit, which is on what waits in the buffer, never
// sees more than that byte.
TEST(HostileHttp, LimitOnHeaderHoldsForAnyWayOfCuttingIt) {
  ServerOptions options = test_options();
  options.max_header_bytes = 1000;
  CountingServer counting(options);
  for (const std::string_view end : {"\r\nX", "\r\n"}) {
    TestClient client(counting.server.port());
    client.send(cat("GET / HTTP/1.1\r\n", end.substr(2)));
    bool open = true;
    for (int i = 0; open && i < 30; ++i) {
      std::this_thread::sleep_for(Milliseconds(2));
      open = client.send(cat(end.size() > 2 ? "" : "X", ": ", std::string(95, 'a'), end)) &&
             !client.readable(Milliseconds(0));
    }
    EXPECT_EQ(client.response().status, 431);
  }
}

TEST(HostileHttp, BodiesOverTheLimit) {
  ServerOptions options = test_options();
  options.max_body_bytes = 100'000;
  CountingServer counting(options);
  {
    TestClient client(counting.server.port());
    EXPECT_EQ(client.post("/", std::string(100'000, 'x')).body, "100000");
    client.send(cat(kPost, "Content-Length: 1000000000\r\n\r\n"));  // no byte of it is sent
    EXPECT_EQ(client.response().status, 413);
    EXPECT_TRUE(client.closed_by_server());
  }
  {
    TestClient client(counting.server.port());
    client.send(cat(kPost, "Transfer-Encoding: chunked\r\n\r\n"));
    const std::string chunk = cat("2710\r\n", std::string(10'000, 'x'), "\r\n");
    for (int i = 0; i < 10; ++i) client.send(chunk);
    EXPECT_FALSE(client.readable(Milliseconds(20)));
    client.send("1\r\n");
    EXPECT_EQ(client.response().status, 413);
  }
  {
    TestClient client(counting.server.port());
    client.send(cat(kPost, "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n"));
    EXPECT_EQ(client.response().status, 413);
  }
  {  // who does not stop sending is cut off
    TestClient client(counting.server.port());
    client.send(cat(kPost, "Content-Length: 1000000000\r\n\r\n"));
    const std::string block(1 << 20, 'x');
    int sent = 0;
    while (sent < 1000 && client.send(block)) ++sent;
    EXPECT_LT(sent, 100);
  }
  EXPECT_EQ(counting.handled, 1);
}

TEST(HostileHttp, BodiesOfAllClientsTogetherHaveALimit) {
  ServerOptions options = test_options();
  options.max_buffered_body_bytes = 1000;
  CountingServer counting(options);
  const std::string most = cat(kPost, "Content-Length: 900\r\n\r\n", std::string(800, 'x'));
  // The server may read both at once and refuse both: then once more.
  const auto one_is_refused = [&] {
    TestClient first(counting.server.port());
    first.send(most);
    if (first.readable(Milliseconds(50))) return false;
    TestClient second(counting.server.port());
    second.send(most);
    if (second.response().status != 503) return false;
    if (first.readable(Milliseconds(0))) return false;
    first.send(std::string(100, 'x'));
    return first.response().body == "900";
  };
  EXPECT_TRUE(eventually(one_is_refused));
  EXPECT_TRUE(eventually([&] {  // what was refused or given up no longer counts
    TestClient after(counting.server.port());
    return after.post("/", std::string(900, 'x')).body == "900";
  }));
}

TEST(HostileHttp, ExpectContinue) {
  ServerOptions options = test_options();
  options.max_body_bytes = 100;
  CountingServer counting(options);
  TestClient client(counting.server.port());
  client.send(cat(kPost, "Content-Length: 3\r\nExpect: 100-Continue\r\n\r\n"));
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("abc");
  EXPECT_EQ(client.response().body, "3");
  EXPECT_EQ(client.get("/", "Expect: 100-continue\r\n").body, "0");  // no body, nothing to continue with
  client.send(cat(kPost, "Content-Length: 101\r\nExpect: 100-continue\r\n\r\n"));
  EXPECT_EQ(client.response().status, 413);
}

TEST(HostileHttp, SlowLorisIsClosed) {
  ServerOptions options = test_options();
  options.header_timeout = Milliseconds(500);
  CountingServer counting(options);
  TestClient silent(counting.server.port());
  TestClient dripping(counting.server.port());
  dripping.send("GET / HTTP/1.1\r\nHost: a\r\n");
  const auto begin = std::chrono::steady_clock::now();
  while (!dripping.readable(Milliseconds(10)) && dripping.send("X: 1\r\n")) {
    ASSERT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  }
  EXPECT_EQ(dripping.response().status, 408);
  EXPECT_TRUE(dripping.closed_by_server());
  EXPECT_TRUE(silent.closed_by_server());
}

TEST(HostileHttp, SlowBodiesAndIdleClientsAreClosed) {
  ServerOptions options = test_options();
  options.body_timeout = Milliseconds(150);
  options.idle_timeout = Milliseconds(150);
  CountingServer counting(options);
  TestClient slow(counting.server.port());
  slow.send(cat(kPost, "Content-Length: 3\r\n\r\na"));
  TestClient idle(counting.server.port());
  EXPECT_EQ(idle.get("/").status, 200);
  EXPECT_TRUE(idle.closed_by_server());
  EXPECT_EQ(slow.response().status, 408);
  EXPECT_TRUE(slow.closed_by_server());
}

TEST(HostileHttp, WhoTakesNoBytesIsClosed) {
  ServerOptions options = test_options();
  options.write_timeout = Milliseconds(150);
  Router router;
  router.add("GET", "/big", [](const HttpRequest&, const Reply& reply) {
    reply->send(200, "text/plain", std::string(std::size_t{32} << 20, 'x'));
  });
  Server server(options, std::move(router));
  TestClient client(server.port(), 4096);
  client.send("GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(client.readable(Milliseconds(10'000)));
  EXPECT_TRUE(eventually([&] { return server.live_connections() == 0; }));
}

}  // namespace
}  // namespace asynct::http
