#include "asynct/serve/http/exchange.h"

#include <array>
#include <cassert>
#include <charconv>

#include "asynct/base/log.h"
#include "asynct/base/strings.h"
#include "asynct/serve/http/error_json.h"

namespace asynct::http {
namespace {

class ExchangeResponder final : public Responder {
 public:
  explicit ExchangeResponder(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  ~ExchangeResponder() override {
    try {
      exchange_->abandon();
    } catch (const std::exception& error) {
      log(LogLevel::error, cat("http: a response was lost: ", error.what()));
    }
  }

  bool send(int status, std::string_view content_type, std::string_view body,
            const Headers& headers) override {
    return exchange_->send(status, content_type, body, headers);
  }
  bool begin_stream(int status, std::string_view content_type, const Headers& headers) override {
    return exchange_->begin_stream(status, content_type, headers);
  }
  std::size_t write(std::string_view chunk) override { return exchange_->write(chunk); }
  bool end() override { return exchange_->end(); }
  void on_disconnect(std::function<void()> callback) override {
    exchange_->on_disconnect(std::move(callback));
  }
  bool closed() const override { return exchange_->closed(); }

 private:
  std::shared_ptr<Exchange> exchange_;
};

bool has_no_body(int status) { return status < 200 || status == 204 || status == 304; }

}  // namespace

std::shared_ptr<Responder> make_responder(std::shared_ptr<Exchange> exchange) {
  return std::make_shared<ExchangeResponder>(std::move(exchange));
}

Exchange::Exchange(ExchangeInfo info, std::shared_ptr<Wakeable> connection)
    : info_(std::move(info)), connection_(std::move(connection)) {}

// The functions below are called with the mutex held.

void Exchange::notify() {
  if (awake_) return;
  awake_ = true;
  connection_->wake();
}

void Exchange::break_off() {
  broken_ = true;
  pending_ = {};
  connection_->wake();  // even if a write is in flight: it may be what hangs
}

bool Exchange::suppresses_body() const { return info_.method == "HEAD" || has_no_body(status_); }

bool Exchange::open(State state, const ResponseHead& head, const Headers& headers) {
  if (connection_ == nullptr || broken_ || state_ != State::waiting) return false;
  state_ = state;
  status_ = head.status;
  chunked_ = head.chunked;
  const std::string text = format_head(head, info_.common_headers, headers);
  pending_ += text;
  unsent_ += text.size();
  return true;
}

void Exchange::append_chunk(std::string_view chunk) {
  const std::size_t before = pending_.size();
  if (chunked_) {
    std::array<char, 20> size{};
    const auto end = std::to_chars(size.data(), size.data() + size.size(), chunk.size(), 16).ptr;
    pending_.append(size.data(), end);
    pending_ += "\r\n";
  }
  pending_ += chunk;
  if (chunked_) pending_ += "\r\n";
  unsent_ += pending_.size() - before;
}

// From here on they take it.

bool Exchange::send(int status, std::string_view content_type, std::string_view body,
                    const Headers& headers) {
  std::function<void()> dropped;  // destroyed without the mutex: it may own anything
  const std::lock_guard lock(mutex_);
  ResponseHead head{.status = status, .http10 = info_.http10, .keep_alive = info_.keep_alive};
  if (!has_no_body(status)) {
    head.content_type = content_type;
    head.content_length = body.size();
  }
  if (!open(State::complete, head, headers)) return false;
  if (!suppresses_body()) {
    pending_ += body;
    unsent_ += body.size();
  }
  dropped.swap(callback_);
  notify();
  return true;
}

bool Exchange::begin_stream(int status, std::string_view content_type, const Headers& headers) {
  const std::lock_guard lock(mutex_);
  if (info_.http10) info_.keep_alive = false;  // the end of the connection is the end of the body
  const ResponseHead head{.status = status,
                          .content_type = content_type,
                          .chunked = !info_.http10 && !has_no_body(status),
                          .http10 = info_.http10,
                          .keep_alive = info_.keep_alive};
  if (!open(State::streaming, head, headers)) return false;
  notify();
  return true;
}

std::size_t Exchange::write(std::string_view chunk) {
  const std::lock_guard lock(mutex_);
  if (connection_ == nullptr || broken_ || state_ != State::streaming) return 0;
  if (chunk.empty() || suppresses_body()) return unsent_;  // an empty chunk would end the body
  // Compared before it is copied: one huge chunk is bounded as well.
  if (unsent_ > info_.max_unsent_bytes || chunk.size() > info_.max_unsent_bytes - unsent_) {
    break_off();
    return 0;
  }
  append_chunk(chunk);
  notify();
  return unsent_;
}

bool Exchange::end() {
  std::function<void()> dropped;
  const std::lock_guard lock(mutex_);
  if (connection_ == nullptr || broken_ || state_ != State::streaming) return false;
  state_ = State::complete;
  if (chunked_ && !suppresses_body()) append_chunk({});
  dropped.swap(callback_);
  notify();
  return true;
}

void Exchange::on_disconnect(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::complete) return;
    if (connection_ != nullptr) {
      callback_.swap(callback);  // the old one is destroyed without the mutex
      return;
    }
  }
  if (callback) callback();
}

