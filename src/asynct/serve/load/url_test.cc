#include "asynct/serve/load/url.h"

#include <gtest/gtest.h>

#include "asynct/base/error.h"

namespace asynct::load {
namespace {

TEST(Url, HasHostPortAndBase) {
  const Url plain = parse_url("http://localhost:8000");
  EXPECT_EQ(plain.host, "localhost");
  EXPECT_EQ(plain.port, 8000);
  EXPECT_EQ(plain.base, "");
  EXPECT_EQ(plain.authority, "localhost:8000");

  const Url based = parse_url("http://example.org/models/a/v1/");
  EXPECT_EQ(based.port, 80);
  EXPECT_EQ(based.base, "/models/a");

  const Url six = parse_url("http://[::1]:9/v1");
  EXPECT_EQ(six.host, "::1");
  EXPECT_EQ(six.port, 9);
  EXPECT_EQ(six.base, "");
  EXPECT_EQ(six.authority, "[::1]:9");
  EXPECT_EQ(parse_url("http://[::1]").port, 80);
}

TEST(Url, RefusesWhatIsNone) {
  for (const char* const text : {"",
                                 "localhost:8000",
                                 "https://localhost",
                                 "ftp://a",
                                 "http://",
                                 "http:///v1",
                                 "http://:80",
                                 "http://a:",
                                 "http://a:0",
                                 "http://a:65536",
                                 "http://a:8x",
                                 "http://a:1:2",
                                 "http://[::1",
                                 "http://[]",
                                 "http://[::1]9",
                                 "http://a b",
                                 "http://a\r\nX: y",
                                 "http://a/?q",
                                 "http://a#f",
                                 "http://user@a",
                                 "http://\xC3\xA4"})
    EXPECT_THROW(parse_url(text), Error) << text;
}

}  // namespace
}  // namespace asynct::load
