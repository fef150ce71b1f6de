#pragma once

#include <atomic>
#include <boost/asio/ip/address.hpp>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "asynct/serve/http/server.h"

namespace asynct::http {

class Connection;

/// What connections share. It outlives them: the server joins its threads only when none is left.
class ServerState {
 public:
  ServerState(ServerOptions options, Router router)
      : options(std::move(options)), router(std::move(router)) {}

  const ServerOptions options;
  const Router router;
  std::atomic<bool> draining{false};
  std::atomic<std::size_t> body_bytes{0};  // buffered for requests that are still arriving

  void enter(Connection* connection);
  void leave(Connection* connection);
  std::size_t live() const;
  std::size_t live_of(const boost::asio::ip::address& address) const;
  std::vector<std::shared_ptr<Connection>> connections() const;
  bool wait_until_empty(Milliseconds at_most);

 private:
  mutable std::mutex mutex_;
  std::condition_variable empty_;
  std::unordered_set<Connection*> connections_;
};

}  // namespace asynct::http
