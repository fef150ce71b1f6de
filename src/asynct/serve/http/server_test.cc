#include "asynct/serve/http/server.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "asynct/base/error.h"
#include "asynct/base/json.h"
#include "asynct/serve/http/error_json.h"
#include "asynct/serve/http/request_checks.h"
#include "asynct/serve/http/test_client.h"

namespace asynct::http {
namespace {

using Reply = std::shared_ptr<Responder>;

/// GET /hello, POST /echo (the body), GET /health.
Router small_router() {
  Router router;
  router.add("GET", "/hello",
             [](const HttpRequest&, const Reply& reply) { reply->send(200, "text/plain", "hello"); });
  router.add("GET", "/health",
             [](const HttpRequest&, const Reply& reply) { reply->send(200, "text/plain", "ok"); });
  router.add("POST", "/echo", [](const HttpRequest& request, const Reply& reply) {
    reply->send(200, "application/octet-stream", request.body);
  });
  return router;
}

Json error_of(const TestResponse& response) {
  const Json json = parse_json(response.body, "response");
  EXPECT_EQ(json.size(), 1U);
  const Json& error = json.at("error");
  EXPECT_TRUE(error.at("message").is_string());
  EXPECT_TRUE(error.at("type").is_string());
  EXPECT_TRUE(error.contains("param") && error.contains("code"));
  return error;
}

TEST(HttpServer, ConnectionsAreKeptUnlessAskedOtherwise) {
  Server server(test_options(), small_router());
  TestClient client(server.port());
  for (int i = 0; i < 3; ++i) {
    const TestResponse response = client.get("/hello");
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "hello");
    EXPECT_EQ(response.headers.at("content-type"), "text/plain");
    EXPECT_FALSE(response.headers.contains("connection"));
  }
  EXPECT_EQ(client.post("/echo", std::string(300'000, 'x')).body, std::string(300'000, 'x'));
  EXPECT_EQ(server.live_connections(), 1U);
  EXPECT_EQ(client.get("/hello", "Connection: close\r\n").headers.at("connection"), "close");
  EXPECT_TRUE(client.closed_by_server());
}

TEST(HttpServer, Http10ClosesByDefault) {
  Server server(test_options(), small_router());
  TestClient client(server.port());
  client.send("GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(client.response().headers.at("connection"), "keep-alive");
  client.send("GET /hello HTTP/1.0\r\n\r\n");
  EXPECT_EQ(client.response().headers.at("connection"), "close");
  EXPECT_TRUE(client.closed_by_server());
}

TEST(HttpServer, PipelinedRequestsAreHandledOneAtATimeInOrder) {
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  std::vector<std::thread> threads;  // only touched by one handler at a time, which is what is tested
  Router router;
  router.add("GET", "/slow", [&](const HttpRequest& request, const Reply& reply) {
    most = std::max(most.load(), ++running);
    threads.emplace_back([&running, query = request.query, reply] {
      std::this_thread::sleep_for(Milliseconds(20));
      --running;
      reply->send(200, "text/plain", query);
    });
  });
  Server server(test_options(), std::move(router));
  TestClient client(server.port());
  std::string requests;
  for (int i = 0; i < 5; ++i) requests += cat("GET /slow?", i, " HTTP/1.1\r\nHost: a\r\n\r\n");
  client.send(requests);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(client.response().body, cat(i));
  EXPECT_EQ(most, 1);
  for (std::thread& thread : threads) thread.join();
}

TEST(HttpServer, PathsBelowOneGoToItsHandler) {
  Router router = small_router();
  const auto say = [](std::string_view what) {
    return [what](const HttpRequest& request, const Reply& reply) {
      reply->send(200, "text/plain", cat(what, " ", request.path));
    };
  };
  router.add("GET", "/a/*", say("a"));
  router.add("GET", "/a/b/*", say("b"));
  router.add("GET", "/a/b", say("exact"));
  const std::pair<const char*, const char*> cases[] = {
      {"/a/x", "a /a/x"},   {"/a/x/y%2Fz", "a /a/x/y%2Fz"}, {"/a/", "a /a/"},     {"/a/b", "exact /a/b"},
      {"/a/b/", "b /a/b/"}, {"/a/b/c/d", "b /a/b/c/d"},     {"/a/bc", "a /a/bc"}, {"/a//", "a /a//"},
  };
  Server server(test_options(), std::move(router));
  TestClient client(server.port());
  for (const auto& [path, body] : cases) EXPECT_EQ(client.get(path).body, body);
  for (const char* const path : {"/a", "/ab", "/hello/", "/hello/x", "/"})
    EXPECT_EQ(client.get(path).status, 404) << path;
  EXPECT_EQ(client.post("/a/x", "").headers.at("allow"), "GET, HEAD, OPTIONS");
}

TEST(HttpServer, HandlersSeeTheRequest) {
  HttpRequest seen;
  Router router;
  router.add("POST", "/see", [&](HttpRequest request, const Reply& reply) {
    seen = std::move(request);
    reply->send(200, "text/plain", "");
  });
  Server server(test_options(), std::move(router));
  TestClient client(server.port());
  client.send(
      "POST http://other/see?a=%20b HTTP/1.1\r\nHost: x\r\nX-Thing:  two words \r\nTransfer-Encoding: "
      "chunked\r\n\r\n"
      "3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nHost: trailer\r\nX-Thing: trailer\r\n\r\n");
  EXPECT_EQ(client.response().status, 200);
  EXPECT_EQ(seen.method, "POST");
  EXPECT_EQ(seen.path, "/see");
  EXPECT_EQ(seen.query, "a=%20b");
  EXPECT_EQ(seen.body, "abcde");
  EXPECT_EQ(seen.header("x-thing"), "two words");
  EXPECT_EQ(seen.header("absent"), "");
  EXPECT_TRUE(seen.client.starts_with("127.0.0.1:"));
  EXPECT_EQ(client.get("/missing").status, 404);  // the connection is still in step
}

TEST(HttpServer, UnknownPathsAndMethods) {
  Server server(test_options(), small_router());
  TestClient client(server.port());
  const TestResponse missing = client.get("/hello/");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(error_of(missing).at("type"), "invalid_request_error");
  const TestResponse wrong = client.get("/echo");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST, OPTIONS");
  error_of(wrong);
  EXPECT_EQ(client.post("/hello", "").headers.at("allow"), "GET, HEAD, OPTIONS");
  client.send("OPTIONS /hello HTTP/1.1\r\nHost: a\r\n\r\n");
  const TestResponse options = client.response();
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.headers.at("allow"), "GET, HEAD, OPTIONS");
  EXPECT_FALSE(options.headers.contains("content-length"));
  EXPECT_EQ(client.post("/missing", "body that nobody reads").status, 404);
  EXPECT_TRUE(client.closed_by_server());
}

TEST(HttpServer, HeadIsGetWithoutTheBody) {
  Router router = small_router();
  router.add("GET", "/stream", [](const HttpRequest&, const Reply& reply) {
    reply->begin_stream(200, "text/plain");
    reply->write("body");
    reply->end();
  });
  Server server(test_options(), std::move(router));
  TestClient client(server.port());
  client.send("HEAD /hello HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(client.response(true).headers.at("content-length"), "5");
  client.send("HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(client.response(true).status, 200);
  EXPECT_EQ(client.get("/hello").body, "hello");
}

TEST(HttpServer, RequestIdsAreTakenWhenSaneElseMade) {
  Router router;
  router.add("GET", "/id", [](const HttpRequest& request, const Reply& reply) {
    reply->send(200, "text/plain", request.id);
  });
  Server server(test_options(), std::move(router));
  TestClient client(server.port());
  const TestResponse mine = client.get("/id", "X-Request-Id: my-id_1.2\r\n");
  EXPECT_EQ(mine.body, "my-id_1.2");
  EXPECT_EQ(mine.headers.at("x-request-id"), "my-id_1.2");
  const TestResponse made = client.get("/id");
  EXPECT_EQ(made.body.size(), 32U);
  EXPECT_EQ(made.headers.at("x-request-id"), made.body);
  EXPECT_NE(client.get("/id").body, made.body);
  for (const std::string& bad :
       {std::string("a b"), std::string(129, 'a'), std::string("\"quoted\""), std::string("\xff")})
    EXPECT_EQ(client.get("/id", cat("X-Request-Id: ", bad, "\r\n")).body.size(), 32U) << bad;
  EXPECT_EQ(client.get("/nowhere", "X-Request-Id: e1\r\n").headers.at("x-request-id"), "e1");
}

TEST(HttpServer, KeysGuardAllButPublicPaths) {
  ServerOptions options = test_options();
  options.api_keys = {"first-key", "second"};
  Server server(options, small_router());
  TestClient client(server.port());
  EXPECT_EQ(client.get("/health").status, 200);
  EXPECT_EQ(client.get("/hello", "Authorization: Bearer first-key\r\n").status, 200);
  EXPECT_EQ(client.get("/hello", "authorization: bearer second\r\n").status, 200);
  for (const std::string_view wrong :
       {"", "Authorization: Bearer first-ke\r\n", "Authorization: Bearer first-keyy\r\n",
        "Authorization: Bearer\r\n", "Authorization: Bearer \r\n", "Authorization: Basic first-key\r\n",
        "Authorization: first-key\r\n", "Authorization: Bearer secondsecond\r\n"}) {
    const TestResponse refused = client.get("/hello", wrong);
    EXPECT_EQ(refused.status, 401) << wrong;
    EXPECT_EQ(refused.headers.at("www-authenticate"), "Bearer");
    EXPECT_EQ(error_of(refused).at("code"), "invalid_api_key");
  }
  EXPECT_EQ(client.get("/nowhere").status, 401);  // what exists is nobody's business
  // The body is not waited for.
  client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.response().status, 401);
  EXPECT_TRUE(client.closed_by_server());
}

// Also of paths that need no key or do not exist, and before CORS.
TEST(HttpServer, RefusesHostsThatItIsNotCalled) {
  ServerOptions options = test_options();
  options.allowed_hosts = hosts_to_answer("127.0.0.1", {"Models.Example:9", "[2001:db8::1]"});
  options.allowed_origins = {"*"};
  options.api_keys = {"key"};
  options.public_paths = {"/hello"};
  Server server(options, small_router());
  const auto status = [&](std::string_view host, std::string_view method = "GET",
                          std::string_view path = "/hello") {
    TestClient client(server.port());
    client.send(cat(method, " ", path, " HTTP/1.1\r\nHost: ", host, "\r\nOrigin: http://evil.example\r\n",
                    "Access-Control-Request-Method: GET\r\n\r\n"));
    const TestResponse response = client.response();
    if (response.status == 403) {
      EXPECT_NE(error_of(response)["message"].get<std::string>().find("--allowed-host"), std::string::npos);
    }
    return response.status;
  };
  for (const char* const host : {"localhost", "LOCALHOST:80", "127.0.0.1:8000", "[::1]", "[::1]:1",
                                 "models.example", "models.example:443", "[2001:db8::1]:9"})
    EXPECT_EQ(status(host), 200) << host;
  for (const char* const host : {"evil.example", "evil.example:8000", "localhost.evil.example",
                                 "127.0.0.1.nip.io", "[::2]", "[::1].example", "0.0.0.0", ":80", "example"})
    EXPECT_EQ(status(host), 403) << host;
  EXPECT_EQ(status("evil.example", "OPTIONS"), 403);
  EXPECT_EQ(status("evil.example", "GET", "/nowhere"), 403);
  TestClient old(server.port());
  old.send("GET /hello HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.response().status, 200) << "no browser leaves it out";
}

TEST(HttpServer, HostsToAnswer) {
  for (const char* const loopback : {"127.0.0.1", "localhost", "::1", "[::1]", "127.1.2.3"}) {
    const auto hosts = hosts_to_answer(loopback, {});
    EXPECT_TRUE(host_is_allowed("localhost:8000", hosts));
    EXPECT_FALSE(host_is_allowed("a.example", hosts));
    EXPECT_TRUE(host_is_allowed("a.example", hosts_to_answer(loopback, {"*"})));
  }
  EXPECT_TRUE(host_is_allowed("127.1.2.3", hosts_to_answer("127.1.2.3", {})));
  for (const char* const open : {"0.0.0.0", "::", "192.0.2.1"}) {
    EXPECT_TRUE(hosts_to_answer(open, {}).empty());
    const auto hosts = hosts_to_answer(open, {"a.example"});
    EXPECT_TRUE(host_is_allowed("a.example:80", hosts));
    EXPECT_TRUE(host_is_allowed("localhost", hosts));
    EXPECT_FALSE(host_is_allowed("b.example", hosts));
  }
}

TEST(HttpServer, CorsIsOffByDefault) {
  Server server(test_options(), small_router());
  TestClient client(server.port());
  const TestResponse response = client.get("/hello", "Origin: http://a.example\r\n");
  EXPECT_FALSE(response.headers.contains("access-control-allow-origin"));
  client.send(
      "OPTIONS /echo HTTP/1.1\r\nHost: a\r\nOrigin: http://a.example\r\nAccess-Control-Request-Method: "
      "POST\r\n\r\n");
  EXPECT_FALSE(client.response().headers.contains("access-control-allow-methods"));
}

TEST(HttpServer, CorsForAllowedOrigins) {
  ServerOptions options = test_options();
  options.allowed_origins = {"http://a.example"};
  options.api_keys = {"key"};
  Server server(options, small_router());
  TestClient client(server.port());
  client.send(
      "OPTIONS /echo HTTP/1.1\r\nHost: a\r\nOrigin: http://a.example\r\nAccess-Control-Request-Method: "
      "POST\r\n"
      "Access-Control-Request-Headers: authorization,x-new\r\n\r\n");
  const TestResponse preflight = client.response();
  EXPECT_EQ(preflight.status, 204);  // without a key
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "http://a.example");
  EXPECT_EQ(preflight.headers.at("access-control-allow-methods"), "POST, OPTIONS");
  EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "authorization,x-new");
  EXPECT_EQ(preflight.headers.at("vary"), "Origin");
  const TestResponse refused = client.get("/hello", "Origin: http://a.example\r\n");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.at("access-control-allow-origin"), "http://a.example");
  const TestResponse other =
      client.get("/hello", "Origin: http://b.example\r\nAuthorization: Bearer key\r\n");
  EXPECT_EQ(other.status, 200);
  EXPECT_FALSE(other.headers.contains("access-control-allow-origin"));
  EXPECT_EQ(allowed_origin("http://x", std::vector<std::string>{"*"}), "*");
}

TEST(HttpServer, HandlersThatThrowGiveAnErrorThatSaysNothingOfTheInside) {
  Router router = small_router();
  router.add("GET", "/throw", [](const HttpRequest&, const Reply&) { throw std::runtime_error("secret"); });
  router.add("GET", "/odd", [](const HttpRequest&, const Reply&) { throw 7; });
  router.add("GET", "/drop", [](const HttpRequest&, const Reply&) {});
  router.add("GET", "/late",
             [](const HttpRequest&, const Reply& reply) { std::thread([reply] {}).detach(); });
  router.add("GET", "/after", [](const HttpRequest&, const Reply& reply) {
    reply->send(200, "text/plain", "first");
    EXPECT_FALSE(reply->send(200, "text/plain", "second"));
    EXPECT_FALSE(reply->begin_stream(200, "text/plain"));
    throw std::runtime_error("too late to matter");
  });
  Server server(test_options(), std::move(router));
  TestClient client(server.port());
  for (const std::string_view path : {"/throw", "/odd", "/drop", "/late"}) {
    const TestResponse response = client.get(path);
    EXPECT_EQ(response.status, 500) << path;
    EXPECT_EQ(error_of(response).at("type"), "server_error");
    EXPECT_EQ(response.body.find("secret"), std::string::npos);
  }
  EXPECT_EQ(client.get("/after").body, "first");
  EXPECT_EQ(client.get("/hello").body, "hello");
}

TEST(HttpServer, HeadersOfAHandlerCannotSplitTheResponse) {
  Router router;
  router.add("GET", "/", [](const HttpRequest&, const Reply& reply) {
    reply->send(200, "text/plain\r\nX-Evil: 1", "",
                {{"X-Good", "a\r\nX-Evil: 2"}, {"X-Evil\r\n", "3"}, {"", "4"}});
  });
  Server server(test_options(), std::move(router));
  TestClient client(server.port());
  const TestResponse response = client.get("/");
  EXPECT_EQ(response.headers.at("x-good"), "a  X-Evil: 2");
  EXPECT_FALSE(response.headers.contains("x-evil"));
}

TEST(HttpServer, AccessLogIsALineOfJsonARequest) {
  std::mutex mutex;
  std::vector<std::string> lines;
  ServerOptions options = test_options();
  options.access_log = [&](std::string_view line) {
    const std::lock_guard lock(mutex);
    lines.emplace_back(line);
  };
  Server server(options, small_router());
  TestClient client(server.port());
  client.get("/hello?secret", "X-Request-Id: one\r\n");
  client.get("/\xff\xfe\"");
  client.send("nonsense\r\n\r\n");
  client.closed_by_server();
  server.stop(Milliseconds(0));
  ASSERT_EQ(lines.size(), 3U);
  const Json first = parse_json(lines[0], "line");
  EXPECT_EQ(first.at("request_id"), "one");
  EXPECT_EQ(first.at("method"), "GET");
  EXPECT_EQ(first.at("path"), "/hello");
  EXPECT_EQ(first.at("status"), 200);
  EXPECT_GT(first.at("bytes"), 100);
  EXPECT_GE(first.at("milliseconds"), 0);
  EXPECT_EQ(first.at("disconnected"), false);
  EXPECT_EQ(first.at("time").get<std::string>().size(), std::string("2026-01-01T00:00:00.000Z").size());
  EXPECT_EQ(lines[0].find("secret"), std::string::npos);
  EXPECT_EQ(parse_json(lines[1], "line").at("path"), "/\xef\xbf\xbd\xef\xbf\xbd\"");
  EXPECT_EQ(parse_json(lines[2], "line").at("status"), 400);
}

TEST(HttpServer, LogLinesGoToAFile) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  const auto write = log_lines_to(file);
  write("one");
  write("two");
  std::rewind(file);
  char text[16] = {};
  EXPECT_EQ(std::fread(text, 1, sizeof text, file), 8U);
  EXPECT_STREQ(text, "one\ntwo\n");
  std::fclose(file);
}

