// What a run says of its progress: the line of a terminal, the lines of a log, and the bar that
// loading shows.
#include "cli/progress.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>

#include "fakes.h"
#include "minisgl/base/json.h"
#include "program.h"
#include "pty_process.h"
#include "screen.h"

namespace minisgl {
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

TEST(ProgressLineTest, SaysHowFarHowFastAndWhatIsHeld) {
  EXPECT_EQ(FormatProgressLine(View(), 200, false),
            "[=========>          ]  45 %  27/60 rows  12 s left  12,346 in, 3.2 out tok/s  "
            "16 running  1,700 waiting  cache 92 %  pages 512/8,192");
}

TEST(ProgressLineTest, WhatIsNotKnownIsNotSaid) {
  ProgressView view = View();
  view.total.reset();
  view.left_s.reset();
  view.hit_percent.reset();
  view.failed = 2;
  EXPECT_EQ(FormatProgressLine(view, 200, false),
            "27 rows, 2 failed  12,346 in, 3.2 out tok/s  16 running  1,700 waiting  "
            "pages 512/8,192");
  view.total = 0;  // of nothing there is no share
  EXPECT_EQ(FormatProgressLine(view, 24, false), "27/0 rows, 2 failed");
}

TEST(ProgressLineTest, FitsEveryWidthAndKeepsTheBeginning) {
  const std::string whole = FormatProgressLine(View(), 1000, false);
  const std::string bare = whole.substr(whole.find("27/60"));
  for (int columns = 0; columns <= 160; ++columns) {
    const std::string line = FormatProgressLine(View(), columns, false);
    EXPECT_LE(line.size(), static_cast<size_t>(columns));
    EXPECT_TRUE(line == whole || bare.starts_with(line)) << line;
    // Colours take no room.
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

// Full only when all is done, whatever rounding says.
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

  // What is said at `second`, where `done` rows of 100 tokens each are done.
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
  Progress progress_{true, false, begin_};
};

TEST_F(ProgressTest, ALogGetsALineEveryTenSeconds) {
  int lines = 0;
  for (int tenth = 1; tenth <= 300; ++tenth) {
    const std::string said = At(tenth / 10.0 + 0.001, tenth);
    lines += said.empty() ? 0 : 1;
    if (tenth == 100) {
      EXPECT_EQ(said,
                "minisgl: 100/1,000 rows; 1m30s left; 10,000 in, 1,000 out tok/s; 0 running; "
                "0 waiting; cache 0 %; pages 0/0\n");
    }
  }
  EXPECT_EQ(lines, 3);
}

TEST_F(ProgressTest, RatesAreThoseOfTheLastSeconds) {
  for (int second = 1; second <= 30; ++second) At(second, 10 * second);
  for (int second = 31; second < 60; ++second) At(second, 300);  // nothing moves any more
  EXPECT_NE(At(60, 300).find("; 0.0 in, 0.0 out tok/s;"), std::string::npos);
}

TEST_F(ProgressTest, TheTimeLeftIsSaidOnceItMeansSomething) {
  EXPECT_EQ(At(10, 4).find("left"), std::string::npos);  // 4 rows are too few
  EXPECT_NE(At(20, 100).find("; 1m34s left;"), std::string::npos);
  EXPECT_EQ(At(30, 1000).find("left"), std::string::npos);
}

// A start that took long, say to compute the first prompts, is forgotten.
TEST_F(ProgressTest, TheTimeLeftForgetsASlowStart) {
  for (int second = 1; second <= 50; ++second) At(second, 0);
  std::string said;
  for (int second = 51; second <= 100; ++second) {
    const std::string line = At(second, 10 * (second - 50));
    if (!line.empty()) said = line;
  }
  EXPECT_NE(said.find("500/1,000 rows; 50 s left;"), std::string::npos) << said;
}

// Rows that all end at once at the end of a wave: what the open ones have is counted.
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

TEST_F(ProgressTest, ShownOrNotAHistoryIsKept) {
  Progress quiet(false, true, begin_);
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

class ProgressPtyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramPath().empty()) GTEST_SKIP() << "no program to run";
    // One row that is soon answered, and more than any machine answers while a line is waited for.
    std::string rows = R"({"prompt": "one two three", "max_tokens": 1})"
                       "\n";
    for (int i = 1; i < 1000; ++i) {
      rows += R"({"prompt": "one two three", "ignore_eos": true, "max_tokens": 1900})"
              "\n";
    }
    args_ = {"run",
             "-m",
             DemoModel(),
             "--file",
             folder_.Write("in.jsonl", rows),
             "-o",
             folder_.Path("out.jsonl"),
             "--cpu-target",
             "naive",
             "--threads",
             "1",
             "--num-pages",
             "512"};
  }
  // What is on the terminal once the first line was there.
  std::string Shown(const std::map<std::string, std::string>& environment) const {
    PtyProcess program(args_, environment);
    EXPECT_TRUE(program.WaitFor(" running")) << program.output();
    return OutputOfKilled(&program);
  }
  // What is on the terminal some time after the first row was answered: others show a line then.
  std::string ShownOfOneRow(const std::map<std::string, std::string>& environment,
                            const char* more = "--force") const {
    std::filesystem::remove(folder_.Path("out.jsonl"));
    std::vector<std::string> args = args_;
    args.push_back(more);
    PtyProcess program(args, environment);
    for (int tries = 0; folder_.Read("out.jsonl").empty() && tries < 2400; ++tries) {
      program.ReadFor(0.1);
    }
    EXPECT_NE(folder_.Read("out.jsonl"), "") << program.output();
    program.ReadFor(0.5);
    return OutputOfKilled(&program);
  }
  static std::string OutputOfKilled(PtyProcess* program) {
    program->Signal(SIGKILL);
    EXPECT_EQ(program->WaitForExit(), 128 + SIGKILL);  // it was not through
    return program->output();
  }

