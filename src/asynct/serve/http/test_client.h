#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "asynct/serve/http/server.h"

namespace asynct::http {

struct TestResponse {
  int status = 0;                              // 0: the connection ended before a header was complete
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
  bool complete = false;                       // the body ended as announced
};

/// A client that sends any bytes. Waits are long, so that only a hang fails by time.
class TestClient {
 public:
  /// A socket, connected to the loopback if `port` is not 0. receive_buffer: SO_RCVBUF, 0 for the default.
  explicit TestClient(int port, int receive_buffer = 0);
  ~TestClient();
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  void connect(int port, const char* from = nullptr);  // from: an address of this machine
  bool send(std::string_view bytes);                   // false: the server closed
  TestResponse response(bool head = false);
  TestResponse get(std::string_view path, std::string_view headers = {});
  TestResponse post(std::string_view path, std::string_view body, std::string_view headers = {});

  /// Reads until `text` has come; what came up to and with it is consumed and returned, all if it never came.
  std::string read_until(std::string_view text);
  bool closed_by_server();  // waits for it; bytes that come first are thrown away
  bool readable(std::chrono::milliseconds within);
  void shut_down_sending();
  void close();
  void reset();  // closes with RST

 private:
  bool receive();

  int socket_ = -1;
  std::string input_;
};

/// Polls for up to ten seconds.
bool eventually(const std::function<bool()>& condition);

/// Port 0, two threads, no log.
ServerOptions test_options();

}  // namespace asynct::http
