// Tools in a chat: shown, confirmed, run, answered, and listed. The model writes a known text: a
// call, and behind the result of a tool another answer.
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "answers/scripted_model.h"
#include "program/pty_chat.h"

namespace minisgl::chat {
namespace {

// Behind a result, whose text it must have, each letter stands for one token of the script.
const std::string kNextIsDone =
    "{% if messages[-1].role == 'tool' and ('seven' in messages[-1].content or 'error' in "
    "messages[-1].content) %}AAAAAAAAAAAAAA{% endif %}";
const std::string kToolTemplate =
    "{% if tools %}T{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for c in m.tool_calls %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": "
    "{{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]<|pre|><|go|>" +
    kNextIsDone + "{% endif %}";

class ChatToolsTest : public ChatTest {
 protected:
  static answers::Script Caller(bool calls_again = false) {
    answers::Script script;
    script.chat_template = kToolTemplate;
    if (calls_again) {
      const size_t at = script.chat_template.find(kNextIsDone);
      script.chat_template.erase(at, kNextIsDone.size());
    }
    script.tokens = {"Look. ",       "<tool_call>", "\n",       "{\"name\": \"f\"",
                     ", ",           "\"arg",       "uments\"", ": {\"n\"",
                     ": ",           "41",          "}}",       "\n",
                     "</tool_call>", "<|over|>",    "It ",      "is ",
                     "done."};
    script.special = {"<tool_call>", "</tool_call>"};
    return script;
  }
  static std::vector<std::string> Arguments(const answers::ScriptedModel& model,
                                            std::vector<std::string> more) {
    std::vector<std::string> args = {"chat",          "-m", model.path(), "--threads", "1",
                                     "--temperature", "0"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  // A tool that keeps its input in the file "called" and prints "seven".
  std::string Tool() const {
    std::ofstream(File("tool")) << "cat >> " << File("called") << "; echo seven\n";
    return "f=sh " + File("tool");
  }
  std::unique_ptr<PtyProcess> StartAt(const answers::ScriptedModel& model,
                                      std::vector<std::string> more) const {
    auto chat = std::make_unique<PtyProcess>(
        Arguments(model, std::move(more)),
        std::map<std::string, std::string>{
            {"TERM", "xterm"}, {"NO_COLOR", "1"}, {"XDG_STATE_HOME", dir_}});
    EXPECT_TRUE(chat->WaitFor(kEditingPrompt)) << chat->output();
    return chat;
  }
};

TEST_F(ChatToolsTest, ACallIsRunAndTheModelGoesOn) {
  const answers::ScriptedModel model(Caller());
  const PipedResult result =
      RunPiped(Arguments(model, {"--commands", "--tool", Tool(), "--yes-tools"}),
               "Hi\n/tools\n/show\n/save " + File("saved") + "\n");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "Look.\nIt is done.\n");
  EXPECT_NE(result.err.find("[call] f {\"n\": 41}\n[f] seven\n"), std::string::npos) << result.err;
  EXPECT_EQ(ReadAll(File("called")), "{\"n\": 41}");
  EXPECT_NE(result.err.find("  f: sh " + File("tool") + "\n"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("[assistant]\nLook.\n[call] f {\"n\": 41}\n[tool]\nseven\n"
                            "[assistant]\nIt is done.\n"),
            std::string::npos)
      << result.err;
  const std::string saved = ReadAll(File("saved"));
  EXPECT_NE(saved.find("\"tool_calls\": [{\"id\": \"call_"), std::string::npos) << saved;
  EXPECT_NE(saved.find("\"name\": \"f\", \"content\": \"seven\"}\n"), std::string::npos) << saved;
  const PipedResult loaded = RunPiped(Arguments(model, {"--commands", "--load", File("saved")}),
                                      "/save -f " + File("again") + "\n");
  EXPECT_EQ(ReadAll(File("again")), saved) << loaded.err;
}

TEST_F(ChatToolsTest, TheTurnsAreBounded) {
  const answers::ScriptedModel model(Caller(/*calls_again=*/true));
  const PipedResult result =
      RunPiped(Arguments(model, {"--tool", Tool(), "--yes-tools", "--tool-turns", "2"}), "Hi\n");
  EXPECT_EQ(ReadAll(File("called")), "{\"n\": 41}{\"n\": 41}");
  EXPECT_NE(result.err.find("after 2 answers with calls (--tool-turns)"), std::string::npos)
      << result.err;
  EXPECT_NE(result.out.find("<tool_call>"), std::string::npos) << "it stays text: " << result.out;
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST_F(ChatToolsTest, WhatGoesWrongIsToldToTheModel) {
  const answers::ScriptedModel model(Caller());
  for (const auto& [tool, says] :
       {std::pair("f=false", "failed with the exit status 1"),
        std::pair("f=/nonexistent/tool", "cannot be run"), std::pair("g=cat", "there is no tool f"),
        std::pair("f=sleep 1000", "was stopped after 0.01 seconds")}) {
    const bool is_slow = std::string(tool).find("sleep") != std::string::npos;
    const PipedResult result = RunPiped(
        Arguments(model,
                  {"--tool", tool, "--yes-tools", "--tool-timeout", is_slow ? "0.01" : "600"}),
        "Hi\n");
    EXPECT_EQ(result.out, "Look.\nIt is done.\n") << result.err;
    EXPECT_NE(result.err.find(says), std::string::npos) << result.err;
  }
}

TEST_F(ChatToolsTest, NothingRunsWithoutATerminalUnlessItIsSaid) {
  const answers::ScriptedModel model(Caller());
  const PipedResult result = RunPiped(Arguments(model, {"--tool", Tool()}), "Hi\n");
  EXPECT_EQ(result.status, 64);
  EXPECT_NE(result.err.find("--yes-tools"), std::string::npos) << result.err;
  EXPECT_EQ(ReadAll(File("called")), "");
  answers::Script untold = Caller();
  untold.chat_template = answers::ScriptTemplate("");
  const PipedResult none = RunPiped(
      Arguments(answers::ScriptedModel(untold), {"--tool", Tool(), "--yes-tools"}), "Hi\n");
  EXPECT_EQ(none.status, 64);
  EXPECT_NE(none.err.find("the chat template does not read tools"), std::string::npos) << none.err;
}

TEST_F(ChatToolsTest, AtATerminalTheUserIsAsked) {
  const answers::ScriptedModel model(Caller());
  const auto chat = StartAt(model, {"--tool", Tool()});
  chat->Send("Hi\r");
  ASSERT_TRUE(chat->WaitFor("[call] f {\"n\": 41}")) << chat->output();
  ASSERT_TRUE(chat->WaitFor("Run it? [y/N] ")) << chat->output();
  chat->Send("n\r");
  ASSERT_TRUE(chat->WaitFor("It is done.")) << chat->output();
  ASSERT_TRUE(chat->WaitFor(kEditingPrompt)) << chat->output();
  EXPECT_EQ(ReadAll(File("called")), "") << "it was not allowed";
  chat->Send("/regen\r");
  ASSERT_TRUE(chat->WaitFor("Run it? [y/N] ")) << chat->output();
  chat->Send("y\r");
  ASSERT_TRUE(chat->WaitFor("[f] seven")) << chat->output();
  ASSERT_TRUE(chat->WaitFor("It is done.")) << chat->output();
  ASSERT_TRUE(chat->WaitFor(kEditingPrompt)) << chat->output();
  EXPECT_EQ(ReadAll(File("called")), "{\"n\": 41}");
  chat->Send(kCtrlD);
  EXPECT_EQ(chat->WaitForExit(), 0);
}

TEST_F(ChatToolsTest, CtrlCTakesTheMessageBack) {
  const answers::ScriptedModel model(Caller());
  std::ofstream(File("slow")) << "echo > " << File("begun") << "; exec sleep 1000\n";
  const auto chat = StartAt(model, {"--tool", "f=sh " + File("slow")});
  chat->Send("Hi\r");
  ASSERT_TRUE(chat->WaitFor("Run it? [y/N] ")) << chat->output();
  chat->Send(kCtrlC);
  ASSERT_TRUE(chat->WaitFor("the message is taken back")) << chat->output();
  ASSERT_TRUE(chat->WaitFor(kEditingPrompt)) << chat->output();
  chat->Send("Hi\r");
  ASSERT_TRUE(chat->WaitFor("Run it? [y/N] ")) << chat->output();
  chat->Send("y\r");
  while (!std::filesystem::exists(File("begun"))) chat->ReadFor(0.01);
  chat->Send(kCtrlC);
  ASSERT_TRUE(chat->WaitFor("the message is taken back")) << chat->output();
  ASSERT_TRUE(chat->WaitFor(kEditingPrompt)) << chat->output();
  chat->Send("/show\r");
  ASSERT_TRUE(chat->WaitFor("Nothing was said yet.")) << chat->output();
  chat->Send(kCtrlD);
  EXPECT_EQ(chat->WaitForExit(), 0);
}

}  // namespace
}  // namespace minisgl::chat
