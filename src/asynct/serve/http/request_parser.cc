#include "asynct/serve/http/request_parser.h"

#include <algorithm>

#include "asynct/serve/http/request_checks.h"

namespace asynct::http {
namespace beast_http = boost::beast::http;

namespace {
constexpr std::size_t kLongestMethod = 32;     // of the registered ones the longest has 17
constexpr std::size_t kRequestLineRest = 128;  // all but the target
}  // namespace

RequestParser::RequestParser(const ServerOptions& options) : options_(options) {
  header_limit(static_cast<std::uint32_t>(std::max(options.max_header_bytes, options.max_target_bytes) +
                                          kRequestLineRest));
  body_limit(options.max_body_bytes);
}

RequestParser::Result RequestParser::feed(std::string_view input, std::size_t& used) {
  used = 0;
  // RFC 9112, 2.2: empty lines before a request are skipped.
  while (!got_some() && input.substr(used).starts_with("\r\n")) used += 2;
  while (true) {
    if (is_header_done() && !header_reported_) {
      header_reported_ = true;
      return Result::header;
    }
    if (is_done()) return Result::done;
    if (used == input.size() || may_begin_last_chunk(input.substr(used))) return Result::need_more;
    Error error;
    used += put(boost::asio::buffer(input.data() + used, input.size() - used), error);
    if (error == beast_http::error::need_more) {
      // What waits is a piece of the request line, of the header, of a chunk's header or of the trailers.
      const std::size_t most =
          request_.method.empty() ? options_.max_target_bytes + kRequestLineRest : options_.max_header_bytes;
      if (input.size() - used <= most) return Result::need_more;
      error = beast_http::error::header_limit;
    }
    if (error) {
      explain(error);
      return Result::refused;
    }
  }
}

void RequestParser::refuse(int status, std::string_view reason, Error& error) {
  status_ = status;
  reason_ = reason;
  error = beast_http::error::bad_field;
}

void RequestParser::explain(const Error& error) {
  if (status_ != 0) return;
  status_ = 400;
  reason_ = "The request is not valid HTTP/1.1.";
  if (error == beast_http::error::body_limit) {
    status_ = 413;
    reason_ = "The request's body is too large.";
  } else if (error == beast_http::error::header_limit) {
    status_ = request_.method.empty() ? 414 : 431;
    reason_ =
        request_.method.empty() ? "The request's URL is too long." : "The request's header is too large.";
  }
}

void RequestParser::on_request_impl(beast_http::verb /*verb*/, View method, View target, int version,
                                    Error& error) {
  http10_ = version == 10;
  request_.method.assign(method.substr(0, kLongestMethod));
  if (target.size() > options_.max_target_bytes) return refuse(414, "The request's URL is too long.", error);
  if (method.size() > request_.method.size() || !split_target({target.data(), target.size()}))
    return refuse(400, "The request line is not valid.", error);
}

bool RequestParser::split_target(std::string_view target) {
  // Absolute form, as a proxy sends it: the authority is Host's matter.
  constexpr std::string_view kScheme = "http://";
  if (equal_ignoring_case(target.substr(0, kScheme.size()), kScheme)) {
    target.remove_prefix(kScheme.size());
    target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
    if (!target.starts_with('/')) request_.path.push_back('/');
  } else if (!target.starts_with('/') && target != "*") {
    return false;
  }
  const std::size_t question = std::min(target.find('?'), target.size());
  request_.path += target.substr(0, question);
  if (question < target.size()) request_.query = target.substr(question + 1);
  return true;
}

void RequestParser::on_field_impl(beast_http::field field, View name, View value, Error& error) {
  header_bytes_ += name.size() + value.size() + 4;
  if (++header_count_ > options_.max_headers || header_bytes_ > options_.max_header_bytes)
    return refuse(431, "The request's header is too large.", error);
  if (header_reported_) return;  // a trailer: nothing may be decided by it
  if (field == beast_http::field::transfer_encoding &&
      !equal_ignoring_case({value.data(), value.size()}, "chunked"))
    return refuse(501, "The only transfer coding supported is chunked.", error);
  if (field == beast_http::field::content_length && value.find(',') != View::npos)
    return refuse(400, "More than one length in Content-Length.", error);
  if (field == beast_http::field::host && ++hosts_ > 1)
    return refuse(400, "More than one Host header.", error);
  if (field == beast_http::field::expect) {
    if (!equal_ignoring_case({value.data(), value.size()}, "100-continue"))
      return refuse(417, "The only expectation supported is 100-continue.", error);
    expects_continue_ = !http10_;
  }
  request_.headers.emplace_back(lower_case({name.data(), name.size()}), std::string(value));
}

void RequestParser::on_header_impl(Error& error) {
  if (hosts_ == 0 && !http10_) return refuse(400, "The Host header is missing.", error);
  // Chunks are not part of HTTP/1.0; somebody in between may have read the body differently.
  if (http10_ && chunked()) return refuse(400, "A chunked body needs HTTP/1.1.", error);
}

// Nothing is reserved for a length that was only announced.
void RequestParser::on_body_init_impl(const boost::optional<std::uint64_t>& /*length*/, Error& error) {
  error = {};
}

std::size_t RequestParser::on_body_impl(View body, Error& error) {
  error = {};
  request_.body.append(body.data(), body.size());
  return body.size();
}

void RequestParser::on_chunk_header_impl(std::uint64_t size, View extensions, Error& error) {
  error = {};
  chunk_left_ = size;
  header_bytes_ += extensions.size();
  if (header_bytes_ > options_.max_header_bytes)
    refuse(431, "The request's chunk extensions are too large.", error);
}

std::size_t RequestParser::on_chunk_body_impl(std::uint64_t /*remaining*/, View body, Error& error) {
  chunk_left_ -= body.size();
  return on_body_impl(body, error);
}

void RequestParser::on_finish_impl(Error& error) { error = {}; }

}  // namespace asynct::http
