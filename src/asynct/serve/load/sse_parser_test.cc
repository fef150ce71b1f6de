#include "asynct/serve/load/sse_parser.h"

#include <gtest/gtest.h>

#include <vector>

namespace asynct::load {
namespace {

using Events = std::vector<std::string>;

/// The events, with the text cut into pieces of `size` bytes.
Events parse(std::string_view text, std::size_t size, bool& boundary) {
  SseParser parser;
  Events events;
  while (!text.empty()) {
    EXPECT_TRUE(parser.feed(text.substr(0, size), [&](std::string_view data) { events.emplace_back(data); }));
    text.remove_prefix(std::min(size, text.size()));
  }
  boundary = parser.at_boundary();
  return events;
}

struct Case {
  const char* text;
  Events events;
  bool boundary = true;
};

const Case kCases[] = {
    {"data: a\n\ndata: b\n\n", {"a", "b"}},
    {"data: a\r\n\r\ndata: b\r\r", {"a", "b"}},
    {"data:a\ndata: b\n\n", {"a\nb"}},
    {"data:a\r\ndata: b\r\n\r\n", {"a\nb"}},
    {"data:  two spaces\n\n", {" two spaces"}},
    {": ping\n\ndata: a\n: ping\n\n", {"a"}},
    {"event: error\nid: 3\nretry: 10\ndata: {\"a\": \"b: c\"}\n\n", {"{\"a\": \"b: c\"}"}},
    {"\xEF\xBB\xBF"
     "data: a\n\n",
     {"a"}},
    {"data\n\n", {""}},
    {"data:\ndata:\n\n", {"\n"}},
    {"datax: a\n\n data: b\n\n", {}},
    {"\n\n\r\n\r\r", {}},
    {"data: a\n", {}, false},
    {"data: a", {}, false},
    {"data: a\n\nda", {"a"}, false},
    {"data: \xF0\x9F\x98\x80\n\n", {"\xF0\x9F\x98\x80"}},
};

TEST(SseParser, EverySplitGivesTheSameEvents) {
  for (const Case& c : kCases)
    for (std::size_t size = 1; size <= std::string_view(c.text).size(); ++size) {
      bool boundary = false;
      EXPECT_EQ(parse(c.text, size, boundary), c.events) << c.text << " by " << size;
      EXPECT_EQ(boundary, c.boundary) << c.text << " by " << size;
    }
}

TEST(SseParser, NulBytesAreData) {
  using namespace std::string_view_literals;
  bool boundary = false;
  EXPECT_EQ(parse("data: a\0b\n\n"sv, 3, boundary), Events{std::string("a\0b", 3)});
}

TEST(SseParser, RefusesLongLinesAndEvents) {
  int events = 0;
  const auto count = [&](std::string_view) { ++events; };
  SseParser line(10);
  EXPECT_TRUE(line.feed("data: 1234", count));  // 10 bytes
  EXPECT_FALSE(line.feed("5", count));
  EXPECT_FALSE(line.feed("\n\n", count));  // and for good

  SseParser sum(20);
  EXPECT_TRUE(sum.feed("data: 123456789\n", count));
  EXPECT_TRUE(sum.feed("data: 123456789\n", count));
  EXPECT_FALSE(sum.feed("data: 1\n\n", count));
  EXPECT_EQ(events, 0);
}

TEST(SseParser, ALongLineOfAnotherFieldCountsToo) {
  SseParser parser(100);
  bool ok = true;
  for (int i = 0; i < 200 && ok; ++i) ok = parser.feed("x", [](std::string_view) {});
  EXPECT_FALSE(ok);
}

}  // namespace
}  // namespace asynct::load
