// The loop of `minisgl run` over a fake runtime: order, bounds, errors, timeouts, ends.
#include "batch/run_loop.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "batch/run_loop_fixture.h"
#include "long_form.h"
#include "minisgl/base/random.h"
#include "program/failing_write.h"
#include "program/fakes.h"
#include "slow.h"
#include "term/signals.h"

namespace minisgl::batch {
namespace {

std::vector<int64_t> Indexes(const std::vector<Json>& rows) {
  std::vector<int64_t> indexes;
  for (const Json& row : rows) indexes.push_back(row.Find("index")->as_int());
  return indexes;
}

std::string ErrorCode(const Json& row) {
  const Json* error = row.Find("error");
  return error == nullptr ? "" : error->Find("code")->as_string();
}

constexpr const char* kThreeRows = "\"a\"\n\"b\"\n\"c\"\n";

TEST_F(RunLoopTest, WritesARowExactlyAsDocumented) {
  AnswerAtOnce();
  RunFile(R"({"id": "r1", "prompt": "a", "metadata": {"k": 1}, "return_token_ids": true})");
  EXPECT_EQ(folder_.Read("out.jsonl"),
            R"({"id": "r1", "index": 0, "text": "to a", "finish_reason": "stop", )"
            R"("usage": {"prompt_tokens": 2, "cached_tokens": 0, "completion_tokens": 4}, )"
            R"("token_ids": [116, 111, 32, 97], "metadata": {"k": 1}})"
            "\n");
}

TEST_F(RunLoopTest, OrderedRowsWaitForThoseBeforeThem) {
  AnswerBackwards(3);
  EXPECT_EQ(Indexes(RunFile(kThreeRows, true)), (std::vector<int64_t>{0, 1, 2}));
}

TEST_F(RunLoopTest, UnorderedRowsAreWrittenAsCompleted) {
  AnswerBackwards(3);
  EXPECT_EQ(Indexes(RunFile(kThreeRows, false)), (std::vector<int64_t>{2, 1, 0}));
}

TEST_F(RunLoopTest, ABadRowIsAnErrorRowAndTheOthersContinue) {
  AnswerAtOnce();
  const std::vector<Json> rows = RunFile(
      "\"a\"\n"
      "{\"prompt\": \n"
      "\n"
      "{\"id\": 5, \"prompt\": \"b\", \"temperature\": -1}\n"
      "{\"prompt_token_ids\": [258]}\n"
      "{\"messages\": [{\"role\": \"refused\", \"content\": \"a\"}]}\n"
      "{\"prompt\": \"\", \"add_special_tokens\": false}\n"
      "\"z\"");
  ASSERT_EQ(rows.size(), 7u);
  EXPECT_EQ(Indexes(rows), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}));
  const char* codes[] = {
      "", "invalid_row", "invalid_row", "invalid_row", "template_error", "invalid_row", ""};
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(ErrorCode(rows[i]), codes[i]) << i;
  EXPECT_EQ(*rows[2].Find("id"), Json(5));
  EXPECT_EQ(*rows[2].Find("error")->Find("line"), Json(4));
  EXPECT_EQ(*rows[2].Find("error")->Find("field"), Json("temperature"));
  EXPECT_EQ(*rows[6].Find("text"), Json("to z"));
  EXPECT_EQ(rows_done_, 2);
  EXPECT_EQ(rows_failed_, 5);
}

TEST_F(RunLoopTest, ASecondRowWithAnIdIsADuplicate) {
  AnswerAtOnce();
  const std::vector<Json> rows = RunFile(
      "{\"id\": 1, \"prompt\": \"a\"}\n{\"id\": \"1\", \"prompt\": \"a\"}\n{\"id\": 1, \"prompt\": "
      "\"b\"}\n");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(ErrorCode(rows[1]), "");
  EXPECT_EQ(ErrorCode(rows[2]), "duplicate_id");
  EXPECT_NE(rows[2].Find("error")->Find("message")->as_string().find("line 1"), std::string::npos);
}

TEST_F(RunLoopTest, MessagesWithoutATemplateAreTemplateErrors) {
  AnswerAtOnce();
  text_ = FakeTextModel(false);
  const std::vector<Json> rows =
      RunFile("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n\"b\"\n");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(ErrorCode(rows[0]), "template_error");
  EXPECT_NE(rows[0].Find("error")->Find("message")->as_string().find("--chat-template"),
            std::string::npos);
  EXPECT_EQ(ErrorCode(rows[1]), "");
}