TEST(HttpServer, ErrorsAreValidUtf8AndSayNullWhereNothingIsKnown) {
  const Json error =
      parse_json(error_json({.status = 404, .message = "no \xff", .code = "c"}), "e").at("error");
  EXPECT_EQ(error.at("message"), "no \xef\xbf\xbd");
  EXPECT_EQ(error.at("type"), "invalid_request_error");
  EXPECT_TRUE(error.at("param").is_null());
  EXPECT_EQ(error.at("code"), "c");
  EXPECT_EQ(error_type(429), "rate_limit_error");
  EXPECT_EQ(error_type(503), "server_error");
}

TEST(HttpServer, AddressesThatItListensOn) {
  {
    ServerOptions options = test_options();
    options.host = "::1";
    try {
      Server server(options, small_router());
      EXPECT_EQ(server.address(), cat("[::1]:", server.port()));
    } catch (const Error& error) {  // a machine without IPv6
      EXPECT_NE(std::string(error.what()).find("::1"), std::string::npos);
    }
  }
  Server server(test_options(), small_router());
  EXPECT_EQ(server.address(), cat("127.0.0.1:", server.port()));
  ServerOptions taken = test_options();
  taken.port = server.port();
  EXPECT_THROW(Server(taken, small_router()), Error);
}

