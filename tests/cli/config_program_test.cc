// The program with a configuration file of the user.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "program/run_fixture.h"

namespace minisgl {
namespace {

class ConfigProgramTest : public RunProgramTest {
 protected:
  ConfigProgramTest() { std::filesystem::create_directories(folder_.Path("config/minisgl")); }
  ProgramResult With(const std::string& config, const Arguments& arguments) const {
    folder_.Write("config/minisgl/config.ini", config);
    return RunProgram(arguments, {"", "", {"XDG_CONFIG_HOME=" + folder_.Path("config")}});
  }
  std::string ConfigName() const { return folder_.Path("config/minisgl/config.ini"); }
};

TEST_F(ConfigProgramTest, ValuesCountAsIfTheyWereTyped) {
  const std::string config = "model = " + DemoModel() +
                             "\nnum-pages = 512\nthreads = 1\n[run]\nmax-tokens = 3\n"
                             "ignore-eos = true\n[chat]\nmax-tokens = 2\n";
  const ProgramResult run = With(config, {"run", "-p", kPeru, "--json"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(*Rows(run.out).front().Find("usage")->Find("completion_tokens"), Json(3));
  const ProgramResult typed = With(config, {"run", "-p", kPeru, "--json", "-n", "4"});
  EXPECT_EQ(*Rows(typed.out).front().Find("usage")->Find("completion_tokens"), Json(4));
  const ProgramResult out = With(config, {"run", "-m", DemoModel(), "--no-config", "-p", kPeru});
  EXPECT_EQ(out.out, std::string(kLima) + "\n");
}

TEST_F(ConfigProgramTest, APathMayBeginWithTheHomeFolder) {
  std::filesystem::create_symlink(DemoModel(), folder_.Path("wren"));
  folder_.Write("system.txt", "Be short.");
  folder_.Write("config/minisgl/config.ini",
                "model = ~/wren\nnum-pages = 512\n[run]\nsystem = @~/system.txt\n");
  const std::vector<std::string> environment = {"XDG_CONFIG_HOME=" + folder_.Path("config"),
                                                "HOME=" + folder_.Path("")};
  const ProgramResult run = RunProgram({"run", "-p", kPeru, "-n", "2"}, {"", "", environment});
  EXPECT_EQ(run.exit_code, 0) << run.err;
}

// The journal has them, so that a run does not go on with other values.
TEST_F(ConfigProgramTest, ResumeComparesThem) {
  const std::string input = folder_.Write("in", kPeruRow + "\n");
  const Arguments run = Run({"--quiet", "-f", input, "-o", folder_.Path("out")});
  ASSERT_EQ(With("[run]\nmax-tokens = 3\n", run).exit_code, 0);
  Arguments again = run;
  again.emplace_back("--resume");
  ExpectFails(With("[run]\nmax-tokens = 4\n", again), 73, "was begun with --max-tokens 3");
  again.insert(again.end(), {"--max-tokens", "3"});
  EXPECT_EQ(With("[run]\nmax-tokens = 4\n", again).exit_code, 0);
}

TEST_F(ConfigProgramTest, AnErrorNamesItsLineWhateverRuns) {
  const std::string config = "# mine\n[run]\ntemperature = warm\n";
  const std::string error = ConfigName() + ":3: temperature: must be ";
  ExpectFails(With(config, {"plan", "x"}), 65, error);
  EXPECT_EQ(With(config, {"help", "run"}).exit_code, 0);
  EXPECT_EQ(With(config, {"run", "--help"}).exit_code, 0);
  EXPECT_EQ(With(config, {"completions", "bash"}).exit_code, 0);
  const ProgramResult info = With(config, {"info", "--config"});
  EXPECT_EQ(info.exit_code, 65);
  EXPECT_NE(info.out.find("    3  [run] temperature = warm\n"), std::string::npos) << info.out;
  EXPECT_NE(info.err.find(error), std::string::npos) << info.err;
}

TEST_F(ConfigProgramTest, InfoShowsIt) {
  const ProgramResult info =
      With("threads = 2\n[chat]\nsystem = \"a\\nb\"\n", {"info", "--config"});
  EXPECT_EQ(info.exit_code, 0) << info.err;
  EXPECT_EQ(info.out, ConfigName() + "\n    1  threads = 2\n    3  [chat] system = a\\nb\n");
  EXPECT_EQ(With("threads = 2\n", {"info", "--config", "--no-config"}).out,
            ConfigName() + " is left out (--no-config)\n");
}

// The message alone would be a riddle: the user did not type --chat.
TEST_F(ConfigProgramTest, AConflictMentionsTheFile) {
  const ProgramResult run = With("[run]\nchat = true\n", Run({"-p", "a"}));
  EXPECT_EQ(run.exit_code, 64);
  EXPECT_NE(run.err.find("--chat applies to rows"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("options in " + ConfigName() + " apply, too"), std::string::npos);
}

}  // namespace
}  // namespace minisgl
