// Progress: the line on a terminal, the lines in a log, and the bar during loading.
#include "term/progress.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "minisgl/base/json.h"
#include "program/fakes.h"

namespace minisgl::term {
namespace {

TEST(ProgressBarTest, GrowsFromEmptyToFull) {
  EXPECT_EQ(ProgressBar("loading weights", 0, 28, 10), "loading weights [          ] 0/28");
  EXPECT_EQ(ProgressBar("loading weights", 14, 28, 10), "loading weights [=====     ] 14/28");
  EXPECT_EQ(ProgressBar("loading weights", 27, 28, 10), "loading weights [========= ] 27/28");
  EXPECT_EQ(ProgressBar("loading weights", 28, 28, 10), "loading weights [==========] 28/28");
}

TEST(ProgressBarTest, NothingToDoIsFull) {
  EXPECT_EQ(ProgressBar("loading", 0, 0, 4), "loading [====] 0/0");
}

TEST(ProgressLineTest, DurationsReadAsAPersonSaysThem) {
  EXPECT_EQ(FormatDuration(0.2), "0 s");
  EXPECT_EQ(FormatDuration(59.4), "59 s");
  EXPECT_EQ(FormatDuration(59.6), "1m00s");
  EXPECT_EQ(FormatDuration(125), "2m05s");
  EXPECT_EQ(FormatDuration(3 * 3600 + 20 * 60 + 59), "3h20m");
  EXPECT_EQ(FormatDuration(100 * 3600), "4d04h");
  EXPECT_EQ(FormatDuration(1e300), "11574d01h");
  EXPECT_EQ(FormatDuration(-5), "0 s");
}

ProgressView View() {
  ProgressView view;
  view.done = 27;
  view.total = 60;
  view.left_s = 12;
  view.in_per_s = 12345.6;
  view.out_per_s = 3.21;
  view.running = 16;
  view.waiting = 1700;
  view.hit_percent = 92.4;
  view.pages_used = 512;
  view.pages_total = 8192;
  return view;
}

TEST(ProgressLineTest, ShowsProgressRatesAndPages) {
  EXPECT_EQ(FormatProgressLine(View(), 200, false),
            "[=========>          ]  45 %  27/60 rows  12 s left  12,346 in, 3.2 out tok/s  "
            "16 running  1,700 waiting  cache 92 %  pages 512/8,192");
}

TEST(ProgressLineTest, TextsHaveNoAnswers) {
  ProgressView view = View();
  view.has_answers = false;
  EXPECT_NE(FormatProgressLine(view, 200, false).find("  12,346 tok/s  16 running"),
            std::string::npos);
}

TEST(ProgressLineTest, UnknownFieldsAreOmitted) {
  ProgressView view = View();
  view.total.reset();
  view.left_s.reset();
  view.hit_percent.reset();
  view.failed = 2;
  EXPECT_EQ(FormatProgressLine(view, 200, false),
            "27 rows, 2 failed  12,346 in, 3.2 out tok/s  16 running  1,700 waiting  "
            "pages 512/8,192");
  view.total = 0;  // no percentage of an empty input
  EXPECT_EQ(FormatProgressLine(view, 24, false), "27/0 rows, 2 failed");
}

TEST(ProgressLineTest, FitsEveryWidthAndKeepsTheBeginning) {
  const std::string whole = FormatProgressLine(View(), 1000, false);
  const std::string bare = whole.substr(whole.find("27/60"));
  for (int columns = 0; columns <= 160; ++columns) {
    const std::string line = FormatProgressLine(View(), columns, false);
    EXPECT_LE(line.size(), static_cast<size_t>(columns));
    EXPECT_TRUE(line == whole || bare.starts_with(line)) << line;
    // Colours take no columns.
    std::string coloured = FormatProgressLine(View(), columns, true);
    for (const std::string code : {"\x1b[32m", "\x1b[2m", "\x1b[0m"}) {
      for (size_t at = 0; (at = coloured.find(code)) != std::string::npos;) {
        coloured.erase(at, code.size());
      }
    }
    EXPECT_EQ(coloured, line);
  }
  EXPECT_EQ(FormatProgressLine(View(), 9, false), "");
  EXPECT_EQ(FormatProgressLine(View(), 10, false), "27/60 rows");
}

// Full only if all is done, in spite of rounding.
TEST(ProgressLineTest, TheBarIsFullAtTheEndAlone) {
  ProgressView view = View();
  view.total = 1000000;
  view.done = 999999;
  EXPECT_TRUE(FormatProgressLine(view, 200, false).starts_with("[===================>]  99 %"));
  view.done = 1000000;
  EXPECT_TRUE(FormatProgressLine(view, 200, false).starts_with("[====================] 100 %"));
}

class ProgressTest : public ::testing::Test {
 protected:
  using Clock = Progress::Clock;

