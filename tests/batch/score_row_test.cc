// Rows of `minisgl score`: their fields, the tokens of their text, and the rows written; and the
// fields of rows of `minisgl run` that show the prompt.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "batch/openai_batch.h"
#include "batch/row.h"
#include "batch/row_output.h"
#include "batch/row_prompt.h"
#include "batch/score_totals.h"
#include "program/fakes.h"
#include "temporary_folder.h"

namespace minisgl::batch {
namespace {

// Bytes, except that "ab" is one token.
class PairTokenizer : public ByteTokenizer {
 public:
  static constexpr TokenId kPair = 200;
  Result<std::vector<TokenId>> Encode(std::span<const TextPiece> pieces) const override {
    MINISGL_ASSIGN_OR_RETURN(const std::vector<TokenId> bytes, ByteTokenizer::Encode(pieces));
    std::vector<TokenId> ids;
    for (const TokenId id : bytes) {
      if (id == 'b' && !ids.empty() && ids.back() == 'a') {
        ids.back() = kPair;
      } else {
        ids.push_back(id);
      }
    }
    return ids;
  }
};

class NoPrefixTokenizer : public ByteTokenizer {
 public:
  std::vector<TokenId> Prefix() const override { return {}; }
};

ParsedRow ParseScoreRow(const std::string& text, bool lenient = false) {
  return ParseRow(text, 3, 7, lenient, RowPurpose::kScore);
}

struct Scored {
  Row row;
  Prompt prompt;
  std::optional<RowError> error;
};

template <typename T = ByteTokenizer>
Scored BuildScore(const std::string& text, int32_t num_logprobs = -1) {
  TextModel model = FakeTextModel();
  model.tokenizer = std::make_unique<T>();
  PromptBuilderOptions options;
  options.defaults.sampling.num_logprobs = num_logprobs;
  options.defaults.sampling.temperature = 0.7;  // has no part in a score
  const PromptBuilder builder(&model, SmallLimits(), options);
  ParsedRow parsed = ParseScoreRow(text);
  Scored scored;
  std::vector<Prompt> prompts;
  if (!parsed.error) parsed.error = builder.Build(&parsed.row, &prompts);
  scored.error = parsed.error;
  scored.row = std::move(parsed.row);
  if (!prompts.empty()) scored.prompt = prompts.front();
  return scored;
}

std::vector<TokenId> IdsOf(const std::string& text) {
  std::vector<TokenId> ids = {ByteTokenizer::kBos};
  for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
  return ids;
}

TEST(ScoreRowTest, ARowIsATextOrAnObjectWithOne) {
  const ParsedRow parsed = ParseScoreRow(
      R"({"id": 5, "prompt": "p", "text": "t", "metadata": [1], "model": "m", "timeout_s": 2})");
  ASSERT_FALSE(parsed.error);
  EXPECT_EQ(parsed.row.format, RowFormat::kScore);
  EXPECT_EQ(parsed.row.id, Json(5));
  EXPECT_EQ(parsed.row.prompt, "p");
  EXPECT_EQ(parsed.row.scored_text, "t");
  EXPECT_EQ(parsed.row.metadata, "[1]");
  EXPECT_EQ(ParseScoreRow("\"just a text\"").row.scored_text, "just a text");
}

TEST(ScoreRowTest, EachBadRowHasOneClearError) {
  const struct {
    const char* row;
    const char* code;
    const char* field;
    const char* message;
  } cases[] = {
      {R"({"id": "a", "prompt": "p"})", "invalid_row", "text",
       "text is missing: what is to be scored"},
      {R"({"id": "a", "text": ""})", "invalid_row", "text", "text is empty: nothing to score"},
      {R"("")", "invalid_row", "text", "text is empty: nothing to score"},
      {R"({"text": 5})", "invalid_row", "text", "text must be a string (found 5)"},
      {R"({"text": "t", "prompt": [1, 2]})", "invalid_row", "prompt",
       "prompt must be a string (found [1, 2])"},
      {R"({"text": "t", "temperature": 1})", "unsupported_field", "temperature",
       "temperature is not a known field of a row to score"},
      {R"({"txt": "t"})", "unsupported_field", "txt",
       "txt is not a known field of a row to score; did you mean text?"},
      {R"([1])", "invalid_row", "", "a row must be an object or a string (found an array)"},
      {R"({"id": "a", "text": "t")", "invalid_row", "", ""},
      {R"({"messages": [{"role": "user", "content": "q"}]})", "invalid_row", "text",
       "text is missing: what is to be scored, unless the last message is the assistant's"},
      {R"({"messages": [{"role": "assistant", "content": "a"}]})", "invalid_row", "messages",
       "messages has no message before the one that is scored"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": ""}]})",
       "invalid_row", "text", "text is empty: nothing to score"},
      {R"({"messages": [{"role": "user", "content": "q"},
           {"role": "assistant", "content": "a", "reasoning": "r"}]})",
       "invalid_row", "messages[1].reasoning",
       "only the content of the last message is scored, but it has reasoning"},
      {R"({"messages": [{"role": "user", "content": "q"}], "prompt": "p", "text": "t"})",
       "invalid_row", "messages",
       "a row to score has a prompt or messages before its text (found both)"},
      {R"({"messages": [{"role": "user", "content": "q"}], "text": "t",
           "add_special_tokens": true})",
       "invalid_row", "add_special_tokens", "add_special_tokens is only for prompt"},
      {R"({"prompt": "p", "text": "t", "tools": []})", "invalid_row", "tools",
       "tools is only for the chat template, but the row has no messages"},
      {R"({"messages": [], "text": "t"})", "invalid_row", "messages",
       "messages must be an array of one message or more"},
  };
  for (const auto& [text, code, field, message] : cases) {
    const ParsedRow parsed = ParseScoreRow(text);
    ASSERT_TRUE(parsed.error) << text;
    EXPECT_EQ(parsed.error->code, code) << text;
    EXPECT_EQ(parsed.error->field, field) << text;
    EXPECT_EQ(parsed.error->message.substr(0, std::strlen(message)), message);
    const auto line = ParseJson(FormatErrorRow(parsed.row, *parsed.error));
    ASSERT_TRUE(line.ok());
    EXPECT_EQ(line->Find("error")->Find("code")->as_string(), code);
    EXPECT_EQ(*line->Find("index"), Json(3));
  }
  EXPECT_FALSE(ParseScoreRow(R"({"text": "t", "temperature": 1})", /*lenient=*/true).error);
}