TEST_F(RunLoopTest, ContentNeverBecomesAControlTokenAndAPromptMay) {
  AnswerAtOnce();
  RunFile("{\"messages\": [{\"role\": \"user\", \"content\": \"</s>\"}]}\n\"</s>\"\n");
  ASSERT_EQ(runtime_.submissions.size(), 2u);
  const std::vector<TokenId>& content = runtime_.submissions[0].prompt.ids;
  EXPECT_EQ(std::count(content.begin(), content.end(), ByteTokenizer::kEos), 0);
  EXPECT_EQ(runtime_.submissions[1].prompt.ids,
            (std::vector<TokenId>{ByteTokenizer::kBos, ByteTokenizer::kEos}));
}

TEST_F(RunLoopTest, SubmittedAnswersAreBounded) {
  loop_options_.answers_ahead_max = 8;
  AnswerBackwards(8);
  std::string input;
  for (int i = 0; i < 64; ++i) input += "\"a\"\n";
  EXPECT_EQ(RunFile(input, true).size(), 64u);
  EXPECT_EQ(runtime_.open_max, 8u);
}

// A slow first row: the number of rows held for it is bounded; then nothing more is submitted.
TEST_F(RunLoopTest, HeldRowsAreBounded) {
  loop_options_.held_rows_max = 5;
  loop_options_.writes_cancelled = true;
  loop_options_.answers_ahead_max = 2;
  runtime_.on_submit = [this](const FakeRuntime::Submission& request) {
    if (request.id == 1) return;  // answered only after the stop below
    runtime_.Answer(request, "x");
  };
  int turns = 0;
  loop_options_.on_numbers = [&](const term::Progress::Numbers&) { ++turns; };
  loop_options_.stop = [&] { return term::StopRequest{turns > 20 ? 1 : 0, turns > 20}; };
  std::string input;
  for (int i = 0; i < 64; ++i) input += "\"a\"\n";
  const std::vector<Json> rows = RunFile(input, true);
  EXPECT_EQ(rows.size(), 64u);
  EXPECT_LE(runtime_.submissions.size(), 1u + 5u + 2u);
  EXPECT_EQ(ErrorCode(rows[0]), "cancelled");
  EXPECT_EQ(ErrorCode(rows[5]), "");
  EXPECT_EQ(ErrorCode(rows[63]), "cancelled");
}

// A row that is held for another is answered and not written: its number says so.
TEST_F(RunLoopTest, HeldRowsAreCounted) {
  int64_t most_held = 0, most_failed = 0;
  term::Progress::Numbers last;
  loop_options_.rows_before = 7;
  loop_options_.on_numbers = [&](const term::Progress::Numbers& numbers) {
    most_held = std::max(most_held, numbers.held_done);
    most_failed = std::max(most_failed, numbers.held_failed);
    last = numbers;
  };
  loop_options_.window_answers_max = 1;
  runtime_.on_submit = [this](const FakeRuntime::Submission& request) {
    if (request.id == 2) runtime_.Answer(request, "x");
  };
  int turns = 0;
  loop_options_.stop = [&] {
    if (++turns == 20) runtime_.Answer(runtime_.submissions[0], "y");
    return term::StopRequest{};
  };
  EXPECT_EQ(RunFile("\"a\"\n\"b\"\n{\"prompt\": 3}\n").size(), 3u);
  EXPECT_EQ(most_held, 1);
  EXPECT_EQ(most_failed, 1);
  EXPECT_EQ(last.held_done + last.held_failed, 0);
  EXPECT_EQ(last.done, 2);
  EXPECT_EQ(last.before, 7);
}

TEST_F(RunLoopTest, RowsWithACommonPrefixRunTogetherAndAreWrittenInOrder) {
  AnswerAtOnce();
  const std::vector<Json> rows = RunFile("\"bx\"\n\"ax\"\n\"by\"\n\"ay\"\n", true);
  EXPECT_EQ(Indexes(rows), (std::vector<int64_t>{0, 1, 2, 3}));
  std::string prompts;
  for (const auto& request : runtime_.submissions)
    prompts += text_.tokenizer->Decode(request.prompt.ids, false);
  EXPECT_EQ(prompts, "bxbyaxay");
  loop_options_.window_answers_max = 1;
  runtime_.submissions.clear();
  RunFile("\"bx\"\n\"ax\"\n\"by\"\n\"ay\"\n", true);
  prompts.clear();
  for (const auto& request : runtime_.submissions)
    prompts += text_.tokenizer->Decode(request.prompt.ids, false);
  EXPECT_EQ(prompts, "bxaxbyay");
}

