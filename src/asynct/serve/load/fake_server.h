#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "asynct/serve/load/url.h"

namespace asynct::load {

/// One request as a test server got it, and the way to answer with any bytes.
struct FakeExchange {
  int socket = -1;
  std::string line;  // "POST /v1/completions"
  std::string head;
  std::string body;
  bool keep = true;  // set to false: the connection is closed after the handler

  bool send(std::string_view bytes) const;  // false: the client has left
  bool client_leaves() const;               // waits for it for up to ten seconds
  void reset();                             // closes with RST

  /// A whole response.
  void respond(int status, std::string_view body, std::string_view type = "application/json") const;
  /// A stream: the head, then `data` as events, each a chunk of its own; with `end` the last chunk.
  void stream(const std::vector<std::string>& data, bool end = true) const;
  /// `tokens` events with text, usage of that many, "[DONE]".
  void complete(int prompt_tokens, int tokens) const;
};

/// Listens on the loopback; a thread a connection.
class FakeServer {
 public:
  explicit FakeServer(std::function<void(FakeExchange&)> handler);
  ~FakeServer();
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  Url url() const;
  int connections() const { return connections_; }

 private:
  void accept();
  void serve(int socket);

  std::function<void(FakeExchange&)> handler_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<int> connections_ = 0;
  std::mutex mutex_;  // over what follows
  std::vector<int> sockets_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace asynct::load
