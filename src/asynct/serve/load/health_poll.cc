#include "asynct/serve/load/health_poll.h"

#include <algorithm>

#include "asynct/base/strings.h"

namespace asynct::load {
namespace {
constexpr auto kPeriod = std::chrono::milliseconds(20);
constexpr auto kTimeout = std::chrono::seconds(10);
}  // namespace

class HealthPoll::Poll : public ResponseSink {
 public:
  explicit Poll(HealthPoll& owner) : owner_(owner) {}
  void on_body(const ResponseParser&, std::string_view, Clock::time_point) override {}
  void on_end(int status, Failure failure, std::string_view detail, Clock::time_point now) override {
    std::string what;
    if (failure != Failure::none)
      what = cat(name(failure), ": ", detail);
    else if (status != 200)
      what = cat("HTTP status ", status);
    owner_.end(now, what);
  }

 private:
  HealthPoll& owner_;
};

HealthPoll::HealthPoll(boost::asio::io_context& context, const Url& url, std::string api_key)
    : client_(context, url, std::move(api_key)), timer_(context), timeout_(context) {}

void HealthPoll::start() { send(); }

void HealthPoll::stop() {
  stopped_ = true;
  timer_.cancel();
  timeout_.cancel();
  if (connection_ != nullptr) connection_->close();
  connection_.reset();
}

void HealthPoll::send() {
  begin_ = Clock::now();
  connection_ = client_.send(client_.format("/health", ""), std::make_shared<Poll>(*this));
  timeout_.expires_at(begin_ + kTimeout);
  timeout_.async_wait([this](const boost::system::error_code& error) {
    if (error || connection_ == nullptr || Clock::now() < begin_ + kTimeout) return;  // answered meanwhile
    connection_->close();
    end(Clock::now(), "timeout");
  });
}

void HealthPoll::end(Clock::time_point now, std::string_view failure) {
  connection_.reset();
  timeout_.cancel();
  if (failure.empty()) {
    result_.latencies.push_back(std::chrono::duration<double>(now - begin_).count());
  } else if (result_.failures++ == 0) {
    result_.detail = failure;
  }
  if (stopped_) return;
  timer_.expires_at(std::max(begin_ + kPeriod, now));
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && !stopped_) send();
  });
}

}  // namespace asynct::load
