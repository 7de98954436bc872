// The program under cron, env -i and a locale without UTF-8: no home folder, no terminal, no PATH.
// It does what it does elsewhere and prints no word more.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "program/program.h"

namespace minisgl::cli {
namespace {

class BareEnvironmentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
  }
  // Expects the same output, errors and status with and without an environment.
  static void ExpectSame(const std::vector<std::string>& arguments, const std::string& input) {
    const ProgramResult bare = RunProgram(arguments, {.input = input, .bare_environment = true});
    const ProgramResult usual = RunProgram(arguments, {.input = input});
    EXPECT_EQ(bare.exit_code, 0) << arguments[0] << bare.err;
    EXPECT_EQ(bare.out, usual.out) << arguments[0];
    EXPECT_EQ(bare.err, usual.err) << arguments[0];
    EXPECT_FALSE(bare.out.empty()) << arguments[0];
    const ProgramResult plain = RunProgram(
        arguments, {.input = input, .environment = {"LC_ALL=C"}, .bare_environment = true});
    EXPECT_EQ(plain.out, usual.out) << arguments[0];
    EXPECT_EQ(plain.err, usual.err) << arguments[0];
  }
};

TEST_F(BareEnvironmentTest, CommandsPrintWhatTheyPrintElsewhere) {
  const std::string question = "What is the capital of France?";
  ExpectSame({"run", "-m", DemoModel(), "-p", question}, "");
  ExpectSame({"run", "-m", DemoModel(), "-p", "caf\u00e9 \u65e5\u672c", "-n", "4"}, "");
  ExpectSame({"run", "-m", DemoModel(), "-q", "--file", "-"}, "{\"prompt\": \"Hello\"}\n");
  ExpectSame({"chat", "-m", DemoModel()}, question + "\n");
  ExpectSame({"tokenize", "-m", DemoModel()}, question + "\n");
  ExpectSame({"--version"}, "");
  ExpectSame({"help", "rows"}, "");
}

}  // namespace
}  // namespace minisgl::cli
