#include "asynct/serve/http/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

#include "asynct/base/log.h"
#include "asynct/base/strings.h"
#include "asynct/serve/http/access_log.h"
#include "asynct/serve/http/error_json.h"
#include "asynct/serve/http/request_checks.h"

namespace asynct::http {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr std::size_t kMaxAhead = 65536;    // bytes of pipelined requests kept
constexpr std::size_t kKeptBuffer = 65536;  // bytes of an output buffer kept from one response to the next
constexpr Milliseconds kLingerTime{1000};   // for the client to read the response and close
constexpr std::size_t kLingerBytes = 1024 * 1024;  // of a refused body, say

tcp::endpoint client_of(const Socket& socket) {
  error_code error;
  return socket.remote_endpoint(error);  // unspecified: it has left already
}

std::string client_name(const tcp::endpoint& endpoint) {
  if (endpoint.port() == 0) return {};
  const std::string host = endpoint.address().to_string();
  return endpoint.address().is_v6() ? cat('[', host, "]:", endpoint.port()) : cat(host, ':', endpoint.port());
}

// Tokens leave at once, and a client whose machine vanished is noticed within two minutes even while nothing
// is sent to it. Where an option cannot be set, the default will do.
void set_socket_options(int socket) {
  const auto set = [socket](int level, int option, int value) {
    static_cast<void>(::setsockopt(socket, level, option, &value, sizeof value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 60);   // seconds
  set(IPPROTO_TCP, TCP_KEEPINTVL, 15);  // seconds
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
}

}  // namespace

Connection::Connection(Socket socket, ServerState& server)
    : socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      server_(server),
      address_(client_of(socket_).address()),
      client_(client_name(client_of(socket_))) {
  server_.enter(this);
}

Connection::~Connection() {
  server_.body_bytes -= body_bytes_;
  error_code ignored;
  socket_.close(ignored);  // before it stops counting as live
  server_.leave(this);
}

template <class Action>
void Connection::post(Action action) {
  asio::post(socket_.get_executor(),
             [self = shared_from_this(), action]() mutable { self->guarded(action); });
}

// What goes wrong in one connection, memory running out included, ends that connection only.
template <class Action>
void Connection::guarded(Action action) {
  try {
    if (phase_ != Phase::closed) action();
  } catch (const std::exception& error) {
    log(LogLevel::error, cat("http: connection of ", client_, ": ", error.what()));
    close();
  }
}

void Connection::start() {
  post([this] {
    if (server_.draining) return close();
    set_socket_options(socket_.native_handle());
    next_request();
    // A new connection has to say something soon; only one that has proved itself may idle.
    if (phase_ == Phase::idle) set_deadline(server_.options.header_timeout);
  });
}

void Connection::refuse(std::string why) {
  post([this, why = std::move(why)] { reject(503, why); });
}

void Connection::wake() {
  post([this] { flush(); });
}

void Connection::drain() {
  post([this] {
    if (exchange_ != nullptr)
      exchange_->close_after_response();
    else if (phase_ != Phase::linger)
      close();
  });
}

void Connection::abort() {
  post([this] { close(); });
}

void Connection::next_request() {
  parser_.emplace(server_.options);
  if (output_.capacity() > kKeptBuffer) output_ = {};
  phase_ = input_.empty() ? Phase::idle : Phase::header;
  set_deadline(input_.empty() ? server_.options.idle_timeout : server_.options.header_timeout);
  parse();
}

void Connection::read() {
  if (reading_ || peer_done_) return;
  reading_ = true;
  socket_.async_read_some(asio::buffer(chunk_),
                          [self = shared_from_this()](const error_code& error, std::size_t bytes) {
                            self->reading_ = false;
                            self->guarded([&] { self->on_read(error, bytes); });
                          });
}

void Connection::on_read(const error_code& error, std::size_t bytes) {
  if (error) return on_read_end(error == asio::error::eof);
  if (phase_ == Phase::linger) {
    lingered_ += bytes;
    return lingered_ > kLingerBytes ? close() : read();
  }
  if (phase_ == Phase::idle) {
    phase_ = Phase::header;
    set_deadline(server_.options.header_timeout);
  }
  input_.append(chunk_.data(), bytes);
  if (phase_ != Phase::respond) return parse();
  if (input_.size() < kMaxAhead) read();
}

// Who has the whole response coming may have shut his side to say that no request follows.
void Connection::on_read_end(bool orderly) {
  peer_done_ = true;
  if (!orderly || phase_ != Phase::respond || !exchange_->complete()) close();
}

void Connection::parse() {
  while (true) {
    std::size_t used = 0;
    const RequestParser::Result result = parser_->feed(input_, used);
    input_.erase(0, used);
    switch (result) {
      case RequestParser::Result::need_more:
        if (!count_body(parser_->request().body.size()))
          return reject(503, "The server is out of memory for requests.");
        return read();
      case RequestParser::Result::header:
        if (!on_header()) return;
        break;
      case RequestParser::Result::done:
        return on_request();
      case RequestParser::Result::refused:
        return reject(parser_->status(), parser_->reason());
    }
  }
}

// False when all requests that are arriving have more bytes than they may.
bool Connection::count_body(std::size_t now) {
  server_.body_bytes += now - body_bytes_;  // modulo 2^64 where it shrinks
  body_bytes_ = now;
  return now == 0 || server_.body_bytes <= server_.options.max_buffered_body_bytes;
}

void Connection::open_exchange() {
  HttpRequest& request = parser_->request();
  request.client = client_;
  request.id = choose_request_id(request.header("x-request-id"));
  ExchangeInfo info{.method = request.method,
                    .path = request.path,
                    .id = request.id,
                    .client = client_,
                    .common_headers = common_headers(request, server_.options),
                    .http10 = parser_->http10(),
                    .max_unsent_bytes = server_.options.max_unsent_bytes};
  exchange_ = std::make_shared<Exchange>(std::move(info), shared_from_this());
  exchange_->hold_wakes();  // until the next flush()
}

// An error of the server's own. What follows on the connection can no longer be told apart, so it ends.
void Connection::reject(int status, std::string_view message) {
  if (exchange_ == nullptr) {
    if (!parser_) parser_.emplace(server_.options);
    open_exchange();
  }
  exchange_->close_after_response();
  exchange_->send(status, "application/json", error_json({.status = status, .message = std::string(message)}),
                  {});
  respond();
}

// The response has begun, or may begin at any time: write it, and watch for the end of the client.
void Connection::respond() {
  phase_ = Phase::respond;
  clear_deadline();
  count_body(0);
  flush();
  if (input_.size() < kMaxAhead) read();
}

// What can be said before the body is read is said then. False: that was all.
bool Connection::on_header() {
  open_exchange();
  const HttpRequest& request = parser_->request();
  Router::Match match = server_.router.find(request.method, request.path);
  handler_ = match.handler;
  std::optional<EarlyAnswer> answer = early_answer(request, match, server_.options);
  if (!parser_->keep_alive() || server_.draining || (answer && parser_->body_missing()))
    exchange_->close_after_response();
  if (answer) {
    exchange_->send(answer->status, "application/json", answer->body, answer->headers);
    respond();
    return false;
  }
  if (parser_->body_missing()) {
    phase_ = Phase::body;
    set_deadline(server_.options.body_timeout);
    if (parser_->expects_continue() && input_.empty()) {
      exchange_->send_continue();
      flush();
    }
  }
  return true;
}

void Connection::on_request() {
  exchange_->hold_wakes();
  const auto failed = [this](std::string_view what) {
    const ExchangeInfo& info = exchange_->info();
    log(LogLevel::error, cat("http: request ", info.id, " to ", info.path, ": ", what));
    exchange_->fail();
  };
  {
    const std::shared_ptr<Responder> responder = make_responder(exchange_);
    try {
      (*handler_)(std::move(parser_->request()), responder);
    } catch (const std::exception& error) {
      failed(error.what());
    } catch (...) {
      failed("unknown exception");
    }
  }
  respond();
}

void Connection::flush() {
  if (exchange_ == nullptr) return;
  if (exchange_->broken()) return close();
  if (writing_) return;
  switch (exchange_->take(output_)) {
    case Exchange::Next::data:
      written_ = 0;
      return write();
    case Exchange::Next::finished:
      return finish();
    case Exchange::Next::nothing:
      if (phase_ == Phase::respond) clear_deadline();
      return;
  }
}

void Connection::write() {
  writing_ = true;
  if (phase_ == Phase::respond) set_deadline(server_.options.write_timeout);
  socket_.async_write_some(asio::buffer(output_.data() + written_, output_.size() - written_),
                           [self = shared_from_this()](const error_code& error, std::size_t bytes) {
                             self->writing_ = false;
                             self->guarded([&] { error ? self->close() : self->on_written(bytes); });
                           });
}

void Connection::on_written(std::size_t bytes) {
  written_ += bytes;
  exchange_->sent(bytes);
  if (written_ < output_.size()) return exchange_->broken() ? close() : write();
  flush();
}

void Connection::finish() {
  const bool keep = exchange_->keep_alive() && !server_.draining;
  log_access(false);
  exchange_->detach();
  exchange_.reset();
  if (peer_done_) return close();
  keep ? next_request() : linger();
}

void Connection::linger() {
  phase_ = Phase::linger;
  error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  input_ = {};
  set_deadline(kLingerTime);
  read();
}

void Connection::close() {
  if (phase_ == Phase::closed) return;
  phase_ = Phase::closed;
  error_code ignored;
  socket_.close(ignored);
  timer_.cancel();
  count_body(0);
  if (exchange_ == nullptr) return;
  log_access(true);
  const std::function<void()> callback = exchange_->detach();
  exchange_.reset();
  try {
    if (callback) callback();
  } catch (const std::exception& error) {
    log(LogLevel::error, cat("http: a disconnect callback: ", error.what()));
  }
}

void Connection::log_access(bool disconnected) {
  if (!server_.options.access_log) return;
  try {
    const std::chrono::duration<double, std::milli> elapsed = Clock::now() - exchange_->begin();
    const ExchangeInfo& info = exchange_->info();
    server_.options.access_log(access_line({.request_id = info.id,
                                            .client = info.client,
                                            .method = info.method,
                                            .path = info.path,
                                            .status = exchange_->status(),
                                            .bytes = exchange_->bytes_sent(),
                                            .milliseconds = elapsed.count(),
                                            .disconnected = disconnected}));
  } catch (const std::exception& error) {
    log(LogLevel::error, cat("http: the access log: ", error.what()));
  }
}

void Connection::set_deadline(Milliseconds after) {
  deadline_ = Clock::now() + after;
  if (deadline_ < timer_at_) arm_timer(deadline_);
}

// A deadline that moves away leaves the timer as it is: when it fires it looks at what the deadline is then.
// So a busy connection arms it once in a while, not for each request.
void Connection::arm_timer(Clock::time_point at) {
  timer_at_ = at;
  timer_.expires_at(at);
  timer_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error) self->guarded([&] { self->on_timer(); });
  });
}

void Connection::on_timer() {
  timer_at_ = Clock::time_point::max();
  if (deadline_ == Clock::time_point::max()) return;
  if (Clock::now() < deadline_) return arm_timer(deadline_);
  clear_deadline();
  if ((phase_ == Phase::header && parser_->started()) || phase_ == Phase::body)
    return reject(408, "The request took too long to arrive.");
  close();  // idle, done lingering, or a client that takes no bytes
}

}  // namespace asynct::http
