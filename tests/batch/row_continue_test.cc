// Rows whose answer continues the last message, and rows that limit the tokens of their answers:
// the prompts that are built of them, alone and in sessions.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "batch/row.h"
#include "batch/row_prompt.h"
#include "batch/said_so_far.h"
#include "program/fakes.h"

namespace minisgl::batch {
namespace {

constexpr const char* kSource =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

TextModel ModelOf(const std::string& source) {
  TextModel text = FakeTextModel(false);
  auto chat = ChatTemplate::Parse(source, "template");
  EXPECT_TRUE(chat.ok()) << chat.status().message();
  text.chat_template = std::move(chat).value();
  return text;
}

EngineLimits Limits() {
  EngineLimits limits = SmallLimits();
  limits.num_pages = 64;
  limits.max_seq_len = 1000;
  return limits;
}

class RowContinueTest : public ::testing::Test {
 protected:
  // The prompt's text, or the error.
  std::string Build(const std::string& members, PromptBuilderOptions options = {},
                    SaidSoFar* said = nullptr) {
    ParsedRow parsed = ParseRow("{" + members + "}", 0, 1);
    if (parsed.error) return parsed.error->code + ": " + parsed.error->message;
    row_ = std::move(parsed.row);
    options.eos_ids = {ByteTokenizer::kEos};
    const PromptBuilder builder(&text_, Limits(), std::move(options));
    if (auto error = builder.Build(&row_, &prompts_, nullptr, said)) {
      return error->code + ": " + error->message;
    }
    return text_.tokenizer->Decode(prompts_.front().ids, /*keep_special=*/true);
  }

  TextModel text_ = ModelOf(kSource);
  Row row_;
  std::vector<Prompt> prompts_;
};

constexpr const char* kTwo =
    R"("messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b "}])";
constexpr const char* kOne = R"("messages": [{"role": "user", "content": "a"}])";

TEST_F(RowContinueTest, TheLastMessageIsContinued) {
  const std::string both = R"(, "continue_final_message": true, "add_generation_prompt": false)";
  EXPECT_EQ(Build(kTwo), "<user>a</><assistant>b </><assistant>");
  EXPECT_EQ(Build(kTwo + both), "<user>a</><assistant>b ");
  EXPECT_EQ(Build(std::string(kTwo) + R"(, "add_generation_prompt": false)"),
            "<user>a</><assistant>b </>");
  EXPECT_EQ(Build(R"("custom_id": "x", "url": "/v1/chat/completions", "body": {)" +
                  std::string(kTwo) + both + "}"),
            "<user>a</><assistant>b ");
}

TEST_F(RowContinueTest, APrefillBeginsEveryAnswerToMessages) {
  PromptBuilderOptions options;
  options.prefill = "Sure, ";
  EXPECT_EQ(Build(kOne, options), "<user>a</><assistant>Sure, ");
  EXPECT_EQ(Build(R"("prompt": "a")", options), "<s>a") << "a text is completed as it is";
  EXPECT_EQ(Build(std::string(kTwo) + R"(, "continue_final_message": true)", options),
            "<user>a</><assistant>b ")
      << "the row has a beginning of its own";
  options.chat = true;
  EXPECT_EQ(Build(R"("prompt": "a")", options), "<user>a</><assistant>Sure, ");
}

TEST_F(RowContinueTest, AnAnswerGoesOnInsideAnOpenThought) {
  text_ = ModelOf(std::string(kSource) + "{% if x %}</think>{% endif %}");
  const auto tags = [&](const std::string& beginning) {
    PromptBuilderOptions options;
    options.prefill = beginning;
    Build(kOne, options);
    return row_.reasoning;
  };
  EXPECT_TRUE(tags("<think>First").starts_inside);
  EXPECT_TRUE(tags("Sure").none());
  EXPECT_TRUE(tags("<think>First</think>Sure").none());
}

TEST_F(RowContinueTest, InASessionTheWholeMessageIsRemembered) {
  PromptBuilderOptions options;
  options.prefill = "Sure, ";
  SaidSoFar said(&text_);
  const std::string session = R"("session": "s", )";
  EXPECT_EQ(Build(session + kOne, options, &said), "<user>a</><assistant>Sure, ");
  said.AddAnswer("Lima.", {}, {'L', 'i', 'm', 'a', '.', ByteTokenizer::kEos}, true);
  EXPECT_EQ(Build(session + kOne, options, &said),
            "<user>a</><assistant>Sure, Lima.</><user>a</><assistant>Sure, ");
  said.AddAnswer({'!', ByteTokenizer::kEos}, true);
  EXPECT_EQ(Build(session + kTwo + R"(, "continue_final_message": true)", {}, &said),
            "<user>a</><assistant>Sure, Lima.</><user>a</><assistant>Sure, !</><user>a</>"
            "<assistant>b ");
  said.AddAnswer({'c', ByteTokenizer::kEos}, true);
  EXPECT_TRUE(Build(session + kOne, {}, &said).ends_with("b c</><user>a</><assistant>"));
}

TEST_F(RowContinueTest, BadWordsAreTheTokensThatSpellThem) {
  EXPECT_EQ(Build(R"("prompt": "a", "bad_words": ["no", " so"], "max_tokens": 9)"), "<s>a");
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(prompts_[0].banned_sequences,
            (std::vector<Ids>{{'n', 'o'}, {' ', 'n', 'o'}, {'s', 'o'}, {' ', 's', 'o'}}));
  EXPECT_TRUE(prompts_[0].allowed_token_ids.empty());
  Build(
      R"("prompt": "a", "n": 2, "allowed_token_ids": [65, 257, 66], "skip_special_tokens": false,)"
      R"( "include_stop_str_in_output": true)");
  for (const Prompt& prompt : prompts_) {
    EXPECT_EQ(prompt.allowed_token_ids, (Ids{65, 257, 66}));
    EXPECT_TRUE(prompt.keep_special);
    EXPECT_TRUE(prompt.include_stop);
  }
  EXPECT_TRUE(row_.warnings.empty());
}

TEST_F(RowContinueTest, LimitsThatLeaveNothingAreSaid) {
  Build(R"("prompt": "a", "allowed_token_ids": [65, 66])");
  ASSERT_EQ(row_.warnings.size(), 1u);
  EXPECT_NE(row_.warnings[0].find("allowed_token_ids"), std::string::npos);
  Build(R"("prompt": "a", "allowed_token_ids": [65, 66], "max_tokens": 3)");
  EXPECT_TRUE(row_.warnings.empty());
  EXPECT_EQ(Build(R"("prompt": "a", "allowed_token_ids": [65, 66], "bad_words": ["A", "B"])"),
            "invalid_row: bad_words forbids every token of allowed_token_ids");
  EXPECT_TRUE(Build(R"("prompt": "a", "allowed_token_ids": [65, 999])").starts_with("invalid_row"));
}

}  // namespace
}  // namespace minisgl::batch
