#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "asynct/serve/load/measures.h"
#include "asynct/serve/load/response_parser.h"
#include "asynct/serve/load/url.h"

namespace asynct::load {

using Clock = std::chrono::steady_clock;

/// Takes one response. All calls come from the thread that runs the io_context, none from within send().
class ResponseSink {
 public:
  virtual ~ResponseSink() = default;
  /// Some of the body, which arrived at `now`.
  virtual void on_body(const ResponseParser& head, std::string_view bytes, Clock::time_point now) = 0;
  /// The last call. Failure::none: the response is complete.
  virtual void on_end(int status, Failure failure, std::string_view detail, Clock::time_point now) = 0;
};

class Client;

/// One connection, one request at a time.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  explicit Connection(Client& client);

  void send(std::string request, std::shared_ptr<ResponseSink> sink);
  /// Disconnects; the sink is not called any more. Also within its calls.
  void close();

 private:
  using Code = boost::system::error_code;

  void connect();
  void exchange();
  void read();
  void on_read(const Code& error, std::size_t bytes);
  void end(Failure failure, std::string_view detail, Clock::time_point now);
  void end_with(const Code& error);
  void try_again();

  Client& client_;
  boost::asio::ip::tcp::socket socket_;
  ResponseParser parser_;
  std::string request_;
  std::string body_;
  std::shared_ptr<ResponseSink> sink_;
  std::array<char, 16384> input_;
  bool connected_ = false;
  bool reused_ = false;    // has served a request before: the server may have closed it meanwhile
  bool answered_ = false;  // a byte of the response has come
  bool writing_ = false;
  bool again_ = false;  // once the write has ended
};

/// Connections to one server, kept alive from request to request.
class Client {
 public:
  /// Resolves the host. Error: it cannot be.
  Client(boost::asio::io_context& context, const Url& url, std::string api_key);

  /// A request with its head: GET, or POST of a body that is not empty.
  std::string format(std::string_view path, std::string_view body) const;

  /// Sends a formatted request. The result is for close() and good until the sink's on_end.
  std::shared_ptr<Connection> send(std::string request, std::shared_ptr<ResponseSink> sink);

 private:
  friend class Connection;
  boost::asio::io_context& context_;
  std::string head_;  // lines that all requests have
  std::string base_;
  std::vector<boost::asio::ip::tcp::endpoint> endpoints_;
  std::vector<std::shared_ptr<Connection>> idle_;
};

}  // namespace asynct::load
