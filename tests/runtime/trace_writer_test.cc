// The trace: JSON in the Chrome trace event format, with the figures that the scheduler counted.
#include "runtime/trace_writer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "minisgl/base/json.h"
#include "runtime/runtime_fixture.h"

namespace minisgl::runtime {
namespace {

struct Trace {
  std::string text;
  std::vector<Json> events;

  void Parse() {
    const auto json = ParseJson(text);
    ASSERT_TRUE(json.ok()) << json.status().message();
    ASSERT_NE(json->Find("traceEvents"), nullptr);
    events = json->Find("traceEvents")->as_array();
  }
  std::vector<Json> Named(const std::string& name) const {
    std::vector<Json> found;
    for (const Json& event : events) {
      if (event.Find("name")->as_string() == name) found.push_back(event);
    }
    return found;
  }
  // Returns the spans of one track, in order.
  std::vector<Json> Spans(const std::string& track) const {
    int64_t tid = 0;
    for (const Json& event : Named("thread_name")) {
      if (event.Find("args")->Find("name")->as_string() == track) tid = event.Find("tid")->as_int();
    }
    std::vector<Json> found;
    for (const Json& event : events) {
      if (event.Find("ph")->as_string() == "X" && event.Find("tid")->as_int() == tid) {
        found.push_back(event);
      }
    }
    return found;
  }
};

int64_t Arg(const Json& event, const char* name) {
  return event.Find("args")->Find(name)->as_int();
}

int64_t SumOf(const std::vector<Json>& events, const char* arg) {
  int64_t sum = 0;
  for (const Json& event : events) sum += Arg(event, arg);
  return sum;
}

RuntimeOptions Traced(Trace* trace) {
  RuntimeOptions options;
  options.trace_sink = [trace](std::string_view piece) { trace->text += piece; };
  return options;
}

TEST(TraceWriterTest, TellsOfStepsRequestsAndPages) {
  Trace trace;
  LoopDriver driver(Traced(&trace));
  driver.Submit(MakePrompt(1, 10, 30));
  driver.Turns(3);
  const RequestId late = driver.Submit(MakePrompt(20, 12, 100), 0.2);
  driver.RunToRest();
  driver.loop.FinishTrace();
  trace.Parse();
  const SchedulerStats stats = driver.loop.scheduler().Stats();

  EXPECT_EQ(trace.Named("process_name").size(), 1u);
  const std::vector<Json> steps = trace.Spans("engine");
  EXPECT_EQ(static_cast<int64_t>(steps.size()), stats.steps);
  EXPECT_EQ(trace.Named("prefill").size(), 2u);
  EXPECT_EQ(SumOf(trace.Named("prefill"), "tokens"), 10 + 12);
  EXPECT_EQ(trace.Named("prefill").size() + trace.Named("decode").size(), steps.size());
  EXPECT_EQ(SumOf(trace.Named("decode"), "rows"), SumOf(trace.Named("decode"), "tokens"));
  EXPECT_EQ(SumOf(steps, "drafts"), 0);
  EXPECT_EQ(trace.Named("plan").size(), steps.size());
  EXPECT_EQ(trace.Named("wait").size(), steps.size());
  EXPECT_EQ(trace.Named("collect").size(), steps.size());

  EXPECT_EQ(trace.Named("queued").size(), 2u);
  EXPECT_EQ(SumOf(trace.Named("queued"), "prompt_tokens"), 10 + 12);
  EXPECT_EQ(trace.Named("scheduled").size(), 2u);
  const std::vector<Json> ends = trace.Named("ended");
  ASSERT_EQ(ends.size(), 2u);
  for (const Json& end : ends) {
    const bool timed_out = Arg(end, "request") == static_cast<int64_t>(late);
    EXPECT_EQ(end.Find("args")->Find("reason")->as_string(), timed_out ? "timeout" : "length");
    EXPECT_EQ(Arg(end, "tokens"),
              static_cast<int64_t>(driver.Told()[timed_out ? late : 1].ids.size()));
  }
  EXPECT_EQ(SumOf(trace.Named("pages stored"), "pages"), stats.pages_cached);

  const std::vector<Json> pages = trace.Named("pages");
  ASSERT_EQ(pages.size(), steps.size());
  EXPECT_EQ(pages[0].Find("ph")->as_string(), "C");
  EXPECT_EQ(Arg(pages[0], "used"), 3) << "two whole pages in the cache, locked, and one beside";
  EXPECT_EQ(Arg(pages[0], "cached"), 2);
  EXPECT_EQ(Arg(pages.back(), "used"), 0);
  EXPECT_EQ(Arg(pages.back(), "cached"), stats.pages_cached);
  EXPECT_EQ(Arg(trace.Named("requests")[0], "running"), 1);
}

TEST(TraceWriterTest, KernelsOfTheDeviceHaveATrack) {
  for (const bool profiles : {false, true}) {
    Trace trace;
    RuntimeOptions options = Traced(&trace);
    if (profiles) options.kernel_profile = std::make_shared<KernelProfile>();
    LoopDriver driver(options);
    int launches = 0;
    if (profiles) {
      options.kernel_profile->KeepSpans();
      const auto begin = KernelProfile::Time() + std::chrono::hours(1);
      driver.engine.before_launch = [&launches, begin, profile = options.kernel_profile] {
        const auto at = begin + std::chrono::microseconds(20 * launches++);
        profile->Add("norm", at, at + std::chrono::microseconds(7));
      };
    }
    driver.Submit(MakePrompt(1, 10, 5));
    driver.RunToRest();
    if (profiles) {
      const auto late = KernelProfile::Time() + std::chrono::hours(2);
      options.kernel_profile->Add("last", late, late + std::chrono::microseconds(1));
    }
    driver.loop.FinishTrace();
    trace.Parse();
    EXPECT_EQ(trace.Named("thread_name").size(), profiles ? 3u : 2u);
    if (!profiles) continue;
    EXPECT_GT(launches, 2);
    const std::vector<Json> spans = trace.Spans("device");
    ASSERT_EQ(static_cast<int>(spans.size()), launches + 1);
    EXPECT_EQ(spans[0].Find("name")->as_string(), "norm");
    EXPECT_NEAR(spans[0].Find("dur")->as_double(), 7, 1e-6);
    EXPECT_EQ(spans.back().Find("name")->as_string(), "last");
  }
}

TEST(TraceWriterTest, KernelsOfEachRankHaveATrack) {
  Trace trace;
  RuntimeOptions options = Traced(&trace);
  options.kernel_profile = std::make_shared<KernelProfile>(2);
  options.kernel_profile->KeepSpans();
  LoopDriver driver(options);
  const auto begin = KernelProfile::Time() + std::chrono::hours(1);
  for (const int32_t rank : {1, 0, 1}) {
    options.kernel_profile->Add("norm", begin, begin + std::chrono::microseconds(7), rank);
  }
  driver.Submit(MakePrompt(1, 10, 2));
  driver.RunToRest();
  driver.loop.FinishTrace();
  trace.Parse();
  EXPECT_EQ(trace.Spans("device of rank 0").size(), 1u);
  EXPECT_EQ(trace.Spans("device of rank 1").size(), 2u);
}

// Perfetto shows overlapping spans of one track as if one had called the other.
TEST(TraceWriterTest, SpansOfATrackFollowOneAnother) {
  for (const bool overlap : {false, true}) {
    Trace trace;
    RuntimeOptions options = Traced(&trace);
    options.overlap = overlap;
    LoopDriver driver(options);
    driver.engine.before_launch = [&driver] { driver.Advance(0.0012345); };
    for (TokenId first = 0; first < 5; ++first) driver.Submit(MakePrompt(first, 10, 20));
    driver.RunToRest();
    driver.loop.FinishTrace();
    trace.Parse();
    for (const char* track : {"engine", "host"}) {
      double end = 0;
      for (const Json& span : trace.Spans(track)) {
        EXPECT_GE(span.Find("ts")->as_double(), end - 1e-6);
        end = span.Find("ts")->as_double() + span.Find("dur")->as_double();
      }
      EXPECT_GT(end, 0);
    }
  }
}

TEST(TraceWriterTest, TellsOfPreemptionsAndEvictions) {
  Trace trace;
  EngineLimits limits = SmallLimits();
  limits.num_pages = 50;
  RuntimeOptions options = Traced(&trace);
  options.scheduler.admission = AdmissionPolicy::kOptimistic;
  options.scheduler.step = StepPolicy::kMixed;
  LoopDriver driver(options, limits);
  for (TokenId first = 0; first < 8; ++first) driver.Submit(MakePrompt(first * 5, 20, 80));
  driver.RunToRest();
  const int64_t left = driver.loop.scheduler().ResetPrefixCache();
  driver.loop.Turn();
  driver.loop.FinishTrace();
  trace.Parse();
  const SchedulerStats stats = driver.loop.scheduler().Stats();
  EXPECT_GT(stats.preemptions, 0);
  EXPECT_EQ(static_cast<int64_t>(trace.Named("preempted").size()), stats.preemptions);
  EXPECT_EQ(static_cast<int64_t>(trace.Named("scheduled").size()), 8 + stats.preemptions);
  EXPECT_GT(trace.Named("mixed").size(), 0u);
  EXPECT_GT(SumOf(trace.Named("pages evicted"), "pages"), 0);
  ASSERT_EQ(trace.Named("cache reset").size(), 1u);
  EXPECT_EQ(Arg(trace.Named("cache reset")[0], "pages_left"), left);
}

TEST(TraceWriterTest, TimesAreMicrosecondsWithThreeDecimals) {
  std::string text;
  const TraceWriter::Time start{std::chrono::hours(5)};
  TraceWriter writer([&text](std::string_view piece) { text += piece; }, start);
  writer.Host("a \"quoted\"\n name", start + std::chrono::nanoseconds(1002003),
              start + std::chrono::nanoseconds(1002009));
  writer.Note({SchedNote::Kind::kQueued, 7, 3}, start - std::chrono::seconds(1));
  writer.Finish();
  EXPECT_TRUE(ParseJson(text).ok()) << text;
  EXPECT_NE(text.find("\"ts\":1002.003,\"dur\":0.006"), std::string::npos) << text;
  EXPECT_NE(text.find("a \\\"quoted\\\"\\n name"), std::string::npos) << text;
  EXPECT_NE(text.find("\"ts\":0.000"), std::string::npos) << "before the start is the start";
}

TEST(TraceWriterTest, ComesInPiecesOfWholeEventsOneALine) {
  std::vector<std::string> pieces;
  const TraceWriter::Time start{std::chrono::hours(5)};
  TraceWriter writer([&pieces](std::string_view piece) { pieces.emplace_back(piece); }, start);
  for (int i = 0; i < 3000; ++i) writer.Host("plan", start, start + std::chrono::microseconds(i));
  writer.Finish();
  EXPECT_GE(pieces.size(), 3u);
  std::string text;
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_GE(pieces[i].size(), i + 1 < pieces.size() ? 64u * 1024 : 1u);
    EXPECT_LT(pieces[i].size(), 66u * 1024);
    text += pieces[i];
  }
  Trace trace;
  trace.text = text;
  trace.Parse();
  EXPECT_EQ(trace.Named("plan").size(), 3000u);
  size_t num_lines = 0;
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1)) {
    ++num_lines;
  }
  EXPECT_EQ(num_lines, trace.events.size() + 2);
}

}  // namespace
}  // namespace minisgl::runtime
