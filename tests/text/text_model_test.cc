#include "minisgl/text/text_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "text_test_util.h"

namespace minisgl {
namespace {

TextModel WrenText(const std::string& source) {
  TextModel text;
  text.dir = kWrenDir;
  text.tokenizer = LoadTokenizer(kWrenDir);
  auto chat = ChatTemplate::Parse(source, "template");
  EXPECT_TRUE(chat.ok()) << chat.status().message();
  text.chat_template = std::move(chat).value();
  return text;
}

Json UserMessage(const std::string& content) {
  return ParseJson(R"([{"role": "user", "content": ")" + content + "\"}]").value();
}

bool HasEos(const TextModel& text, const std::vector<TokenId>& ids) {
  return std::count(ids.begin(), ids.end(), *text.tokenizer->eos_id()) > 0;
}

TEST(TextModelTest, ARowsVariablesReplaceThoseOfTheModel) {
  TextModel text = WrenText("{{ bos_token }}{{ a }}{{ b }}{{ messages[0].content }}");
  text.template_args = ParseJson(R"({"a": 1, "b": 2})").value();
  const std::string bos = text.tokenizer->bos_token();
  EXPECT_EQ(Joined(RenderChat(text, UserMessage("x")).value()), bos + "12x");
  const Json kwargs = ParseJson(R"({"b": 3})").value();
  EXPECT_EQ(Joined(RenderChat(text, UserMessage("x"), kwargs).value()), bos + "13x");
  EXPECT_EQ(Joined(RenderChat(text, UserMessage("x")).value()), bos + "12x")
      << "of one rendering alone";
}

TEST(TextModelTest, ToolsAndDocumentsReachTheTemplate) {
  const TextModel text =
      WrenText("{{ tools[0].name }}{{ documents[0].title }}{{ messages[0].content }}");
  const Json tools = ParseJson(R"([{"name": "t"}])").value();
  const Json documents = ParseJson(R"([{"title": "d"}])").value();
  EXPECT_EQ(Joined(RenderChat(text, UserMessage("x"), Json(), tools, documents).value()), "tdx");
}

TEST(TextModelTest, CancelledRenderingFails) {
  const TextModel text = WrenText("{{ messages[0].content }}");
  const std::atomic<bool> cancelled = true;
  EXPECT_FALSE(RenderChat(text, UserMessage("x"), Json(), Json(), Json(), &cancelled).ok());
}

TEST(TextModelTest, ControlTokensOfContentCountOnlyIfAskedFor) {
  TextModel text = WrenText("{{ messages[0].content }}");
  const std::string eos = text.tokenizer->eos_token();
  auto encoded = [&] {
    return EncodeRendered(text, RenderChat(text, UserMessage("a" + eos)).value()).value();
  };
  EXPECT_FALSE(HasEos(text, encoded()));
  text.parse_special = true;
  EXPECT_TRUE(HasEos(text, encoded()));
}

TEST(TextModelTest, ControlTokensOfARawPromptCountUnlessRefused) {
  TextModel text = WrenText("");
  const std::string prompt = "a" + text.tokenizer->eos_token();
  EXPECT_TRUE(HasEos(text, EncodeRendered(text, RawPieces(text, prompt)).value()));
  text.no_parse_special = true;
  EXPECT_FALSE(HasEos(text, EncodeRendered(text, RawPieces(text, prompt)).value()));
}

TEST(TextModelTest, TheSinkReceivesTheSameIds) {
  const TextModel text = WrenText("");
  std::vector<TokenId> ids;
  const auto sink = [&](std::span<const TokenId> more) {
    ids.insert(ids.end(), more.begin(), more.end());
    return true;
  };
  ASSERT_TRUE(EncodeRenderedTo(text, RawPieces(text, "the wren sings"), sink).ok());
  EXPECT_EQ(ids, EncodeRendered(text, RawPieces(text, "the wren sings")).value());
}

}  // namespace
}  // namespace minisgl
