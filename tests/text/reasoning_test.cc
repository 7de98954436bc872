// Separation of reasoning from the answer: the result does not depend on how an answer is divided,
// and the tags of templates are found.
#include "minisgl/text/reasoning.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "text_test_util.h"

namespace minisgl {
namespace {

constexpr ReasoningTags kThink{"<think>", "</think>"};
constexpr ReasoningTags kInside{"<think>", "</think>", true};
constexpr ReasoningTags kChannels{"<a>", "<f>", false, "<g>"};

struct Case {
  ReasoningTags tags;
  std::string answer, reasoning, text;
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {kThink, "<think>\nTwo and two.\n</think>\n\nFour.", "Two and two.", "Four."},
      {kThink, " \n<think>a</think>b ", "a", "b "},
      {kThink, "<think>\n\n</think>\n\nFour.", "", "Four."},
      {kThink, "<think></think>", "", ""},
      {kThink, "<think>cut off \n", "cut off", ""},
      {kThink, "<think>cut off </thin", "cut off </thin", ""},
      {kThink, "<think>a < b </ c <</think>d", "a < b </ c <", "d"},
      {kThink, "<think>a\n\n b</think></think>c", "a\n\n b", "</think>c"},
      {kThink, "<think><think>a</think>b", "<think>a", "b"},
      {kThink, "\n No reasoning.\n", "", "\n No reasoning.\n"},
      {kThink, "The tag <think> opens, </think> closes.", "",
       "The tag <think> opens, </think> closes."},
      {kThink, "a</think>b", "", "a</think>b"},
      {kThink, " <thin", "", " <thin"},
      {kThink, "<thinking>a", "", "<thinking>a"},
      {kThink, "", "", ""},
      {kThink, " \n", "", " \n"},
      {kInside, "Two.\n</think>\n\nFour.", "Two.", "Four."},
      {kInside, "\n<think>\nTwo.</think> Four.", "Two.", "Four."},
      {kInside, "</think>Four.", "", "Four."},
      {kInside, "no end", "no end", ""},
      {kInside, " <thi", "<thi", ""},
      {kInside, "\n", "", ""},
      {kInside, "", "", ""},
      {kChannels, "<a>Two.<f>Four.", "Two.", "Four."},
      {kChannels, " <g> Four.<g>", "", "Four.<g>"},
      {kChannels, "Four.<g>", "", "Four.<g>"},
      {kChannels, "<g>", "", ""},
      {kChannels, "<", "", "<"},
      {ReasoningTags(), "<think>a</think>b", "", "<think>a</think>b"},
  };
  return cases;
}

TEST(ReasoningSplitterTest, SplitsWholeAnswers) {
  for (const Case& c : Cases()) {
    const ReasoningPiece whole = SplitReasoning(c.tags, c.answer);
    EXPECT_EQ(whole.reasoning, c.reasoning) << c.answer;
    EXPECT_EQ(whole.text, c.text) << c.answer;
  }
}

TEST(ReasoningSplitterTest, EveryCutGivesTheSame) {
  for (const Case& c : Cases()) {
    for (size_t first = 0; first <= c.answer.size(); ++first) {
      for (size_t second = first; second <= c.answer.size(); ++second) {
        ReasoningSplitter splitter(c.tags);
        std::string reasoning, text;
        const auto take = [&](const ReasoningPiece& piece) {
          // No reasoning follows text.
          EXPECT_TRUE(text.empty() || piece.reasoning.empty()) << c.answer;
          reasoning += piece.reasoning;
          text += piece.text;
        };
        take(splitter.Push(c.answer.substr(0, first)));
        take(splitter.Push(c.answer.substr(first, second - first)));
        take(splitter.Push(c.answer.substr(second)));
        take(splitter.Finish());
        ASSERT_EQ(reasoning, c.reasoning) << c.answer << " cut at " << first << ", " << second;
        ASSERT_EQ(text, c.text) << c.answer << " cut at " << first << ", " << second;
      }
    }
  }
}

TEST(ReasoningSplitterTest, ByteByByteGivesTheSame) {
  for (const Case& c : Cases()) {
    ReasoningSplitter splitter(c.tags);
    std::string reasoning, text;
    for (const char byte : c.answer) {
      const ReasoningPiece piece = splitter.Push(std::string_view(&byte, 1));
      reasoning += piece.reasoning;
      text += piece.text;
    }
    const ReasoningPiece end = splitter.Finish();
    EXPECT_EQ(reasoning + end.reasoning, c.reasoning) << c.answer;
    EXPECT_EQ(text + end.text, c.text) << c.answer;
  }
}

TEST(ReasoningSplitterTest, TextIsGivenAsSoonAsItIsCertain) {
  ReasoningSplitter splitter(kThink);
  EXPECT_EQ(splitter.Push("<think>one ").reasoning, "one");
  EXPECT_EQ(splitter.Push("two <").reasoning, " two");
  EXPECT_EQ(splitter.Push("b").reasoning, " <b");
  EXPECT_EQ(splitter.Push("</think>").reasoning, "");
  EXPECT_EQ(splitter.Push("\n\nThree").text, "Three");
  EXPECT_EQ(splitter.Push(" <").text, " <");
}

std::unique_ptr<ChatTemplate> Template(std::string_view source) {
  auto chat = ChatTemplate::Parse(source, "template");
  EXPECT_TRUE(chat.ok()) << chat.status().message();
  return std::move(chat).value();
}

// The functions of a tokenizer that FindReasoningTags needs.
class TagTokenizer : public Tokenizer {
 public:
  explicit TagTokenizer(std::string control = "") : control_(std::move(control)) {}
  Result<std::vector<TokenId>> EncodeText(std::string_view) const override {
    return std::vector<TokenId>();
  }
  // The control token is id 0; all other text is one token.
  Result<std::vector<TokenId>> Encode(std::span<const TextPiece> pieces) const override {
    const bool has = !control_.empty() && pieces[0].text.find(control_) != std::string::npos;
    return has ? std::vector<TokenId>{1, 0, 1} : std::vector<TokenId>{1};
  }
  std::vector<TokenId> Prefix() const override { return {}; }
  std::vector<TokenId> Suffix() const override { return {}; }
  std::string Decode(std::span<const TokenId>, bool) const override { return ""; }
  TokenId vocab_size() const override { return 2; }
  bool IsSpecial(TokenId id) const override { return id == 0; }
  std::string PieceText(TokenId) const override { return control_; }
  std::string PieceBytes(TokenId) const override { return ""; }
  std::optional<TokenId> IdOf(std::string_view spelling) const override {
    if (control_.empty() || spelling != control_) return std::nullopt;
    return 0;
  }
  std::optional<TokenId> bos_id() const override { return std::nullopt; }
  std::optional<TokenId> eos_id() const override { return std::nullopt; }
  std::string bos_token() const override { return ""; }
  std::string eos_token() const override { return ""; }
  std::string unk_token() const override { return ""; }
  std::string pad_token() const override { return ""; }
  bool DropsLeadingSpace() const override { return false; }

