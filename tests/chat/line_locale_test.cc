// Text typed at the prompt arrives unchanged in every locale.
#include <gtest/gtest.h>

#include <string>

#include "program/pty_chat.h"

namespace minisgl::chat {
namespace {

class LineLocaleTest : public ChatTest, public testing::WithParamInterface<const char*> {};

TEST_P(LineLocaleTest, WideCharactersAreKept) {
  auto chat = Start({}, "xterm", {{"LC_ALL", GetParam()}});
  const std::string line = "/system caf\u00e9 \u65e5\u672c\U0001F600";
  Say(chat.get(), line);
  Say(chat.get(), "/save " + File("saved"));
  EXPECT_NE(ReadAll(File("saved")).find(line.substr(8)), std::string::npos)
      << ReadAll(File("saved"));
  EXPECT_TRUE(ReadAll(File("minisgl/history")).starts_with(line + "\n"));
  chat->Send(kCtrlD);
  EXPECT_EQ(chat->WaitForExit(), 0);
}

INSTANTIATE_TEST_SUITE_P(All, LineLocaleTest,
                         testing::Values("C", "POSIX", "C.UTF-8", "no_such_locale"),
                         [](const auto& test) {
                           const std::string name = test.param;
                           return name == "C.UTF-8" ? std::string("Utf8") : name;
                         });

}  // namespace
}  // namespace minisgl::chat