// After a fault, rows that were held for one that was not submitted are written.
TEST_F(RunLoopTest, AfterAFaultHeldRowsAreWritten) {
  loop_options_.answers_ahead_max = 1;
  runtime_.on_submit = [this](const FakeRuntime::Submission& request) {
    if (runtime_.submissions.size() < 3) return runtime_.Answer(request, "x");
    Event done;
    done.finish_reason = FinishReason::kError;
    done.error_code = "device_fault";
    runtime_.End(request, std::move(done));
  };
  // Submitted: 0, 2, then 3, which fails; 2 is held for 1, which is not submitted.
  const Status status = RunTo("\"bx\"\n\"ax\"\n\"by\"\n\"bz\"\n", folder_.Path("out.jsonl"), true);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  std::vector<std::string> codes;
  for (const std::string& line : Lines(folder_.Read("out.jsonl"))) {
    codes.push_back(ErrorCode(*ParseJson(line)));
  }
  EXPECT_EQ(codes, (std::vector<std::string>{"", "", "device_fault"}));
}

TEST_F(RunLoopTest, LargeRowsAreNotTakenInAhead) {
  loop_options_.bytes_ahead_max = 1000;
  AnswerBackwards(2);
  std::string input;
  for (int i = 0; i < 6; ++i) {
    input += "{\"prompt\": \"a\", \"metadata\": \"" + std::string(600, 'm') + "\"}\n";
  }
  EXPECT_EQ(RunFile(input, true).size(), 6u);
  EXPECT_EQ(runtime_.open_max, 2u);
}

TEST_F(RunLoopTest, SeedsComeFromTheRowOrTheRunAndEachAnswerHasItsOwn) {
  AnswerAtOnce();
  const std::vector<Json> rows =
      RunFile("{\"prompt\": \"a\", \"n\": 2, \"seed\": 40}\n{\"prompt\": \"a\", \"n\": 2}\n");
  ASSERT_EQ(runtime_.submissions.size(), 4u);
  EXPECT_EQ(runtime_.submissions[0].prompt.sampling.seed, 40u);
  EXPECT_EQ(runtime_.submissions[1].prompt.sampling.seed, AnswerSeed(40, 1));
  EXPECT_EQ(runtime_.submissions[2].prompt.sampling.seed, DeriveSeed(0, 1));
  EXPECT_EQ(runtime_.submissions[3].prompt.sampling.seed, AnswerSeed(DeriveSeed(0, 1), 1));
  EXPECT_EQ(rows[0].Dump(),
            R"({"id": null, "index": 0, )"
            R"("usage": {"prompt_tokens": 2, "cached_tokens": 0, "completion_tokens": 8}, )"
            R"("choices": [{"index": 0, "text": "to a", "finish_reason": "stop"}, )"
            R"({"index": 1, "text": "to a", "finish_reason": "stop"}]})");
}

TEST_F(RunLoopTest, EndTokensStopAnAnswerUnlessIgnored) {
  AnswerAtOnce();
  RunFile(
      "{\"prompt\": \"a\", \"stop_token_ids\": [9], \"min_tokens\": 3}\n"
      "{\"prompt\": \"a\", \"stop_token_ids\": [9], \"ignore_eos\": true}\n");
  const std::vector<TokenId> both = {9, ByteTokenizer::kEos};
  EXPECT_EQ(runtime_.submissions[0].prompt.stop_token_ids, both);
  EXPECT_EQ(runtime_.submissions[1].prompt.stop_token_ids, std::vector<TokenId>{9});
}