  // Returns the line at `second`, when `done` rows of 100 tokens each are done.
  std::string At(double second, int64_t done, int64_t total = 1000) {
    Progress::Numbers numbers;
    numbers.done = done;
    numbers.total = total;
    numbers.tokens = numbers.finished_tokens = numbers.stats.generated_tokens = 100 * done;
    numbers.stats.prompt_tokens = 1000 * done;
    return Say(second, numbers);
  }
  std::string Say(double second, const Progress::Numbers& numbers) {
    testing::internal::CaptureStderr();
    const auto since = std::chrono::duration<double>(second);
    progress_.Update(numbers, begin_ + std::chrono::duration_cast<Clock::duration>(since));
    return testing::internal::GetCapturedStderr();
  }

  const Clock::time_point begin_ = Clock::now();
  Progress progress_{ProgressKind::kAuto, false, begin_};
};

TEST_F(ProgressTest, ALogGetsALineEveryTenSeconds) {
  int lines = 0;
  for (int tenth = 1; tenth <= 300; ++tenth) {
    const std::string line = At(tenth / 10.0 + 0.001, tenth);
    lines += line.empty() ? 0 : 1;
    if (tenth == 100) {
      EXPECT_EQ(line,
                "minisgl: 100/1,000 rows; 1m30s left; 10,000 in, 1,000 out tok/s; 0 running; "
                "0 waiting; cache 0 %; pages 0/0\n");
    }
  }
  EXPECT_EQ(lines, 3);
}

TEST_F(ProgressTest, RatesAreThoseOfTheLastSeconds) {
  for (int second = 1; second <= 30; ++second) At(second, 10 * second);
  for (int second = 31; second < 60; ++second) At(second, 300);  // no more progress
  EXPECT_NE(At(60, 300).find("; 0.0 in, 0.0 out tok/s;"), std::string::npos);
}

TEST_F(ProgressTest, TheTimeLeftIsShownOnceItIsMeaningful) {
  EXPECT_EQ(At(10, 4).find("left"), std::string::npos);  // 4 rows are too few
  EXPECT_NE(At(20, 100).find("; 1m34s left;"), std::string::npos);
  EXPECT_EQ(At(30, 1000).find("left"), std::string::npos);
}

// A slow start, for example to compute the first prompts, is forgotten.
TEST_F(ProgressTest, TheTimeLeftForgetsASlowStart) {
  for (int second = 1; second <= 50; ++second) At(second, 0);
  std::string last;
  for (int second = 51; second <= 100; ++second) {
    const std::string line = At(second, 10 * (second - 50));
    if (!line.empty()) last = line;
  }
  EXPECT_NE(last.find("500/1,000 rows; 50 s left;"), std::string::npos) << last;
}

// If all rows of a wave end at the same time, tokens of the running ones count.
TEST_F(ProgressTest, TheTimeLeftCountsAnswersUnderWay) {
  Progress::Numbers numbers;
  numbers.done = 100;
  numbers.total = 200;
  numbers.finished_tokens = 10000;
  numbers.tokens = numbers.stats.generated_tokens = 15000;
  EXPECT_NE(Say(30, numbers).find("; 10 s left;"), std::string::npos);
}

TEST_F(ProgressTest, WhereAllFailRowsTellTheTime) {
  Progress::Numbers numbers;
  numbers.failed = 50;
  numbers.total = 200;
  EXPECT_NE(Say(10, numbers).find("50/200 rows, 50 failed; 30 s left;"), std::string::npos);
}

// For programs: an object a second, and one at the end with the rates of the whole run.
TEST_F(ProgressTest, JsonComesEverySecondAndAtTheEnd) {
  Progress progress(ProgressKind::kJson, true, begin_);
  Progress::Numbers numbers;
  numbers.done = 20;
  numbers.failed = 5;
  numbers.cancelled = 3;
  numbers.total = 100;
  numbers.stats.generated_tokens = 2500;
  numbers.stats.prompt_tokens = 5000;
  numbers.stats.cached_tokens = 4000;
  testing::internal::CaptureStderr();
  for (int tenth = 1; tenth <= 51; ++tenth) {
    progress.Update(numbers, begin_ + std::chrono::milliseconds(100 * tenth + 1));
  }
  numbers.total.reset();
  progress.End(numbers, begin_ + std::chrono::seconds(10));
  progress.Finish();
  const std::string text = testing::internal::GetCapturedStderr();
  const std::vector<std::string> lines = Lines(text);
  ASSERT_EQ(lines.size(), 6u) << text;
  EXPECT_EQ(lines.back(),
            R"({"rows_done": 20, "rows_failed": 2, "rows_cancelled": 3, "rows_total": null, )"
            R"("rows_held": 0, "rows_before": 0, )"
            R"("seconds": 10.0, "seconds_left": null, "prompt_tokens": 5000, )"
            R"("cached_tokens": 4000, "completion_tokens": 2500, "prompt_tokens_per_s": 500.0, )"
            R"("completion_tokens_per_s": 250.0, "running": 0, "waiting": 0, "pages_used": 0, )"
            R"("pages_total": 0, "ended": true})");
  const Result<Json> fifth = ParseJson(lines[4]);
  ASSERT_TRUE(fifth.ok()) << lines[4];
  EXPECT_EQ(fifth->Find("rows_total")->as_int(), 100);
  EXPECT_NEAR(fifth->Find("seconds_left")->as_double(), 15, 1);
  EXPECT_EQ(*fifth->Find("ended"), Json(false));
}

// Rows that wait for an earlier one are not written: they do not count as done. Rows of the run
// that this one resumes do.
TEST_F(ProgressTest, HeldRowsAreNotDoneAndEarlierOnesAre) {
  Progress::Numbers numbers;
  numbers.done = 30;
  numbers.failed = 5;
  numbers.held_done = 20;
  numbers.held_failed = 4;
  numbers.total = 200;
  numbers.before = 50;
  EXPECT_NE(Say(10, numbers).find(" 61/250 rows, 24 held for the order, 1 failed;"),
            std::string::npos);
  testing::internal::CaptureStderr();
  Progress progress(ProgressKind::kJson, false, begin_);
  progress.End(numbers, begin_ + std::chrono::seconds(1));
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(text.starts_with(
      R"({"rows_done": 10, "rows_failed": 1, "rows_cancelled": 0, "rows_total": 200, )"
      R"("rows_held": 24, "rows_before": 50, )"))
      << text;
}

TEST_F(ProgressTest, AHistoryIsKeptEvenIfNothingIsShown) {
  Progress quiet(ProgressKind::kNone, true, begin_);
  Progress::Numbers numbers;
  numbers.stats.generated_tokens = 70;
  testing::internal::CaptureStderr();
  quiet.Update(numbers, begin_ + std::chrono::milliseconds(500));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  numbers.stats.generated_tokens = 100;
  const RunHistory& history = quiet.EndHistory(numbers.stats, 9, begin_ + std::chrono::seconds(1));
  ASSERT_EQ(history.samples().size(), 2u);
  EXPECT_EQ(history.samples()[0].completion_tokens, 70);
  EXPECT_EQ(history.samples()[1].completion_tokens, 100);
  EXPECT_EQ(history.samples()[1].rows, 9);
}

}  // namespace
}  // namespace minisgl::term