TEST(ScoreRowTest, PromptAndTextAreEncodedTogetherAndTheTextIsScored) {
  const Scored scored = BuildScore(R"({"prompt": "one", "text": " two"})");
  ASSERT_FALSE(scored.error);
  EXPECT_EQ(scored.prompt.ids, IdsOf("one two"));
  EXPECT_EQ(scored.prompt.sampling.prompt_logprobs_begin, 4);
  EXPECT_EQ(scored.prompt.sampling.num_prompt_logprobs, 0);
  EXPECT_EQ(scored.prompt.sampling.temperature, 0);
  EXPECT_EQ(scored.prompt.max_tokens, 0);
  EXPECT_TRUE(scored.row.warnings.empty());
  EXPECT_EQ(BuildScore(R"({"text": "t"})", 5).prompt.sampling.num_prompt_logprobs, 5);
}

// Each ends where an answer begins.
TEST(ScoreRowTest, MessagesGoThroughTheTemplateAndTheAnswerIsScored) {
  const std::string question = R"({"role": "user", "content": "q"})";
  const auto ids_of_run = [](const std::string& row) {
    TextModel model = FakeTextModel();
    const PromptBuilder builder(&model, SmallLimits(), {});
    ParsedRow parsed = ParseRow(row, 0, 1);
    std::vector<Prompt> prompts;
    EXPECT_FALSE(parsed.error || builder.Build(&parsed.row, &prompts)) << row;
    return prompts.at(0).ids;
  };
  const std::string asked = "{\"messages\": [" + question + "]";
  const std::vector<TokenId> before = ids_of_run(asked + "}");
  std::vector<TokenId> whole = before;
  for (const char byte : std::string(" two")) whole.push_back(static_cast<uint8_t>(byte));
  const auto begin = static_cast<int32_t>(before.size());
  const auto said = [&](const char* text) {
    return std::string(R"({"role": "assistant", "content": )") + text + "}";
  };
  const struct {
    std::string row;
    int32_t begin;
  } cases[] = {
      {asked + R"(, "text": " two"})", begin},
      {"{\"messages\": [" + question + "," + said("\" two\"") + "]}", begin},
      {"{\"messages\": [" + question + "," +
           said(R"([{"type": "text", "text": " t"}, {"type": "text", "text": "wo"}])") + "]}",
       begin},
  };
  for (const auto& [row, first] : cases) {
    const Scored scored = BuildScore(row);
    ASSERT_FALSE(scored.error) << row << scored.error->message;
    EXPECT_EQ(scored.prompt.ids, whole) << row;
    EXPECT_EQ(scored.prompt.sampling.prompt_logprobs_begin, first) << row;
    EXPECT_TRUE(scored.row.warnings.empty()) << row;
  }
  // The beginning of the answer is given, and the rest is scored.
  const std::string messages = "\"messages\": [" + question + "," + said("\" t\"") + "]";
  const std::vector<TokenId> given =
      ids_of_run("{" + messages + R"(, "continue_final_message": true})");
  const Scored rest = BuildScore("{" + messages + R"(, "text": "wo"})");
  ASSERT_FALSE(rest.error) << rest.error->message;
  ASSERT_EQ(rest.prompt.ids.size(), given.size() + 2);
  EXPECT_TRUE(std::equal(given.begin(), given.end(), rest.prompt.ids.begin()));
  EXPECT_EQ(rest.prompt.sampling.prompt_logprobs_begin, static_cast<int32_t>(given.size()));
}

