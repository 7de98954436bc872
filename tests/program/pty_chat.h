// Fixture for tests of `minisgl chat`: a chat with the demo model at a pseudo-terminal, with its
// state in a temporary folder.
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
// An editing prompt follows the sequence that enables paste marks, which answers never contain.
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
  // Returns a chat at its first prompt.
  std::unique_ptr<PtyProcess> Start(std::vector<std::string> more = {},
                                    const std::string& term = "xterm",
                                    std::map<std::string, std::string> environment = {}) const {
    environment.insert({{"TERM", term}, {"NO_COLOR", "1"}, {"XDG_STATE_HOME", dir_}});
    auto chat = std::make_unique<PtyProcess>(Arguments(std::move(more)), environment);
    EXPECT_TRUE(chat->WaitFor(kPrompt)) << chat->output();
    return chat;
  }
  // A plain prompt is at the beginning of a line; answers never contain that.
  static bool WaitForPrompt(PtyProcess* chat) {
    const bool edits = chat->output().find("2004h") != std::string::npos;
    return chat->WaitFor(edits ? kEditingPrompt : "\n> ");
  }
  // Sends a line and waits for the next prompt; returns the output in between.
  static std::string Say(PtyProcess* chat, const std::string& line) {
    chat->Send(line + "\r");
    const size_t begin = chat->output().size();
    EXPECT_TRUE(WaitForPrompt(chat)) << chat->output();
    return chat->output().substr(begin);
  }
  // Sends `question` and stops the answer after `begun` is shown. If the answer is complete before
  // it is stopped, discards it and tries again. Returns true if an answer was stopped.
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