TEST(HttpServer, OptionsThatMakeNoSenseAreErrors) {
  const auto refused = [](const std::function<void(ServerOptions&)>& change) {
    ServerOptions options = test_options();
    change(options);
    EXPECT_THROW(Server(options, small_router()), Error);
  };
  refused([](ServerOptions& options) { options.port = 65536; });
  refused([](ServerOptions& options) { options.port = -1; });
  refused([](ServerOptions& options) { options.threads = 0; });
  refused([](ServerOptions& options) { options.host = "no.such.literal"; });
  refused([](ServerOptions& options) { options.max_connections = 0; });
  refused([](ServerOptions& options) { options.api_keys = {""}; });
}

TEST(HttpServer, ManyConnectionsLeaveNothingBehind) {
  Server server(test_options(), small_router());
  for (int i = 0; i < 1000; ++i) {
    TestClient client(server.port());
    if (i % 4 == 0) continue;  // says nothing
    client.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    if (i % 4 == 1) continue;  // does not wait
    EXPECT_EQ(client.response().status, 200);
    if (i % 4 == 2) client.reset();
  }
  EXPECT_TRUE(eventually([&] { return server.live_connections() == 0; }));
}

// Two clients that a server answers, while a third is told that there is no room.
struct TwoOfThree {
  explicit TwoOfThree(const Server& server) : one(server.port()), two(server.port()) {
    EXPECT_EQ(one.get("/hello").status, 200);
    EXPECT_EQ(two.get("/hello").status, 200);
    TestClient three(server.port());
    const TestResponse refused = three.response();
    EXPECT_EQ(refused.status, 503);
    message = error_of(refused)["message"].get<std::string>();
    EXPECT_TRUE(three.closed_by_server());
  }
  TestClient one;
  TestClient two;
  std::string message;
};