TEST_F(RunLoopTest, ARowThatTakesTooLongEndsAsTimeout) {
  runtime_.on_submit = [this](const FakeRuntime::Submission& request) {
    ASSERT_TRUE(request.prompt.timeout.has_value());
    EXPECT_EQ(request.prompt.timeout->count(), 0.25);
    runtime_.Answer(request, request.prompt.ids.back() == 'b' ? "half" : "",
                    FinishReason::kTimeout);
  };
  const std::vector<Json> rows = RunFile(
      "{\"prompt\": \"a\", \"timeout_s\": 0.25}\n{\"prompt\": \"b\", \"timeout_s\": 0.25}\n");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].Dump(),
            R"({"id": null, "index": 0, "error": {"code": "timeout", )"
            R"("message": "no answer began within 0.25 s", "line": 1, "field": "timeout_s"}})");
  EXPECT_EQ(*rows[1].Find("finish_reason"), Json("timeout"));
  EXPECT_EQ(*rows[1].Find("text"), Json("half"));
  EXPECT_EQ(rows_done_, 1);
  EXPECT_EQ(rows_failed_, 1);
}

TEST_F(RunLoopTest, ARowWithoutATimeoutHasNone) {
  AnswerAtOnce();
  RunFile("\"a\"\n");
  EXPECT_FALSE(runtime_.submissions.at(0).prompt.timeout.has_value());
}

// A row returns the answers that began, and fails only if none did.
TEST_F(RunLoopTest, TimeoutsOfSeveralAnswersKeepWhatBegan) {
  runtime_.on_submit = [this](const FakeRuntime::Submission& request) {
    EXPECT_TRUE(request.prompt.timeout.has_value());
    const bool begins = request.id == 2 || request.id == 3;
    runtime_.Answer(request, begins ? "x" : "",
                    request.id == 2 ? FinishReason::kStop : FinishReason::kTimeout);
  };
  const std::string row = "{\"prompt\": \"a\", \"n\": 3, \"timeout_s\": 1}\n";
  const std::vector<Json> rows = RunFile(row + row);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].Find("choices")->Dump(),
            R"([{"index": 0, "text": "", "finish_reason": "timeout"}, )"
            R"({"index": 1, "text": "x", "finish_reason": "stop"}, )"
            R"({"index": 2, "text": "x", "finish_reason": "timeout"}])");
  EXPECT_EQ(ErrorCode(rows[1]), "timeout");
}

TEST_F(RunLoopTest, AFailedRequestIsAnErrorRow) {
  runtime_.on_submit = [this](const FakeRuntime::Submission& request) {
    Event done;
    done.finish_reason = FinishReason::kError;
    done.error_code = "nan_logits";
    done.error_message = "not a number";
    runtime_.End(request, std::move(done));
  };
  const std::vector<Json> rows = RunFile("\"a\"\n");
  EXPECT_EQ(rows[0].Dump(),
            R"({"id": null, "index": 0, )"
            R"("error": {"code": "nan_logits", "message": "not a number", "line": 1}})");
}

TEST_F(RunLoopTest, ADeviceOrProgramFaultEndsTheRunWithItsStatus) {
  struct Case {
    const char *event_code, *row_code;
    StatusCode status;
  };
  for (const Case& c : {Case{"device_fault", "device_fault", StatusCode::kInternal},
                        Case{"device_unavailable", "device_fault", StatusCode::kUnavailable},
                        Case{"out_of_memory", "internal", StatusCode::kOutOfMemory},
                        Case{"internal", "internal", StatusCode::kInternal}}) {
    runtime_.on_submit = [&](const FakeRuntime::Submission& request) {
      Event done;
      done.finish_reason = FinishReason::kError;
      done.error_code = c.event_code;
      done.error_message = "the device fell off";
      runtime_.End(request, std::move(done));
    };
    const std::string out = std::string(c.event_code) + ".jsonl";
    EXPECT_EQ(RunTo(kThreeRows, folder_.Path(out), true).code(), c.status) << c.event_code;
    EXPECT_NE(folder_.Read(out).find(fmt::format("\"code\": \"{}\"", c.row_code)),
              std::string::npos)
        << folder_.Read(out);
  }
}

TEST_F(RunLoopTest, LoweredMaxTokensAreAWarningOfTheRow) {
  runtime_.on_submit = [this](const FakeRuntime::Submission& request) {
    Event done;
    done.max_tokens_lowered = true;
    runtime_.End(request, std::move(done));
  };
  const std::vector<Json> rows = RunFile("{\"prompt\": \"a\", \"max_tokens\": 100}\n");
  ASSERT_NE(rows[0].Find("warnings"), nullptr);
  EXPECT_EQ(rows[0].Find("warnings")->as_array()[0],
            Json("max_tokens was lowered to 62: the context holds 64 tokens and the prompt has 2"));
}

