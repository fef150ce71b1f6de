#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace asynct::load {

struct ResponseLimits {
  std::size_t header_bytes = 65536;
  std::size_t headers = 256;
  std::uint64_t body_bytes = std::uint64_t{1} << 30;
};

/// HTTP/1.1 responses off any split of their bytes: Beast's grammar, our limits. Interim responses (1xx) are
/// skipped. Bodies end by Content-Length, by the last chunk, or with the connection.
class ResponseParser {
 public:
  explicit ResponseParser(ResponseLimits limits = {});
  ~ResponseParser();

  enum class Result { need_more, done, malformed };

  /// Appends what `input` has of the body to `body`. After done the next response begins with a call of
  /// reset(); bytes that followed are an error of the server, as requests are not pipelined: malformed.
  Result feed(std::string_view input, std::string& body);
  /// The server has closed the connection.
  Result end_of_input();
  void reset();

  bool has_header() const;
  int status() const;                               // 0 before has_header()
  bool keep_alive() const;                          // after done
  bool is_event_stream() const;                     // Content-Type
  const char* problem() const { return problem_; }  // after malformed

 private:
  class Message;

  Result parse(std::string& body);
  Result refuse(const char* problem);

  ResponseLimits limits_;
  std::unique_ptr<Message> message_;
  std::string input_;  // a piece of a header, or of a chunk's, that is not complete
  const char* problem_ = "";
};

}  // namespace asynct::load