TEST(ScoreRowTest, SpacesAtTheEndOfThePromptBelongToTheText) {
  const Scored apart = BuildScore(R"({"prompt": "one \n", "text": "two"})");
  const Scored joined = BuildScore(R"({"prompt": "one", "text": " \ntwo"})");
  EXPECT_EQ(apart.prompt.ids, joined.prompt.ids);
  EXPECT_EQ(apart.prompt.sampling.prompt_logprobs_begin, 4);
  EXPECT_EQ(joined.prompt.sampling.prompt_logprobs_begin, 4);
  // A prompt of spaces alone is none.
  EXPECT_EQ(BuildScore(R"({"prompt": "  ", "text": "two"})").prompt.sampling.prompt_logprobs_begin,
            1);
}

TEST(ScoreRowTest, ATokenThatSpansTheBorderIsScored) {
  const Scored scored = BuildScore<PairTokenizer>(R"({"prompt": "xa", "text": "bc"})");
  ASSERT_FALSE(scored.error);
  EXPECT_EQ(scored.prompt.ids,
            (std::vector<TokenId>{ByteTokenizer::kBos, 'x', PairTokenizer::kPair, 'c'}));
  EXPECT_EQ(scored.prompt.sampling.prompt_logprobs_begin, 2);
  ASSERT_EQ(scored.row.warnings.size(), 1u);
  // The whole text is in the token that spans.
  const Scored whole = BuildScore<PairTokenizer>(R"({"prompt": "a", "text": "b"})");
  ASSERT_FALSE(whole.error);
  EXPECT_EQ(whole.prompt.sampling.prompt_logprobs_begin, 1);
}

