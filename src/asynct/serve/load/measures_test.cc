#include "asynct/serve/load/measures.h"

#include <gtest/gtest.h>

#include "asynct/base/error.h"

namespace asynct::load {
namespace {

Record streamed(double first, double last, double end, std::int64_t tokens) {
  Record record;
  record.start = 10;
  record.first_token = 10 + first;
  record.last_token = 10 + last;
  record.end = 10 + end;
  record.output_tokens = tokens;
  return record;
}

TEST(Summary, InterpolatesBetweenRanks) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  const Summary s = summarize(values);  // numpy.percentile(range(1, 101), [50, 90, 99])
  EXPECT_EQ(s.count, 100U);
  EXPECT_DOUBLE_EQ(s.mean, 50.5);
  EXPECT_DOUBLE_EQ(s.p50, 50.5);
  EXPECT_DOUBLE_EQ(s.p90, 90.1);
  EXPECT_DOUBLE_EQ(s.p99, 99.01);
  EXPECT_DOUBLE_EQ(s.max, 100);
}

TEST(Summary, OfOneAndOfNone) {
  const Summary one = summarize({3});
  EXPECT_EQ(one.p50, 3);
  EXPECT_EQ(one.p99, 3);
  EXPECT_EQ(one.max, 3);
  EXPECT_EQ(summarize({}).count, 0U);
  EXPECT_EQ(summarize({}).max, 0);
}

TEST(Record, TimesOfStreams) {
  const Record record = streamed(0.5, 2.5, 3, 5);
  EXPECT_DOUBLE_EQ(*record.ttft(), 0.5);
  EXPECT_DOUBLE_EQ(*record.tpot(), 0.5);  // 2 s over the 4 tokens after the first
  EXPECT_DOUBLE_EQ(record.latency(), 3);
  EXPECT_FALSE(streamed(0.5, 0.5, 3, 1).tpot());
}

TEST(Record, WithoutAStreamHasNoTokenTimes) {
  Record record = streamed(0.5, 2.5, 3, 5);
  record.streamed = false;
  EXPECT_FALSE(record.ttft());
  EXPECT_FALSE(record.tpot());
}

TEST(Goodput, KeepsAllLimits) {
  const Goodput limits = Goodput::parse("ttft:500,tpot:250,e2el:3000", "--goodput");
  EXPECT_TRUE(limits.any());
  EXPECT_TRUE(limits.good(streamed(0.5, 1.5, 3, 5)));  // each is at its limit
  EXPECT_FALSE(limits.good(streamed(0.6, 1.5, 3, 5)));
  EXPECT_FALSE(limits.good(streamed(0.5, 1.75, 3, 5)));
  EXPECT_FALSE(limits.good(streamed(0.5, 1.5, 3.25, 5)));
  EXPECT_TRUE(limits.good(streamed(0.5, 0.5, 3, 1)));  // no token after the first
}

TEST(Goodput, NeedsACompletedRequestWithTheMeasure) {
  const Goodput limits = Goodput::parse("ttft:1e6", "--goodput");
  Record record = streamed(0.5, 1.5, 3, 5);
  EXPECT_TRUE(limits.good(record));
  record.failure = Failure::timeout;
  EXPECT_FALSE(limits.good(record));
  record.failure = Failure::none;
  record.streamed = false;
  EXPECT_FALSE(limits.good(record));
}

TEST(Goodput, RefusesWhatIsNone) {
  EXPECT_FALSE(Goodput::parse("", "--goodput").any());
  for (const char* const text : {"ttft", "ttft:", "ttft:a", "ttft:-1", "ttft:nan", "ttft:1,ttft:2", "itl:3",
                                 ":1", ",", "ttft:1,,tpot:1", "ttft=1"})
    EXPECT_THROW(Goodput::parse(text, "--goodput"), Error) << text;
}

TEST(Failures, CancelledIsNone) {
  Record record;
  EXPECT_TRUE(record.completed());
  record.failure = Failure::cancelled;
  EXPECT_FALSE(record.completed());
  EXPECT_FALSE(record.failed());
  record.failure = Failure::refused;
  EXPECT_TRUE(record.failed());
}

}  // namespace
}  // namespace asynct::load
