#pragma once

#include <array>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "asynct/serve/http/exchange.h"
#include "asynct/serve/http/request_parser.h"
#include "asynct/serve/http/server_state.h"

namespace asynct::http {

using Strand = boost::asio::strand<boost::asio::io_context::executor_type>;
using Socket = boost::asio::basic_stream_socket<boost::asio::ip::tcp, Strand>;

/// One client. Everything but wake(), drain() and abort() runs on the socket's strand.
///
/// A read is always outstanding, also while a handler works and while a response is written: that is how the
/// end of the client is noticed at once. Bytes of later requests wait in input_; past kMaxAhead they stay in
/// the kernel, and then only a failing write tells of the end.
class Connection final : public Wakeable, public std::enable_shared_from_this<Connection> {
 public:
  Connection(Socket socket, ServerState& server);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start();
  void refuse(std::string why);  // instead of start(): 503
  void wake() override;
  void drain();  // close when idle, else after the response
  void abort();  // close now

  /// Of the client; unspecified when it had left before it was accepted.
  const boost::asio::ip::address& address() const { return address_; }

 private:
  using Clock = std::chrono::steady_clock;
  // idle: no byte of a request yet. respond: the handler has it, or an error is on its way. linger: the
  // response is out and our side shut, the client's last bytes are thrown away so that no reset overtakes the
  // response.
  enum class Phase { idle, header, body, respond, linger, closed };

  template <class Action>
  void post(Action action);
  template <class Action>
  void guarded(Action action);

  void read();
  void on_read(const boost::system::error_code& error, std::size_t bytes);
  void on_read_end(bool orderly);
  void parse();
  bool on_header();
  void on_request();
  bool count_body(std::size_t now);
  void next_request();
  void open_exchange();
  void reject(int status, std::string_view message);
  void respond();
  void flush();
  void write();
  void on_written(std::size_t bytes);
  void finish();
  void linger();
  void close();
  void log_access(bool disconnected);

  void set_deadline(Milliseconds after);
  void clear_deadline() { deadline_ = Clock::time_point::max(); }
  void arm_timer(Clock::time_point at);
  void on_timer();

  Socket socket_;
  boost::asio::basic_waitable_timer<Clock, boost::asio::wait_traits<Clock>, Strand> timer_;
  ServerState& server_;
  const boost::asio::ip::address address_;
  std::string client_;
  Phase phase_ = Phase::idle;
  bool reading_ = false;
  bool writing_ = false;
  bool peer_done_ = false;  // it will send nothing more
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point timer_at_ = Clock::time_point::max();  // max: not armed

  std::optional<RequestParser> parser_;
  const Handler* handler_ = nullptr;  // of the request in parser_
  std::shared_ptr<Exchange> exchange_;
  std::size_t body_bytes_ = 0;  // counted in server_.body_bytes
  std::size_t lingered_ = 0;
  std::array<char, 16384> chunk_;  // what a read fills
  std::string input_;              // what is not parsed yet
  std::string output_;             // what is being written
  std::size_t written_ = 0;        // of output_
};

}  // namespace asynct::http
