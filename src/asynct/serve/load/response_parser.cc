#include "asynct/serve/load/response_parser.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/basic_parser.hpp>

namespace asynct::load {
namespace beast_http = boost::beast::http;

class ResponseParser::Message : public beast_http::basic_parser<false> {
 public:
  using Code = boost::beast::error_code;
  using View = boost::beast::string_view;

  explicit Message(const ResponseLimits& limits) : limits_(limits) {
    header_limit(static_cast<std::uint32_t>(limits.header_bytes));
    body_limit(limits.body_bytes);
  }

  int status = 0;
  bool event_stream = false;
  std::string* body = nullptr;
  std::uint64_t chunk_left = 0;  // bytes of the chunk that has begun

  /// Beast asserts that the head of the last chunk comes with at least 5 bytes; the shortest, "0\r\n\r\n" of
  /// an empty body, does so only in one piece. No other head of a chunk is followed by fewer either.
  bool waits_for(std::size_t available) const {
    constexpr std::size_t kShortest = 5;
    return is_header_done() && chunked() && chunk_left == 0 && available < kShortest;
  }

 private:
  void count(std::size_t bytes, Code& error) {
    bytes_ += bytes;
    if (++fields_ > limits_.headers || bytes_ > limits_.header_bytes) error = beast_http::error::header_limit;
  }

  void on_request_impl(beast_http::verb, View, View, int, Code& error) override {
    error = beast_http::error::bad_version;
  }
  void on_response_impl(int code, View /*reason*/, int /*version*/, Code& /*error*/) override {
    status = code;
  }
  void on_field_impl(beast_http::field field, View name, View value, Code& error) override {
    count(name.size() + value.size() + 4, error);
    if (error || is_header_done()) return;  // a trailer
    if (field == beast_http::field::transfer_encoding && !boost::beast::iequals(value, "chunked"))
      error = beast_http::error::bad_transfer_encoding;
    if (field == beast_http::field::content_type)
      event_stream = boost::beast::iequals(value.substr(0, std::min(value.find(';'), value.size())),
                                           "text/event-stream");
  }
  void on_header_impl(Code& /*error*/) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>& /*length*/, Code& error) override {
    error = {};
  }
  std::size_t on_body_impl(View bytes, Code& error) override {
    error = {};
    body->append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_chunk_header_impl(std::uint64_t size, View extensions, Code& error) override {
    error = {};
    chunk_left = size;
    // Unlike fields, chunks are many; what is limited is what each of them brings along.
    if (extensions.size() > limits_.header_bytes) error = beast_http::error::header_limit;
  }
  std::size_t on_chunk_body_impl(std::uint64_t /*remaining*/, View bytes, Code& error) override {
    chunk_left -= bytes.size();
    return on_body_impl(bytes, error);
  }
  void on_finish_impl(Code& error) override { error = {}; }

  const ResponseLimits& limits_;
  std::size_t bytes_ = 0;
  std::size_t fields_ = 0;
};

ResponseParser::ResponseParser(ResponseLimits limits) : limits_(limits) { reset(); }
ResponseParser::~ResponseParser() = default;

void ResponseParser::reset() { message_ = std::make_unique<Message>(limits_); }

ResponseParser::Result ResponseParser::refuse(const char* problem) {
  problem_ = problem;
  return Result::malformed;
}

ResponseParser::Result ResponseParser::feed(std::string_view input, std::string& body) {
  input_ += input;
  while (true) {
    const Result result = parse(body);
    const bool interim = result == Result::done && status() >= 100 && status() < 200 && status() != 101;
    if (!interim) return result;
    reset();
  }
}

ResponseParser::Result ResponseParser::parse(std::string& body) {
  message_->body = &body;
  std::size_t used = 0;
  Message::Code error;
  while (!error && !message_->is_done() && used < input_.size() && !message_->waits_for(input_.size() - used))
    used += message_->put(boost::asio::buffer(input_.data() + used, input_.size() - used), error);
  input_.erase(0, used);
  if (error == beast_http::error::need_more) {
    if (input_.size() > limits_.header_bytes) return refuse("the header is too large");
    return Result::need_more;
  }
  if (error == beast_http::error::body_limit) return refuse("the body is too large");
  if (error == beast_http::error::header_limit) return refuse("the header is too large");
  if (error) return refuse("not a valid HTTP/1.1 response");
  if (!message_->is_done()) return Result::need_more;
  if (!input_.empty() && (status() >= 200 || status() == 101)) return refuse("bytes after the response");
  return Result::done;
}

ResponseParser::Result ResponseParser::end_of_input() {
  Message::Code error;
  if (message_->got_some()) message_->put_eof(error);
  if (error || !input_.empty() || !message_->is_done())
    return refuse("the connection was closed amid the response");
  return Result::done;
}

bool ResponseParser::has_header() const { return message_->is_header_done(); }
int ResponseParser::status() const { return message_->status; }
bool ResponseParser::keep_alive() const { return message_->keep_alive(); }
bool ResponseParser::is_event_stream() const { return message_->event_stream; }

}  // namespace asynct::load
