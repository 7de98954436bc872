// Rows of sessions and rows whose every turn is answered: their prompts, the order in which they
// are asked, and what becomes of a session after a failure.
#include "batch/session_rows.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "batch/run_loop_fixture.h"
#include "long_form.h"
#include "minisgl/base/random.h"

namespace minisgl::batch {
namespace {

class SessionRowsTest : public RunLoopTest {
 protected:
  SessionRowsTest() { text_ = FakeTextModel(/*with_template=*/true); }

  std::string PromptOf(size_t submission) const {
    return text_.tokenizer->Decode(runtime_.submissions[submission].prompt.ids, true);
  }
  static std::string CodeOf(const Json& row) {
    const Json* const error = row.Find("error");
    return error == nullptr ? "" : error->Find("code")->as_string();
  }
  static std::string MessageOf(const Json& row) {
    return row.Find("error")->Find("message")->as_string();
  }
  // A row of the session with one message of the user.
  static std::string Asks(const std::string& session, const std::string& content) {
    return fmt::format(
        "{{\"session\": \"{}\", \"messages\": [{{\"role\": \"user\", \"content\": \"{}\"}}]}}\n",
        session, content);
  }
  static std::string Appends(const std::string& session, const std::string& prompt) {
    return fmt::format("{{\"session\": \"{}\", \"append\": true, \"prompt\": \"{}\"}}\n", session,
                       prompt);
  }
};

TEST_F(SessionRowsTest, AMessageIsAskedAfterTheConversationSoFar) {
  runtime_.on_submit = [this](const auto& request) {
    runtime_.Answer(request, fmt::format("A{}", runtime_.submissions.size()));
  };
  RunFile(Asks("a", "one") + Asks("a", "two") + Asks("a", "three"));
  ASSERT_EQ(runtime_.submissions.size(), 3u);
  EXPECT_EQ(PromptOf(0), "user: one\n");
  EXPECT_EQ(PromptOf(1), "user: one\nassistant: A1\nuser: two\n");
  EXPECT_EQ(PromptOf(2), "user: one\nassistant: A1\nuser: two\nassistant: A2\nuser: three\n");
}

TEST_F(SessionRowsTest, AnAppendedPromptGoesOnWithTheText) {
  runtime_.on_submit = [this](const auto& request) { runtime_.Answer(request, "abc"); };
  const std::vector<Json> rows =
      RunFile(Appends("a", "x") + Appends("a", "y") +
              R"({"session": "a", "append": true, "prompt_token_ids": [122, 122]})");
  ASSERT_EQ(runtime_.submissions.size(), 3u);
  EXPECT_EQ(PromptOf(0), "<s>x");
  EXPECT_EQ(PromptOf(1), "<s>xabcy");
  EXPECT_EQ(PromptOf(2), "<s>xabcyabczz");
  EXPECT_NE(rows[0].Find("token_ids"), nullptr) << "what a resumed run goes on from";
}

TEST_F(SessionRowsTest, NeitherAnEndTokenNorAStopStringIsPartOfTheText) {
  SaidSoFar said(&text_);
  Row row;
  row.kind = PromptKind::kText;
  Prompt prompt;
  prompt.ids = {'x'};
  prompt.stop = {"cd"};
  said.Keep(row, prompt);
  said.AddAnswer({'a', 'b', ByteTokenizer::kEos}, /*stopped=*/true);
  const auto next = [&] {
    row.append = true;
    row.prompt = "y";
    const auto rendered = RenderPrompt(text_, said.AddPrompt(&row));
    EXPECT_TRUE(rendered.ok());
    const auto encoded = EncodePrompt(text_, *rendered);
    EXPECT_TRUE(encoded.ok());
    return text_.tokenizer->Decode(encoded->ids, true);
  };
  EXPECT_EQ(next(), "xaby");
  said.Keep(row, prompt);
  said.AddAnswer({'a', 'b', 'c', 'd'}, /*stopped=*/true);
  EXPECT_EQ(next(), "xaby");
  // An end token in the middle of an answer that ignores it stays.
  said.Keep(row, prompt);
  said.AddAnswer({'a', ByteTokenizer::kEos}, /*stopped=*/false);
  EXPECT_EQ(next(), "xa</s>y");
}

TEST_F(SessionRowsTest, OnlyTheFirstPromptOfAChatHasTheSystemMessage) {
  PromptBuilderOptions options;
  options.chat = true;
  options.system = "S";
  const PromptBuilder builder(&text_, SmallLimits(), options);
  UnaskedRows rows(&builder);
  for (const char* expected :
       {"system: S\nuser: hi\n", "system: S\nuser: hi\nassistant: \nuser: hi\n"}) {
    ParsedRow parsed = ParseRow(R"({"session": "a", "prompt": "hi"})", 0, 1);
    std::vector<Prompt> prompts;
    EXPECT_EQ(rows.Build(&parsed, &prompts), std::nullopt);
    EXPECT_EQ(text_.tokenizer->Decode(prompts.front().ids, true), expected);
  }
  EXPECT_TRUE(rows.any_missing());
}

TEST_F(SessionRowsTest, AWaitingRowBlocksNoOther) {
  // The first row of the session is answered after all rows of others.
  std::vector<FakeRuntime::Submission> held;
  runtime_.on_submit = [&](const FakeRuntime::Submission& request) {
    const bool first = runtime_.submissions.size() == 1;
    if (first) held.push_back(request);
    if (!first) runtime_.Answer(request, "x");
    if (runtime_.submissions.size() == 101) runtime_.Answer(held.front(), "y");
  };
  loop_options_.window_answers_max = 1;
  loop_options_.answers_ahead_max = 4;
  std::string input;
  for (int i = 0; i < 50; ++i) input += Asks("a", "q");
  for (int i = 0; i < 100; ++i) input += "{\"prompt\": \"x\"}\n";
  loop_options_.held_rows_max = 1000;
  EXPECT_EQ(RunFile(input).size(), 150u);
  // Its prompts outgrow the context.
  EXPECT_GT(rows_done_, 100);
}

TEST_F(SessionRowsTest, SmallBoundsDoNotStopTheRun) {
  runtime_.on_submit = [this](const auto& request) { runtime_.Answer(request, "a"); };
  loop_options_.window_answers_max = 2;
  loop_options_.answers_ahead_max = 2;
  loop_options_.waiting_rows_max = 5;
  loop_options_.held_rows_max = 3;
  loop_options_.open_sessions_max = 2;
  std::string input;
  for (int i = 0; i < 40; ++i) input += Appends("first", "") + "{\"prompt\": \"x\"}\n";
  for (int i = 0; i < 40; ++i) input += Appends(std::to_string(i % 9), "z");
  for (const bool ordered : {true, false}) {
    for (const size_t bytes : {size_t{1}, size_t{1} << 20}) {
      loop_options_.bytes_ahead_max = bytes;
      EXPECT_EQ(RunFile(input, ordered).size(), 120u);
    }
  }
}

TEST_F(SessionRowsTest, RowsAfterAFailureNameTheFirstOneWhateverTheTimes) {
  std::vector<std::string> messages;
  for (const size_t hold : {1, 4}) {
    runtime_.submissions.clear();
    runtime_.on_submit = [&](const FakeRuntime::Submission&) {
      if (runtime_.open.size() < hold && runtime_.submissions.size() < 2) return;
      for (const auto& request : std::vector(runtime_.submissions)) {
        if (!runtime_.open.contains(request.id)) continue;
        Event done;
        done.finish_reason = FinishReason::kError;
        done.error_code = "nan_logits";
        runtime_.End(request, done);
      }
    };
    const std::vector<Json> rows =
        RunFile(Asks("a", "1") + Asks("a", "2") + "{\"session\": \"a\", \"n\": 0}\n" +
                Asks("a", "4") + Asks("b", "5") + "{\"session\": \"b\",\n" + Asks("b", "7"));
    ASSERT_EQ(rows.size(), 7u);
    EXPECT_EQ(CodeOf(rows[0]), "nan_logits");
    EXPECT_EQ(CodeOf(rows[1]), "session_failed");
    EXPECT_EQ(CodeOf(rows[2]), "invalid_row") << "its own error comes first";
    EXPECT_EQ(CodeOf(rows[3]), "session_failed");
    EXPECT_EQ(CodeOf(rows[5]), "invalid_row");
    EXPECT_EQ(CodeOf(rows[6]), "session_failed");
    EXPECT_EQ(MessageOf(rows[3]), MessageOf(rows[1]));
    EXPECT_NE(MessageOf(rows[3]).find("line 1 "), std::string::npos) << MessageOf(rows[3]);
    messages.push_back(MessageOf(rows[6]));
  }
  EXPECT_EQ(messages[0], messages[1]);
}

TEST_F(SessionRowsTest, ManyRowsOfOneSessionFailOneAfterTheOther) {
  std::string input = "{\"session\": \"a\", \"n\": 0}\n";
  // A call within a call for each would overflow the stack.
  const int count = ShortOrLong(20'000, 100'000);
  for (int i = 0; i < count; ++i) input += "{\"session\": \"a\", \"prompt\": \"x\"}\n";
  EXPECT_EQ(std::ssize(RunFile(input)), count + 1);
  EXPECT_EQ(rows_failed_, count + 1);
}

TEST_F(SessionRowsTest, AStopCancelsWaitingRows) {
  runtime_.on_submit = [](const auto&) {};
  loop_options_.writes_cancelled = true;
  loop_options_.grace = std::chrono::milliseconds(0);
  loop_options_.stop = [this] {
    return runtime_.submissions.empty() ? term::StopRequest{} : term::StopRequest{15, false};
  };
  const std::vector<Json> rows = RunFile(Asks("a", "1") + Asks("a", "2") + Asks("a", "3"));
  ASSERT_EQ(rows.size(), 3u);
  for (const Json& row : rows) EXPECT_EQ(CodeOf(row), "cancelled") << "asked again on --resume";
}

constexpr const char* kTurns =
    R"({"answer_all_turns": true, "seed": 5, "temperature": 1, "messages": [)"
    R"({"role": "system", "content": "S"}, {"role": "user", "content": "1"}, )"
    R"({"role": "user", "content": "2"}, {"role": "user", "content": "3"}]})";

TEST_F(SessionRowsTest, EveryTurnIsAnsweredWithASeedOfItsOwn) {
  runtime_.on_submit = [this](const auto& request) {
    runtime_.Answer(request, fmt::format("A{}", runtime_.submissions.size()));
  };
  const std::vector<Json> rows = RunFile(kTurns);
  ASSERT_EQ(rows.size(), 1u);
  ASSERT_EQ(runtime_.submissions.size(), 3u);
  EXPECT_EQ(PromptOf(2), "system: S\nuser: 1\nassistant: A1\nuser: 2\nassistant: A2\nuser: 3\n");
  EXPECT_EQ(runtime_.submissions[0].prompt.sampling.seed, 5u);
  EXPECT_EQ(runtime_.submissions[2].prompt.sampling.seed, AnswerSeed(5, 2));
  const Json* const turns = rows[0].Find("turns");
  ASSERT_NE(turns, nullptr) << rows[0].Dump();
  ASSERT_EQ(turns->as_array().size(), 3u);
  EXPECT_EQ(*turns->as_array()[1].Find("text"), Json("A2"));
  int64_t sum = 0;
  for (const Json& turn : turns->as_array()) {
    sum += turn.Find("usage")->Find("prompt_tokens")->as_int();
  }
  EXPECT_EQ(*rows[0].Find("usage")->Find("prompt_tokens"), Json(sum));
}

// The other rows without an answer are not written; this one has two.
TEST_F(SessionRowsTest, TurnsBeforeAStopAreKept) {
  bool stops = false;
  loop_options_.answers_ahead_max = 1;
  loop_options_.grace = std::chrono::milliseconds(0);
  loop_options_.stop = [&stops] { return term::StopRequest{stops ? 15 : 0, false}; };
  runtime_.on_submit = [this, &stops](const FakeRuntime::Submission& request) {
    stops = runtime_.submissions.size() == 3;
    if (!stops) runtime_.Answer(request, "ok");
  };
  const std::vector<Json> rows = RunFile(kTurns + ("\n" + Asks("a", "1")));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(CodeOf(rows[0]), "cancelled");
  ASSERT_NE(rows[0].Find("turns"), nullptr);
  EXPECT_EQ(rows[0].Find("turns")->as_array().size(), 2u);
}

TEST_F(SessionRowsTest, TurnsBeforeAFailureAreKept) {
  runtime_.on_submit = [this](const FakeRuntime::Submission& request) {
    if (runtime_.submissions.size() < 3) return runtime_.Answer(request, "ok");
    Event done;
    done.finish_reason = FinishReason::kError;
    done.error_code = "nan_logits";
    runtime_.End(request, done);
  };
  const std::vector<Json> rows = RunFile(kTurns);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(CodeOf(rows[0]), "nan_logits");
  ASSERT_NE(rows[0].Find("turns"), nullptr);
  EXPECT_EQ(rows[0].Find("turns")->as_array().size(), 2u);
}

TEST_F(SessionRowsTest, WhatMakesNoSenseIsRefused) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"append": true, "prompt": "a"})", "append"},
      {R"({"session": "a", "append": true, "messages": [{"role": "user", "content": "a"}]})",
       "append"},
      {R"({"session": "a", "n": 2, "prompt": "a"})", "n"},
      {R"({"session": "a", "echo": true, "prompt": "a"})", "echo"},
      {R"({"session": "a", "prompt_logprobs": 0, "prompt": "a"})", "prompt_logprobs"},
      {R"({"session": "", "prompt": "a"})", "session"},
      {R"({"session": 1, "prompt": "a"})", "session"},
      {R"({"answer_all_turns": true, "prompt": "a"})", "answer_all_turns"},
      {R"({"answer_all_turns": true, "messages": [{"role": "system", "content": "a"}]})",
       "messages"},
      {R"({"answer_all_turns": true, "messages": [{"role": "user", "content": "a"}, )"
       R"({"role": "assistant", "content": "a"}, {"role": "user", "content": "a"}]})",
       "messages[1].role"},
      {R"({"custom_id": "a", "body": {"session": "a", "prompt": "a"}})", "session"},
  };
  for (const auto& [row, field] : cases) {
    const ParsedRow parsed = ParseRow(row, 0, 1);
    ASSERT_TRUE(parsed.error) << row;
    EXPECT_EQ(parsed.error->field, field) << parsed.error->message;
  }
  EXPECT_TRUE(ParseRow(R"({"session": "a", "text": "a"})", 0, 1, false, RowPurpose::kScore).error);
}

TEST(SelectShardTest, ASessionIsInTheShardInWhichItBegins) {
  // Sessions by row: a b - a | b a - c | c - a -
  FileCheck check;
  check.rows = 12;
  check.session_of_row = {1, 2, 0, 1, 2, 1, 0, 3, 3, 0, 1};
  check.sessions = {{0, 10}, {1, 4}, {7, 8}};
  const std::string expected[] = {"0 1 2 3 4 5 10", "6 7 8", "9 11"};
  for (int64_t shard = 0; shard < 3; ++shard) {
    const RowSelection selection = SelectShard(4 * shard, 4 * shard + 4, check);
    std::string rows;
    for (int64_t index = 0; index < check.rows; ++index) {
      if (selection.Has(index)) rows += fmt::format("{}{}", rows.empty() ? "" : " ", index);
    }
    EXPECT_EQ(rows, expected[shard]);
  }
}

}  // namespace
}  // namespace minisgl::batch
