#include "asynct/serve/load/response_parser.h"

#include <gtest/gtest.h>

#include "asynct/base/strings.h"

namespace asynct::load {
namespace {

using Result = ResponseParser::Result;

struct Parsed {
  Result result = Result::need_more;
  int status = 0;
  std::string body;
  bool keep_alive = false;
  bool event_stream = false;
};

/// The response, its bytes fed in pieces of `size`; `eof`: then the connection is closed.
Parsed parse(std::string_view text, std::size_t size, bool eof = false, const ResponseLimits& limits = {}) {
  ResponseParser parser(limits);
  Parsed parsed;
  while (!text.empty() && parsed.result == Result::need_more) {
    parsed.result = parser.feed(text.substr(0, size), parsed.body);
    text.remove_prefix(std::min(size, text.size()));
  }
  if (eof && parsed.result == Result::need_more) parsed.result = parser.end_of_input();
  parsed.status = parser.status();
  if (parsed.result == Result::done) {
    parsed.keep_alive = parser.keep_alive();
    parsed.event_stream = parser.is_event_stream();
  } else if (parsed.result == Result::malformed) {
    EXPECT_STRNE(parser.problem(), "");
  }
  return parsed;
}

struct Good {
  std::string text;
  int status;
  std::string body;
  bool keep_alive = true;
  bool event_stream = false;
  bool eof = false;
};

const Good kGood[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello"},
    {"HTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n", 200, ""},
    {"HTTP/1.1 200 \r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", 200, "ok", false},
    {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok", false},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n"
     "5\r\nhello\r\n1;ext=\"1\"\r\n \r\nA\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n",
     200, "hello 0123456789", true, true},
    {"HTTP/1.1 503 Service Unavailable\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n", 503, ""},
    {"HTTP/1.1 204 No Content\r\n\r\n", 204, ""},
    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
     "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
     200, "ok"},
    {"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end", 200, "until the end", false, false, true},
};

TEST(ResponseParser, EverySplitGivesTheSameResponse) {
  for (const Good& good : kGood)
    for (std::size_t size = 1; size <= good.text.size(); ++size) {
      const Parsed parsed = parse(good.text, size, good.eof);
      ASSERT_EQ(parsed.result, Result::done) << good.text << " by " << size;
      EXPECT_EQ(parsed.status, good.status) << good.text;
      EXPECT_EQ(parsed.body, good.body) << good.text << " by " << size;
      EXPECT_EQ(parsed.keep_alive, good.keep_alive) << good.text;
      EXPECT_EQ(parsed.event_stream, good.event_stream) << good.text;
    }
}

TEST(ResponseParser, EveryPrefixIsIncomplete) {
  for (const Good& good : kGood) {
    if (good.eof) continue;
    for (std::size_t size = 0; size < good.text.size(); ++size) {
      const std::string_view prefix = std::string_view(good.text).substr(0, size);
      EXPECT_EQ(parse(prefix, prefix.size() + 1).result, Result::need_more) << prefix;
      EXPECT_EQ(parse(prefix, prefix.size() + 1, true).result, Result::malformed) << prefix;
    }
  }
}

TEST(ResponseParser, RefusesWhatIsNoResponse) {
  const std::string_view kOk = "HTTP/1.1 200 OK\r\n";
  for (const std::string& text : {
           std::string("hello there\r\n\r\n"),
           std::string("SSH-2.0-OpenSSH_9.2\r\n\r\n"),
           std::string("HTTP/2 200 OK\r\n\r\n"),
           std::string("HTTP/1.1 20 OK\r\n\r\n"),
           std::string("HTTP/1.1 2000 OK\r\n\r\n"),
           std::string("HTTP/1.1 abc OK\r\n\r\n"),
           cat(kOk, "Content-Length: -1\r\n\r\n"),
           cat(kOk, "Content-Length: 1x\r\n\r\n"),
           cat(kOk, "Content-Length: 99999999999999999999\r\n\r\n"),
           cat(kOk, "Content-Length: 2\r\nContent-Length: 3\r\n\r\nok"),
           cat(kOk, "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
           cat(kOk, "Transfer-Encoding: gzip\r\n\r\n"),
           cat(kOk, "Transfer-Encoding: gzip, chunked\r\n\r\n"),
           cat(kOk, "no colon\r\n\r\n"),
           cat(kOk, "Bad Name: 1\r\n\r\n"),
           cat(kOk, "A: b\rc\r\n\r\n"),
           cat(kOk, "Transfer-Encoding: chunked\r\n\r\nxyz\r\n"),
           cat(kOk, "Transfer-Encoding: chunked\r\n\r\n-1\r\n0"),
           cat(kOk, "Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\n"),
           cat(kOk, "Transfer-Encoding: chunked\r\n\r\n2\r\nokX\r\n0\r\n\r\n"),
           cat(kOk, "Content-Length: 2\r\n\r\nok and more"),
           cat(kOk, "Content-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n"),
       }) {
    EXPECT_EQ(parse(text, text.size()).result, Result::malformed) << text;
    const Result bytewise = parse(text, 1, true).result;
    // What follows a response in a read of its own is the next response's matter.
    const bool extra =
        text.find("\r\n\r\nok") != std::string::npos && text.find("Length: 3") == std::string::npos;
    EXPECT_EQ(bytewise, extra ? Result::done : Result::malformed) << text;
  }
}

TEST(ResponseParser, EndlessPartsAreRefused) {
  const ResponseLimits limits{.header_bytes = 1000, .headers = 20, .body_bytes = 5000};
  const std::string_view kOk = "HTTP/1.1 200 OK\r\n";
  const std::string_view kChunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  std::string fields, few, many, chunks;
  for (int i = 0; i < 100; ++i) fields += "Name: " + std::string(50, 'x') + "\r\n";
  for (int i = 0; i < 15; ++i) few += "Name: " + std::string(100, 'x') + "\r\n";
  for (int i = 0; i < 30; ++i) many += "A: b\r\n";
  for (int i = 0; i < 100; ++i) chunks += "40\r\n" + std::string(64, 'x') + "\r\n";
  for (const std::string& text :
       {cat("HTTP/1.1 200 ", std::string(5000, 'x')), cat(kOk, "Name: ", std::string(5000, 'x')),
        cat(kOk, std::string(5000, 'x')), cat(kOk, fields), cat(kOk, few, "\r\n"),
        cat(kChunked, "0\r\n", few, "\r\n"), cat(kOk, many, "\r\n"), cat(kOk, "Content-Length: 5001\r\n\r\n"),
        cat(kOk, "\r\n", std::string(5001, 'x')), cat(kChunked, chunks),
        cat(kChunked, "1;", std::string(5000, 'x')), cat(kChunked, "0\r\n", fields)})
    for (const std::size_t size : {std::size_t{1}, std::size_t{100}, text.size()})
      EXPECT_EQ(parse(text, size, false, limits).result, Result::malformed)
          << text.substr(0, 60) << " by " << size;
}

TEST(ResponseParser, ManyChunksAreNotAHeader) {
  std::string text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 10000; ++i) text += "1;ext=123456\r\nx\r\n";
  text += "0\r\n\r\n";
  EXPECT_EQ(parse(text, 4096).result, Result::done);
  EXPECT_EQ(parse(text, 4096).body.size(), 10000U);
}

TEST(ResponseParser, ServesOneResponseAfterAnother) {
  ResponseParser parser;
  for (const char* const text : {"one", "two"}) {
    std::string body;
    EXPECT_EQ(parser.feed(cat("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", text), body), Result::done);
    EXPECT_EQ(body, text);
    parser.reset();
    EXPECT_FALSE(parser.has_header());
    EXPECT_EQ(parser.status(), 0);
  }
}

}  // namespace
}  // namespace asynct::load
