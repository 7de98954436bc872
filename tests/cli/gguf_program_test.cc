// The program with a GGUF file in place of a model directory.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "program/fakes.h"
#include "program/program.h"

namespace minisgl::cli {
namespace {

const std::string kChatGguf = MINISGL_SOURCE_DIR "/tests/golden/gguf/chat.gguf";

class GgufProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
  }
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_.Path(name)) << text;
    return folder_.Path(name);
  }

  TemporaryFolder folder_;
};

TEST_F(GgufProgramTest, AGgufFileThatRunsIsDescribedWithItsMemory) {
  const ProgramResult result = RunProgram({"info", kChatGguf});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* part : {"runs          yes\n", "template      yes\n", "  KV cache ",
                           "end tokens    900 (<|endoftext|>), 902", "Q8_0        99.1 %"}) {
    EXPECT_NE(result.out.find(part), std::string::npos) << part << " in " << result.out;
  }
}

// Every command takes the file in place of a model directory.
TEST_F(GgufProgramTest, AGgufFileIsUsedAsAnyOtherModel) {
  const std::vector<std::string> run = {
      "run",           "-m", kChatGguf,      "-p", "Hello",
      "--temperature", "0",  "--max-tokens", "5",  "--ignore-eos"};
  const ProgramResult first = RunProgram(run), second = RunProgram(run);
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_GT(first.out.size(), 1u);
  EXPECT_EQ(first.out, second.out);
  const std::string rows = Write("rows.jsonl", "{\"prompt\": \"a b\"}\n{\"prompt\": \"c\"}\n");
  const ProgramResult tokens = RunProgram({"tokenize", "-m", kChatGguf, "--file", rows});
  EXPECT_EQ(tokens.exit_code, 0) << tokens.err;
  const ProgramResult plan = RunProgram({"plan", "-m", kChatGguf, rows});
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  const std::string texts = Write("texts.jsonl", "{\"text\": \"a b c\"}\n");
  const ProgramResult score = RunProgram({"score", "-m", kChatGguf, "--file", texts});
  EXPECT_EQ(score.exit_code, 0) << score.err;
  EXPECT_NE(score.out.find("logprob"), std::string::npos) << score.out;
  std::vector<std::string> batch = {"run", "-m", kChatGguf, "--file", rows, "--max-tokens", "3"};
  for (const char* option : {"-o", "--prefix-cache", "--pack-cache"}) {
    batch.push_back(option);
    batch.push_back(folder_.Path(std::string("to") + option));
  }
  EXPECT_EQ(RunProgram(batch).exit_code, 0);
  std::vector<std::string> again = batch;
  again.push_back("--resume");
  const ProgramResult resumed = RunProgram(again);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  // Another file is another model.
  const std::string other = folder_.Path("other.gguf");
  std::filesystem::copy(kChatGguf, other);
  std::ofstream(other, std::ios::app) << "more";
  again[2] = other;
  const ProgramResult refused = RunProgram(again);
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_NE(refused.err.find("another model"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace minisgl::cli
