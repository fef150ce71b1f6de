#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace asynct::http {

/// An HTTP/1.1 server that knows nothing of models: it parses, checks, routes, and sends what handlers give
/// it.
///
///   Router router;
///   router.add("GET", "/health", [](HttpRequest, std::shared_ptr<Responder> responder) {
///     responder->send(200, "text/plain", "ok");
///   });
///   Server server({.port = 8000}, std::move(router));
///
/// Limits and timeouts of ServerOptions hold for every connection; what breaks one is answered with an error
/// in OpenAI's shape (error_json.h) and the connection is closed: 400 malformed, 401 key, 403 Host, 404, 405
/// (with Allow), 408 too slow, 413 body, 414 URL, 417 unknown Expect, 431 header, 501 transfer coding, 503
/// too many. A connection serves one request at a time; pipelined ones wait. HEAD is GET without the body.
/// OPTIONS of a known path is answered by the server, unless a handler is routed.

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // as sent: case matters
  std::string path;    // of the target, not percent-decoded; begins with '/'
  std::string query;   // what follows the '?', not decoded
  Headers headers;     // names in lower case; trailers are dropped
  std::string body;
  std::string id;      // X-Request-Id if it was sane, else generated; answered in the same header
  std::string client;  // "127.0.0.1:5000", "[::1]:5000"

  /// The first header of that name (in lower case), empty if there is none.
  std::string_view header(std::string_view name) const;
};

/// The way back to one client. Any thread, any later time, also after the server is gone: then calls do
/// nothing. Exactly one response: send(), or begin_stream(), write()..., end(). Destroyed without a response
/// it sends 500; destroyed amid a stream it cuts the connection, so that the client sees an incomplete
/// response. Do not keep a shared_ptr to it in its own on_disconnect callback.
class Responder {
 public:
  virtual ~Responder() = default;

  /// A whole response. Control characters in headers become spaces, so that no header can be added by what a
  /// request contains. False: it was not taken, the client has left or there is a response already.
  virtual bool send(int status, std::string_view content_type, std::string_view body,
                    const Headers& headers = {}) = 0;

  /// Opens a response of unknown length (chunked). False as for send().
  virtual bool begin_stream(int status, std::string_view content_type, const Headers& headers = {}) = 0;

  /// Appends to the stream; never blocks. Returns the bytes that the kernel has not taken yet, framing
  /// included; 0 also when closed(). Above ServerOptions::max_unsent_bytes the client is too slow: the
  /// connection is closed as if the client had left. What queues up while a write is in flight leaves in the
  /// next one.
  virtual std::size_t write(std::string_view chunk) = 0;

  /// Ends the stream. True: on_disconnect's callback will not be called any more. False: the client left
  /// before, and the callback has been called or is about to be.
  virtual bool end() = 0;

  /// Called exactly once if the connection ends before the response was handed over whole: the client closed
  /// or reset it (also while nothing is written; a half-close counts), was too slow, or the server stopped.
  /// Runs on an I/O thread and must not block; if it is too late already, at once on this one. A later
  /// callback replaces an earlier one. An exception from it is logged.
  virtual void on_disconnect(std::function<void()> callback) = 0;

  /// Nothing more can be sent: the client has left or the response is complete.
  virtual bool closed() const = 0;
};

/// Runs on an I/O thread; must not block for long. An exception becomes a 500 (its text goes to the log, not
/// to the client), or cuts a stream that has begun.
using Handler = std::function<void(HttpRequest, std::shared_ptr<Responder>)>;

/// Handlers by path and method. A path that ends in "/*" takes all that lie below it, slashes included, and
/// are not routed themselves.
class Router {
 public:
  void add(std::string_view method, std::string_view path, Handler handler);

  struct Match {
    const Handler* handler = nullptr;  // null: none for this method
    std::string allowed;               // methods of the path, "GET, HEAD, OPTIONS"; empty: no such path
  };
  Match find(std::string_view method, std::string_view path) const;

 private:
  using Methods = std::map<std::string, Handler, std::less<>>;
  const Methods* methods_of(std::string_view path) const;

  std::map<std::string, Methods, std::less<>> paths_;
};

using Milliseconds = std::chrono::milliseconds;

struct ServerOptions {
  std::string host = "127.0.0.1";  // IPv4 or IPv6 literal, or "localhost"
  int port = 8000;                 // 0: a free one, see Server::port()
  int threads = 2;                 // for I/O and handlers

  std::size_t max_connections = 1024;           // more are answered 503, many more are closed unanswered
  std::size_t max_connections_per_address = 0;  // likewise, of one client's IP address; 0: no limit
  std::size_t max_target_bytes = 4096;
  std::size_t max_header_bytes = 16384;
  std::size_t max_headers = 100;
  std::size_t max_body_bytes = std::size_t{16} << 20;
  std::size_t max_buffered_body_bytes = std::size_t{256}
                                        << 20;          // of bodies not yet handed over, all together
  std::size_t max_unsent_bytes = std::size_t{1} << 20;  // of one stream

  Milliseconds header_timeout{10'000};  // from the first byte (of a connection: from its start) to the last
  Milliseconds body_timeout{60'000};    // from the end of the header to the end of the body
  Milliseconds idle_timeout{60'000};    // between two requests
  Milliseconds write_timeout{30'000};   // without the client taking a byte

  std::vector<std::string> api_keys;                    // any of them; none: no check
  std::vector<std::string> public_paths = {"/health"};  // need no key
  std::vector<std::string>
      allowed_hosts;  // what Host may say, with any port; none: anything (hosts_to_answer)
  std::vector<std::string> allowed_origins;  // CORS: exact origins, or "*"; none: no CORS headers

  /// Takes one JSON object per request, without line end: time, request_id, client, method, path, status,
  /// bytes (sent, heads included), milliseconds, disconnected. Called by I/O threads, several at once.
  std::function<void(std::string_view line)> access_log;
};

/// For ServerOptions::access_log: a line each, flushed. The file stays the caller's.
std::function<void(std::string_view)> log_lines_to(std::FILE* file);

/// ServerOptions::allowed_hosts of a server that listens on `host`. On a loopback address these are its names
/// and `more`: a page of another site whose name is made to resolve to 127.0.0.1 (DNS rebinding) calls by
/// that name. Elsewhere only the operator knows the names: any, unless `more` says some. "*": any.
std::vector<std::string> hosts_to_answer(const std::string& host, std::vector<std::string> more);

class Server {
 public:
  /// Listens when it returns. Errors: options that make no sense, an address that cannot be bound.
  Server(ServerOptions options, Router router);
  ~Server();  // stop(0)
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;
  std::string address() const;  // "127.0.0.1:8000", "[::1]:8000"
  std::size_t live_connections() const;

  /// Stops accepting, closes idle connections, lets running responses end for up to `grace`, then closes what
  /// is left (their on_disconnect is called) and joins the threads. Not from a handler. A second call returns
  /// at once.
  void stop(Milliseconds grace);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace asynct::http