  TemporaryFolder folder_;
  std::vector<std::string> args_;
};

TEST_F(ProgressPtyTest, TheLineIsRewrittenInColour) {
  const std::string shown = Shown({{"TERM", "xterm"}});
  EXPECT_NE(shown.find("\r\x1b[J[\x1b[32m>\x1b[0m"), std::string::npos) << shown;
  EXPECT_NE(shown.find(" running"), std::string::npos) << shown;
}

TEST_F(ProgressPtyTest, NoColourIsObeyed) {
  const std::string shown = Shown({{"TERM", "xterm"}, {"NO_COLOR", "1"}});
  EXPECT_NE(shown.find("\r\x1b[J[>"), std::string::npos) << shown;
  EXPECT_EQ(shown.find("\x1b[32m"), std::string::npos) << shown;
}

// A terminal wraps what it shows as it is narrowed; the next line takes the place of all of it.
TEST_F(ProgressPtyTest, ANarrowerTerminalShowsOneLine) {
  PtyProcess program(args_, {{"TERM", "xterm"}, {"NO_COLOR", "1"}});
  ASSERT_TRUE(program.WaitFor("/1,000 rows")) << program.output();
  Screen screen(200);
  size_t fed = 0;
  // The program stands still meanwhile, so that it is known for which width a line was written.
  const auto stop_and_look = [&] {
    program.Stop();
    program.ReadFor(0.1);
    program.PassOver();
    screen.Feed(program.output().substr(fed));
    fed = program.output().size();
  };
  stop_and_look();
  const size_t num_lines = screen.Lines().size();
  ASSERT_GT(screen.Lines().back().size(), 90u);
  for (const size_t columns : {45, 30, 200}) {
    program.Resize(static_cast<int>(columns));
    screen.Resize(columns);
    program.Signal(SIGCONT);
    // The first may have been made before the terminal changed.
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(program.WaitFor("/1,000 rows")) << program.output();
    }
    stop_and_look();
    EXPECT_EQ(screen.Lines().size(), num_lines) << testing::PrintToString(screen.Lines());
    EXPECT_NE(screen.Lines().back().find("/1,000 rows"), std::string::npos)
        << screen.Lines().back();
  }
}

TEST_F(ProgressPtyTest, ADumbTerminalAndQuietGetNoControlSequence) {
  EXPECT_EQ(ShownOfOneRow({{"TERM", "dumb"}}).find('\x1b'), std::string::npos);
  EXPECT_EQ(ShownOfOneRow({{"TERM", "xterm"}}, "--quiet"), "");
}

}  // namespace
}  // namespace minisgl
