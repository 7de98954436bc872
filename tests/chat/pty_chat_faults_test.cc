// Row 43 of the scoreboard: disturbances of a chat by the user, the terminal or signals. Afterwards
// it answers as before, or has ended as specified.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "program/pty_chat.h"

namespace minisgl::chat {
namespace {

const std::vector<std::string> kSlow = {"--ignore-eos", "-n", "1500", "--cpu-target", "naive"};
constexpr const char* kQuestion = "What is the capital of France?\r";

std::string Paste(const std::string& text) { return "\x1b[200~" + text + "\x1b[201~"; }

std::string Repeat(const std::string& text, size_t bytes) {
  std::string repeated;
  while (repeated.size() < bytes) repeated += text;
  return repeated;
}

struct FaultCase {
  const char* name;
  std::vector<std::string> options;
  std::vector<std::string> keys;  // each is sent after the text before it in `shown` has appeared
  std::vector<std::string> shown;
  int status = 0;  // exit status if it ends by itself; otherwise it continues
  bool ends = false;
};

void PrintTo(const FaultCase& fault, std::ostream* out) { *out << fault.name; }

const std::vector<FaultCase>& Cases() {
  static const std::vector<FaultCase> kCases = {
      {"EndAtAnEmptyPrompt", {}, {kCtrlD}, {}, 0, true},
      {"EndInABlock", {}, {"\"\"\"What is\r", kCtrlD}, {"... ", "> "}},
      {"EndKeyInALineDeletesACharacter", {}, {"abc\x01\x04\x0b"}, {"bc"}},
      {"InterruptInPrefill",
       {"--max-prefill-length", "1", "--cpu-target", "naive"},
       {Paste(Repeat("a1 ", 2000)) + "\r" + kCtrlC},
       {"taken back"}},
      {"InterruptInDecode", kSlow, {kQuestion, kCtrlC}, {"Paris", "[stopped]"}},
      {"InterruptTypedAhead", kSlow, {kQuestion + std::string(kCtrlC)}, {"[stopped"}},
      {"InterruptOfSeveralAnswers",
       kSlow,
       {kQuestion, kCtrlC, "/regen 4\r", kCtrlC},
       {"Paris", "[stopped]", "[1/4]", "[4/4]"}},
      {"InterruptInABlock", {}, {"\"\"\"one\r", kCtrlC}, {"... ", "^C"}},
      {"InterruptInASearch", {}, {"\x12zzz", kCtrlC}, {"bck", "^C"}},
      {"InterruptTwiceLeaves", {}, {kCtrlC, kCtrlC}, {"leaves)"}, 130, true},
      {"PasteOfManyLines",
       {},
       {Paste(Repeat("another line of text\r", size_t{1} << 20)), "\r"},
       {"[pasted text 1", "does not fit the context"}},
      {"PasteOfOneLine",
       {},
       {Paste(Repeat("words ", size_t{1} << 20)), "\r"},
       {"[pasted text 1", "does not fit the context"}},
      {"PasteThatNeverEnds", {}, {"\x1b[200~some text", kCtrlC}, {"", "^C"}},
      {"PasteOfControls",
       {"-n", "2"},
       {Paste("a\x1b[2J\x07\x01\x1b]0;t\x07z"), "\r"},
       {"[pasted text 1", "\r\n"}},
      {"ContextFull",
       {"--max-seq-len", "64"},
       {kQuestion, kQuestion, kQuestion},
       {"Paris", "Paris", "dropped"}},
      {"ContextFullIsAnError",
       {"--max-seq-len", "34", "--on-overflow", "error"},
       {kQuestion, kQuestion, "/reset\r"},
       {"Paris", "does not fit", "starts over"}},
      {"BytesThatAreNoText", {"-n", "2"}, {"\xff\xfe\x80 caf\xe9\r"}, {"not UTF-8"}},
      {"Terminated", kSlow, {kQuestion}, {"Paris"}, 128 + SIGTERM, true},
      {"HungUp", kSlow, {kQuestion}, {"Paris"}, 128 + SIGHUP, true},
  };
  return kCases;
}

class ChatFaultTest : public ChatTest, public ::testing::WithParamInterface<FaultCase> {
 protected:
  // Returns a chat after the fault; null if the answer was complete before it could be stopped.
  std::unique_ptr<PtyProcess> Suffer(const FaultCase& fault) const {
    auto chat = Start(fault.options);
    for (size_t i = 0; i < std::max(fault.keys.size(), fault.shown.size()); ++i) {
      if (i < fault.keys.size()) chat->Send(fault.keys[i]);
      if (i >= fault.shown.size()) continue;
      std::vector<std::string> texts = {fault.shown[i]};
      if (fault.shown[i] == "[stopped]") texts.emplace_back(kEditingPrompt);
      const int shown = chat->WaitForOneOf(texts);
      if (shown == 1) return nullptr;
      EXPECT_EQ(shown, 0) << fault.shown[i] << "\n" << chat->output().substr(0, 4000);
    }
    return chat;
  }
};

TEST_P(ChatFaultTest, StaysUsable) {
  const FaultCase& fault = GetParam();
  std::unique_ptr<PtyProcess> chat;
  for (int tries = 0; chat == nullptr && tries < 20; ++tries) chat = Suffer(fault);
  ASSERT_NE(chat, nullptr) << "no answer could be stopped";
  if (HasFailure()) return;
  if (std::string(fault.name) == "Terminated") chat->Signal(SIGTERM);
  if (std::string(fault.name) == "HungUp") chat->HangUp();
  if (fault.ends) {
    EXPECT_EQ(chat->WaitForExit(), fault.status) << chat->output().substr(0, 4000);
    return;
  }
  // By then, earlier input is discarded or answered.
  chat->Send("/set max_tokens 40\r/set ignore_eos off\r/reset\r");
  ASSERT_TRUE(chat->WaitFor("starts over")) << chat->output().substr(0, 4000);
  chat->Send(kQuestion);
  ASSERT_TRUE(chat->WaitFor("The capital of France is Paris.")) << chat->output().substr(0, 4000);
  ASSERT_TRUE(WaitForPrompt(chat.get()));
  chat->Send(kCtrlD);
  EXPECT_EQ(chat->WaitForExit(), 0) << chat->output().substr(0, 4000);
}

INSTANTIATE_TEST_SUITE_P(Row43, ChatFaultTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace minisgl::chat
