#include "minisgl/text/encode_prompt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
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

// Each byte is a token; a long text is encoded part by part.
class LetterTokenizer : public Tokenizer {
 public:
  static constexpr size_t kPartBytes = 1000;

  Result<std::vector<TokenId>> EncodeText(std::string_view text) const override {
    return std::vector<TokenId>(text.begin(), text.end());
  }
  Result<std::vector<TokenId>> Encode(std::span<const TextPiece> pieces) const override {
    return EncodeText(Joined({pieces.begin(), pieces.end()}));
  }
  Status EncodeTo(std::span<const TextPiece> pieces, const TokenSink& sink) const override {
    MINISGL_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, Encode(pieces));
    for (size_t at = 0; at < ids.size(); at += kPartBytes) {
      const auto part = std::span(ids).subspan(at);
      if (!sink(part.first(std::min(part.size(), kPartBytes)))) break;
    }
    return {};
  }
  int64_t MinTokens(std::span<const TextPiece>) const override { return min_tokens; }
  std::vector<TokenId> Prefix() const override { return {'<'}; }
  std::vector<TokenId> Suffix() const override { return {'>'}; }
  std::string Decode(std::span<const TokenId> ids, bool) const override {
    return {ids.begin(), ids.end()};
  }
  TokenId vocab_size() const override { return 256; }
  bool IsSpecial(TokenId) const override { return false; }
  std::string PieceText(TokenId id) const override { return PieceBytes(id); }
  std::string PieceBytes(TokenId id) const override { return {static_cast<char>(id)}; }
  std::optional<TokenId> IdOf(std::string_view) const override { return std::nullopt; }
  std::optional<TokenId> bos_id() const override { return std::nullopt; }
  std::optional<TokenId> eos_id() const override { return std::nullopt; }
  std::string bos_token() const override { return ""; }
  std::string eos_token() const override { return ""; }
  std::string unk_token() const override { return ""; }
  std::string pad_token() const override { return ""; }
  bool DropsLeadingSpace() const override { return false; }

  int64_t min_tokens = 0;
};

TextModel Letters(int64_t min_tokens = 0) {
  TextModel text;
  auto tokenizer = std::make_unique<LetterTokenizer>();
  tokenizer->min_tokens = min_tokens;
  text.tokenizer = std::move(tokenizer);
  return text;
}

TEST(EncodePromptTest, TheLastIdsAreKept) {
  std::string letters;
  for (int i = 0; i < 5500; ++i) letters += static_cast<char>('a' + i % 26);
  EncodeBounds bounds;
  bounds.kept_max = 1200;
  const EncodedPrompt last = Encoded(Letters(), Pieces({{letters, true}}), bounds);
  EXPECT_EQ(last.total, 5500);
  EXPECT_EQ(last.first, 'a');
  ASSERT_GE(last.ids.size(), 1200u);
  ASSERT_LE(last.ids.size(), 2400u);
  EXPECT_TRUE(std::equal(last.ids.rbegin(), last.ids.rend(), letters.rbegin()));
  EXPECT_EQ(Encoded(Letters(), Pieces({{letters, true}})).ids.size(), 5500u);
}

TEST(EncodePromptTest, ALongTextIsNotCountedFarBeyondTheBound) {
  constexpr int64_t kCounted = int64_t{1} << 20;
  const auto total = [](int64_t bytes, bool goes_on, const TextModel& text = Letters()) {
    RenderedPrompt prompt = Pieces({{std::string(static_cast<size_t>(bytes), 'a'), true}});
    prompt.goes_on = goes_on;
    prompt.adds_suffix = !goes_on;
    EncodeBounds bounds;
    bounds.counted_max = 1500;
    const EncodedPrompt encoded = Encoded(text, std::move(prompt), bounds);
    EXPECT_EQ(encoded.is_whole, encoded.total >= bytes);
    return encoded.total;
  };
  EXPECT_EQ(total(kCounted, /*goes_on=*/false), kCounted + 1);
  EXPECT_EQ(total(kCounted + 1, /*goes_on=*/false), 2001) << "two parts and the suffix";
  EXPECT_EQ(total(kCounted + 1, /*goes_on=*/true), kCounted + 1);
  // If the size of the text says that it is too long, nothing is encoded.
  EXPECT_EQ(total(kCounted + 1, /*goes_on=*/false, Letters(1501)), 1501);
  EXPECT_EQ(total(kCounted + 1, /*goes_on=*/false, Letters(1500)), 2001);
}

TEST(EncodePromptTest, EncodingEndsSoonAfterItIsCancelled) {
  const std::atomic<bool> cancelled = true;
  EncodeBounds bounds;
  bounds.cancelled = &cancelled;
  EXPECT_EQ(Encoded(Letters(), Pieces({{std::string(5000, 'a'), true}}), bounds).total, 1000);
}

}  // namespace
}  // namespace minisgl
