// Scripts of `minisgl completions`, run by the shells that are installed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "program/program.h"
#include "temporary_folder.h"

namespace minisgl {
namespace {

class CompletionsTest : public ::testing::Test {
 protected:
  // A file with the script for `shell`.
  std::string Script(const std::string& shell) {
    const ProgramResult result = RunProgram({"completions", shell});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(result.out.find("max-running-requests") != std::string::npos) << shell;
    const std::string path = folder_.Path("script." + shell);
    std::ofstream(path) << result.out;
    return path;
  }

  // The output of `command`, a line for sh.
  std::string Output(const std::string& command) {
    const std::string path = folder_.Path("output");
    EXPECT_EQ(std::system((command + " > '" + path + "' 2>&1").c_str()), 0) << command;
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static bool IsInstalled(const std::string& shell) {
    return std::system(("command -v " + shell + " > /dev/null").c_str()) == 0;
  }

  TemporaryFolder folder_;
};

TEST_F(CompletionsTest, BashCompletesCommandsOptionsAndValues) {
  const std::string script = Script("bash");
  EXPECT_EQ(Output("bash -n '" + script + "'"), "");
  const auto complete = [&](const std::string& words) {
    return Output(
        "bash -c 'source \"$0\"; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _minisgl; "
        "echo \"${COMPREPLY[*]}\"' '" +
        script + "' " + words);
  };
  EXPECT_EQ(complete("minisgl re"), "rerank report\n");
  EXPECT_EQ(complete("minisgl run --cac"), "--cache\n");
  EXPECT_EQ(complete("minisgl run --cache ''"), "radix naive\n");
  EXPECT_EQ(complete("minisgl run --cache = na"), "naive\n");
  EXPECT_EQ(complete("minisgl -m run bench cas"), "cascade\n");
  EXPECT_EQ(complete("minisgl bench nano --num-s"), "--num-seqs\n");
  EXPECT_EQ(complete("minisgl run --seed ''"), "\n");
  EXPECT_EQ(complete("minisgl completions f"), "fish\n");
  EXPECT_EQ(complete("minisgl run -f '" + script.substr(0, script.size() - 1) + "'"),
            script + "\n");
}

TEST_F(CompletionsTest, ZshReadsItsScript) {
  const std::string script = Script("zsh");
  std::ifstream file(script);
  std::string first;
  std::getline(file, first);
  EXPECT_EQ(first, "#compdef minisgl");
  if (IsInstalled("zsh")) EXPECT_EQ(Output("zsh -n '" + script + "'"), "");
}

TEST_F(CompletionsTest, FishCompletesCommandsOptionsAndValues) {
  const std::string script = Script("fish");
  if (!IsInstalled("fish")) return;
  EXPECT_EQ(Output("fish -n '" + script + "'"), "");
  const auto complete = [&](const std::string& line) {
    return Output("fish --no-config -c \"source '" + script + "'; complete -C '" + line + "'\"");
  };
  EXPECT_TRUE(complete("minisgl re").starts_with("report\t"));
  EXPECT_TRUE(complete("minisgl run --cac").starts_with("--cache\t"));
  EXPECT_TRUE(complete("minisgl run --cache na").starts_with("naive\t"));
  EXPECT_TRUE(complete("minisgl bench cas").starts_with("cascade\t"));
}

}  // namespace
}  // namespace minisgl
