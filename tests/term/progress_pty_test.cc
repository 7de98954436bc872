// Progress of a run on a terminal.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "program/fakes.h"
#include "program/program.h"
#include "program/pty_process.h"
#include "program/screen.h"
#include "slow.h"

namespace minisgl::term {
namespace {

class ProgressPtyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramPath().empty()) GTEST_SKIP() << "no program to run";
    // One row that is answered soon, and more rows than any machine answers during the test.
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
             "512",
             "--max-running-requests",
             "2"};
  }
  // Returns the terminal's contents after the first line was shown.
  std::string Shown(const std::map<std::string, std::string>& environment) const {
    PtyProcess program(args_, environment);
    EXPECT_TRUE(program.WaitFor("/1,000 rows")) << program.output();
    return OutputOfKilled(&program);
  }
  // Returns the terminal's contents some time after the first row was answered, when a line is due.
  std::string ShownOfOneRow(const std::map<std::string, std::string>& environment,
                            const char* more = "--force") const {
    std::filesystem::remove(folder_.Path("out.jsonl"));
    std::vector<std::string> args = args_;
    args.insert(args.end(), {"--raw", more});
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
    EXPECT_EQ(program->WaitForExit(), 128 + SIGKILL);  // it was still running
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

TEST_F(ProgressPtyTest, NoColorIsRespected) {
  const std::string shown = Shown({{"TERM", "xterm"}, {"NO_COLOR", "1"}});
  EXPECT_NE(shown.find("\r\x1b[J[>"), std::string::npos) << shown;
  EXPECT_EQ(shown.find("\x1b[32m"), std::string::npos) << shown;
}

// A terminal wraps its contents when it is narrowed; the next line must replace all of them.
TEST_F(ProgressPtyTest, ANarrowerTerminalShowsOneLine) {
  MarkSlow("a slow engine, so that there is something to show");
  PtyProcess program(args_, {{"TERM", "xterm"}, {"NO_COLOR", "1"}});
  ASSERT_TRUE(program.WaitFor("/1,000 rows")) << program.output();
  Screen screen(200);
  size_t fed = 0;
  // The program is stopped meanwhile, so that the width for which a line was written is known.
  const auto stop_and_look = [&] {
    program.Stop();
    program.ReadRest();
    program.PassOver();
    screen.Feed(program.output().substr(fed));
    fed = program.output().size();
  };
  stop_and_look();
  const size_t num_lines = screen.Lines().size();
  ASSERT_GT(screen.Lines().back().size(), 90u);
  // Wide enough for rates, which change: a line is only rewritten if it changes.
  for (const size_t columns : {60, 44, 200}) {
    program.Resize(static_cast<int>(columns));
    screen.Resize(columns);
    program.Signal(SIGCONT);
    // The first may have been formatted before the terminal changed.
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
  MarkSlow("a slow engine, so that there is something to show");
  EXPECT_EQ(ShownOfOneRow({{"TERM", "dumb"}}).find('\x1b'), std::string::npos);
  EXPECT_EQ(ShownOfOneRow({{"TERM", "xterm"}}, "--quiet"), "");
}

}  // namespace
}  // namespace minisgl::term
