#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "asynct/serve/http/response_head.h"
#include "asynct/serve/http/server.h"

namespace asynct::http {

/// What an exchange asks of its connection: look at the exchange again, soon, on the connection's own strand.
class Wakeable {
 public:
  virtual ~Wakeable() = default;
  virtual void wake() = 0;
};

/// What answers to one request have in common.
struct ExchangeInfo {
  std::string method, path, id, client;
  std::string common_headers;  // formatted: request id, CORS
  bool http10 = false;
  bool keep_alive = true;
  std::size_t max_unsent_bytes = 0;
};

/// One request's response on its way from any thread to the connection's strand: a queue of formatted bytes
/// under a mutex. The producer's side is Responder's, see there; the other is the connection's.
///
/// It holds its connection from the start until detach(), and a connection holds its exchange: detach() is
/// what breaks the cycle. Nothing is posted to a connection after it, so a Responder may outlive the server.
class Exchange {
 public:
  Exchange(ExchangeInfo info, std::shared_ptr<Wakeable> connection);

  // Any thread.
  bool send(int status, std::string_view content_type, std::string_view body, const Headers& headers);
  bool begin_stream(int status, std::string_view content_type, const Headers& headers);
  std::size_t write(std::string_view chunk);
  bool end();
  void on_disconnect(std::function<void()> callback);
  bool closed() const;
  void abandon();  // the Responder was destroyed
  void fail();     // the handler threw

  // The connection's strand only.
  enum class Next { data, nothing, finished };
  /// Bytes to send are moved to `out`. After `nothing` wake() will be called when that changes; after `data`
  /// it will not, as the connection looks again by itself. In any state it is called when broken() becomes
  /// true.
  Next take(std::string& out);
  void hold_wakes();  // as if take() had returned data
  void sent(std::size_t bytes);
  void send_continue();
  void close_after_response();
  bool complete() const;  // no more will come from the producer
  bool keep_alive() const;
  bool broken() const;  // the connection must be closed
  /// The exchange is over. Returns on_disconnect's callback if it is to be called.
  std::function<void()> detach();

  const ExchangeInfo& info() const { return info_; }
  int status() const;
  std::uint64_t bytes_sent() const { return bytes_sent_; }
  std::chrono::steady_clock::time_point begin() const { return begin_; }

 private:
  enum class State { waiting, streaming, complete };

  bool open(State state, const ResponseHead& head, const Headers& headers);
  bool suppresses_body() const;
  void append_chunk(std::string_view chunk);
  void notify();
  void break_off();

  ExchangeInfo info_;  // constant but for keep_alive
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::uint64_t bytes_sent_ = 0;  // the strand's

  mutable std::mutex mutex_;              // over what follows and info_.keep_alive
  std::shared_ptr<Wakeable> connection_;  // null: detached
  State state_ = State::waiting;
  bool broken_ = false;
  bool awake_ = false;  // the connection will look again without being told
  bool chunked_ = false;
  int status_ = 0;
  std::string pending_;
  std::size_t unsent_ = 0;  // pending and in flight
  std::function<void()> callback_;
};

/// The Responder of an exchange, whose end is noticed.
std::shared_ptr<Responder> make_responder(std::shared_ptr<Exchange> exchange);

}  // namespace asynct::http
