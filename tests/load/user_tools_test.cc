// Tools of the user: how they are named, and what a call of one gives.
#include "load/user_tools.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "temporary_folder.h"

namespace minisgl::load {
namespace {

ToolOptions Named(std::vector<std::string> tools, std::string file = "") {
  ToolOptions options;
  options.tools = std::move(tools);
  options.file = std::move(file);
  options.timeout_s = 600;  // only a fault reaches it
  return options;
}

std::string ErrorOf(const ToolOptions& options) {
  const Result<UserTools> tools = UserTools::Take(options);
  return tools.ok() ? "" : tools.status().message();
}

// The text that answers a call.
std::string Call(const ToolOptions& options, const std::string& name,
                 const std::string& arguments = "{}") {
  const Result<UserTools> tools = UserTools::Take(options);
  EXPECT_TRUE(tools.ok()) << tools.status().message();
  return tools.ok() ? RunUserTool(*tools, options, {name, arguments, "1"}, {}) : "";
}

TEST(UserToolsTest, ACommandIsSplitAtSpaces) {
  const Result<UserTools> tools = UserTools::Take(Named({"say=printf  %s 'a b'", "x.y-z=cat"}));
  ASSERT_TRUE(tools.ok()) << tools.status().message();
  EXPECT_EQ(tools->tools()[0].command, (std::vector<std::string>{"printf", "%s", "'a", "b'"}));
  EXPECT_EQ(tools->tools()[1].name, "x.y-z");
  EXPECT_EQ(tools->definitions().as_array()[0].Dump(),
            R"({"type": "function", "function": {"name": "say", "parameters": {"type": "object", )"
            R"("properties": {}}}})");
  EXPECT_TRUE(UserTools::Take(Named({}))->empty());
  EXPECT_TRUE(UserTools::Take(Named({}))->definitions().is_null());
}

TEST(UserToolsTest, NamesAndCommandsThatAreNone) {
  for (const char* given : {"cat", "=cat", "a=", "a=  ", "a b=cat", "a;b=cat"}) {
    EXPECT_NE(ErrorOf(Named({given})).find("--tool must be NAME=COMMAND"), std::string::npos)
        << given;
  }
  EXPECT_NE(ErrorOf(Named({"a=cat", "a=true"})).find("named twice"), std::string::npos);
}

TEST(UserToolsTest, AFileHasSchemasAndCommands) {
  const TemporaryFolder folder;
  const std::string file = folder.Write(
      "tools.json",
      R"([{"type": "function", "function": {"name": "f", "description": "D", "strict": true,
           "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}},
           "command": ["printf", "%s", "a b"]},
          {"function": {"name": "g"}, "command": "cat -u"}])");
  const ToolOptions options = Named({"h=cat"}, file);
  const Result<UserTools> tools = UserTools::Take(options);
  ASSERT_TRUE(tools.ok()) << tools.status().message();
  ASSERT_EQ(tools->tools().size(), 3u);
  EXPECT_EQ(tools->Find("f")->description, "D");
  EXPECT_EQ(tools->Find("g")->command, (std::vector<std::string>{"cat", "-u"}));
  EXPECT_EQ(tools->definitions().as_array()[1].Find("command"), nullptr);
  EXPECT_EQ(Call(options, "f"), "a b");
}

TEST(UserToolsTest, AFileWithAFaultNamesThePlace) {
  const TemporaryFolder folder;
  const struct {
    const char *text, *says;
  } faults[] = {
      {"{", "tools.json: "},
      {"{}", "must be an array of tools (found an object)"},
      {R"([{"function": {"name": "f"}}])", "tool 1: its command must be"},
      {R"([{"function": {"name": "f"}, "command": []}])", "tool 1: its command must be"},
      {R"([{"function": {"name": "f"}, "command": ["a", 1]}])", "tool 1: its command must be"},
      {R"([{"function": {"name": "f"}, "command": "a\u0000b"}])", "tool 1: its command must be"},
      {R"([{"function": {"name": "f g"}, "command": "a"}])", "tool 1: its function needs a name"},
      {R"([{"name": "f", "command": "a"}])", "tool 1: its function needs a name"},
      {R"([{"type": "x", "function": {"name": "f"}, "command": "a"}])", "tool 1: its type must be"},
      {R"([{"function": {"name": "f", "parameters": 5}, "command": "a"}])",
       "must be a JSON schema"},
      {R"([5])", "tool 1: its function needs a name"},
      {R"([{"function": {"name": "f"}, "command": "a"}, {"function": {"name": "f"}, )"
       R"("command": "a"}])",
       "tool 2: the tool f is named twice"}};
  for (const auto& [text, says] : faults) {
    const std::string error = ErrorOf(Named({}, folder.Write("tools.json", text)));
    EXPECT_NE(error.find(says), std::string::npos) << text << ": " << error;
  }
  EXPECT_NE(ErrorOf(Named({}, folder.Path("none"))), "");
}

TEST(UserToolsTest, TheArgumentsAreItsInputAndTheOutputAnswers) {
  EXPECT_EQ(Call(Named({"echo=cat"}), "echo", R"({"n": 9007199254740993, "a": "$HOME;"})"),
            R"({"n": 9007199254740993, "a": "$HOME;"})");
  EXPECT_EQ(Call(Named({"echo=echo hi"}), "echo"), "hi") << "the last line break is left out";
  EXPECT_EQ(Call(Named({"bytes=printf \\377"}), "bytes"), "\xEF\xBF\xBD");
}

TEST(UserToolsTest, WhatGoesWrongIsTheAnswer) {
  const TemporaryFolder folder;
  const std::string fails = folder.Write("fails", "echo out; echo err >&2; exit 3\n");
  EXPECT_EQ(Call(Named({"f=sh " + fails}), "f"),
            R"({"error": "the tool f failed with the exit status 3", "output": "out\n", )"
            R"("stderr": "err\n"})");
  const std::string dies = folder.Write("dies", "kill -KILL $$\n");
  EXPECT_EQ(Call(Named({"f=sh " + dies}), "f"), R"({"error": "the tool f was ended by signal 9"})");
  EXPECT_EQ(Call(Named({"f=/nonexistent/tool"}), "f"),
            "{\"error\": \"the tool f cannot be run (No such file or directory)\"}");
  EXPECT_EQ(Call(Named({"f=cat", "g=cat"}), "h"),
            R"({"error": "there is no tool h; there are: f, g"})");
  for (const char* arguments : {"", "5", "{", "[]"}) {
    EXPECT_EQ(Call(Named({"f=cat"}), "f", arguments),
              R"({"error": "the arguments are not a JSON object"})");
  }
  ToolOptions slow = Named({"f=sleep 1000"});
  slow.timeout_s = 0.001;
  EXPECT_EQ(Call(slow, "f"), R"({"error": "the tool f was stopped after 0.001 seconds"})");
}

TEST(UserToolsTest, LongOutputIsCutWithANote) {
  const TemporaryFolder folder;
  const std::string file = folder.Write("long", std::string(100'000, 'x'));
  const std::string text = Call(Named({"f=cat " + file}), "f");
  EXPECT_EQ(text, std::string(65536, 'x') + "\n[cut after 65536 bytes]");
}

}  // namespace
}  // namespace minisgl::load