TEST_F(RunLoopTest, AnOverlongPromptIsCutOnlyWhenAsked) {
  AnswerAtOnce();
  const std::string input = "\"" + std::string(99, 'a') + "z\"\n";
  EXPECT_EQ(ErrorCode(RunFile(input).at(0)), "length_exceeded");
  EXPECT_TRUE(runtime_.submissions.empty());
  truncate_left_ = true;
  const std::vector<Json> rows = RunFile(input);
  const std::vector<TokenId>& ids = runtime_.submissions.back().prompt.ids;
  EXPECT_EQ(ids.size(), 48u);
  EXPECT_EQ(ids.front(), ByteTokenizer::kBos);
  EXPECT_EQ(ids.back(), 'z');
  EXPECT_EQ(rows[0].Find("warnings")->as_array()[0],
            Json("the prompt was cut from 101 tokens to its last 48"));
}

TEST_F(RunLoopTest, APromptMustLeaveRoomForOneToken) {
  AnswerAtOnce();
  const auto ids = [](size_t count) {
    std::string row = "{\"prompt_token_ids\": [1";
    for (size_t i = 1; i < count; ++i) row += ",1";
    return row + "]}\n";
  };
  const std::vector<Json> rows = RunFile(ids(63) + ids(64));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(ErrorCode(rows[0]), "");
  EXPECT_EQ(rows[1].Find("error")->Find("message")->as_string(),
            "the prompt has 64 tokens; at most 63 leave room for an answer");
}

// Regression: n copies of an overlong prompt took gigabytes.
TEST_F(RunLoopTest, AnOverlongPromptIsRefusedBeforeItIsCopied) {
  const std::vector<Json> rows =
      RunFile("{\"prompt\": \"" + std::string(100, 'a') + "\", \"n\": 128}\n");
  EXPECT_EQ(ErrorCode(rows.at(0)), "length_exceeded");
  EXPECT_TRUE(runtime_.submissions.empty());
}

TEST(ContextCapacityTest, EqualsTheRuntimesCapacity) {
  EngineLimits limits = SmallLimits();
  EXPECT_EQ(ContextCapacity(limits), 64);
  limits.max_seq_len = 1000;
  EXPECT_EQ(ContextCapacity(limits), 16 * 16 + 1);  // the last token is never computed
}

// Regression: the loop waited for answers that were never requested.
TEST_F(RunLoopTest, ARowThatRunsOutOfMemoryIsNotWaitedFor) {
  runtime_.on_submit = [](const FakeRuntime::Submission&) { throw std::bad_alloc(); };
  EXPECT_THROW(RunFile("\"a\"\n"), std::bad_alloc);
}

TEST_F(RunLoopTest, LogprobsHaveOpenAisShapeAndTheId) {
  runtime_.on_submit = [this](const FakeRuntime::Submission& request) {
    Event done;
    done.text = "a";
    done.token_ids = {'a', ByteTokenizer::kEos};
    done.logprobs = {{'a', -0.1f, {{'a', -0.1f}, {'b', -2.5f}}}, {ByteTokenizer::kEos, 0.0f, {}}};
    runtime_.End(request, std::move(done));
  };
  const std::vector<Json> rows = RunFile("{\"prompt\": \"a\", \"logprobs\": 2}\n");
  EXPECT_EQ(runtime_.submissions[0].prompt.sampling.num_logprobs, 2);
  EXPECT_EQ(
      rows[0].Find("logprobs")->Dump(),
      R"({"content": [{"token": "a", "id": 97, "logprob": -0.1, "bytes": [97], "top_logprobs": )"
      R"([{"token": "a", "id": 97, "logprob": -0.1, "bytes": [97]}, )"
      R"({"token": "b", "id": 98, "logprob": -2.5, "bytes": [98]}]}, )"
      R"({"token": "</s>", "id": 257, "logprob": 0.0, "bytes": [], "top_logprobs": []}]})");
}

// Restores the default actions: background processes of a shell ignore SIGINT.
void TakeStopSignals() {
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  term::InstallStopSignals();
}

