// Failed rows: how they are counted, and a run's report at its end.
#include "batch/failures.h"

#include <gtest/gtest.h>

#include <string>

#include "report/summary.h"
#include "term/progress.h"

namespace minisgl::batch {
namespace {

RowError Error(const std::string& code, const std::string& message = "m") {
  return {code, message, ""};
}

TEST(FailuresTest, NoFailuresGiveNoText) {
  const Failures failures;
  EXPECT_EQ(failures.Text(), "");
  EXPECT_EQ(failures.Counts(), "");
  EXPECT_EQ(failures.ToJson().Dump(), "{}");
  EXPECT_EQ(failures.last_code(), "");
}

TEST(FailuresTest, CountsEachCodeAndNamesTheFirstLine) {
  Failures failures;
  failures.Add(9, Error("template_error", "late"));
  for (int i = 0; i < 1200; ++i) failures.Add(20 + i, Error("invalid_row", "many"));
  failures.Add(5, Error("unsupported_field", "not\x1b known"));
  failures.Add(7, Error("unsupported_field", "another"));
  EXPECT_EQ(failures.Text(),
            "1,203 failed: 1,200 invalid_row, 2 unsupported_field, 1 template_error; first: line "
            "5: not\\x1b known");
  EXPECT_EQ(failures.ToJson().Dump(),
            R"({"invalid_row": 1200, "template_error": 1, "unsupported_field": 2})");
  EXPECT_EQ(failures.total(), 1203);
  EXPECT_EQ(failures.last_code(), "unsupported_field");
}

// Rows cancelled by the end of the run have not failed by themselves.
TEST(FailuresTest, CancelledRowsAreCountedApart) {
  Failures failures;
  failures.Add(1, Error("cancelled"));
  EXPECT_EQ(failures.Text(), "");
  EXPECT_EQ(failures.Counts(), "1 cancelled");
  failures.Add(3, Error("timeout", "too late"));
  failures.Add(2, Error("cancelled"));
  EXPECT_EQ(failures.Text(), "1 failed: 1 timeout; first: line 3: too late");
  EXPECT_EQ(failures.Counts(), "2 cancelled, 1 timeout");
  EXPECT_EQ(failures.total(), 3);
  EXPECT_EQ(failures.cancelled(), 2);
  EXPECT_EQ(failures.failed(), 1);
}

// 4520 answers in 7.24 s; the rows cancelled by a signal took no time.
TEST(FailuresTest, RequestRatesCountOnlyAnswers) {
  report::RunSummary summary;
  summary.rows_done = 4520;
  summary.failures = Failures();
  for (int i = 0; i < 44; ++i) summary.failures->Add(i, Error("invalid_row"));
  summary.failures->Add(7, Error("cancelled"));
  summary.failures->AddCancelled(15435);
  summary.failures->AddCancelled(0);
  summary.rows_failed = summary.failures->total();
  summary.seconds = 7.25;
  summary.stats.scheduler.submitted = 4600;
  const std::string text = report::FormatSummary(summary);
  EXPECT_TRUE(
      text.starts_with("rows            4,520 done, 44 failed, 15,436 not answered, 7.25 s\n"))
      << text;
  EXPECT_NE(text.find("; 623.45 requests/s\n"), std::string::npos) << text;
  const Json json = report::SummaryJson(summary);
  EXPECT_NEAR(json.Find("requests_per_s")->as_double(), 623.448, 0.001);
  EXPECT_EQ(*json.Find("rows_failed"), Json(15480));
  EXPECT_EQ(*json.Find("rows_cancelled"), Json(15436));
  EXPECT_EQ(json.Find("failures")->Dump(), R"({"cancelled": 15436, "invalid_row": 44})");
}

// A chat has no failure counts.
TEST(FailuresTest, UnknownCountsAreOmitted) {
  report::RunSummary summary;
  summary.rows_failed = 2;
  EXPECT_EQ(report::SummaryJson(summary).Find("failures"), nullptr);
  EXPECT_EQ(report::SummaryJson(summary).Find("rows_cancelled"), nullptr);
}

TEST(FailuresTest, ARunWithoutRequestsHasNoRates) {
  report::RunSummary summary;
  summary.rows_failed = 2;
  summary.seconds = 0.00005;
  EXPECT_EQ(report::FormatSummary(summary), "rows            0 done, 2 failed, 0.00 s");
}

TEST(FailuresTest, ARunThatScoresHasSumsAndNoAnswers) {
  report::RunSummary summary;
  summary.rows_done = 2;
  summary.seconds = 2;
  summary.stats.scheduler.submitted = 2;
  summary.stats.scheduler.prompt_tokens = 3000;
  summary.stats.scheduler.scored_tokens = 2000;
  batch::ScoreTotals& scores = summary.scores.emplace();
  scores.Add(-1000, 1000);
  scores.Add(-3000, 1000);
  const std::string text = report::FormatSummary(summary);
  EXPECT_NE(
      text.find("scored tokens   2,000 in 2 rows, log-probability -4000.0000, perplexity 7.3891\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("1,500 in, 1,000 scored; 1.00 requests/s"), std::string::npos) << text;
  EXPECT_EQ(text.find("answer tokens"), std::string::npos) << text;
  EXPECT_EQ(report::SummaryJson(summary).Find("scores")->Find("tokens")->as_int(), 2000);
  summary.scores.reset();
  EXPECT_EQ(report::SummaryJson(summary).Find("scores"), nullptr);
}

TEST(FailuresTest, AStoppingRunShowsTheRestOfItsGracePeriod) {
  term::ProgressView view;
  view.done = 5000;
  view.failed = 44;
  view.total = 20000;
  view.left_s = 24;
  view.grace_left_s = 3.6;
  EXPECT_TRUE(term::FormatProgressPlain(view).starts_with(
      "5,000/20,000 rows, 44 failed; stopping: 4 s of grace left; 0.0 in"))
      << term::FormatProgressPlain(view);
  view.grace_left_s = 0;
  view.cancelled = 15000;
  EXPECT_TRUE(term::FormatProgressPlain(view).starts_with(
      "5,000/20,000 rows, 44 failed, 15,000 not answered; stopping; 0.0 in"))
      << term::FormatProgressPlain(view);
}

}  // namespace
}  // namespace minisgl::batch
