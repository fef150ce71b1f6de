#include "asynct/serve/page/page.h"

#include <gtest/gtest.h>

#include <string>

namespace asynct::serve {
namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Page, IsOneWholeDocument) {
  const std::string_view page = page_html();
  EXPECT_TRUE(page.starts_with("<!doctype html>\n<html lang=\"en\">"));
  EXPECT_TRUE(page.ends_with("</body>\n</html>\n"));
  EXPECT_FALSE(contains(page, "@STYLE@"));
  EXPECT_FALSE(contains(page, "@SCRIPT@"));
  EXPECT_FALSE(contains(page, std::string_view("\0", 1)));
  // What the joining may swallow: semicolons, backslashes, brackets, characters beyond ASCII.
  EXPECT_TRUE(contains(page, "color-scheme: light dark;\n"));
  EXPECT_TRUE(contains(page, R"(split(/\r?\n/))"));
  EXPECT_TRUE(contains(page, "[[1e9, \" G\"], [1e6, \" M\"]"));
  EXPECT_TRUE(contains(page, "\u00b5s"));
}

// The policy forbids these; here the page does not try.
TEST(Page, LoadsNothingAndParsesNoMarkup) {
  std::string page(page_html());
  constexpr std::string_view kNamespace = "\"http://www.w3.org/2000/svg\"";  // a name, never loaded
  const std::size_t at = page.find(kNamespace);
  ASSERT_NE(at, page.npos);
  page.erase(at, kNamespace.size());
  EXPECT_EQ(count(page, "<script"), 1U);
  EXPECT_EQ(count(page, "<style"), 1U);
  for (const std::string_view part :
       {"http:", "https:", "src=", "@import", "url(", "innerHTML", "outerHTML", "insertAdjacentHTML",
        "document.write", "eval(", "new Function", " style=\"", " onclick=", " onload=", "localStorage",
        "sessionStorage", "cookie"})
    EXPECT_FALSE(contains(page, part)) << part;
}

TEST(Page, PolicyNamesHashesAndNothingBroader) {
  const std::string_view policy = page_csp();
  EXPECT_TRUE(policy.starts_with("default-src 'none'; "));
  EXPECT_TRUE(contains(policy, "; connect-src 'self'; "));
  EXPECT_EQ(count(policy, "'sha256-"), 2U);
  // 32 bytes are 43 digits of base64 and a filler.
  for (const std::string_view directive : {"script-src 'sha256-", "style-src 'sha256-"}) {
    const std::size_t at = policy.find(directive);
    ASSERT_NE(at, policy.npos);
    EXPECT_EQ(policy.substr(at + directive.size() + 43, 3), "=';") << directive;
  }
  EXPECT_FALSE(contains(policy, "unsafe"));
  EXPECT_FALSE(contains(policy, "*"));
  for (const char c : policy) EXPECT_TRUE(c >= ' ' && c <= '~');
}

}  // namespace
}  // namespace asynct::serve
