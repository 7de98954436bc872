// Display of an answer: reasoning is kept out of a pipe, dimmed above the answer on a terminal, and
// not shown if hidden.
#include <gtest/gtest.h>
#include <pty.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "batch/answer_writer.h"
#include "batch/row.h"
#include "minisgl/text/thought_reader.h"
#include "program/fakes.h"
#include "program/program.h"
#include "program/pty_process.h"

namespace minisgl::term {
namespace {

struct Shown {
  std::string out, err;
};

// The pieces of an answer as the runtime gives them: text that is decided, and its parts.
std::vector<std::pair<std::string, TextParts>> DecidedPieces(
    const std::vector<std::string>& pieces) {
  ThoughtReader reader({"<think>", "</think>"}, false, false);
  std::vector<std::pair<std::string, TextParts>> decided;
  for (size_t i = 0; i <= pieces.size(); ++i) {
    auto& [text, parts] = decided.emplace_back();
    for (const AnswerPart& part : i < pieces.size() ? reader.Push(pieces[i]) : reader.Finish()) {
      text += part.text;
      AddPart(part.kind, part.text.size(), &parts);
    }
  }
  return decided;
}

class AnswerViewTest : public ::testing::Test {
 protected:
  // Writes an answer in these pieces into a file.
  Shown Write(const std::vector<std::string>& pieces, AnswerView::Mode mode,
              const std::string& finish_reason = "stop") {
    auto output = Output::Open(folder_.Path("out"), true, -1);
    EXPECT_TRUE(output.ok() && (*output)->Begin().ok());
    const batch::Row row;
    batch::RowAnswer answer;
    answer.finish_reason = finish_reason;
    testing::internal::CaptureStderr();
    batch::TextAnswerWriter writer(output->get(), mode, TextStyle::kMarkdown);
    writer.Begin(row);
    for (const auto& [text, parts] : DecidedPieces(pieces)) {
      EXPECT_TRUE(writer.WriteText(row, 0, text, parts).ok());
    }
    EXPECT_TRUE(writer.WriteAnswers(row, {answer}).ok());
    return {folder_.Read("out"), testing::internal::GetCapturedStderr()};
  }