// In a separate process, because a signal stays in effect.
TEST_F(RunLoopTest, ASignalEndsWhatIsNotDoneWithinTheGrace) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  loop_options_.grace = std::chrono::milliseconds(50);
  loop_options_.answers_ahead_max = 2;
  runtime_.on_submit = [this](const FakeRuntime::Submission& request) {
    if (request.id == 1) runtime_.Answer(request, "x");
    if (request.id == 2) raise(SIGTERM);
  };
  const auto run_and_report = [this] {
    TakeStopSignals();
    for (const Json& row : RunFile(kThreeRows))
      std::fprintf(stderr, "<%s>", ErrorCode(row).c_str());
    std::exit(static_cast<int>(10 * rows_done_ + rows_failed_));
  };
  EXPECT_EXIT(run_and_report(), ::testing::ExitedWithCode(12), "^<>$");
  loop_options_.writes_cancelled = true;
  EXPECT_EXIT(run_and_report(), ::testing::ExitedWithCode(12), "<><cancelled><cancelled>");
}

// Rows held for a slow one are written, in order, before the program exits.
TEST_F(RunLoopTest, ASecondSignalWritesWhatIsFinished) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  loop_options_.grace = std::chrono::hours(1);
  loop_options_.answers_ahead_max = 3;
  runtime_.on_submit = [this](const FakeRuntime::Submission& request) {
    if (request.id == 2 || request.id == 3) runtime_.Answer(request, "x");
    if (request.id != 3) return;
    raise(SIGINT);
    raise(SIGTERM);
  };
  const auto run_and_report = [this] {
    TakeStopSignals();
    for (const Json& row : RunFile("\"a\"\n\"b\"\n\"c\"\n\"d\"\n")) {
      std::fprintf(stderr, "<%s %s>", row.Find("index")->Dump().c_str(), ErrorCode(row).c_str());
    }
    std::exit(static_cast<int>(100 * runtime_.open.size()) + 10 * static_cast<int>(rows_done_) +
              static_cast<int>(rows_failed_));
  };
  EXPECT_EXIT(run_and_report(), ::testing::ExitedWithCode(22), "^<1 ><2 >$");
  loop_options_.writes_cancelled = true;
  EXPECT_EXIT(run_and_report(), ::testing::ExitedWithCode(22),
              "<0 cancelled><1 ><2 ><3 cancelled>");
}

// As in a chat that runs a file in the background: signals of the process are neither needed nor
// used.
TEST_F(RunLoopTest, AStopFunctionEndsARunOnAnyThread) {
  std::atomic<int> reason{0};
  loop_options_.stop = [&] { return term::StopRequest{reason.load(), reason.load() == 2}; };
  loop_options_.grace = std::chrono::milliseconds(0);
  loop_options_.answers_ahead_max = 2;
  term::Progress::Numbers numbers;
  loop_options_.on_numbers = [&](const term::Progress::Numbers& told) { numbers = told; };
  for (const int asked_stop : {1, 2}) {
    reason = 0;
    const size_t before = runtime_.submissions.size();
    runtime_.on_submit = [&](const FakeRuntime::Submission& request) {
      if (runtime_.submissions.size() == before + 1) runtime_.Answer(request, "xyz");
      if (runtime_.submissions.size() == before + 2) reason = asked_stop;
    };
    std::vector<Json> rows;
    std::thread([&] { rows = RunFile(kThreeRows); }).join();
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(ErrorCode(rows[0]), "");
    EXPECT_EQ(numbers.done, 1);
    EXPECT_EQ(numbers.failed, 2);
    EXPECT_EQ(numbers.cancelled, 2);
    EXPECT_EQ(numbers.grace_left_s, 0);
    EXPECT_EQ(numbers.tokens, 3);
    EXPECT_EQ(term::StopSignal(), 0);
  }
}

