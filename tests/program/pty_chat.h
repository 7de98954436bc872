// A chat with the demo model at a pseudo-terminal, its state in a folder of its own: what the tests
// of `minisgl chat` stand on.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pty_process.h"

namespace minisgl {

inline constexpr const char* kWrenDir = MINISGL_SOURCE_DIR "/tests/models/wren";
inline constexpr const char* kPrompt = "> ";
// An editing prompt comes after switching pastes on: answers never hold that.
inline constexpr const char* kEditingPrompt = "2004h> ";
inline constexpr const char* kCtrlC = "\x03";
inline constexpr const char* kCtrlD = "\x04";

class ChatTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramPath().empty()) {
      GTEST_SKIP() << "the program is not beside the tests; build it, or set MINISGL_BINARY";
    }
    std::string name = (std::filesystem::temp_directory_path() / "chat_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override {
    if (!dir_.empty()) std::filesystem::remove_all(dir_);
  }

  std::vector<std::string> Arguments(std::vector<std::string> more) const {
    std::vector<std::string> args = {
        "chat", "-m", kWrenDir, "--threads", "1", "--max-running-requests", "4"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  // A chat at its first prompt.
  std::unique_ptr<PtyProcess> Start(std::vector<std::string> more = {},
                                    const std::string& term = "xterm",
                                    std::map<std::string, std::string> environment = {}) const {
    environment.insert({{"TERM", term}, {"NO_COLOR", "1"}, {"XDG_STATE_HOME", dir_}});
    auto chat = std::make_unique<PtyProcess>(Arguments(std::move(more)), environment);
    EXPECT_TRUE(chat->WaitFor(kPrompt)) << chat->output();
    return chat;
  }
  // A plain prompt begins a line, which no answer does that way.
  static bool WaitForPrompt(PtyProcess* chat) {
    const bool edits = chat->output().find("2004h") != std::string::npos;
    return chat->WaitFor(edits ? kEditingPrompt : "\n> ");
  }
  // Sends a line and waits for the next prompt; gives what was shown between.
  static std::string Say(PtyProcess* chat, const std::string& line) {
    chat->Send(line + "\r");
    const size_t begin = chat->output().size();
    EXPECT_TRUE(WaitForPrompt(chat)) << chat->output();
    return chat->output().substr(begin);
  }
  // Asks, and stops the answer once `begun` was shown. An answer may be whole before it is stopped,
  // and is thrown away then; whether one was stopped in the end.
  static bool StopAnAnswer(PtyProcess* chat, const std::string& question,
                           const std::string& begun) {
    for (int tries = 0; tries < 20; ++tries) {
      chat->Send(question + "\r");
      EXPECT_TRUE(chat->WaitFor(begun)) << chat->output();
      chat->Send(kCtrlC);
      const int shown = chat->WaitForOneOf({"[stopped]", kEditingPrompt});
      if (shown <= 0) return shown == 0 && WaitForPrompt(chat);
      Say(chat, "/undo");
    }
    return false;
  }
  std::string File(const std::string& name) const { return dir_ + "/" + name; }
  static std::string ReadAll(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::string dir_;
};

}  // namespace minisgl
