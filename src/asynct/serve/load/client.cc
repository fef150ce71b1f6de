#include "asynct/serve/load/client.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/write.hpp>
#include <utility>

#include "asynct/base/error.h"

namespace asynct::load {
namespace asio = boost::asio;
using asio::ip::tcp;

Connection::Connection(Client& client) : client_(client), socket_(client.context_) {}

void Connection::send(std::string request, std::shared_ptr<ResponseSink> sink) {
  request_ = std::move(request);
  sink_ = std::move(sink);
  parser_.reset();
  body_.clear();
  answered_ = false;
  if (connected_)
    exchange();
  else
    connect();
}

void Connection::close() {
  sink_.reset();
  Code ignored;
  socket_.close(ignored);
}

void Connection::connect() {
  asio::async_connect(socket_, client_.endpoints_,
                      [self = shared_from_this()](const Code& error, const auto&) {
                        if (self->sink_ == nullptr) return;
                        if (error) return self->end_with(error);
                        Code ignored;
                        self->socket_.set_option(tcp::no_delay(true), ignored);
                        self->connected_ = true;
                        self->exchange();
                      });
}

// Reading begins at once: a server may answer before it has read all, with 413, say. What went wrong with
// writing is told by what is read then.
void Connection::exchange() {
  writing_ = true;
  asio::async_write(socket_, asio::buffer(request_), [self = shared_from_this()](const Code&, std::size_t) {
    self->writing_ = false;
    if (std::exchange(self->again_, false) && self->sink_ != nullptr) self->try_again();
  });
  read();
}

void Connection::read() {
  socket_.async_read_some(asio::buffer(input_),
                          [self = shared_from_this()](const Code& error, std::size_t bytes) {
                            if (self->sink_ != nullptr) self->on_read(error, bytes);
                          });
}

void Connection::on_read(const Code& error, std::size_t bytes) {
  const auto now = Clock::now();
  auto result = ResponseParser::Result::need_more;
  if (error == asio::error::eof && answered_) {
    result = parser_.end_of_input();
  } else if (error) {
    return end_with(error);
  } else {
    answered_ = true;
    result = parser_.feed({input_.data(), bytes}, body_);
  }
  if (!body_.empty()) {
    const auto keep = sink_;  // it may close this
    keep->on_body(parser_, body_, now);
    body_.clear();
    if (sink_ == nullptr) return;
  }
  switch (result) {
    case ResponseParser::Result::need_more:
      return read();
    case ResponseParser::Result::malformed:
      return end(Failure::malformed, parser_.problem(), now);
    case ResponseParser::Result::done:
      return end(Failure::none, "", now);
  }
}

void Connection::end_with(const Code& error) {
  if (reused_ && !answered_) return try_again();
  const bool refused = error == asio::error::connection_refused;
  end(refused ? Failure::refused : Failure::connection,
      error == asio::error::eof ? "closed by the server before it answered" : error.message(), Clock::now());
}

// A kept connection that the server closed before it got the request is no failure (RFC 9112, 9.3.1).
void Connection::try_again() {
  Code ignored;
  socket_.close(ignored);
  again_ = writing_;
  if (again_) return;
  connected_ = reused_ = false;
  connect();
}

void Connection::end(Failure failure, std::string_view detail, Clock::time_point now) {
  const auto sink = std::move(sink_);
  sink_.reset();
  const int status = parser_.status();
  if (failure == Failure::none && parser_.keep_alive() && !writing_) {
    reused_ = true;
    client_.idle_.push_back(shared_from_this());
  } else {
    close();
  }
  sink->on_end(status, failure, detail, now);  // last: the next request may be sent on this connection
}

Client::Client(asio::io_context& context, const Url& url, std::string api_key)
    : context_(context), base_(url.base) {
  head_ = cat("Host: ", url.authority, "\r\nUser-Agent: asynct-bench\r\nAccept: */*\r\n");
  if (!api_key.empty()) head_ += cat("Authorization: Bearer ", api_key, "\r\n");
  boost::system::error_code error;
  tcp::resolver resolver(context);
  for (const auto& entry : resolver.resolve(url.host, std::to_string(url.port), error))
    endpoints_.push_back(entry.endpoint());
  if (error || endpoints_.empty()) fail("URL: cannot resolve host \"", url.host, "\": ", error.message());
}

std::string Client::format(std::string_view path, std::string_view body) const {
  if (body.empty()) return cat("GET ", base_, path, " HTTP/1.1\r\n", head_, "\r\n");
  return cat("POST ", base_, path, " HTTP/1.1\r\n", head_,
             "Content-Type: application/json\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
}

std::shared_ptr<Connection> Client::send(std::string request, std::shared_ptr<ResponseSink> sink) {
  std::shared_ptr<Connection> connection;
  if (idle_.empty()) {
    connection = std::make_shared<Connection>(*this);
  } else {
    connection = std::move(idle_.back());
    idle_.pop_back();
  }
  connection->send(std::move(request), std::move(sink));
  return connection;
}

}  // namespace asynct::load
