#include "minisgl/text/encode_prompt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "text_test_util.h"

namespace minisgl {
namespace {

TextModel RawWren() {
  TextModel text;
  text.dir = kWrenDir;
  text.tokenizer = LoadTokenizer(kWrenDir);
  return text;
}

RenderedPrompt Pieces(std::vector<TextPiece> pieces) {
  RenderedPrompt prompt;
  prompt.pieces = std::move(pieces);
  return prompt;
}

EncodedPrompt Encoded(const TextModel& text, RenderedPrompt prompt,
                      const EncodeBounds& bounds = {}) {
  auto encoded = EncodePrompt(text, std::move(prompt), bounds);
  EXPECT_TRUE(encoded.ok()) << encoded.status().message();
  return encoded.ok() ? std::move(encoded).value() : EncodedPrompt();
}

bool HasEos(const TextModel& text, const std::vector<TokenId>& ids) {
  return std::count(ids.begin(), ids.end(), *text.tokenizer->eos_id()) > 0;
}

TEST(EncodePromptTest, ControlTokensOfContentCountOnlyIfAskedFor) {
  TextModel text = RawWren();
  const RenderedPrompt prompt = Pieces({{"a" + text.tokenizer->eos_token(), /*trusted=*/false}});
  EXPECT_FALSE(HasEos(text, Encoded(text, prompt).ids));
  text.parse_special = true;
  EXPECT_TRUE(HasEos(text, Encoded(text, prompt).ids));
}

TEST(EncodePromptTest, ControlTokensOfARawPromptCountUnlessRefused) {
  TextModel text = RawWren();
  Conversation conversation;
  conversation.raw.text = "a" + text.tokenizer->eos_token();
  EXPECT_TRUE(HasEos(text, Encoded(text, RenderPrompt(text, conversation).value()).ids));
  text.no_parse_special = true;
  EXPECT_FALSE(HasEos(text, Encoded(text, RenderPrompt(text, conversation).value()).ids));
}

TEST(EncodePromptTest, IdsStandAroundTheText) {
  const TextModel text = RawWren();
  const auto of_text = [&](const std::string& bytes) {
    return text.tokenizer->Encode(std::vector<TextPiece>{{bytes, true}}).value();
  };
  RenderedPrompt prompt = Pieces({{"the wren", true}});
  prompt.adds_prefix = prompt.adds_suffix = true;
  prompt.after = {7, 8};
  std::vector<TokenId> expected = text.tokenizer->Prefix();
  ASSERT_FALSE(expected.empty());
  for (const auto& ids :
       {of_text("the wren"), text.tokenizer->Suffix(), std::vector<TokenId>{7, 8}}) {
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  const EncodedPrompt encoded = Encoded(text, prompt);
  EXPECT_EQ(encoded.ids, expected);
  EXPECT_EQ(encoded.first, expected.front());
  EXPECT_EQ(encoded.total, std::ssize(expected));
  // Behind ids it goes on as the same text.
  prompt = Pieces({{" sings", true}});
  prompt.before = of_text("the wren");
  EXPECT_EQ(text.tokenizer->Decode(Encoded(text, prompt).ids, true),
            text.tokenizer->Decode(of_text("the wren sings"), true));
}

TEST(EncodePromptTest, TheLastIdsAreKept) {
  const TextModel text = RawWren();
  std::string words;
  for (int i = 0; i < 5000; ++i) words += "wren " + std::to_string(i) + ' ';
  const EncodedPrompt all = Encoded(text, Pieces({{words, true}}));
  EncodeBounds bounds;
  bounds.kept_max = 10;
  const EncodedPrompt last = Encoded(text, Pieces({{words, true}}), bounds);
  EXPECT_EQ(last.total, all.total);
  EXPECT_EQ(last.total, std::ssize(all.ids));
  EXPECT_EQ(last.first, all.first);
  ASSERT_GE(last.ids.size(), 10u);
  ASSERT_LE(last.ids.size(), 20u);
  EXPECT_TRUE(std::equal(last.ids.rbegin(), last.ids.rend(), all.ids.rbegin()));
}

TEST(EncodePromptTest, ALongTextIsNotCountedFarBeyondTheBound) {
  const TextModel text = RawWren();
  std::string words;
  while (words.size() <= size_t{2} << 20) words += "the wren sings ";
  EncodeBounds bounds;
  bounds.counted_max = 100;
  const EncodedPrompt begun = Encoded(text, Pieces({{words, true}}), bounds);
  EXPECT_FALSE(begun.is_whole);
  EXPECT_GT(begun.total, 100);
  // A text of up to 1 MiB is, and a conversation that goes on.
  const std::string half = words.substr(0, size_t{1} << 20);
  EXPECT_TRUE(Encoded(text, Pieces({{half, true}}), bounds).is_whole);
  RenderedPrompt turn = Pieces({{words, true}});
  turn.goes_on = true;
  const EncodedPrompt whole = Encoded(text, std::move(turn), bounds);
  EXPECT_TRUE(whole.is_whole);
  EXPECT_GT(whole.total, begun.total);
}

TEST(EncodePromptTest, EncodingEndsSoonAfterItIsCancelled) {
  const TextModel text = RawWren();
  std::string words;
  while (words.size() <= size_t{1} << 20) words += "the wren sings ";
  const std::atomic<bool> cancelled = true;
  EncodeBounds bounds;
  bounds.cancelled = &cancelled;
  EXPECT_LT(Encoded(text, Pieces({{words, true}}), bounds).total,
            Encoded(text, Pieces({{words, true}})).total);
}

}  // namespace
}  // namespace minisgl