TEST(ScoreRowTest, WithoutATokenBeforeItATextIsScoredFromItsSecondToken) {
  EXPECT_EQ(BuildScore(R"({"text": "abc"})").prompt.sampling.prompt_logprobs_begin, 1);
  EXPECT_EQ(BuildScore(R"({"text": "a"})").prompt.ids.size(), 2u);
  const Scored bare = BuildScore<NoPrefixTokenizer>(R"({"text": "abc"})");
  EXPECT_EQ(bare.prompt.ids.size(), 3u);
  EXPECT_EQ(bare.prompt.sampling.prompt_logprobs_begin, 1);
  EXPECT_EQ(BuildScore(R"({"text": "abc", "add_special_tokens": false})").prompt.ids.size(), 3u);
  const Scored one = BuildScore<NoPrefixTokenizer>(R"({"text": "a"})");
  ASSERT_TRUE(one.error);
  EXPECT_EQ(one.error->message, "text is one token, and none stands before it; give a prompt");
}

TEST(ScoreRowTest, PromptAndTextMayFillTheContext) {
  const auto row = [](int length) {
    return "{\"prompt\": \"p\", \"text\": \"" + std::string(static_cast<size_t>(length), 'x') +
           "\"}";
  };
  EXPECT_FALSE(BuildScore(row(62)).error);  // 64 with <s> and the prompt
  const Scored longer = BuildScore(row(63));
  ASSERT_TRUE(longer.error);
  EXPECT_EQ(longer.error->code, "length_exceeded");
  EXPECT_EQ(longer.error->message, "prompt and text have 65 tokens; the context holds 64");
}

TokenLogprobs Logprob(TokenId id, float logprob, std::vector<TokenLogprob> top = {}) {
  return {id, logprob, std::move(top)};
}

TEST(ScoreRowTest, TheAnswerHasTheSumAndOnRequestTheTokens) {
  RowAnswer answer;
  answer.prompt_logprobs = {Logprob('t', -0.5f, {{'u', -0.25f}}), Logprob('w', -1.25f)};
  Row row = BuildScore(R"({"id": "a", "text": "tw", "metadata": {"k": 1}})").row;
  EXPECT_EQ(FormatAnswerRow(row, {answer}, ByteTokenizer()),
            "{\"id\": \"a\", \"index\": 3, \"logprob\": -1.75, \"num_tokens\": 2, "
            "\"metadata\": {\"k\": 1}}\n");
  row = BuildScore(R"({"id": "a", "text": "tw"})", 1).row;
  EXPECT_EQ(FormatAnswerRow(row, {answer}, ByteTokenizer()),
            "{\"id\": \"a\", \"index\": 3, \"logprob\": -1.75, \"num_tokens\": 2, \"logprobs\": "
            "{\"content\": [{\"token\": \"t\", \"id\": 116, \"logprob\": -0.5, \"bytes\": [116], "
            "\"top_logprobs\": [{\"token\": \"u\", \"id\": 117, \"logprob\": -0.25, \"bytes\": "
            "[117]}]}, {\"token\": \"w\", \"id\": 119, \"logprob\": -1.25, \"bytes\": [119], "
            "\"top_logprobs\": []}]}}\n");
}

TEST(ScoreTotalsTest, TheSumIsThatOfTheRowsInAnyOrder) {
  ScoreTotals up, down;
  for (int i = 0; i < 1000; ++i) up.Add(-0.1 * i, 3);
  for (int i = 999; i >= 0; --i) down.Add(-0.1 * i, 3);
  EXPECT_EQ(up.logprob(), down.logprob());
  EXPECT_NEAR(up.logprob(), -0.1 * 999 * 500, 1e-3);
  EXPECT_EQ(up.num_tokens(), 3000);
  EXPECT_NEAR(up.perplexity(), std::exp(0.1 * 999 * 500 / 3000), 1e-3);
  EXPECT_EQ(ScoreTotals().Text(), "0 in 0 rows");
  EXPECT_TRUE(ScoreTotals().ToJson().Find("perplexity")->is_null());
}

