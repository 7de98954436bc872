// /model PATH: the conversation goes on with another model, and an error keeps the old one.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "minisgl/base/mapped_file.h"
#include "program/pty_chat.h"

namespace minisgl::chat {
namespace {

namespace fs = std::filesystem;

class ChatModelTest : public ChatTest {
 protected:
  void SetUp() override {
    ChatTest::SetUp();
    if (!dir_.empty()) fs::create_directory_symlink(kWrenDir, File("other"));
  }

  PipedResult Talk(const std::vector<std::string>& lines) const {
    std::string input;
    for (const std::string& line : lines) input += line + '\n';
    return RunPiped(Arguments({"--commands"}), input);
  }

  // Files of the demo model in a folder, with one of them replaced.
  std::string Changed(const std::string& name, const std::string& text) const {
    const std::string folder = File("changed");
    fs::create_directory(folder);
    for (const auto& entry : fs::directory_iterator(kWrenDir)) {
      fs::create_symlink(entry.path(), fs::path(folder) / entry.path().filename());
    }
    fs::remove(fs::path(folder) / name);
    std::ofstream(fs::path(folder) / name) << text;
    return folder;
  }

  static constexpr const char* kName = "My name is Ada, and I live near the river.";
  static constexpr const char* kAsk = "What is my name?";
};

TEST_F(ChatModelTest, TheConversationGoesOn) {
  const PipedResult result =
      Talk({kName, "/branch more", "What is the capital of France?", "/set top_k 7",
            "/model " + File("other"), "/params", kAsk, "/switch main", kAsk, "/model"});
  EXPECT_EQ(result.status, 0) << result.err;
  const size_t first = result.out.find("Your name is Ada");
  EXPECT_NE(first, std::string::npos) << result.out << result.err;
  EXPECT_NE(result.out.find("Your name is Ada", first + 1), std::string::npos) << result.out;
  EXPECT_NE(result.err.find(File("other") + " on cpu"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find(File("other") + ": LlamaForCausalLM"), std::string::npos) << result.err;
  const size_t top_k = result.err.find("top_k");
  ASSERT_NE(top_k, std::string::npos) << result.err;
  EXPECT_NE(result.err.substr(top_k, 30).find('7'), std::string::npos) << result.err;
}

TEST_F(ChatModelTest, AFileInOneIsAModelToo) {
  const std::string file = MINISGL_SOURCE_DIR "/tests/golden/gguf/chat.gguf";
  const PipedResult result =
      Talk({kName, "/model " + file, "Hi", "/undo", "/model " + std::string(kWrenDir), kAsk});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find(file + " on cpu"), std::string::npos) << result.err;
  EXPECT_NE(result.out.find("Your name is Ada"), std::string::npos) << result.out << result.err;
}

// Found before the old model is freed, and after it: then that is loaded again.
TEST_F(ChatModelTest, AnErrorKeepsTheModel) {
  auto config = ReadFile(std::string(kWrenDir) + "/config.json", uint64_t{1} << 20);
  ASSERT_TRUE(config.ok());
  const std::string key = "\"num_hidden_layers\": ";
  const size_t at = config->find(key);
  ASSERT_NE(at, std::string::npos);
  config->replace(at, key.size(), key + "1");  // 1N layers
  const std::string deeper = Changed("config.json", *config);
  for (const std::string& wrong : {File("nowhere"), deeper}) {
    const PipedResult result = Talk({kName, "/model " + wrong, kAsk});
    EXPECT_EQ(result.status, 1) << result.err;
    EXPECT_NE(result.err.find(wrong), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("the model is still " + std::string(kWrenDir)), std::string::npos)
        << result.err;
    EXPECT_NE(result.out.find("Your name is Ada"), std::string::npos) << result.out;
  }
}

}  // namespace
}  // namespace minisgl::chat
