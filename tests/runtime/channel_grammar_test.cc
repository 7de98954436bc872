// Grammars behind messages in channels: what a header may be, and that control tokens alone are
// its marks, however bytes are spelled.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "minisgl/grammar/grammar.h"
#include "renamed_wren.h"
#include "runtime/answer_constraint.h"

namespace minisgl::runtime {
namespace {

constexpr TokenId kStartMark = 510, kChannelMark = 511, kMessageMark = 512, kEndMark = 513,
                  kConstrainMark = 514;

class ChannelGrammarTest : public ::testing::Test {
 protected:
  ChannelGrammarTest()
      : model_({{kStartMark, "<|start|>"},
                {kChannelMark, "<|channel|>"},
                {kMessageMark, "<|message|>"},
                {kEndMark, "<|end|>"},
                {kConstrainMark, "<|constrain|>"}}) {}

  void SetUp() override {
    auto tokenizer = Tokenizer::Load(model_.path());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = std::move(tokenizer).value();
    vocabulary_ = std::make_shared<const GrammarVocabulary>(
        tokenizer_.get(), tokenizer_->vocab_size(), /*spells_control=*/true);
  }

  AnswerConstraint MakeConstraint(bool starts_inside = false) const {
    ThoughtForm form{.open = "-", .close = "-"};
    form.starts_inside = starts_inside;
    form.channels = {vocabulary_->BytesOf(kStartMark),
                     vocabulary_->BytesOf(kChannelMark),
                     vocabulary_->BytesOf(kConstrainMark),
                     vocabulary_->BytesOf(kMessageMark),
                     vocabulary_->BytesOf(kEndMark),
                     "assistant",
                     "final"};
    const GrammarText word = {GrammarKind::kChoice, "", {"yes", "no"}};
    return {CompileGrammar(word, {}, form).value(), vocabulary_, {*tokenizer_->eos_id()}};
  }
  bool Allows(AnswerConstraint* constraint, TokenId token) const {
    std::vector<uint32_t> mask(static_cast<size_t>(tokenizer_->vocab_size() + 31) / 32);
    int64_t work_left = INT64_MAX;
    EXPECT_EQ(constraint->FillMask(mask, &work_left), MaskOutcome::kMade);
    return (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
  }
  // In the text `~` and a letter stand for a mark.
  std::vector<TokenId> Tokens(const std::string& text) const {
    std::vector<TokenId> tokens;
    for (size_t at = 0; at < text.size(); ++at) {
      if (text[at] == '~') {
        const std::string letters = "scmek";
        constexpr TokenId kMarks[] = {kStartMark, kChannelMark, kMessageMark, kEndMark,
                                      kConstrainMark};
        tokens.push_back(kMarks[letters.find(text[++at])]);
      } else {
        tokens.push_back(Letter(text[at]));
      }
    }
    return tokens;
  }
  TokenId Letter(char letter) const {
    const auto id = tokenizer_->IdOf(letter == ' ' ? "\u2581" : std::string(1, letter));
    return id ? *id : tokenizer_->IdOf(fmt::format("<0x{:02X}>", letter)).value();
  }
  bool Takes(const std::string& text, bool starts_inside = false) const {
    AnswerConstraint constraint = MakeConstraint(starts_inside);
    for (const TokenId token : Tokens(text)) {
      const bool allows = Allows(&constraint, token);
      EXPECT_EQ(constraint.Accept(token), allows) << text;
      if (!allows) return false;
    }
    return true;
  }

  const RenamedWren model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
};

TEST_F(ChannelGrammarTest, TheAnswerIsInTheFinalChannel) {
  for (const char* text :
       {"yes", "~cfinal~myes", "~cfinal ~kjson~mno", "~cfinal~kjson~m yes", "~cfinal json~mno",
        "~canalysis~mwhy~e~sassistant~cfinal~myes", "~canalysis~mwhy~cfinal~myes",
        "~canalysis~ma~e~sassistant~ccommentary~mb~e~sassistant~cfinal~mno",
        "~canalysis~mwhy <|end|> is~e~sassistant~cfinal~myes"}) {
    EXPECT_TRUE(Takes(text)) << text;
  }
  for (const char* text :
       {"x", "~cfinal~mx", "~cfinally~mno~ex", "~ccommentary to=f~m", "~canalysis~mwhy~eyes",
        "~canalysis~mwhy~e~suser", "~cfinal~myes~e", "~e", "~myes"}) {
    EXPECT_FALSE(Takes(text)) << text;
  }
  EXPECT_TRUE(Takes("why~e~sassistant~cfinal~myes", /*starts_inside=*/true));
  EXPECT_TRUE(Takes("why~cfinal~mno", /*starts_inside=*/true));
  EXPECT_FALSE(Takes("why~e~sassistant~cfinal~mx", /*starts_inside=*/true));
}

TEST_F(ChannelGrammarTest, NoBytesSpellAMark) {
  const TokenId mark_byte = tokenizer_->IdOf("<0xFF>").value();
  AnswerConstraint constraint = MakeConstraint();
  EXPECT_FALSE(Allows(&constraint, mark_byte));
  for (const TokenId token : Tokens("~cfinal")) ASSERT_TRUE(constraint.Accept(token));
  EXPECT_TRUE(Allows(&constraint, kMessageMark));
  EXPECT_FALSE(Allows(&constraint, mark_byte));
  EXPECT_FALSE(constraint.Accept(mark_byte));
  // In a thought every byte may come; it begins no mark.
  AnswerConstraint thought = MakeConstraint(/*starts_inside=*/true);
  ASSERT_TRUE(thought.Accept(mark_byte));
  for (const TokenId token : Tokens("<|end|>")) ASSERT_TRUE(thought.Accept(token));
  for (const TokenId token : Tokens("y")) ASSERT_TRUE(thought.Accept(token));
  EXPECT_FALSE(thought.MayEnd());
}

// What must follow is given in control tokens and in text, not in the bytes that spell marks.
TEST_F(ChannelGrammarTest, ForcedMarksAreTheirTokens) {
  AnswerConstraint constraint = MakeConstraint();
  for (const TokenId token : Tokens("~canalysis~mwhy~e~s")) ASSERT_TRUE(constraint.Accept(token));
  std::vector<TokenId> forced = constraint.ForcedTokens(20);
  ASSERT_FALSE(forced.empty());
  std::string spelled;
  for (int round = 0; round < 20 && !forced.empty(); ++round) {
    for (const TokenId token : forced) {
      ASSERT_TRUE(constraint.Accept(token)) << token;
      spelled += tokenizer_->PieceText(token);
    }
    forced = constraint.ForcedTokens(20);
  }
  EXPECT_NE(spelled.find("assistant<|channel|>"), std::string::npos) << spelled;
}

}  // namespace
}  // namespace minisgl::runtime
