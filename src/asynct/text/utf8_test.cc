#include "asynct/text/utf8.h"

#include <gtest/gtest.h>

#include "asynct/text/stop_matcher.h"

namespace asynct {
namespace {

std::string repaired(std::string_view text) {
  std::string out;
  append_valid_utf8(out, text);
  return out;
}

const std::string kBad = "\xEF\xBF\xBD";

TEST(Utf8, ReplacesOneMaximalSubpartAtATime) {
  EXPECT_EQ(repaired("plain text, longer than eight"), "plain text, longer than eight");
  EXPECT_EQ(repaired("caf\xC3\xA9"), "caf\xC3\xA9");
  EXPECT_EQ(repaired("a\xFFz"), "a" + kBad + "z");
  EXPECT_EQ(repaired("\xE2\x82"), kBad);                    // cut
  EXPECT_EQ(repaired("\xE2\x82z"), kBad + "z");             // cut by another character
  EXPECT_EQ(repaired("\xED\xA0\x80"), kBad + kBad + kBad);  // a surrogate
  EXPECT_EQ(repaired("\xC0\xAF"), kBad + kBad);             // overlong
  EXPECT_EQ(repaired("\xF4\x90\x80\x80"), kBad + kBad + kBad + kBad);
  EXPECT_EQ(repaired("\xF0\x9F\x98\xF0\x9F\x98\x80"), kBad + "\xF0\x9F\x98\x80");
}

TEST(Utf8, EveryCodePointSurvives) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    std::string text;
    append_utf8(text, c);
    const bool surrogate = c >= 0xD800 && c < 0xE000;
    ASSERT_EQ(is_valid_utf8(text), !surrogate) << std::hex << static_cast<unsigned>(c);
    if (surrogate) continue;
    ASSERT_EQ(decode_utf8(text).value, c);
    ASSERT_EQ(decode_valid_utf8(text.data()).value, c);
    ASSERT_EQ(complete_utf8_prefix(text), text.size());
    for (std::size_t cut = 1; cut < text.size(); ++cut)
      ASSERT_EQ(complete_utf8_prefix(text.substr(0, cut)), 0u);
  }
}

TEST(Utf8, CompletePrefixKeepsOnlyWhatCanStillBecomeACharacter) {
  EXPECT_EQ(complete_utf8_prefix("ab\xE2\x82"), 2u);
  EXPECT_EQ(complete_utf8_prefix("ab\xF0\x9F\x98"), 2u);
  EXPECT_EQ(complete_utf8_prefix("ab\xC3"), 2u);
  EXPECT_EQ(complete_utf8_prefix("ab\x80\x80"), 4u);  // no lead byte before them
  EXPECT_EQ(complete_utf8_prefix("ab\xED\xA0"), 4u);  // a surrogate can become nothing
  EXPECT_EQ(complete_utf8_prefix("ab\xFF"), 3u);
  EXPECT_EQ(complete_utf8_prefix(""), 0u);
}

TEST(StopMatcher, HoldsBackWhatMayBecomeAStop) {
  StopMatcher matcher({"Question:", "</s>"});
  EXPECT_EQ(matcher.push("The answer is 4.\n\nQue"), "The answer is 4.\n\n");
  EXPECT_FALSE(matcher.stopped());
  EXPECT_EQ(matcher.push("en"), "Queen");
  EXPECT_EQ(matcher.push(" Quest"), " ");
  EXPECT_EQ(matcher.push("ion: more"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.stop_index(), 0);
  EXPECT_EQ(matcher.push("after"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, CutsAtTheFirstByPosition) {
  StopMatcher matcher({"b", "abc", ""});
  EXPECT_EQ(matcher.push("xxabc"), "xx");
  EXPECT_EQ(matcher.stop_index(), 1);
}

TEST(StopMatcher, GivesTheHeldTextAtTheEnd) {
  StopMatcher matcher({"\n\n"});
  EXPECT_EQ(matcher.push("line\n"), "line");
  EXPECT_EQ(matcher.finish(), "\n");
  StopMatcher none({});
  EXPECT_EQ(none.push("anything"), "anything");
}

}  // namespace
}  // namespace asynct
