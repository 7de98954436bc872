// Reasoning in a chat: tags that are text, tags that are control tokens, and where reasoning and
// answer are printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../runtime/renamed_wren.h"
#include "program/pty_chat.h"
#include "slow.h"

namespace minisgl::chat {
namespace {

// A template that starts every answer with reasoning, which the model never ends.
class ChatReasoningTest : public ChatTest {
 protected:
  std::vector<std::string> Thinking(std::vector<std::string> more) const {
    std::ofstream(File("think.jinja"))
        << "{{ bos_token }}{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + "
           "m['content'].split('</think>')[-1] + eos_token + '\\n' }}{% endfor %}"
           "{% if add_generation_prompt %}{{ '<|assistant|>\\n<think>' }}{% endif %}";
    more.insert(more.end(), {"--chat-template", File("think.jinja")});
    return Arguments(std::move(more));
  }
};

TEST_F(ChatReasoningTest, InAPipeItStandsOnStandardError) {
  const PipedResult plain = RunPiped(Arguments({"-n", "3"}), "Hi\n");
  const PipedResult shown = RunPiped(Thinking({"-n", "3"}), "Hi\n");
  EXPECT_EQ(shown.out, "\n");
  EXPECT_GT(shown.err.size(), plain.err.size());
  EXPECT_EQ(shown.err.find('\x1b'), std::string::npos);
  const PipedResult hidden = RunPiped(Thinking({"-n", "3", "--hide-thinking"}), "Hi\n");
  EXPECT_EQ(hidden.out, "\n");
  EXPECT_EQ(hidden.err, "[cut after 3 tokens, all reasoning; see /think and /set max_tokens]\n");
}

TEST_F(ChatReasoningTest, OnATerminalItIsDimmed) {
  PtyProcess chat(Thinking({}), {{"TERM", "xterm"}, {"NO_COLOR", ""}, {"XDG_STATE_HOME", dir_}});
  ASSERT_TRUE(chat.WaitFor("2004h")) << chat.output();
  chat.Send("What is the capital of France?\r");
  ASSERT_TRUE(chat.WaitFor("\x1b[2m")) << chat.output();
  ASSERT_TRUE(chat.WaitFor("\x1b[22m")) << chat.output();
  chat.Send(kCtrlD);
  EXPECT_EQ(chat.WaitForExit(), 0);
}

// A hidden thought is counted in a line that the end of the answer erases.
TEST_F(ChatReasoningTest, AHiddenThoughtIsCounted) {
  MarkSlow("a slow engine, so that there is something to show");
  auto chat = std::make_unique<PtyProcess>(
      Thinking({"--hide-thinking", "--ignore-eos", "-n", "1500", "--cpu-target", "naive"}),
      std::map<std::string, std::string>{
          {"TERM", "xterm"}, {"NO_COLOR", "1"}, {"XDG_STATE_HOME", dir_}});
  ASSERT_TRUE(chat->WaitFor(kEditingPrompt)) << chat->output();
  chat->Send("What is the capital of France?\r");
  ASSERT_TRUE(chat->WaitFor("(thinking, ")) << chat->output();
  ASSERT_TRUE(chat->WaitFor(" tokens)\r")) << chat->output();
  chat->Send(kCtrlC);
  ASSERT_TRUE(chat->WaitFor("[stopped")) << chat->output();
  EXPECT_TRUE(chat->Seen().find("\r\x1b[J", chat->Seen().rfind("(thinking")) != std::string::npos)
      << chat->output();
  ASSERT_TRUE(WaitForPrompt(chat.get())) << chat->output();
}

// The demo model with "I" and "," as tags: it describes itself as "I am Wren, a very small ...".
// Its template takes reasoning as a part of the content.
class ChatControlTagsTest : public ChatTest {
 protected:
  static constexpr const char* kAnswer = "a very small language model that ships with minisgl.\n";
  std::vector<std::string> Tagged(std::vector<std::string> more) const {
    std::ofstream(File("blocks.jinja"))
        << "{{ bos_token }}{% for m in messages %}{{ '<|' + m['role'] + '|>\n' }}"
           "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for b in m['content'] %}"
           "{% if b['type'] == 'thinking' %}{{ '[THINK]' + b['thinking'] + '[/THINK]' }}{% else %}"
           "{{ b['text'] }}{% endif %}{% endfor %}{% endif %}{{ eos_token + '\n' }}{% endfor %}"
           "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}";
    more.insert(more.end(),
                {"--commands", "--page-size", "1", "--chat-template", File("blocks.jinja")});
    std::vector<std::string> args = Arguments(std::move(more));
    *std::find(args.begin(), args.end(), kWrenDir) = model_.path();
    return args;
  }
  const RenamedWren model_{{{2021, "[THINK]"}, {1996, "[/THINK]"}}};
};

TEST_F(ChatControlTagsTest, InAPipeTheAnswerStandsAlone) {
  const std::string input = "Who are you?\n";
  const PipedResult shown = RunPiped(Tagged({}), input);
  EXPECT_EQ(shown.out, kAnswer) << shown.err;
  EXPECT_NE(shown.err.find("am Wren\n"), std::string::npos) << shown.err;
  EXPECT_EQ(shown.err.find("THINK]"), std::string::npos) << shown.err;
  const PipedResult hidden = RunPiped(Tagged({"--hide-thinking"}), input);
  EXPECT_EQ(hidden.out, kAnswer);
  EXPECT_EQ(hidden.err.find("am Wren"), std::string::npos) << hidden.err;
}

TEST_F(ChatControlTagsTest, AnAnswerUnderAGrammarComesBehindTheThought) {
  const PipedResult result = RunPiped(Tagged({"--regex", "(a|I) [a-z]{2,6}!"}), "Who are you?\n");
  EXPECT_NE(result.err.find("am Wren\n"), std::string::npos) << result.err;
  ASSERT_GE(result.out.size(), 6u) << result.out;
  EXPECT_TRUE(result.out.starts_with("a ") || result.out.starts_with("I ")) << result.out;
  EXPECT_TRUE(result.out.ends_with("!\n")) << result.out;
}

// The second prompt is the first, its sampled answer, and the new message, so that everything was
// computed before except the last token of the answer.
TEST_F(ChatControlTagsTest, TheNextTurnFindsTheAnswerInTheCache) {
  const PipedResult result = RunPiped(
      Tagged({}), "Who are you?\n/stats\nWhat is 2 + 3?\n/stats\n/save " + File("saved") + "\n");
  EXPECT_TRUE(result.out.starts_with(kAnswer)) << result.out << result.err;
  EXPECT_NE(result.err.find("prompt        11 tokens, 0 of them cached"), std::string::npos)
      << result.err;
  // 11 tokens of the prompt and 15 of the answer, whose last one is never computed.
  EXPECT_NE(result.err.find(" tokens, 25 of them cached"), std::string::npos) << result.err;
  const std::string saved = ReadAll(File("saved"));
  EXPECT_NE(saved.find(R"("content": " a very small language model that ships with minisgl.", )"
                       R"("reasoning": " am Wren"})"),
            std::string::npos)
      << saved;
  const PipedResult loaded =
      RunPiped(Tagged({"--load", File("saved")}), "/show\n/context\nWhat is 2 + 3?\n");
  EXPECT_NE(loaded.err.find("[reasoning]\nam Wren\n[assistant]\n"), std::string::npos)
      << loaded.err;
  EXPECT_EQ(loaded.status, 0) << loaded.err;
  const PipedResult kept = RunPiped(Tagged({}), "Who are you?\nWhat is 2 + 3?\n/context\n");
  const auto context = [](const std::string& text) {
    const size_t at = text.find(" tokens used");
    return text.substr(text.rfind('\n', at), at - text.rfind('\n', at));
  };
  EXPECT_EQ(context(loaded.err), context(kept.err)) << "loaded and kept are the same prompt";
}

TEST_F(ChatControlTagsTest, ThinkBoundsIt) {
  const PipedResult bound =
      RunPiped(Tagged({}), "/think\n/think 1\nWho are you?\n/stats\n/think many\n");
  EXPECT_NE(bound.err.find("Reasoning is auto.\n"), std::string::npos) << bound.err;
  EXPECT_NE(bound.err.find("Reasoning is auto, at most 1 token.\nam\n"), std::string::npos)
      << bound.err;
  EXPECT_NE(bound.err.find("reasoning     1 of these tokens"), std::string::npos) << bound.err;
  EXPECT_NE(
      bound.err.find("/think takes on, off, auto, a number of tokens or none (found \"many\")"),
      std::string::npos)
      << bound.err;
  EXPECT_EQ(bound.status, 1);
  const PipedResult option = RunPiped(Tagged({"--think-budget", "1"}), "Who are you?\n");
  EXPECT_EQ(option.out, bound.out);
  EXPECT_EQ(option.status, 0);
}

// The template has no switch.
TEST_F(ChatControlTagsTest, ThinkOffClosesItAtOnceWithoutASwitch) {
  const PipedResult off = RunPiped(Tagged({}), "/think off\nWho are you?\n/think on\n/stats\n");
  EXPECT_NE(off.err.find("closed at once (a budget of 0 tokens)"), std::string::npos) << off.err;
  EXPECT_EQ(off.err.find("am Wren"), std::string::npos) << off.err;
  EXPECT_EQ(off.err.find(" of these tokens"), std::string::npos) << off.err;
  EXPECT_NE(off.err.find("Reasoning is auto.\n"), std::string::npos) << off.err;
  EXPECT_EQ(off.status, 0) << off.err;
  const PipedResult none = RunPiped(Arguments({"--commands"}), "/think\n/think off\n/think on\n");
  EXPECT_NE(none.err.find("marks no reasoning"), std::string::npos) << none.err;
  EXPECT_NE(none.err.find("the chat template has no switch for it"), std::string::npos) << none.err;
  EXPECT_EQ(none.status, 1);
}

TEST_F(ChatControlTagsTest, OnATerminalItIsDimmed) {
  PtyProcess chat(Tagged({}), {{"TERM", "xterm"}, {"NO_COLOR", ""}, {"XDG_STATE_HOME", dir_}});
  ASSERT_TRUE(chat.WaitFor("2004h")) << chat.output();
  chat.Send("Who are you?\r");
  ASSERT_TRUE(chat.WaitFor("\x1b[2mam\x1b[22m\x1b[2m Wren\x1b[22m")) << chat.output();
  ASSERT_TRUE(chat.WaitFor("a very small")) << chat.output();
  ASSERT_TRUE(chat.WaitFor("2004h")) << chat.output();
  EXPECT_EQ(chat.output().find("THINK]"), std::string::npos) << chat.output();
  chat.Send(kCtrlD);
  EXPECT_EQ(chat.WaitForExit(), 0);
}

}  // namespace
}  // namespace minisgl::chat
