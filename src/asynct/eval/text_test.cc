// Python's string methods, its random numbers, SHA-256 and the answer filters.

#include <gtest/gtest.h>

#include <cmath>

#include "asynct/eval/filters.h"
#include "asynct/eval/python_random.h"
#include "asynct/eval/sha256.h"
#include "asynct/text/python_string.h"
#include "asynct/text/python_values.h"

namespace asynct {
namespace {

TEST(PythonText, StripsUnicodeWhiteSpace) {
  EXPECT_EQ(python::strip(" \t\n\u00a0\u3000a b\u2003\x1f\r"), "a b");
  EXPECT_EQ(python::strip("a\u200b \u2029", python::Side::kRight), "a\u200b");  // U+200B is no white space
  EXPECT_EQ(python::strip("\u3000 "), "");
}

TEST(PythonText, CountsCharactersAndParts) {
  EXPECT_EQ(python::length("na\u00efve \U0001F600"), 7);
  EXPECT_EQ(python::split_count(" a  b\u00a0c "), 5);  // ['', 'a', 'b', 'c', '']
  EXPECT_EQ(python::split_count(""), 1);
}

TEST(PythonText, ReplaceGoesLeftToRightOnce) {
  EXPECT_EQ(python::replace("a    b", "  ", " "), "a  b");
  EXPECT_EQ(python::replace("aaa", "aa", "b"), "ba");
}

TEST(PythonText, CapitalizeLowersTheRest) {
  EXPECT_EQ(python::capitalize("the USA"), "The usa");
  EXPECT_EQ(python::capitalize("\u00e9TAT \u00c9"), "\u00c9tat \u00e9");
  EXPECT_EQ(python::capitalize(""), "");
  EXPECT_EQ(python::capitalize("\u00dfA"), "Ssa");
}

TEST(PythonText, TakesWhatIsNoText) {
  EXPECT_EQ(python::strip(" \xff\xe2\x82 "), "\xff\xe2\x82");
  EXPECT_EQ(python::strip("\xe2\x82"), "\xe2\x82");
  EXPECT_EQ(python::split_count("\xf0 \xf0\x9f"), 2);
  EXPECT_EQ(python::capitalize("\xff"), "\xef\xbf\xbd");
}

TEST(PythonText, ReprIsPythons) {
  EXPECT_EQ(python::repr(-38.25), "-38.25");
  EXPECT_EQ(python::repr(5), "5.0");
  EXPECT_EQ(python::repr(-0.0), "-0.0");
  EXPECT_EQ(python::repr(0.0001), "0.0001");
  EXPECT_EQ(python::repr(0.00001), "1e-05");
  EXPECT_EQ(python::repr(1234567890123456.0), "1234567890123456.0");
  EXPECT_EQ(python::repr(1e16), "1e+16");
  EXPECT_EQ(python::repr(-12.345678329467773), "-12.345678329467773");
  EXPECT_EQ(python::repr(std::nan("")), "nan");
}

TEST(PythonRandom, DrawsTheWordsOfSeed1234) {
  PythonRandom random(1234);
  for (const std::uint32_t word : {4150886329u, 3342196574u, 1892932127u, 501869158u})
    EXPECT_EQ(random.next_word(), word);
}

TEST(PythonRandom, SamplesAsPythonDoes) {
  PythonRandom random(1234);  // a set for large populations
  EXPECT_EQ(random.sample(7473, 5), (std::vector<std::size_t>{6374, 3610, 957, 61, 742}));
  EXPECT_EQ(random.sample(7473, 5), (std::vector<std::size_t>{7462, 6610, 4769, 286, 5501}));
  PythonRandom small(1234);  // a list of the rest for small ones: random.Random(1234).sample(range(20), 6)
  EXPECT_EQ(small.sample(20, 6), (std::vector<std::size_t>{14, 3, 0, 2, 1, 10}));
}

TEST(PythonRandom, RandomIsPythons) {
  PythonRandom random(0);  // random.Random(0).random()
  EXPECT_EQ(random.random(), 0.8444218515250481);
  EXPECT_EQ(random.random(), 0.7579544029403025);
}

TEST(Sha256, KnownDigests) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesOfAnySizeGiveTheSame) {
  const std::string text = [] {
    std::string all;
    for (int i = 0; i < 300; ++i) all += static_cast<char>(i * 7);
    return all;
  }();
  for (std::size_t length = 0; length < 300; ++length) {
    Sha256 hash;
    for (std::size_t at = 0; at < length; at += 37)
      hash.update(std::string_view(text).substr(at, std::min<std::size_t>(37, length - at)));
    EXPECT_EQ(hash.hex(), sha256_hex(std::string_view(text).substr(0, length))) << length;
  }
}

TEST(Filters, HashAnswerTakesTheFirst) {
  EXPECT_EQ(filter_hash_answer("a #### 12\n#### 13"), "12");
  EXPECT_EQ(filter_hash_answer("##### -1,234.5."), "-1,234.5.");
  EXPECT_EQ(filter_hash_answer("#### $5 #### x #### 7"), "7");
  EXPECT_EQ(filter_hash_answer("#### --5"), "[invalid]");
  EXPECT_EQ(filter_hash_answer("####5"), "[invalid]");
  EXPECT_EQ(filter_hash_answer(""), "[invalid]");
}

TEST(Filters, TheAnswerIsWantsOneMoreCharacter) {
  EXPECT_EQ(filter_the_answer_is("The answer is 8."), "8");  // the final dot is the one more character
  EXPECT_EQ(filter_the_answer_is("The answer is 15"), "1");
  EXPECT_EQ(filter_the_answer_is("The answer is 5"), "[invalid]");
  EXPECT_EQ(filter_the_answer_is("The answer is 5\n"), "[invalid]");
  EXPECT_EQ(filter_the_answer_is("The answer is -1,250 dollars. The answer is 3."), "-1,250");
  EXPECT_EQ(filter_the_answer_is("The answer is $5. The answer is 7\u00e9"), "7");
}

TEST(Filters, LastNumber) {
  EXPECT_EQ(filter_last_number("so $18.00. Done 7"), "7");
  EXPECT_EQ(filter_last_number("it is $18.00."), "$18.00.");
  EXPECT_EQ(filter_last_number("10 apples..."), "...");
  EXPECT_EQ(filter_last_number("a-5"), "-5");
  EXPECT_EQ(filter_last_number("5-3"), "-3");
  EXPECT_EQ(filter_last_number("x . y"), "[invalid]");
  EXPECT_EQ(filter_last_number("3 -"), "3");
  EXPECT_EQ(filter_last_number("-$,"), "-$,");
}

TEST(ExactMatch, CleansBothSides) {
  EXPECT_TRUE(exact_match("1,234.", "x #### y\n#### 1234"));
  EXPECT_FALSE(exact_match("$18.00.", "#### 18"));
  EXPECT_TRUE(exact_match("$18.", "#### 18"));
  EXPECT_FALSE(exact_match("...", "10"));
  EXPECT_FALSE(exact_match("[invalid]", "#### 5"));
  EXPECT_EQ(normalize_answer("5.\n"), "5\n");
  EXPECT_EQ(normalize_answer("..."), "..");
  EXPECT_EQ(normalize_answer("ABC"), "abc");
}

}  // namespace
}  // namespace asynct
