#include "asynct/serve/http/server.h"

#include <algorithm>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <thread>

#include "asynct/base/error.h"
#include "asynct/base/log.h"
#include "asynct/serve/http/connection.h"
#include "asynct/serve/http/server_state.h"

namespace asynct::http {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

void ServerState::enter(Connection* connection) {
  const std::lock_guard lock(mutex_);
  connections_.insert(connection);
}

void ServerState::leave(Connection* connection) {
  const std::lock_guard lock(mutex_);
  connections_.erase(connection);
  if (connections_.empty()) empty_.notify_all();
}

std::size_t ServerState::live() const {
  const std::lock_guard lock(mutex_);
  return connections_.size();
}

std::vector<std::shared_ptr<Connection>> ServerState::connections() const {
  std::vector<std::shared_ptr<Connection>> found;
  const std::lock_guard lock(mutex_);
  found.reserve(connections_.size());
  for (Connection* connection : connections_)
    if (auto alive = connection->weak_from_this().lock()) found.push_back(std::move(alive));
  return found;
}

std::size_t ServerState::live_of(const asio::ip::address& address) const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(
      std::count_if(connections_.begin(), connections_.end(),
                    [&](const Connection* connection) { return connection->address() == address; }));
}

bool ServerState::wait_until_empty(Milliseconds at_most) {
  std::unique_lock lock(mutex_);
  return empty_.wait_for(lock, at_most, [this] { return connections_.empty(); });
}

namespace {

constexpr Milliseconds kAcceptRetry{50};
constexpr std::size_t kRefusedAtOnce = 64;  // connections over the limit that get a 503

ServerOptions checked(ServerOptions options) {
  if (options.port < 0 || options.port > 65535)
    fail("server: port ", options.port, " is not one, expected 0 to 65535");
  if (options.threads < 1 || options.threads > 1024)
    fail("server: ", options.threads, " I/O threads, expected 1 to 1024");
  if (options.max_connections < 1) fail("server: the limit on connections is 0, expected at least 1");
  constexpr std::size_t kLargestHeader = std::size_t{16} << 20;
  if (options.max_header_bytes > kLargestHeader || options.max_target_bytes > kLargestHeader)
    fail("server: limits on header and URL may be at most ", kLargestHeader, " bytes");
  for (const std::string& key : options.api_keys)
    if (key.empty()) fail("server: an API key is empty");
  return options;
}

asio::ip::address address_of(const std::string& named) {
  std::string host = named == "localhost" ? "127.0.0.1" : named;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  error_code error;
  const auto address = asio::ip::make_address(host, error);
  if (error) fail("server: host \"", named, "\" is not an IPv4 or IPv6 address");
  return address;
}

}  // namespace

std::vector<std::string> hosts_to_answer(const std::string& host, std::vector<std::string> more) {
  const auto address = address_of(host);
  if (more.empty() && !address.is_loopback()) return {};
  const std::string own = address.is_v6() ? cat('[', address.to_string(), ']') : address.to_string();
  for (const std::string& name :
       {own, std::string("localhost"), std::string("127.0.0.1"), std::string("[::1]")})
    more.push_back(name);
  return more;
}

class Server::Impl {
 public:
  Impl(ServerOptions options, Router router)
      : state_(checked(std::move(options)), std::move(router)),
        acceptor_(asio::make_strand(io_)),
        retry_(acceptor_.get_executor()) {
    listen();
    asio::post(acceptor_.get_executor(), [this] { accept(); });
    try {
      for (int i = 0; i < state_.options.threads; ++i) threads_.emplace_back([this] { run(); });
    } catch (...) {
      stop(Milliseconds{0});
      throw;
    }
  }
  ~Impl() { stop(Milliseconds{0}); }

  const tcp::endpoint& endpoint() const { return endpoint_; }
  std::size_t live_connections() const { return state_.live(); }