TEST(HttpServer, ConnectionsOverTheLimitAreAnswered503) {
  ServerOptions options = test_options();
  options.max_connections = 2;
  Server server(options, small_router());
  TwoOfThree clients(server);
  clients.one.close();
  EXPECT_TRUE(eventually([&] { return server.live_connections() == 1; }));
  TestClient four(server.port());
  EXPECT_EQ(four.get("/hello").status, 200);
}

TEST(HttpServer, ConnectionsOfOneAddressHaveALimitOfTheirOwn) {
  ServerOptions options = test_options();
  options.host = "0.0.0.0";
  options.max_connections_per_address = 2;
  Server server(options, small_router());
  TwoOfThree clients(server);
  EXPECT_NE(clients.message.find("from this address"), std::string::npos);
  TestClient other(0);
  other.connect(server.port(), "127.0.0.2");
  EXPECT_EQ(other.get("/hello").status, 200);
  clients.one.close();
  EXPECT_TRUE(eventually([&] { return server.live_connections() == 2; }));
  TestClient four(server.port());
  EXPECT_EQ(four.get("/hello").status, 200);
}

/// Takes all descriptors that the process may have, as long as it lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &old_);
    rlimit few = old_;
    few.rlim_cur = std::min<rlim_t>(old_.rlim_cur, 256);
    ::setrlimit(RLIMIT_NOFILE, &few);
    for (int copy = 0; (copy = ::dup(STDERR_FILENO)) >= 0;) taken_.push_back(copy);
  }
  ~NoDescriptors() {
    for (const int descriptor : taken_) ::close(descriptor);
    ::setrlimit(RLIMIT_NOFILE, &old_);
  }

 private:
  rlimit old_{};
  std::vector<int> taken_;
};

TEST(HttpServer, RunningOutOfDescriptorsPassesBy) {
  Server server(test_options(), small_router());
  TestClient before(server.port());
  EXPECT_EQ(before.get("/hello").status, 200);
  TestClient waiting(0);
  {
    const NoDescriptors none;
    waiting.connect(server.port());
    waiting.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_FALSE(waiting.readable(Milliseconds(200)));
    EXPECT_EQ(server.live_connections(), 1U);
    EXPECT_EQ(before.get("/hello").status, 200);  // who is in is served
  }
  EXPECT_EQ(waiting.response().status, 200);
}

}  // namespace
}  // namespace asynct::http
