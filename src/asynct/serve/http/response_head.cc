#include "asynct/serve/http/response_head.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "asynct/base/strings.h"

namespace asynct::http {
namespace {

// RFC 9110, 5.6.2.
bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

// "Sun, 06 Nov 1994 08:49:37 GMT", made once a second and thread. strftime would follow the locale.
std::string_view http_date() {
  thread_local std::time_t made_at = -1;
  thread_local std::string text;
  const std::time_t now = std::time(nullptr);
  if (now == made_at) return text;
  constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                  "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const auto two = [](int n) { return cat(n < 10 ? "0" : "", n); };
  std::tm t{};
  ::gmtime_r(&now, &t);
  text = cat(kDays[static_cast<std::size_t>(t.tm_wday)], ", ", two(t.tm_mday), ' ',
             kMonths[static_cast<std::size_t>(t.tm_mon)], ' ', t.tm_year + 1900, ' ', two(t.tm_hour), ':',
             two(t.tm_min), ':', two(t.tm_sec), " GMT");
  made_at = now;
  return text;
}

}  // namespace

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Status";
  }
}

void append_header(std::string& out, std::string_view name, std::string_view value) {
  if (!is_token(name)) return;
  out += name;
  out += ": ";
  const std::size_t begin = out.size();
  out += value;
  std::replace_if(
      out.begin() + static_cast<std::ptrdiff_t>(begin), out.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  out += "\r\n";
}

std::string format_head(const ResponseHead& head, std::string_view common, const Headers& headers) {
  std::string out =
      cat("HTTP/1.1 ", head.status, ' ', reason_phrase(head.status), "\r\nDate: ", http_date(), "\r\n");
  if (!head.content_type.empty()) append_header(out, "Content-Type", head.content_type);
  if (head.content_length) out += cat("Content-Length: ", *head.content_length, "\r\n");
  if (head.chunked) out += "Transfer-Encoding: chunked\r\n";
  if (!head.keep_alive) out += "Connection: close\r\n";
  if (head.keep_alive && head.http10) out += "Connection: keep-alive\r\n";
  out += common;
  for (const auto& [name, value] : headers) append_header(out, name, value);
  out += "\r\n";
  return out;
}

}  // namespace asynct::http
