#include "minisgl/text/render_prompt.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <utility>

#include "text_test_util.h"

namespace minisgl {
namespace {

const ReasoningTags kThinkTags{"<think>", "</think>"};

TextModel WrenText(const std::string& source) {
  TextModel text;
  text.dir = kWrenDir;
  text.tokenizer = LoadTokenizer(kWrenDir);
  auto chat = ChatTemplate::Parse(source, "template");
  EXPECT_TRUE(chat.ok()) << chat.status().message();
  text.chat_template = std::move(chat).value();
  return text;
}

Conversation Saying(const std::string& content, const std::string& role = "user") {
  Conversation conversation;
  Json message;
  message.Set("role", role).Set("content", content);
  conversation.messages.Append(std::move(message));
  return conversation;
}

std::string Rendered(const TextModel& text, Conversation conversation) {
  const auto prompt = RenderPrompt(text, std::move(conversation));
  EXPECT_TRUE(prompt.ok()) << prompt.status().message();
  return prompt.ok() ? Joined(prompt->pieces) : "";
}

TEST(RenderPromptTest, ARowsVariablesReplaceThoseOfTheModel) {
  TextModel text = WrenText("{{ bos_token }}{{ a }}{{ b }}{{ messages[0].content }}");
  text.template_args = ParseJson(R"({"a": 1, "b": 2})").value();
  const std::string bos = text.tokenizer->bos_token();
  EXPECT_EQ(Rendered(text, Saying("x")), bos + "12x");
  Conversation with_own = Saying("x");
  with_own.kwargs = ParseJson(R"({"b": 3})").value();
  EXPECT_EQ(Rendered(text, with_own), bos + "13x");
  EXPECT_EQ(Rendered(text, Saying("x")), bos + "12x") << "of one rendering alone";
}

TEST(RenderPromptTest, ToolsAndDocumentsReachTheTemplate) {
  const TextModel text =
      WrenText("{{ tools[0].name }}{{ documents[0].title }}{{ messages[0].content }}");
  Conversation conversation = Saying("x");
  conversation.tools = ParseJson(R"([{"name": "t"}])").value();
  conversation.documents = ParseJson(R"([{"title": "d"}])").value();
  EXPECT_EQ(Rendered(text, std::move(conversation)), "tdx");
}

TEST(RenderPromptTest, CancelledRenderingFails) {
  const TextModel text = WrenText("{{ messages[0].content }}");
  const std::atomic<bool> cancelled = true;
  EXPECT_FALSE(RenderPrompt(text, Saying("x"), &cancelled).ok());
}

TEST(RenderPromptTest, AnAnswerBeginsAsTheConversationSays) {
  const TextModel text = WrenText(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}");
  Conversation conversation = Saying("x", "assistant");
  EXPECT_EQ(Rendered(text, conversation), "<assistant>x</><assistant>");
  conversation.start = AnswerStart::kNothing;
  EXPECT_EQ(Rendered(text, conversation), "<assistant>x</>");
  conversation.start = AnswerStart::kContinue;
  const auto continued = RenderPrompt(text, conversation);
  ASSERT_TRUE(continued.ok());
  EXPECT_EQ(Joined(continued->pieces), "<assistant>x");
}

// An answer whose beginning the template writes in another way in the whole has no place there.
TEST(RenderPromptTest, ASampledAnswerHasItsPlaceBehindTheMessagesBefore) {
  const TextModel text = WrenText(
      "{% for m in messages %}{% if m.role == 'user' and loop.last %}last {% endif %}"
      "{{ m.content }};{% endfor %}");
  Conversation conversation = Saying("a", "system");
  for (const char* role : {"assistant", "user", "assistant", "user"}) {
    conversation.messages.Append(std::move(Saying("b", role).messages.as_array().front()));
  }
  conversation.answers = {{1, "b", {5}}, {3, "b", {6}}};
  const auto prompt = RenderPrompt(text, std::move(conversation));
  ASSERT_TRUE(prompt.ok());
  EXPECT_EQ(Joined(prompt->pieces), "a;b;b;b;last b;");
  ASSERT_EQ(prompt->answers.size(), 1u) << "before the second the whole text is another";
  EXPECT_EQ(prompt->answers[0].begin, 2u);
  EXPECT_EQ(prompt->answers[0].ids, std::vector<TokenId>{5});
}

TEST(RenderPromptTest, ARawPromptIsTrustedUnlessTheUserRefuses) {
  TextModel text = WrenText("");
  Conversation conversation;
  conversation.raw.before = {1};
  conversation.raw.spoken = "so ";
  conversation.raw.text = "far";
  conversation.raw.after = {2};
  conversation.reasoning = kThinkTags;
  for (const bool refuses : {false, true}) {
    text.no_parse_special = refuses;
    const auto prompt = RenderPrompt(text, conversation);
    ASSERT_TRUE(prompt.ok());
    EXPECT_EQ(Joined(prompt->pieces), "so far");
    EXPECT_TRUE(prompt->pieces.front().trusted) << "what the model said";
    EXPECT_EQ(prompt->pieces.back().trusted, !refuses);
    EXPECT_TRUE(prompt->reasoning.none());
  }
}

// Contents that count as the program's own text say nothing about what the template has opened.
TEST(RenderPromptTest, TheTagsOfAnAnswerDoNotDependOnParseSpecial) {
  TextModel text = WrenText(
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}<think>{% endif %}"
      "{{ m.content }}{% endfor %}");
  for (const bool parse_special : {false, true}) {
    text.parse_special = parse_special;
    Conversation conversation = Saying("so it", "assistant");
    conversation.start = AnswerStart::kContinue;
    conversation.reasoning = kThinkTags;
    const auto prompt = RenderPrompt(text, std::move(conversation));
    ASSERT_TRUE(prompt.ok());
    EXPECT_TRUE(prompt->reasoning.starts_inside);
    conversation = Saying("<think>");
    conversation.reasoning = kThinkTags;
    const auto asked = RenderPrompt(text, std::move(conversation));
    ASSERT_TRUE(asked.ok());
    EXPECT_FALSE(asked->reasoning.none());
    EXPECT_FALSE(asked->reasoning.starts_inside);
  }
}

}  // namespace
}  // namespace minisgl
