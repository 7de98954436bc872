// The history of a run: bounded, exact between the kept samples, and validated when read back.
#include "term/run_history.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace minisgl::term {
namespace {

RunSample Sample(double time_s, int64_t tokens, double running = 0) {
  RunSample sample;
  sample.time_s = time_s;
  sample.completion_tokens = tokens;
  sample.running = running;
  return sample;
}

TEST(RunHistoryTest, KeepsASampleEachInterval) {
  RunHistory history;
  for (int i = 1; i <= 1000; ++i) history.Add(Sample(i * 0.01, i));
  EXPECT_NEAR(static_cast<double>(history.samples().size()), 100, 10);
  EXPECT_GE(history.samples().front().time_s, RunHistory::kIntervalMin_s);
}

// A night of samples, ten a second: never too many, nothing lost, evenly spaced.
TEST(RunHistoryTest, HalvesItsResolutionWhenItIsFull) {
  RunHistory history;
  const int count = 10 * 3600 * 8;
  for (int i = 1; i <= count; ++i) {
    history.Add(Sample(i * 0.1, 7 * i, 5));
    ASSERT_LT(history.samples().size(), RunHistory::kSamplesMax);
  }
  history.End(Sample(count * 0.1 + 1, 7 * count + 70, 5));
  const std::vector<RunSample>& samples = history.samples();
  EXPECT_GE(samples.size(), RunHistory::kSamplesMax / 2 - 2);
  EXPECT_EQ(samples.back().completion_tokens, 7 * count + 70);
  double before = 0;
  for (const RunSample& sample : samples) {
    EXPECT_GT(sample.time_s, before);
    EXPECT_LT(sample.time_s - before, 2.1 * history.interval_s());
    EXPECT_NEAR(static_cast<double>(sample.completion_tokens), 70 * sample.time_s, 0.01);
    // Except the first sample, which has no predecessor.
    if (before > 0) {
      EXPECT_NEAR(sample.running, 5, 1e-9);
    }
    before = sample.time_s;
  }
}

TEST(RunHistoryTest, MeansSurviveHalving) {
  RunHistory history;
  double integral = 0, before = 0;
  for (int i = 1; i <= 3000; ++i) {
    const double running = (i * 37) % 100;
    history.Add(Sample(i * 0.1, i, running));
    integral += 0.1 * (before + running) / 2;
    before = running;
  }
  history.End(Sample(300.5, 3001, before));
  integral += 0.5 * before;
  double sum = 0, time_s = 0;
  for (const RunSample& sample : history.samples()) {
    sum += (sample.time_s - time_s) * sample.running;
    time_s = sample.time_s;
  }
  EXPECT_NEAR(sum, integral, 1e-6 * integral);
}

TEST(RunHistoryTest, AnEndRightAfterASampleIsMergedWithIt) {
  RunHistory history;
  history.Add(Sample(1, 10));
  history.End(Sample(1.0001, 12));
  ASSERT_EQ(history.samples().size(), 1u);
  EXPECT_EQ(history.samples()[0].completion_tokens, 12);
}

TEST(RunHistoryTest, ARunOfNoTimeHasNoSamples) {
  RunHistory history;
  history.End(Sample(0, 0));
  EXPECT_TRUE(history.samples().empty());
  const Result<TimeSeries> series = ParseTimeSeries(history.ToJson(), "f");
  ASSERT_TRUE(series.ok()) << series.status().message();
  EXPECT_TRUE(series->time_s.empty());
}

TEST(RunHistoryTest, RatesAndSharesAreOfTheTimeBetween) {
  RunHistory history;
  RunSample sample = Sample(2, 100);
  sample.prompt_tokens = 1000;
  sample.cached_tokens = 250;
  sample.steps = 10;
  sample.step_rows = 40;
  history.Add(sample);
  sample = Sample(4, 300);
  sample.prompt_tokens = 1000;  // no prompt tokens, so no hit rate
  sample.cached_tokens = 250;
  sample.steps = 14;
  sample.step_rows = 72;
  sample.preemptions = 3;
  history.End(sample);
  const Result<TimeSeries> series = ParseTimeSeries(history.ToJson(), "f");
  ASSERT_TRUE(series.ok()) << series.status().message();
  EXPECT_EQ(series->time_s, (std::vector<double>{2, 4}));
  EXPECT_EQ(series->completion_tokens_per_s, (std::vector<double>{50, 100}));
  EXPECT_EQ(series->prompt_tokens_per_s, (std::vector<double>{500, 0}));
  EXPECT_EQ(series->batch_size, (std::vector<double>{4, 8}));
  EXPECT_EQ(series->cache_hit_percent, (std::vector<double>{25, 0}));
  EXPECT_EQ(series->preemptions, (std::vector<double>{0, 3}));
}

// Times are written in milliseconds, so that the error of the last interval may be large.
TEST(RunHistoryTest, WrittenRatesTimesWrittenTimesAreTheCounts) {
  RunHistory history;
  history.Add(Sample(0.1004, 40));
  history.End(Sample(0.1118, 140));  // 11.4 ms, written as 12
  const Result<TimeSeries> series = ParseTimeSeries(history.ToJson(), "a");
  ASSERT_TRUE(series.ok());
  ASSERT_EQ(series->time_s.size(), 2u);
  EXPECT_NEAR(series->time_s[0] * series->completion_tokens_per_s[0], 40, 0.01);
  EXPECT_NEAR((series->time_s[1] - series->time_s[0]) * series->completion_tokens_per_s[1], 100,
              0.01);
}

TEST(RunHistoryTest, PagesInUseAreThoseOfRequests) {
  SchedulerStats stats;
  stats.pages_total = 100;
  stats.pages_free = 30;
  stats.pages_cached = 60;
  stats.pages_locked = 20;
  EXPECT_EQ(PagesInUse(stats), 30);  // 20 locked, and 10 that are not in the cache
}

// Returns a complete series with one member replaced by `text` ("" removes it).
Json Series(const std::string& name = "", const std::string& text = "") {
  Json json = Json(Json::Object());
  for (const TimeSeriesColumn& column : TimeSeriesColumns()) {
    json.Set(column.name, *ParseJson(std::string(column.name) == "time_s" ? "[1, 2]" : "[3, 4]"));
  }
  if (name.empty()) return json;
  if (!text.empty()) {
    json.Set(name, *ParseJson(text));
    return json;
  }
  std::erase_if(json.as_object(), [&](const Json::Member& member) { return member.first == name; });
  return json;
}

TEST(RunHistoryTest, AnUntrustedFileIsValidated) {
  ASSERT_TRUE(ParseTimeSeries(Series(), "f").ok());
  const struct {
    const char* name;
    const char* text;
    const char* expected;
  } cases[] = {
      {"batch_size", "", "f: time_series has no batch_size"},
      {"running", "7", "f: time_series.running must be an array (found an integer)"},
      {"running", "[1]", "f: time_series.running has 1 values, but time_s has 2"},
      {"waiting", "[1, \"two\"]", "f: time_series.waiting[1] must be a number"},
      {"waiting", "[1, null]", "f: time_series.waiting[1] must be a number"},
      {"waiting", "[-1, 1]", "f: time_series.waiting[0] must be a number"},
      {"waiting", "[1, 1e300]", "f: time_series.waiting[1] must be a number from 0 to 1e15"},
      {"time_s", "[2, 2]", "f: time_series.time_s[1] must be later"},
      {"time_s", "[2, 1]", "f: time_series.time_s[1] must be later"},
  };
  for (const auto& bad : cases) {
    const Result<TimeSeries> series = ParseTimeSeries(Series(bad.name, bad.text), "f");
    ASSERT_FALSE(series.ok()) << bad.expected;
    EXPECT_EQ(series.status().code(), StatusCode::kBadInput);
    EXPECT_TRUE(series.status().message().starts_with(bad.expected)) << series.status().message();
  }
  EXPECT_FALSE(ParseTimeSeries(Json(3), "f").ok());
  std::string many = "[0";
  for (int i = 1; i <= 100001; ++i) many += "," + std::to_string(i);
  EXPECT_FALSE(ParseTimeSeries(Series("time_s", many + "]"), "f").ok());
}

}  // namespace
}  // namespace minisgl::term