// A stop costs no time for rows that were not read, which are counted and stay in the file.
TEST_F(RunLoopTest, AStopLeavesTheRestOfAFileUnread) {
  std::string input;
  for (int i = 0; i < 3000; ++i) input += "\"a\"\n";
  Result<LineReader> reader = LineReader::Open(folder_.Write("in.jsonl", input));
  ASSERT_TRUE(reader.ok());
  int64_t num_read = 0;
  WatchedRowSource source(std::make_unique<FileRowSource>(&*reader, false, true),
                          [&num_read](const Row&) { ++num_read; });
  Result<std::unique_ptr<term::Output>> output =
      term::Output::Open(folder_.Path("out.jsonl"), true, -1);
  ASSERT_TRUE(output.ok());
  PromptBuilderOptions builder_options;
  builder_options.eos_ids = {ByteTokenizer::kEos};
  const PromptBuilder builder(&text_, runtime_.limits(), builder_options);
  JsonAnswerWriter writer(output->get(), text_.tokenizer.get(), /*ordered=*/true);
  loop_options_.rows_total = 3000;
  loop_options_.grace = std::chrono::milliseconds(0);
  loop_options_.answers_ahead_max = 4;
  loop_options_.window_answers_max = 16;
  loop_options_.stop = [this] {
    return term::StopRequest{runtime_.submissions.size() > 9 ? 15 : 0, false};
  };
  AnswerAtOnce();
  RunLoop loop(&runtime_, &builder, &source, &writer, nullptr, loop_options_);
  EXPECT_TRUE(loop.Run().ok());
  EXPECT_LT(num_read, 1000);
  EXPECT_EQ(std::ssize(Lines(folder_.Read("out.jsonl"))), loop.rows_done());
  EXPECT_EQ(loop.failures().cancelled(), 3000 - loop.rows_done());
  EXPECT_EQ(loop.Numbers().cancelled, 3000 - loop.rows_done());
}

TEST(StopSignalsTest, AThirdSignalKillsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto take_three = [] {
    TakeStopSignals();
    EXPECT_FALSE(term::StopsAtOnce());
    raise(SIGTERM);
    if (term::StopSignal() != SIGTERM || term::StopsAtOnce()) std::exit(1);
    raise(SIGINT);
    if (term::StopSignal() != SIGTERM || !term::StopsAtOnce()) std::exit(2);
    raise(SIGINT);
    std::exit(3);
  };
  EXPECT_EXIT(take_three(), ::testing::ExitedWithCode(128 + SIGINT), "");
}

TEST(StopSignalsTest, ASecondSignalLeavesTwoSeconds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang = [] {
    TakeStopSignals();
    raise(SIGTERM);
    raise(SIGTERM);
    while (true) pause();
  };
  EXPECT_EXIT(hang(), ::testing::ExitedWithCode(128 + SIGTERM), "");
}

// The disk fails at write n, at once or within a row: rows written before are complete and kept,
// and the error names the file.
TEST_F(RunLoopTest, AWriteThatFailsLeavesTheRowsBeforeItWhole) {
  MarkSlow("a run for each write");
  AnswerAtOnce();
  constexpr int kRows = 200;
  std::string input;
  for (int row = 0; row < kRows; ++row) input += "\"a\"\n";
  RunFile(input);
  const std::string whole = folder_.Read("out.jsonl");
  const std::vector<std::string> lines = Lines(whole);
  ASSERT_EQ(lines.size(), size_t{kRows});
  const std::string path = folder_.Path("out.jsonl");
  for (int failing = 1; failing <= kRows; failing += ShortOrLong(13, 1)) {
    for (const int error : {ENOSPC, EIO, EFBIG, EDQUOT}) {
      FailingWrite plan({path.c_str(), failing, error, failing % 3 * 7, false});
      const Status status = RunTo(input, path, true);
      EXPECT_EQ(status.code(), StatusCode::kIoError) << failing;
      EXPECT_NE(status.message().find("out.jsonl"), std::string::npos) << status.message();
      std::string before;
      for (int row = 0; row < failing - 1; ++row) before += lines[static_cast<size_t>(row)] + "\n";
      EXPECT_EQ(folder_.Read("out.jsonl"), before) << failing;
      EXPECT_EQ(rows_done_, failing - 1);
      EXPECT_TRUE(runtime_.open.empty());
    }
  }
  // A signal in the middle of a row loses nothing.
  for (int failing = 1; failing <= kRows; failing += 57) {
    FailingWrite plan({path.c_str(), failing, EINTR, failing % 3 * 7, true});
    EXPECT_TRUE(RunTo(input, path, true).ok());
    EXPECT_EQ(folder_.Read("out.jsonl"), whole);
  }
}

TEST_F(RunLoopTest, AFullDiskEndsTheRunAndLeavesNothingUnderWay) {
  AnswerBackwards(3);
  const Status status = RunTo("\"a\"\n\"b\"\n\"c\"\n\"d\"\n", "/dev/full", false);
  EXPECT_EQ(status.code(), StatusCode::kIoError);
  EXPECT_NE(status.message().find("/dev/full"), std::string::npos);
  EXPECT_TRUE(runtime_.open.empty());
}

}  // namespace
}  // namespace minisgl::batch