 private:
  const std::string control_;
};

TEST(ReasoningTagsTest, ComeFromTheTemplatesText) {
  const TagTokenizer tokenizer;
  const auto found = [&](std::string_view source) {
    return FindReasoningTags(*Template(source), tokenizer).close;
  };
  EXPECT_EQ(found("{{ messages[0].content.split('</think>')[-1] }}"), "</think>");
  EXPECT_EQ(found("{{ '</seed:think>' }}"), "</seed:think>");
  EXPECT_EQ(found("[THINK]{{ messages[0].thinking }}[/THINK]"), "[/THINK]");
  EXPECT_EQ(found("<|channel|>analysis<|message|>{{ messages[0].thinking }}<|end|>"
                  "<|start|>assistant<|channel|>final<|message|>"),
            "<|start|>assistant<|channel|>final<|message|>");
  EXPECT_EQ(found("{{ messages[0].content }} think"), "");
}

TEST(ReasoningTagsTest, ControlTokensAreTagsWhereTheyAreSpelled) {
  std::vector<TokenId> kept;
  const auto chat = Template("[THINK]{{ messages[0].thinking }}[/THINK]");
  EXPECT_EQ(FindReasoningTags(*chat, TagTokenizer("[/THINK]"), &kept).close, "[/THINK]");
  EXPECT_EQ(kept, std::vector<TokenId>{0});
  EXPECT_EQ(FindReasoningTags(*chat, TagTokenizer("<think>"), &kept).close, "[/THINK]");
  EXPECT_EQ(kept, std::vector<TokenId>());
}

TEST(ReasoningTagsTest, ControlTokensAreNoTagsElsewhere) {
  const auto chat = Template("[THINK]{{ messages[0].thinking }}[/THINK]");
  EXPECT_TRUE(FindReasoningTags(*chat, TagTokenizer("[/THINK]")).none());
  EXPECT_TRUE(FindReasoningTags(*chat, TagTokenizer("[THINK]")).none());
  EXPECT_FALSE(FindReasoningTags(*chat, TagTokenizer("<think>")).none());
}

TEST(ReasoningTagsTest, APromptMayOpenThem) {
  const auto opened = [](const std::string& source, const char* content) {
    ChatInput input;
    Json message;
    message.Set("role", "user").Set("content", content);
    input.messages.Append(std::move(message));
    auto pieces = Template(source)->Render(input);
    EXPECT_TRUE(pieces.ok());
    return WithPrompt(kThink, *pieces).starts_inside;
  };
  const std::string plain = "{{ messages[0].content }}";
  EXPECT_TRUE(opened(plain + "<think>\n\n", "a"));
  EXPECT_TRUE(opened(plain + "<|{{ messages[0].role }}|><think>", "a"));
  EXPECT_FALSE(opened(plain + "<think>\n\n</think>\n\n", "a"));
  EXPECT_FALSE(opened(plain, "<think>"));
  EXPECT_FALSE(opened(plain + "hink>", "<t"));
  EXPECT_FALSE(WithPrompt(ReasoningTags(), std::vector<TextPiece>()).starts_inside);
}

}  // namespace
}  // namespace minisgl