// Rows of an output, which someone may have edited.
TEST(ScoreTotalsTest, WrittenRowsAddWhatTheySay) {
  ScoreTotals totals;
  for (const char* row :
       {R"({"id": 1, "index": 0, "logprob": -2.5, "num_tokens": 4})",
        R"({"id": 2, "index": 1, "error": {"code": "invalid_row"}})",
        R"({"id": 3, "index": 2, "logprob": 1e308, "num_tokens": 1})",
        R"({"id": 4, "index": 3, "logprob": "x", "num_tokens": 1})",
        R"({"id": 5, "index": 4, "logprob": -1, "num_tokens": -7})",
        R"({"id": 6, "index": 5, "logprob": -1, "num_tokens": 9223372036854775807})"}) {
    totals.AddWritten(*ParseJson(row));
  }
  EXPECT_EQ(totals.num_rows(), 2);
  EXPECT_EQ(totals.num_tokens(), 5);
}

// --- rows of run that show their prompt

struct Shown {
  Row row;
  std::vector<Prompt> prompts;
  std::optional<RowError> error;
};

Shown BuildShown(const std::string& text, int32_t num_logprobs = -1, bool truncates = false) {
  const TextModel model = FakeTextModel();
  PromptBuilderOptions options;
  options.truncate_left = truncates;
  options.defaults.sampling.num_logprobs = num_logprobs;
  const PromptBuilder builder(&model, SmallLimits(), options);
  ParsedRow parsed = ParseRow(text, 3, 7);
  Shown shown;
  if (!parsed.error) parsed.error = builder.Build(&parsed.row, &shown.prompts);
  shown.error = parsed.error;
  shown.row = std::move(parsed.row);
  return shown;
}

// The answer of a runtime to the prompt "ab", which is <s> a b, continued with "c".
RowAnswer AnswerToAb() {
  RowAnswer answer;
  answer.text = "c";
  answer.token_ids = {'c'};
  answer.finish_reason = "length";
  answer.prompt_logprobs = {Logprob('a', -1, {{'x', -0.5f}, {'a', -1}}),
                            Logprob('b', -2, {{'y', -0.5f}, {'z', -0.75f}})};
  answer.logprobs = {Logprob('c', -3, {{'q', -0.5f}})};
  return answer;
}

Json Formatted(const Row& row, const std::vector<RowAnswer>& answers) {
  const auto json = ParseJson(FormatAnswerRow(row, answers, ByteTokenizer()));
  EXPECT_TRUE(json.ok());
  return json.ok() ? *json : Json();
}

TEST(ShownPromptTest, TheFieldsAskForWhatTheyShow) {
  const struct {
    const char* fields;
    int32_t num_prompt_logprobs;
    int32_t num_logprobs;
  } cases[] = {
      {R"("echo": true)", -1, -1},
      {R"("echo": true, "logprobs": 4)", 4, 4},
      {R"("prompt_logprobs": 2)", 2, -1},
      {R"("prompt_logprobs": 2, "logprobs": 5)", 2, 5},
      {R"("prompt_logprobs": 2, "logprobs": 5, "echo": true)", 5, 5},
      {R"("echo": true, "max_tokens": 0, "logprobs": 1)", 1, 1},
      {R"("sampling_params": {"prompt_logprobs": 3, "max_tokens": 0})", 3, -1},
  };
  for (const auto& [fields, num_prompt_logprobs, num_logprobs] : cases) {
    const Shown shown = BuildShown(std::string(R"({"prompt": "ab", )") + fields + "}");
    ASSERT_FALSE(shown.error) << fields;
    EXPECT_EQ(shown.prompts[0].sampling.num_prompt_logprobs, num_prompt_logprobs) << fields;
    EXPECT_EQ(shown.prompts[0].sampling.num_logprobs, num_logprobs) << fields;
  }
  // The request of the first of several answers scores the prompt.
  const Shown several = BuildShown(R"({"prompt": "ab", "n": 2, "prompt_logprobs": 0})");
  EXPECT_EQ(several.prompts[0].sampling.num_prompt_logprobs, 0);
  EXPECT_EQ(several.prompts[1].sampling.num_prompt_logprobs, -1);
}