bool Exchange::closed() const {
  const std::lock_guard lock(mutex_);
  return connection_ == nullptr || broken_ || state_ == State::complete;
}

void Exchange::abandon() {
  bool unanswered = false;
  {
    const std::lock_guard lock(mutex_);
    if (connection_ == nullptr || state_ == State::complete) return;
    unanswered = state_ == State::waiting;
  }
  if (unanswered)
    log(LogLevel::error,
        cat("http: request ", info_.id, " to ", info_.path, " was dropped without a response"));
  fail();
}

void Exchange::fail() {
  const ApiError error{
      .status = 500, .message = cat("The server had an error while processing the request ", info_.id, ".")};
  if (send(500, "application/json", error_json(error), {})) return;
  std::function<void()> dropped;  // the producer itself gave up
  const std::lock_guard lock(mutex_);
  if (connection_ == nullptr || broken_ || state_ != State::streaming) return;
  dropped.swap(callback_);
  break_off();
}

Exchange::Next Exchange::take(std::string& out) {
  const std::lock_guard lock(mutex_);
  awake_ = true;
  if (!pending_.empty()) {
    out.clear();
    out.swap(pending_);
    return Next::data;
  }
  if (state_ == State::complete) return Next::finished;
  awake_ = false;
  return Next::nothing;
}

void Exchange::hold_wakes() {
  const std::lock_guard lock(mutex_);
  awake_ = true;
}

void Exchange::sent(std::size_t bytes) {
  bytes_sent_ += bytes;
  const std::lock_guard lock(mutex_);
  assert(bytes <= unsent_);
  unsent_ -= bytes;
}

void Exchange::send_continue() {
  constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  const std::lock_guard lock(mutex_);
  pending_ += kContinue;
  unsent_ += kContinue.size();
}

void Exchange::close_after_response() {
  const std::lock_guard lock(mutex_);
  info_.keep_alive = false;
}

bool Exchange::complete() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::complete;
}

bool Exchange::broken() const {
  const std::lock_guard lock(mutex_);
  return broken_;
}

bool Exchange::keep_alive() const {
  const std::lock_guard lock(mutex_);
  return info_.keep_alive;
}

int Exchange::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

std::function<void()> Exchange::detach() {
  std::shared_ptr<Wakeable> connection;
  std::function<void()> callback;
  const std::lock_guard lock(mutex_);
  connection.swap(connection_);
  callback.swap(callback_);
  pending_ = {};
  unsent_ = 0;
  if (state_ == State::complete) callback = nullptr;
  return callback;
}

}  // namespace asynct::http
