// Prompts that end within their last message, against the rule of the transformers library: the
// text that the template renders ends after the last message's content.
#include "minisgl/text/continue_message.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "text_test_util.h"

namespace minisgl {
namespace {

std::unique_ptr<ChatTemplate> Chat(const std::string& source) {
  auto chat = ChatTemplate::Parse(source, "template");
  EXPECT_TRUE(chat.ok()) << chat.status().message();
  return chat.ok() ? std::move(chat).value() : nullptr;
}

ChatInput ConversationEndingIn(const std::string& answer, const std::string& question = "Hello!") {
  ChatInput input;
  Json user, assistant;
  user.Set("role", "user").Set("content", question);
  assistant.Set("role", "assistant").Set("content", answer);
  input.messages = Json(Json::Array{user, assistant});
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  input.unk_token = "<unk>";
  input.pad_token = "</s>";
  return input;
}

std::string Continued(const std::string& source, const std::string& answer) {
  const auto pieces = RenderContinued(*Chat(source), ConversationEndingIn(answer));
  EXPECT_TRUE(pieces.ok()) << pieces.status().message();
  return pieces.ok() ? Joined(*pieces) : "";
}

constexpr const char* kAsItIs =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";
constexpr const char* kTrimmed =
    "{% for m in messages %}<{{ m.role }}>\n{{ m.content | trim }} </s>\n{% endfor %}";

TEST(ContinueMessageTest, BlanksStayUnlessTheTemplateTrims) {
  EXPECT_EQ(Continued(kAsItIs, "Sure, "), "<user>Hello!</>\n<assistant>Sure, ");
  EXPECT_EQ(Continued(kAsItIs, "Sure,\n\n"), "<user>Hello!</>\n<assistant>Sure,\n\n");
  EXPECT_EQ(Continued(kAsItIs, "  Sure"), "<user>Hello!</>\n<assistant>  Sure");
  EXPECT_EQ(Continued(kTrimmed, "Sure, "), "<user>\nHello! </s>\n<assistant>\nSure,");
  EXPECT_EQ(Continued(kTrimmed, "Sure"), "<user>\nHello! </s>\n<assistant>\nSure");
}

TEST(ContinueMessageTest, AnEmptyMessageLeavesWhatTheTemplateBegins) {
  EXPECT_EQ(Continued(kAsItIs, ""), "<user>Hello!</>\n<assistant>");
  EXPECT_EQ(Continued(kAsItIs, " "), "<user>Hello!</>\n<assistant> ");
  EXPECT_EQ(Continued(kTrimmed, ""), "<user>\nHello! </s>\n<assistant>\n");
  EXPECT_EQ(Continued(kTrimmed, "  "), "<user>\nHello! </s>\n<assistant>\n");
}

TEST(ContinueMessageTest, TheLastPartWithTextIsContinued) {
  ChatInput input = ConversationEndingIn("");
  input.messages.as_array().back().Set(
      "content", ParseJson(R"([{"type": "text", "text": "a "}, {"type": "text", "text": "b "},)"
                           R"( {"type": "image"}])")
                     .value());
  const auto pieces =
      RenderContinued(*Chat("{% for p in messages[1].content %}[{{ p.text }}]{% endfor %}"), input);
  ASSERT_TRUE(pieces.ok()) << pieces.status().message();
  EXPECT_EQ(Joined(*pieces), "[a ][b ");
}

// The same text elsewhere in the prompt, before or after, is not taken for the message.
TEST(ContinueMessageTest, TheMessageIsFoundByItsPlace) {
  EXPECT_EQ(Continued(kAsItIs, "/"), "<user>Hello!</>\n<assistant>/");
  EXPECT_EQ(Continued(kAsItIs, "user"), "<user>Hello!</>\n<assistant>user");
  EXPECT_EQ(Continued(kAsItIs, "c0ntinueh3re c0ntinueh3rex"),
            "<user>Hello!</>\n<assistant>c0ntinueh3re c0ntinueh3rex");
  const auto pieces = RenderContinued(*Chat(kAsItIs), ConversationEndingIn("</>"));
  ASSERT_TRUE(pieces.ok());
  EXPECT_EQ(pieces->back().text, "</>");
  EXPECT_FALSE(pieces->back().trusted) << "a content spells no control token";
}

TEST(ContinueMessageTest, WhatCannotBeContinuedIsAnError) {
  ChatInput input = ConversationEndingIn("a");
  input.messages.as_array().back().Set("content", Json());
  EXPECT_EQ(RenderContinued(*Chat(kAsItIs), input).status().code(), StatusCode::kBadInput);
  const auto missing =
      RenderContinued(*Chat("{{ messages[0].content }}"), ConversationEndingIn("a"));
  EXPECT_EQ(missing.status().code(), StatusCode::kBadInput);
  EXPECT_NE(missing.status().message().find("last message"), std::string::npos);
}

// The rule of transformers, on the rendering of the conversation as it is.
std::string AsTransformersCuts(const std::string& rendered, const std::string& content) {
  const auto trimmed = [](std::string text, bool left, bool right) {
    const char* const blanks = " \t\r\n";
    if (right) text.erase(text.find_last_not_of(blanks) + 1);
    if (left) text.erase(0, text.find_first_not_of(blanks));
    return text;
  };
  const std::string bare = trimmed(content, true, true);
  const size_t at = rendered.rfind(bare);
  if (at == std::string::npos) return "";
  const size_t whole = trimmed(content, true, false).size();
  return rendered.substr(0, at + (rendered.substr(at, whole) == content ? whole : bare.size()));
}

TEST(ContinueMessageTest, IsThatOfTransformersForPublishedTemplates) {
  if (!HasShared("templates")) GTEST_SKIP() << "no shared test data";
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SharedDir() + "/templates")) {
    if (entry.path().extension() != ".jinja") continue;
    const auto chat = Chat(ReadBytes(entry.path().string()));
    for (const std::string content :
         {"Well, the answer", "Well, the answer \n", "Wait:\n```js\t"}) {
      ChatInput input = ConversationEndingIn(content);
      input.add_generation_prompt = false;
      const auto whole = chat->Render(input);
      const auto continued = RenderContinued(*chat, input);
      ASSERT_EQ(whole.ok(), continued.ok()) << entry.path();
      if (!whole.ok()) continue;
      EXPECT_EQ(Joined(*continued), AsTransformersCuts(Joined(*whole), content)) << entry.path();
      ++compared;
    }
  }
  EXPECT_GE(compared, 60);
}

constexpr ReasoningTags kTags = {"<think>", "</think>"};

ReasoningTags TagsAfter(const std::string& before, const std::string& content) {
  const std::vector<TextPiece> pieces = {{before, true}, {content, false}};
  return WithContinued(kTags, pieces, content);
}

TEST(ContinueMessageTest, AnAnswerGoesOnInsideAThoughtThatIsOpen) {
  EXPECT_TRUE(TagsAfter("<assistant>", "<think>\nFirst").starts_inside);
  EXPECT_TRUE(TagsAfter("<assistant><think>\n", "First").starts_inside);
  EXPECT_TRUE(TagsAfter("<assistant><think>", " ").starts_inside);
  EXPECT_TRUE(TagsAfter("<assistant>", "Sure").none());
  EXPECT_TRUE(TagsAfter("<assistant>", "<think>a</think>\nSure").none());
  EXPECT_TRUE(TagsAfter("<assistant><think>a</think>", "Sure").none());
  EXPECT_FALSE(TagsAfter("<assistant>", "").starts_inside);
  EXPECT_FALSE(TagsAfter("<assistant>", "").none());
}

}  // namespace
}  // namespace minisgl