TEST(ShownPromptTest, NoTokenIsGeneratedOnlyIfThePromptIsShown) {
  EXPECT_EQ(BuildShown(R"({"prompt": "a", "max_tokens": 0})").error->field, "max_tokens");
  EXPECT_FALSE(BuildShown(R"({"prompt": "a", "max_tokens": 0, "echo": true})").error);
  EXPECT_FALSE(BuildShown(R"({"prompt": "a", "max_tokens": 0, "prompt_logprobs": 0})").error);
  EXPECT_EQ(BuildShown(R"({"prompt": "a", "max_tokens": 0, "echo": false})").error->field,
            "max_tokens");
  // Each of several answers is the prompt; the first one's request scores it.
  const Shown several =
      BuildShown(R"({"prompt": "ab", "n": 2, "max_tokens": 0, "prompt_logprobs": 1})");
  ASSERT_EQ(several.prompts.size(), 2u);
  EXPECT_EQ(several.prompts[0].sampling.num_prompt_logprobs, 1);
  EXPECT_EQ(several.prompts[0].sampling.prompt_logprobs_begin, 1);
  EXPECT_EQ(several.prompts[1].sampling.num_prompt_logprobs, 0);
  EXPECT_EQ(several.prompts[1].sampling.prompt_logprobs_begin, 3);  // <s> a b
  // It may fill the context.
  const std::string full(63, 'x');
  EXPECT_FALSE(
      BuildShown("{\"prompt\": \"" + full + "\", \"max_tokens\": 0, \"echo\": true}").error);
  EXPECT_EQ(BuildShown("{\"prompt\": \"" + full + "\", \"echo\": true}").error->code,
            "length_exceeded");
}

TEST(ShownPromptTest, MessagesAreNotEchoed) {
  const std::string row = R"({"messages": [{"role": "user", "content": "a"}], )";
  EXPECT_EQ(BuildShown(row + R"("echo": true})").error->field, "echo");
  EXPECT_FALSE(BuildShown(row + R"("prompt_logprobs": 1})").error);
}

TEST(ShownPromptTest, EchoPutsThePromptBeforeTheAnswerAndItsTokens) {
  const Row row = BuildShown(R"({"prompt": "ab", "echo": true, "logprobs": 1})").row;
  const Json json = Formatted(row, {AnswerToAb()});
  EXPECT_EQ(json.Find("text")->as_string(), "abc");
  EXPECT_EQ(json.Find("prompt_logprobs"), nullptr);
  const auto& content = json.Find("logprobs")->Find("content")->as_array();
  ASSERT_EQ(content.size(), 4u);  // <s> a b c
  EXPECT_EQ(content[0].Find("token")->as_string(), "<s>");
  EXPECT_TRUE(content[0].Find("logprob")->is_null());
  EXPECT_TRUE(content[0].Find("top_logprobs")->as_array().empty());
  EXPECT_EQ(*content[1].Find("logprob"), Json(-1.0));
  EXPECT_EQ(content[1].Find("top_logprobs")->as_array().size(), 1u);
  EXPECT_EQ(content[3].Find("token")->as_string(), "c");
}

TEST(ShownPromptTest, PromptLogprobsBeginWithNull) {
  const Row row = BuildShown(R"({"prompt": "ab", "prompt_logprobs": 2})").row;
  const Json json = Formatted(row, {AnswerToAb()});
  EXPECT_EQ(json.Find("text")->as_string(), "c");
  const auto& list = json.Find("prompt_logprobs")->as_array();
  ASSERT_EQ(list.size(), 3u);
  EXPECT_TRUE(list[0].is_null());
  EXPECT_EQ(*list[2].Find("logprob"), Json(-2.0));
  EXPECT_EQ(list[2].Find("top_logprobs")->as_array().size(), 2u);
}

// The lines that the completions API returns.
TEST(ShownPromptTest, ACompletionEchoesAsTheServiceDoes) {
  const Row row = BuildShown(R"({"custom_id": "c", "url": "/v1/completions", "body": )"
                             R"({"prompt": "ab", "echo": true, "logprobs": 1, "max_tokens": 1}})")
                      .row;
  const Json line = Formatted(row, {AnswerToAb()});
  const Json& choice = line.Find("response")->Find("body")->Find("choices")->as_array()[0];
  EXPECT_EQ(choice.Find("text")->as_string(), "abc");
  EXPECT_EQ(choice.Find("logprobs")->Dump(),
            R"({"tokens": ["<s>", "a", "b", "c"], "token_logprobs": [null, -1.0, -2.0, -3.0], )"
            R"("top_logprobs": [null, {"x": -0.5}, {"y": -0.5}, {"q": -0.5}], )"
            R"("text_offset": [0, 0, 1, 2]})");
}

