// The program with a GGUF file in place of a model directory.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "program/fakes.h"
#include "program/program.h"

namespace minisgl::cli {
namespace {

const std::string kGguf = MINISGL_SOURCE_DIR "/tests/golden/gguf";
const std::string kChatGguf = kGguf + "/chat.gguf";

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

// The same model in three files, of which any names it.
TEST_F(GgufProgramTest, AModelInPartsIsUsedAsInOneFile) {
  const std::string parts = kGguf + "/chat_parts";
  const auto part = [](int i) { return "chat-0000" + std::to_string(i) + "-of-00003.gguf"; };
  const ProgramResult info = RunProgram({"info", parts});
  EXPECT_EQ(info.exit_code, 0) << info.err;
  for (const std::string& words :
       {std::string(" in 3 parts\n"), part(1), part(3), std::string("runs          yes\n"),
        std::string("in 11 tensors, ")}) {
    EXPECT_NE(info.out.find(words), std::string::npos) << words << " in " << info.out;
  }
  const auto run = [](const std::string& model) {
    return RunProgram({"run", "-m", model, "-p", "Hello", "--temperature", "0", "--max-tokens", "5",
                       "--ignore-eos"});
  };
  const ProgramResult whole = run(kChatGguf), split = run(parts + "/" + part(2));
  EXPECT_EQ(split.exit_code, 0) << split.err;
  EXPECT_EQ(split.out, whole.out);
  // A batch goes on with any part of the same model, and not if one of them has changed.
  const std::string copy = folder_.Path("copy"),
                    rows = Write("rows.jsonl", "{\"prompt\": \"a\"}\n");
  std::filesystem::copy(parts, copy);
  const auto resume = [&](int i) {
    return RunProgram({"run", "-m", copy + "/" + part(i), "--file", rows, "--max-tokens", "2", "-o",
                       folder_.Path("out.jsonl"), "--resume"});
  };
  EXPECT_EQ(resume(1).exit_code, 0);
  EXPECT_EQ(resume(3).exit_code, 0);
  std::ofstream(copy + "/" + part(2), std::ios::app) << "more";
  EXPECT_NE(resume(1).err.find("another model"), std::string::npos);
  std::filesystem::remove(copy + "/" + part(2));
  const ProgramResult missing = run(copy + "/" + part(1));
  EXPECT_EQ(missing.exit_code, 65);
  EXPECT_NE(missing.err.find(part(2) + ": is missing"), std::string::npos) << missing.err;
}

// A wrong file is not taken for a model that is too large.
TEST_F(GgufProgramTest, SizesThatAreNotTheTensorsAreBadData) {
  std::ifstream file(kChatGguf, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::string key = "llama.feed_forward_length";
  const size_t at = bytes.find(key) + key.size() + 4;  // after the type
  bytes[at + 2] = '\x80';                              // 2^23 more
  const std::string path = folder_.Path("large.gguf");
  std::ofstream(path, std::ios::binary) << bytes;
  const ProgramResult result = RunProgram({"run", "-m", path, "-p", "Hello"});
  EXPECT_EQ(result.exit_code, 65);
  EXPECT_NE(result.err.find("tensor \"blk.0.ffn_gate.weight\": its shape does not fit"),
            std::string::npos)
      << result.err;
}

TEST_F(GgufProgramTest, ATemplateThatRendersNothingIsNamed) {
  const std::string nothing = Write("nothing.jinja", "{# nothing #}");
  const std::string rows = Write("rows.jsonl", "{\"prompt\": \"a\"}\n");
  const ProgramResult result =
      RunProgram({"run", "-m", kChatGguf, "--chat", "--file", rows, "--chat-template", nothing});
  EXPECT_NE(result.out.find("the chat template renders nothing"), std::string::npos)
      << result.out << result.err;
}

}  // namespace
}  // namespace minisgl::cli
