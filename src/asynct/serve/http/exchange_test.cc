#include "asynct/serve/http/exchange.h"

#include <gtest/gtest.h>

namespace asynct::http {
namespace {

struct CountingConnection : Wakeable {
  void wake() override { ++wakes; }
  int wakes = 0;
};

struct Fixture {
  std::shared_ptr<CountingConnection> connection = std::make_shared<CountingConnection>();
  std::shared_ptr<Exchange> exchange = std::make_shared<Exchange>(
      ExchangeInfo{.method = "GET", .path = "/", .id = "1", .max_unsent_bytes = 1000}, connection);
  std::string out;
};

TEST(HttpExchange, WritesDuringAWriteLeaveTogetherAndWakeOnce) {
  Fixture f;
  f.exchange->begin_stream(200, "text/plain", {});
  EXPECT_EQ(f.connection->wakes, 1);
  EXPECT_EQ(f.exchange->take(f.out), Exchange::Next::data);
  const std::size_t head = f.out.size();
  EXPECT_EQ(f.exchange->write("ab"), head + 7);  // "2\r\nab\r\n"
  EXPECT_EQ(f.exchange->write("cd"), head + 14);
  EXPECT_EQ(f.connection->wakes, 1);  // a write is in flight: it looks again by itself
  f.exchange->sent(head);
  EXPECT_EQ(f.exchange->take(f.out), Exchange::Next::data);
  EXPECT_EQ(f.out, "2\r\nab\r\n2\r\ncd\r\n");
  f.exchange->sent(f.out.size());
  EXPECT_EQ(f.exchange->take(f.out), Exchange::Next::nothing);
  EXPECT_EQ(f.exchange->write("e"), 6U);
  EXPECT_EQ(f.connection->wakes, 2);
  EXPECT_TRUE(f.exchange->end());
  EXPECT_EQ(f.exchange->take(f.out), Exchange::Next::data);
  EXPECT_EQ(f.out, "1\r\ne\r\n0\r\n\r\n");
  EXPECT_EQ(f.exchange->take(f.out), Exchange::Next::finished);
  f.exchange->detach();
  EXPECT_EQ(f.connection.use_count(), 1);
}

TEST(HttpExchange, TooMuchUnsentBreaksItEvenDuringAWrite) {
  Fixture f;
  int called = 0;
  f.exchange->on_disconnect([&] { ++called; });
  f.exchange->begin_stream(200, "text/plain", {});
  EXPECT_EQ(f.exchange->take(f.out), Exchange::Next::data);
  const std::string chunk(400, 'x');
  EXPECT_GT(f.exchange->write(chunk), 400U);
  EXPECT_FALSE(f.exchange->broken());
  f.exchange->write(chunk);
  EXPECT_EQ(f.exchange->write(chunk), 0U);
  EXPECT_TRUE(f.exchange->broken());
  EXPECT_TRUE(f.exchange->closed());
  EXPECT_EQ(f.connection->wakes, 2);
  EXPECT_FALSE(f.exchange->end());
  EXPECT_EQ(called, 0);  // by the connection, when it closes
  f.exchange->detach()();
  EXPECT_EQ(called, 1);
  EXPECT_EQ(f.exchange->detach(), nullptr);
}

TEST(HttpExchange, TheEndLetsTheCallbackGo) {
  Fixture f;
  const auto owned = std::make_shared<int>(0);
  f.exchange->on_disconnect([owned] { ++*owned; });
  EXPECT_EQ(owned.use_count(), 2);
  EXPECT_TRUE(f.exchange->send(200, "text/plain", "body", {}));
  EXPECT_EQ(owned.use_count(), 1);
  EXPECT_EQ(f.exchange->detach(), nullptr);
  EXPECT_EQ(*owned, 0);
}

}  // namespace
}  // namespace asynct::http