TEST(ShownPromptTest, AnEmptyCompletionIsThePromptAlone) {
  const Row row =
      BuildShown(R"({"custom_id": "c", "url": "/v1/completions", "body": )"
                 R"({"prompt": [97, 98], "echo": true, "logprobs": 0, "max_tokens": 0}})")
          .row;
  RowAnswer answer;
  answer.finish_reason = "length";
  answer.prompt_logprobs = {Logprob('b', -2)};
  const Json line = Formatted(row, {answer});
  const Json& choice = line.Find("response")->Find("body")->Find("choices")->as_array()[0];
  EXPECT_EQ(choice.Find("text")->as_string(), "ab");
  EXPECT_EQ(choice.Find("finish_reason")->as_string(), "length");
  EXPECT_EQ(choice.Find("logprobs")->Dump(),
            R"({"tokens": ["a", "b"], "token_logprobs": [null, -2.0], "top_logprobs": null, )"
            R"("text_offset": [0, 1]})");
}

TEST(ShownPromptTest, ACompletionsPromptLogprobsAreByTokenId) {
  const Row row = BuildShown(R"({"custom_id": "c", "url": "/v1/completions", "body": )"
                             R"({"prompt": "ab", "prompt_logprobs": 2}})")
                      .row;
  const Json line = Formatted(row, {AnswerToAb()});
  const Json& choice = line.Find("response")->Find("body")->Find("choices")->as_array()[0];
  EXPECT_EQ(choice.Find("text")->as_string(), "c");
  EXPECT_EQ(choice.Find("prompt_logprobs")->Dump(),
            R"([null, {"97": {"logprob": -1.0, "rank": 2, "decoded_token": "a"}, )"
            R"("120": {"logprob": -0.5, "rank": 1, "decoded_token": "x"}}, )"
            R"({"98": {"logprob": -2.0, "rank": null, "decoded_token": "b"}, )"
            R"("121": {"logprob": -0.5, "rank": 1, "decoded_token": "y"}, )"
            R"("122": {"logprob": -0.75, "rank": 2, "decoded_token": "z"}}])");
}

TEST(ShownPromptTest, OffsetsCountTheControlTokensThatThePromptSpells) {
  const Row row = BuildShown(R"({"custom_id": "c", "url": "/v1/completions", "body": )"
                             R"({"prompt": "a</s>b", "echo": true, "logprobs": 0}})")
                      .row;
  RowAnswer answer;
  answer.finish_reason = "length";
  answer.prompt_logprobs = {Logprob('a', -1), Logprob(ByteTokenizer::kEos, -1), Logprob('b', -1)};
  const Json line = Formatted(row, {answer});
  const Json& choice = line.Find("response")->Find("body")->Find("choices")->as_array()[0];
  EXPECT_EQ(choice.Find("text")->as_string(), "a</s>b");
  EXPECT_EQ(choice.Find("logprobs")->Find("text_offset")->Dump(), "[0, 0, 1, 5]");
}

TEST(ShownPromptTest, APromptThatWasCutIsEchoedAsItWasUsed) {
  const Shown shown = BuildShown("{\"prompt\": \"" + std::string(80, 'x') + "yz\", \"echo\": true}",
                                 -1, /*truncates=*/true);
  ASSERT_FALSE(shown.error);
  EXPECT_EQ(shown.row.shown.ids, shown.prompts[0].ids);
  EXPECT_EQ(shown.row.shown.text.size(), shown.prompts[0].ids.size() - 1);  // without <s>
  EXPECT_TRUE(shown.row.shown.text.ends_with("yz"));
}

}  // namespace
}  // namespace minisgl::batch