  void stop(Milliseconds grace) {
    if (state_.draining.exchange(true)) return;
    asio::post(acceptor_.get_executor(), [this] {
      error_code ignored;
      acceptor_.close(ignored);
      retry_.cancel();
    });
    for (const auto& connection : state_.connections()) connection->drain();
    if (!state_.wait_until_empty(grace))
      for (const auto& connection : state_.connections()) connection->abort();
    work_.reset();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void listen() {
    const tcp::endpoint wanted(address_of(state_.options.host),
                               static_cast<asio::ip::port_type>(state_.options.port));
    try {
      acceptor_.open(wanted.protocol());
      acceptor_.set_option(tcp::acceptor::reuse_address(true));
      acceptor_.bind(wanted);
      acceptor_.listen();
      endpoint_ = acceptor_.local_endpoint();
    } catch (const boost::system::system_error& error) {
      fail("server: cannot listen on ", state_.options.host, " port ", state_.options.port, ": ",
           error.code().message());
    }
  }

  // Returns when stop() let go of the work guard and the last connection is gone.
  void run() {
    while (true) {
      try {
        io_.run();
        return;
      } catch (const std::exception& error) {
        log(LogLevel::error, cat("http: ", error.what()));
      }
    }
  }

  void accept() {
    try {
      acceptor_.async_accept(asio::make_strand(io_), [this](const error_code& error, Socket socket) {
        on_accept(error, std::move(socket));
      });
    } catch (const std::exception& failure) {  // no memory: not the end of accepting
      log(LogLevel::error, cat("http: cannot accept connections: ", failure.what()));
      accept_later();
    }
  }

  void on_accept(const error_code& error, Socket socket) {
    if (state_.draining) return;
    // Out of descriptors or kernel memory: clients wait in the backlog until there are some again.
    if (error) {
      if (!accept_failing_) log(LogLevel::error, cat("http: cannot accept connections: ", error.message()));
      accept_failing_ = true;
      return accept_later();
    }
    accept_failing_ = false;
    try {
      admit(std::move(socket));
    } catch (const std::exception& failure) {
      log(LogLevel::error, cat("http: a new connection: ", failure.what()));
    }
    accept();
  }

  void accept_later() {
    retry_.expires_after(kAcceptRetry);
    retry_.async_wait([this](const error_code& error) {
      if (!error && !state_.draining) accept();
    });
  }

  void admit(Socket socket) {
    const std::size_t live = state_.live();
    if (live >= state_.options.max_connections + kRefusedAtOnce) return;
    const auto connection = std::make_shared<Connection>(std::move(socket), state_);
    const std::size_t of_one = state_.options.max_connections_per_address;
    if (live >= state_.options.max_connections) {
      connection->refuse("The server has too many connections.");
    } else if (of_one > 0 && state_.live_of(connection->address()) > of_one) {  // this one among them
      connection->refuse(cat("There are too many connections from this address; the limit is ", of_one, "."));
    } else {
      connection->start();
    }
  }

  ServerState state_;  // connections use it until they are destroyed, with io_ at the latest
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  asio::basic_socket_acceptor<tcp, Strand> acceptor_;
  asio::basic_waitable_timer<std::chrono::steady_clock, asio::wait_traits<std::chrono::steady_clock>, Strand>
      retry_;
  bool accept_failing_ = false;
  tcp::endpoint endpoint_;
  std::vector<std::thread> threads_;
};

Server::Server(ServerOptions options, Router router)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(router))) {}
Server::~Server() = default;

int Server::port() const { return impl_->endpoint().port(); }

std::string Server::address() const {
  const auto& endpoint = impl_->endpoint();
  const std::string host = endpoint.address().to_string();
  return endpoint.address().is_v6() ? cat('[', host, "]:", endpoint.port()) : cat(host, ':', endpoint.port());
}

std::size_t Server::live_connections() const { return impl_->live_connections(); }
void Server::stop(Milliseconds grace) { impl_->stop(grace); }

}  // namespace asynct::http