  TemporaryFolder folder_;
};

const std::vector<std::string> kPieces = {"<thi", "nk>\nTwo", " and two.\n</th", "ink>\n\nFo",
                                          "ur."};

TEST_F(AnswerViewTest, AFileGetsTheAnswerAndStandardErrorTheReasoning) {
  const Shown shown = Write(kPieces, AnswerView::Mode::kShown);
  EXPECT_EQ(shown.out, "Four.\n");
  EXPECT_EQ(shown.err, "Two and two.\n");
}

TEST_F(AnswerViewTest, HiddenReasoningIsNotShown) {
  for (const auto mode : {AnswerView::Mode::kHidden, AnswerView::Mode::kOnTerminalOnly}) {
    const Shown shown = Write(kPieces, mode);
    EXPECT_EQ(shown.out, "Four.\n");
    EXPECT_EQ(shown.err, "");
  }
}

TEST_F(AnswerViewTest, AnAnswerWithoutReasoningIsExact) {
  const Shown shown = Write({" \n", "a <think> b", "\n"}, AnswerView::Mode::kShown);
  EXPECT_EQ(shown.out, " \na <think> b\n\n");
  EXPECT_EQ(shown.err, "");
}

TEST_F(AnswerViewTest, ReasoningWithoutAnAnswerIsReported) {
  const Shown cut = Write({"<think>Two and"}, AnswerView::Mode::kShown, "length");
  EXPECT_EQ(cut.out, "\n");
  EXPECT_TRUE(cut.err.starts_with("Two and\nminisgl: the model was still reasoning")) << cut.err;
  EXPECT_NE(Write({"<think>Two</think>"}, AnswerView::Mode::kHidden).err.find("no answer"),
            std::string::npos);
  EXPECT_EQ(Write({}, AnswerView::Mode::kShown).err, "");
}

TEST_F(AnswerViewTest, ASecondAnswerStartsAfresh) {
  EXPECT_EQ(Write(kPieces, AnswerView::Mode::kShown).out,
            Write(kPieces, AnswerView::Mode::kShown).out);
}

// Returns the bytes written to a terminal since the last call. The bytes arrive in pieces and with
// a delay, so this writes a byte that no answer contains and reads up to it.
std::string ReadWritten(int terminal, int master) {
  constexpr char kEnd = '\x03';
  EXPECT_EQ(write(terminal, &kEnd, 1), 1);
  std::string text;
  char byte = 0;
  while (read(master, &byte, 1) == 1 && byte != kEnd) text += byte;
  EXPECT_EQ(byte, kEnd) << "the terminal ended after: " << text;
  return text;
}

// What was shown before a closing tag that nothing opened cannot be taken back.
TEST_F(AnswerViewTest, ABareClosingTagIsABlankLine) {
  auto output = Output::Open(folder_.Path("bare"), true, -1);
  ASSERT_TRUE(output.ok() && (*output)->Begin().ok());
  AnswerView view(output->get(), AnswerView::Mode::kShown);
  view.Begin();
  ASSERT_TRUE(view.Show("why", {{PartKind::kText, 3}}).ok());
  ASSERT_TRUE(view.Show("</think>\nso",
                        {{PartKind::kBareClose, 8}, {PartKind::kSpace, 1}, {PartKind::kText, 2}})
                  .ok());
  ASSERT_TRUE(view.End(AnswerView::LineBreak::kAdd).ok());
  EXPECT_EQ(folder_.Read("bare"), "why\n\nso\n");
}

// Several answers on a terminal, as in a chat.
TEST(AnswerViewTerminalTest, ReasoningStandsAboveTheAnswerAndBothAreFiltered) {
  int master = -1, terminal = -1;
  char name[64] = "";
  ASSERT_EQ(openpty(&master, &terminal, name, nullptr, nullptr), 0);
  termios settings{};
  tcgetattr(terminal, &settings);
  settings.c_oflag &= ~static_cast<tcflag_t>(OPOST);
  tcsetattr(terminal, TCSANOW, &settings);
  setenv("NO_COLOR", "1", 1);  // in case the test itself runs on a terminal
  auto output = Output::Open(name, false, -1);
  ASSERT_TRUE(output.ok()) << output.status().message();
  AnswerView view(output->get(), AnswerView::Mode::kOnTerminalOnly);
  const auto show = [&](const std::vector<std::string>& pieces) {
    view.Begin();
    for (const auto& [text, parts] : DecidedPieces(pieces)) {
      EXPECT_TRUE(view.Show(text, parts).ok());
    }
    EXPECT_TRUE(view.End(AnswerView::LineBreak::kAddUnlessThere).ok());
    return ReadWritten(terminal, master);
  };
  EXPECT_EQ(show({"<think>a\x1b", "[31mb</think>c\x1b]0;t\x07"}), "ab\n\nc\n");
  EXPECT_EQ(show({"c\n"}), "c\n");
  EXPECT_EQ(show({"<think>a"}), "a\n");
  EXPECT_EQ(show({}), "\n");
  unsetenv("NO_COLOR");
  close(master);
  close(terminal);
}

// The demo model's template with a prompt that opens a tag, so that all output is reasoning.
constexpr const char* kTemplate =
    "{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>\\n' + "
    "message['content'].split('</think>')[-1] + eos_token + '\\n' }}{% endfor %}"
    "{{ '<|assistant|>\\n' }}{% if enable_thinking %}{{ '<think>\\n' }}{% endif %}";

class ReasoningProgramTest : public AnswerViewTest {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
  }
  std::vector<std::string> Arguments(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"run",
                                          "-m",
                                          DemoModel(),
                                          "--num-pages",
                                          "64",
                                          "--threads",
                                          "1",
                                          "--chat-template",
                                          folder_.Write("template", kTemplate),
                                          "-p",
                                          "What is 2 + 3?",
                                          "-n",
                                          "6"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  ProgramResult Run(const std::vector<std::string>& more) { return RunProgram(Arguments(more)); }
};

TEST_F(ReasoningProgramTest, ThinkOpensTheTagAndTheAnswerIsReasoning) {
  const ProgramResult row = Run({"--json", "--think", "on"});
  const auto json = ParseJson(row.out);
  ASSERT_TRUE(json.ok()) << row.out << row.err;
  EXPECT_EQ(*json->Find("text"), Json(""));
  ASSERT_NE(json->Find("reasoning"), nullptr) << row.out;
  const std::string reasoning = json->Find("reasoning")->as_string();
  EXPECT_FALSE(reasoning.empty());
  const ProgramResult text = Run({"--think", "on"});
  EXPECT_EQ(text.out, "\n");
  EXPECT_NE(text.err.find(reasoning), std::string::npos) << text.err;
  EXPECT_EQ(Run({"--think", "on", "--quiet"}).err.find(reasoning), std::string::npos);
}

TEST_F(ReasoningProgramTest, HideThinkingLeavesItOutOfRows) {
  const ProgramResult row = Run({"--json", "--think", "on", "--hide-thinking"});
  const auto json = ParseJson(row.out);
  ASSERT_TRUE(json.ok()) << row.out << row.err;
  EXPECT_EQ(json->Find("reasoning"), nullptr);
}

TEST_F(ReasoningProgramTest, ThinkOffAnswersInText) {
  const ProgramResult row = Run({"--json", "--think", "off"});
  const auto json = ParseJson(row.out);
  ASSERT_TRUE(json.ok()) << row.out << row.err;
  EXPECT_EQ(json->Find("reasoning"), nullptr);
  EXPECT_NE(*json->Find("text"), Json(""));
}

TEST_F(ReasoningProgramTest, ATerminalShowsItDimmed) {
  PtyProcess dimmed(Arguments({"--think", "on", "--no-stdin"}),
                    {{"TERM", "xterm"}, {"NO_COLOR", ""}});
  EXPECT_EQ(dimmed.WaitForExit(), 0);
  EXPECT_NE(dimmed.output().find("\x1b[2m"), std::string::npos) << dimmed.output();
  PtyProcess plain(Arguments({"--think", "on", "--no-stdin"}),
                   {{"TERM", "xterm"}, {"NO_COLOR", "1"}});
  EXPECT_EQ(plain.WaitForExit(), 0);
  EXPECT_EQ(plain.output().find("\x1b[2m"), std::string::npos) << plain.output();
  PtyProcess hidden(Arguments({"--think", "on", "--no-stdin", "--hide-thinking"}),
                    {{"TERM", "xterm"}, {"NO_COLOR", ""}});
  EXPECT_EQ(hidden.WaitForExit(), 0);
  EXPECT_EQ(hidden.output().find("\x1b[2m"), std::string::npos) << hidden.output();
}

}  // namespace
}  // namespace minisgl::term
