#include "asynct/serve/http/test_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "asynct/base/strings.h"
#include "asynct/serve/http/request_checks.h"

namespace asynct::http {
namespace {
constexpr std::chrono::milliseconds kPatience{20'000};
}

TestClient::TestClient(int port, int receive_buffer)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (socket_ < 0) throw std::runtime_error(std::strerror(errno));
  if (receive_buffer > 0)
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  if (port != 0) connect(port);
}

TestClient::~TestClient() { close(); }

void TestClient::connect(int port, const char* from) {
  const int on = 1;
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (from != nullptr) {
    ::inet_pton(AF_INET, from, &address.sin_addr);
    if (::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error(std::strerror(errno));
  }
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw std::runtime_error(std::strerror(errno));
}

bool TestClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool TestClient::readable(std::chrono::milliseconds within) {
  pollfd descriptor{.fd = socket_, .events = POLLIN, .revents = 0};
  return ::poll(&descriptor, 1, static_cast<int>(within.count())) > 0;
}

bool TestClient::receive() {
  if (!readable(kPatience)) throw std::runtime_error("the server neither answers nor closes");
  std::array<char, 65536> buffer;
  const ssize_t got = ::recv(socket_, buffer.data(), buffer.size(), 0);
  if (got <= 0) return false;
  input_.append(buffer.data(), static_cast<std::size_t>(got));
  return true;
}

std::string TestClient::read_until(std::string_view text) {
  std::size_t found = 0;
  while ((found = input_.find(text)) == std::string::npos)
    if (!receive()) return std::exchange(input_, {});
  std::string result = input_.substr(0, found + text.size());
  input_.erase(0, result.size());
  return result;
}

TestResponse TestClient::response(bool head) {
  TestResponse result;
  std::string text = read_until("\r\n\r\n");
  if (!text.starts_with("HTTP/1.1 ") || !text.ends_with("\r\n\r\n")) return result;
  result.status = std::stoi(text.substr(9));
  for (std::size_t line = text.find("\r\n") + 2; line + 2 < text.size(); line = text.find("\r\n", line) + 2) {
    const std::size_t colon = text.find(": ", line);
    result.headers[lower_case(text.substr(line, colon - line))] =
        text.substr(colon + 2, text.find("\r\n", line) - colon - 2);
  }
  const auto take = [&](std::size_t bytes) {
    while (input_.size() < bytes && receive()) {
    }
    const bool whole = input_.size() >= bytes;
    result.body += input_.substr(0, bytes);
    input_.erase(0, bytes);
    return whole;
  };
  if (head || result.status < 200 || result.status == 204) {
    result.complete = true;
  } else if (result.headers.contains("content-length")) {
    result.complete = take(std::stoul(result.headers["content-length"]));
  } else if (result.headers.contains("transfer-encoding")) {
    while (true) {
      const std::string size = read_until("\r\n");
      if (!size.ends_with("\r\n")) break;
      const std::size_t bytes = std::stoul(size, nullptr, 16);
      if (!take(bytes) || read_until("\r\n") != "\r\n") break;
      result.complete = bytes == 0;
      if (result.complete) break;
    }
  } else {
    while (receive()) {
    }
    result.body = std::exchange(input_, {});
    result.complete = true;
  }
  return result;
}

TestResponse TestClient::get(std::string_view path, std::string_view headers) {
  send(cat("GET ", path, " HTTP/1.1\r\nHost: test\r\n", headers, "\r\n"));
  return response();
}

TestResponse TestClient::post(std::string_view path, std::string_view body, std::string_view headers) {
  send(cat("POST ", path, " HTTP/1.1\r\nHost: test\r\nContent-Length: ", body.size(), "\r\n", headers, "\r\n",
           body));
  return response();
}

bool TestClient::closed_by_server() {
  while (receive()) input_.clear();
  return true;  // or an exception
}

void TestClient::shut_down_sending() { ::shutdown(socket_, SHUT_WR); }

void TestClient::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

void TestClient::reset() {
  const linger now{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close();
}

bool eventually(const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

ServerOptions test_options() { return {.port = 0}; }

}  // namespace asynct::http
