// Output of each command on a terminal: neither control characters nor bidirectional controls, from
// any source.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "minisgl/base/utf8.h"
#include "program/fakes.h"
#include "program/program.h"
#include "program/pty_process.h"

namespace minisgl::term {
namespace {

// CSI as one character, an escape sequence, and a direction override with its closing character.
constexpr const char* kHostile = "\u009b31mRED\x1b[2J \u202eabc\u2069";
constexpr const char* kHostileJson = R"(\u009b31mRED\u001b[2J \u202eabc\u2069)";

class TerminalOutputTest : public testing::Test {
 protected:
  void SetUp() override {
    if (ProgramPath().empty()) GTEST_SKIP() << "no program to run";
  }

  // Runs the program in a terminal; its output must contain `wanted` and no control characters.
  static void ExpectHarmless(const std::vector<std::string>& arguments, int exit_code,
                             const std::string& wanted) {
    PtyProcess program(arguments, {{"TERM", "xterm"}, {"MINISGL_NO_HISTORY", "1"}});
    EXPECT_EQ(program.WaitForExit(), exit_code) << program.output();
    std::string_view text = program.output();
    EXPECT_NE(text.find(wanted), std::string_view::npos) << Visible(text, 2000);
    while (!text.empty()) {
      const size_t length = Utf8CharLength(text);
      ASSERT_GT(length, 0u) << Visible(text);
      const std::string_view character = text.substr(0, length);
      const auto byte = static_cast<unsigned char>(text[0]);
      const bool breaks = byte == '\n' || byte == '\r' || byte == '\t';
      EXPECT_TRUE(length > 1 ? !IsDisplayControl(character)
                             : breaks || (byte >= 0x20 && byte != 0x7F))
          << Visible(text) << " of " << arguments.front();
      text.remove_prefix(length);
    }
  }

  TemporaryFolder folder_;
};

TEST_F(TerminalOutputTest, TokenizeFiltersTextsAndErrors) {
  const std::string rows = std::string("{\"prompt\":\"") + kHostileJson + "\"}\n{\"id\":\"" +
                           kHostileJson + "\",\"promt\":1}\n";
  ExpectHarmless({"tokenize", "-m", DemoModel(), "-f", folder_.Write("rows", rows)}, 1, "abc");
  ExpectHarmless({"tokenize", "-m", DemoModel(), "--decode", "-f",
                  folder_.Write("ids", "{\"prompt_token_ids\":[60,61,62]}\n")},
                 0, "text");
}

TEST_F(TerminalOutputTest, MessagesShowNamesOfFilesOptionsAndValues) {
  const std::string hostile = kHostile;
  ExpectHarmless({"tokenize", "-m", folder_.Path(hostile)}, 64, "no input");
  ExpectHarmless({"info", "-m", folder_.Path(hostile)}, 66, "\\u202e");
  ExpectHarmless({"run", "--" + hostile}, 64, "\\u202e");
  ExpectHarmless({"run", "-m", DemoModel(), "--max-tokens", hostile, "-p", "x"}, 64, "\\u202e");
  ExpectHarmless({"run", "-m", DemoModel(), "-f", folder_.Path(hostile)}, 66, "\\u202e");
  ExpectHarmless({hostile}, 64, "\\u202e");
  std::filesystem::create_directory(folder_.Path("model"));
  std::filesystem::create_symlink(DemoModel() + "/tokenizer.model",
                                  folder_.Path("model/tokenizer.model"));
  folder_.Write("model/config.json", std::string("{\"model_type\":\"") + kHostileJson + "\"}");
  ExpectHarmless({"info", "-m", folder_.Path("model")}, 65, "\\u202e");
  const std::string rows =
      folder_.Write("rows", std::string("{\"id\":\"a\",\"") + kHostileJson + "\":1}\n");
  ExpectHarmless({"run", "-m", DemoModel(), "--check", "-f", rows}, 65, "\\u202e");
  ExpectHarmless({"report", folder_.Path(hostile), "-o", folder_.Path("x.svg")}, 66, "\\u202e");
}

TEST_F(TerminalOutputTest, MessagesAreBrokenAtBlanks) {
  std::string name = "a";
  for (int i = 0; i < 20; ++i) name += " word" + std::to_string(i);
  PtyProcess program({"info", "-m", name}, {{"TERM", "xterm"}});
  EXPECT_EQ(program.WaitForExit(), 66);
  std::istringstream rows(program.output());
  std::string words;
  for (std::string row; std::getline(rows, row);) {
    if (!row.empty() && row.back() == '\r') row.pop_back();
    EXPECT_LE(row.size(), 200u) << row;  // the width of PtyProcess
    words += " " + row.substr(row.find_first_not_of(' '));
  }
  EXPECT_NE(words.find(name), std::string::npos) << program.output();
}

}  // namespace
}  // namespace minisgl::term
