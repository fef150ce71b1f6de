#pragma once

#include <boost/beast/http/basic_parser.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "asynct/serve/http/server.h"

namespace asynct::http {

/// One request off the wire: Beast's grammar, our limits. Beast's own header limit is on what waits in the
/// buffer, and lines leave it one by one; the sums kept here hold for any way of cutting the bytes. Stricter
/// than Beast where two parsers could disagree on where a request ends: any transfer coding but "chunked"
/// alone is refused, and so is a list of lengths, or an HTTP/1.1 request without exactly one Host.
class RequestParser final : private boost::beast::http::basic_parser<true> {
 public:
  explicit RequestParser(const ServerOptions& options);

  enum class Result { need_more, header, done, refused };
  /// Parses the beginning of `input`; `used` bytes of it are dealt with. Stops once after the header, and
  /// after the message.
  Result feed(std::string_view input, std::size_t& used);

  bool started() const { return got_some(); }

  // After the header:
  HttpRequest& request() { return request_; }  // the body is whole when it is done
  bool http10() const { return http10_; }
  bool keep_alive() const { return basic_parser::keep_alive(); }
  bool body_missing() const { return !is_done(); }
  bool expects_continue() const { return expects_continue_; }

  // Refused, and why:
  int status() const { return status_; }
  std::string_view reason() const { return reason_; }

 private:
  using Error = boost::beast::error_code;
  using View = boost::beast::string_view;

  void on_request_impl(boost::beast::http::verb verb, View method, View target, int version,
                       Error& error) override;
  void on_response_impl(int, View, int, Error&) override {}
  void on_field_impl(boost::beast::http::field field, View name, View value, Error& error) override;
  void on_header_impl(Error& error) override;
  void on_body_init_impl(const boost::optional<std::uint64_t>& length, Error& error) override;
  std::size_t on_body_impl(View body, Error& error) override;
  void on_chunk_header_impl(std::uint64_t size, View extensions, Error& error) override;
  std::size_t on_chunk_body_impl(std::uint64_t remaining, View body, Error& error) override;
  void on_finish_impl(Error& error) override;

  void refuse(int status, std::string_view reason, Error& error);
  void explain(const Error& error);
  bool split_target(std::string_view target);

  /// Beast asserts that the head of the last chunk comes with at least 5 bytes ("0\r\n\r\n"): what may be its
  /// beginning waits for the rest.
  bool may_begin_last_chunk(std::string_view rest) {
    return is_header_done() && chunked() && chunk_left_ == 0 && rest.size() < 5 &&
           rest.find_first_not_of("0\r\n") == std::string_view::npos;
  }

  const ServerOptions& options_;
  HttpRequest request_;
  bool http10_ = false;
  bool header_reported_ = false;
  bool expects_continue_ = false;
  std::size_t header_bytes_ = 0;  // names and values, those of trailers and chunk extensions included
  std::size_t header_count_ = 0;
  std::uint64_t chunk_left_ = 0;  // bytes of the chunk that has begun
  int hosts_ = 0;
  int status_ = 0;
  std::string_view reason_;
};

}  // namespace asynct::http
