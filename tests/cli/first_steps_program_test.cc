// First commands of newcomers and of users of other programs: each error names the next step.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "program/program.h"

namespace minisgl::cli {
namespace {

class FirstStepsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
  }
  ProgramResult Run(const std::vector<std::string>& arguments) const {
    return RunProgram(arguments, {.environment = {"MINISGL_MODEL=", "XDG_CONFIG_HOME=/no/config",
                                                  "HF_HUB_CACHE=" + folder_.Path("hub")}});
  }
  // Expects wrong usage, and `part` in one line on standard error.
  void ExpectAdvice(const std::vector<std::string>& arguments, const std::string& part) const {
    const ProgramResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, 64) << arguments.back();
    EXPECT_EQ(result.out, "") << arguments.back();
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
  }

  TemporaryFolder folder_;
};

TEST_F(FirstStepsTest, TheProgramAloneShowsItsCommands) {
  const ProgramResult result = Run({});
  EXPECT_EQ(result.exit_code, 64);
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(result.err.starts_with("minisgl: no command given; see minisgl --help\n"))
      << result.err;
  for (const char* part :
       {"\n  run  ", "\n  pull  ", "minisgl chat -m DIR", "minisgl run -m DIR"}) {
    EXPECT_NE(result.err.find(part), std::string::npos) << part << "\n" << result.err;
  }
}

TEST_F(FirstStepsTest, WithoutAModelTheNextStepIsNamed) {
  ExpectAdvice({"run", "-p", "Hi"}, "write \"model = DIR\" into /no/config/minisgl/config.ini");
  ExpectAdvice({"chat"}, "minisgl pull OWNER/NAME downloads one");
  EXPECT_EQ(Run({"models"}).out,
            "no models in " + folder_.Path("hub") + "; minisgl pull OWNER/NAME downloads one\n");
  const ProgramResult missing = Run({"run", "-p", "Hi", "-m", "nosuch"});
  EXPECT_EQ(missing.exit_code, 66) << missing.err;
  EXPECT_NE(missing.err.find("minisgl pull OWNER/NAME downloads one"), std::string::npos);
}

TEST_F(FirstStepsTest, OptionsOfOtherProgramsGetASuggestion) {
  const struct {
    const char* command;
    const char* option;
    const char* advice;
  } cases[] = {
      {"run", "-hf", "did you mean -m OWNER/NAME?"},
      {"run", "-ngl", "--device cpu, or cuda"},
      {"chat", "-no-cnv", "minisgl run -p TEXT --raw"},
      {"run", "-c", "the context is --max-seq-len N"},
      {"run", "-s", "did you mean --seed?"},
      {"chat", "-sys", "did you mean --system?"},
      {"run", "-j", "did you mean --json-schema?"},
      {"run", "-fa", "it is not needed here"},
      {"run", "-V", "did you mean --version?"},
      {"run", "--max-new-tokens", "did you mean --max-tokens?"},
      {"run", "--max_new_tokens=5", "did you mean --max-tokens?"},
      {"run", "--tensor-parallel-size", "did you mean --tensor-parallel?"},
      {"run", "--quantization", "did you mean --quantize?"},
      {"chat", "--system-prompt", "did you mean --system?"},
      {"run", "--input-file", "did you mean --file?"},
      {"run", "--max-model-len", "did you mean --max-seq-len?"},
      {"run", "--ctx-size", "did you mean --max-seq-len?"},
      {"run", "--repeat-penalty", "did you mean --repetition-penalty?"},
      {"run", "--n-predict", "did you mean --max-tokens?"},
      {"run", "--gpu-memory-utilization", "did you mean --memory-ratio?"},
      {"run", "--max-num-seqs", "did you mean --max-running-requests?"},
      {"run", "--temp", "did you mean --temperature?"},
      {"run", "-temp", "did you mean --temperature?"},
  };
  for (const auto& test : cases) {
    ExpectAdvice({test.command, test.option, "1"}, test.advice);
  }
}

TEST_F(FirstStepsTest, CommandsAndValuesOfOtherProgramsGetASuggestion) {
  ExpectAdvice({"list"}, "did you mean models?");
  ExpectAdvice({"show", "wren"}, "did you mean info?");
  ExpectAdvice({"ps"}, "no server");
  ExpectAdvice({"serve", "wren"}, "no server");
  ExpectAdvice({"version"}, "did you mean --version?");
  ExpectAdvice({"-V"}, "did you mean --version?");
  ExpectAdvice({"run-batch", "-i", "x"}, "did you mean run -f?");
  ExpectAdvice({"run", "list"}, "unknown argument (list); -m takes the model");
  ExpectAdvice({"cache", "list"}, "unknown command (list); cache needs one of ls, verify, clear");
  ExpectAdvice({"run", "wren", "Hi"}, "-m takes the model, and -p a text to ask");
  ExpectAdvice({"run", "--dtype", "float16"}, "found float16, which is f16 here");
  ExpectAdvice({"run", "--dtype", "bfloat16"}, "found bfloat16, which is bf16 here");
  ExpectAdvice({"run", "--think=false"}, "found false, which is off here");
  // An option of another program that the command has no counterpart of.
  ExpectAdvice({"pull", "--max-new-tokens", "4"}, "unknown option (--max-new-tokens); see");
}

TEST_F(FirstStepsTest, AHighTemperatureIsNoted) {
  for (const bool is_high : {false, true}) {
    const ProgramResult result = RunProgram({"run", "-m", DemoModel(), "-p", "Hi", "-n", "2", "-t",
                                             is_high ? "8" : "2", "--num-pages", "64"},
                                            {});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err.find("--threads N sets the threads") != std::string::npos, is_high)
        << result.err;
  }
}

}  // namespace
}  // namespace minisgl::cli
