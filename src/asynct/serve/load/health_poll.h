#pragma once

#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "asynct/serve/load/client.h"

namespace asynct::load {

struct HealthResult {
  std::vector<double> latencies;  // seconds, of each poll answered 200
  std::int64_t failures = 0;      // of polls
  std::string detail;             // of the first failure
};

/// GET /health every 20 ms over a connection of its own; a poll that takes longer delays the next.
class HealthPoll {
 public:
  HealthPoll(boost::asio::io_context& context, const Url& url, std::string api_key);

  void start();
  void stop();  // a poll under way is dropped
  HealthResult take() { return std::move(result_); }

 private:
  class Poll;
  void send();
  void end(Clock::time_point now, std::string_view failure);

  Client client_;
  boost::asio::steady_timer timer_, timeout_;
  Clock::time_point begin_;
  std::shared_ptr<Connection> connection_;
  bool stopped_ = false;
  HealthResult result_;
};

}  // namespace asynct::load
