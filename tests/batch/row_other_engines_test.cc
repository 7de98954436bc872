// Fields of rows that other engines have too: limits of tokens, where an answer begins, and ignored
// fields.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "batch/row.h"

namespace minisgl::batch {
namespace {

Row ParsedRowOf(std::string_view text) {
  ParsedRow parsed = ParseRow(text, 3, 7);
  EXPECT_FALSE(parsed.error) << text << ": " << (parsed.error ? parsed.error->message : "");
  return std::move(parsed.row);
}

TEST(RowOtherEnginesTest, InvalidValuesAreRefusedNamingTheField) {
  const struct {
    const char* row;
    const char* field;
  } cases[] = {
      {R"({"prompt": "a", "verbosity": "low"})", "verbosity"},
      {R"({"prompt": "a", "continue_final_message": true})", "continue_final_message"},
      {R"({"messages": [{"role": "user", "content": "a"}], "continue_final_message": true,)"
       R"( "add_generation_prompt": true})",
       "continue_final_message"},
      {R"({"messages": [{"role": "assistant", "content": null, "tool_calls": []}],)"
       R"( "continue_final_message": true})",
       "continue_final_message"},
      {R"({"session": "s", "messages": [{"role": "user", "content": "a"}],)"
       R"( "add_generation_prompt": false})",
       "add_generation_prompt"},
      {R"({"messages": [{"role": "user", "content": "a"}], "verbosity": "loud"})", "verbosity"},
      {R"({"prompt": "a", "bad_words": ["a", ""]})", "bad_words"},
      {R"({"prompt": "a", "bad_words": [1]})", "bad_words"},
      {R"({"prompt": "a", "allowed_token_ids": []})", "allowed_token_ids"},
      {R"({"prompt": "a", "allowed_token_ids": [-1]})", "allowed_token_ids"},
  };
  for (const auto& [row, field] : cases) {
    const ParsedRow parsed = ParseRow(row, 3, 7);
    ASSERT_TRUE(parsed.error) << row;
    EXPECT_EQ(parsed.error->code, "invalid_row") << row;
    EXPECT_EQ(parsed.error->field, field) << row << ": " << parsed.error->message;
  }
}

TEST(RowOtherEnginesTest, FieldsThatAskForMoreThanARowIsAreNotesOfTheRun) {
  const Row row =
      ParsedRowOf(R"({"prompt": "a", "stream": true, "stream_options": {"include_usage": true},)"
                  R"( "timings_per_token": true})");
  EXPECT_TRUE(row.warnings.empty());
  ASSERT_EQ(row.notes.size(), 3u);
  EXPECT_EQ(row.notes[0].level, LogLevel::kInfo);
  EXPECT_NE(row.notes[0].text.find("stream"), std::string::npos);
  EXPECT_TRUE(
      ParsedRowOf(R"({"prompt": "a", "stream": false, "stream_options": null})").notes.empty());
}

TEST(RowOtherEnginesTest, LimitsOfTokensAndWhatIsShownOfThemAreRead) {
  const Row row = ParsedRowOf(
      R"({"prompt": "a", "bad_words": ["x", " y z"], "allowed_token_ids": [3, 4],)"
      R"( "sampling_params": {"include_stop_str_in_output": true, "skip_special_tokens": false,)"
      R"( "top_p": 0}})");
  EXPECT_EQ(row.bad_words, (std::vector<std::string>{"x", " y z"}));
  EXPECT_EQ(row.allowed_token_ids, (std::vector<TokenId>{3, 4}));
  EXPECT_TRUE(row.include_stop);
  EXPECT_TRUE(row.keep_special);
  EXPECT_EQ(row.top_p, 0);
  EXPECT_FALSE(ParsedRowOf(R"({"prompt": "a", "skip_special_tokens": true})").keep_special);
}

TEST(RowOtherEnginesTest, WhereTheAnswerBegins) {
  const std::string messages =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])";
  EXPECT_EQ(ParsedRowOf(messages + "}").start, AnswerStart::kNewMessage);
  EXPECT_EQ(ParsedRowOf(messages + R"(, "add_generation_prompt": true})").start,
            AnswerStart::kNewMessage);
  EXPECT_EQ(ParsedRowOf(messages + R"(, "add_generation_prompt": false})").start,
            AnswerStart::kNothing);
  EXPECT_EQ(ParsedRowOf(messages + R"(, "continue_final_message": false})").start,
            AnswerStart::kNewMessage);
  for (const char* rest : {"}", R"(, "add_generation_prompt": false})"}) {
    const Row row = ParsedRowOf(messages + R"(, "continue_final_message": true)" + rest);
    EXPECT_EQ(row.start, AnswerStart::kContinue);
    EXPECT_TRUE(row.warnings.empty());
  }
  const Row user = ParsedRowOf(
      R"({"messages": [{"role": "user", "content": "a"}], "continue_final_message": true})");
  EXPECT_EQ(user.start, AnswerStart::kContinue);
  EXPECT_EQ(user.warnings.size(), 1u) << "most likely a mistake";
}

}  // namespace
}  // namespace minisgl::batch
