#include "asynct/serve/load/fake_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "asynct/base/json.h"
#include "asynct/base/strings.h"

namespace asynct::load {
namespace {

constexpr int kPatience = 10000;  // milliseconds

std::string chunk(std::string_view bytes) {
  char size[20];
  std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
  return cat(std::string_view(size), bytes, "\r\n");
}

}  // namespace

bool FakeExchange::send(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool FakeExchange::client_leaves() const {
  pollfd wait{socket, POLLIN, 0};
  char byte = 0;
  return ::poll(&wait, 1, kPatience) == 1 && ::recv(socket, &byte, 1, 0) <= 0;
}

void FakeExchange::reset() {
  const linger at_once{1, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  keep = false;
}

void FakeExchange::respond(int status, std::string_view text, std::string_view type) const {
  send(cat("HTTP/1.1 ", status, " Status\r\nContent-Type: ", type, "\r\nContent-Length: ", text.size(),
           "\r\n\r\n", text));
}

void FakeExchange::stream(const std::vector<std::string>& data, bool end) const {
  send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (const std::string& event : data) send(chunk(cat("data: ", event, "\n\n")));
  if (end) send("0\r\n\r\n");
}

void FakeExchange::complete(int prompt_tokens, int tokens) const {
  std::vector<std::string> data(static_cast<std::size_t>(tokens), R"({"choices":[{"text":"a"}]})");
  data.push_back(cat(R"({"choices":[],"usage":{"prompt_tokens":)", prompt_tokens, R"(,"completion_tokens":)",
                     tokens, "}}"));
  data.emplace_back("[DONE]");
  stream(data);
}

FakeServer::FakeServer(std::function<void(FakeExchange&)> handler) : handler_(std::move(handler)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(listener_, 1024) != 0)
    throw std::runtime_error("cannot listen");
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept(); });
}

FakeServer::~FakeServer() {
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  ::close(listener_);
  {
    const std::lock_guard lock(mutex_);
    for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
  }
  for (std::thread& thread : threads_) thread.join();
}

Url FakeServer::url() const { return parse_url(cat("http://127.0.0.1:", port_)); }

void FakeServer::accept() {
  while (true) {
    const int socket = ::accept(listener_, nullptr, nullptr);
    if (socket < 0) return;
    const int on = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ++connections_;
    const std::lock_guard lock(mutex_);
    sockets_.push_back(socket);
    threads_.emplace_back([this, socket] { serve(socket); });
  }
}

void FakeServer::serve(int socket) {
  std::string input;
  bool keep = true;
  const auto receive = [&] {
    char bytes[65536];
    const ssize_t got = ::recv(socket, bytes, sizeof bytes, 0);
    if (got > 0) input.append(bytes, static_cast<std::size_t>(got));
    return got > 0;
  };
  while (keep) {
    std::size_t end = std::string::npos;
    while ((end = input.find("\r\n\r\n")) == std::string::npos)
      if (!receive()) break;
    if (end == std::string::npos) break;
    FakeExchange exchange;
    exchange.socket = socket;
    exchange.head = input.substr(0, end);
    exchange.line = exchange.head.substr(0, exchange.head.find(" HTTP"));
    const std::size_t length = exchange.head.find("Content-Length: ");
    const std::size_t bytes =
        length == std::string::npos ? 0 : std::stoul(exchange.head.substr(length + sizeof "Content-Length:"));
    while (input.size() < end + 4 + bytes && receive()) {
    }
    exchange.body = input.substr(end + 4, bytes);
    input.erase(0, end + 4 + bytes);
    handler_(exchange);
    keep = exchange.keep;
  }
  const std::lock_guard lock(mutex_);
  std::erase(sockets_, socket);
  ::close(socket);
}

}  // namespace asynct::load
