// Rows that take too long and are asked again, over a fake runtime.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "batch/run_loop_fixture.h"

namespace minisgl::batch {
namespace {

using RunLoopRetriesTest = RunLoopTest;

// A row that took too long is asked again, after the others and in the same way.
TEST_F(RunLoopRetriesTest, ATimeoutIsTriedAgainAfterTheOtherRows) {
  loop_options_.timeout_retries = 2;
  int tries = 0;
  runtime_.on_submit = [this, &tries](const FakeRuntime::Submission& request) {
    const bool is_slow = request.prompt.ids.back() == 'a' && ++tries < 3;
    runtime_.Answer(request, is_slow ? "ha" : "whole",
                    is_slow ? FinishReason::kTimeout : FinishReason::kStop);
  };
  const std::vector<Json> rows =
      RunFile("{\"prompt\": \"a\", \"timeout_s\": 0.25, \"temperature\": 1}\n\"b\"\n\"c\"\n");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(*rows[0].Find("text"), Json("whole"));
  EXPECT_EQ(rows[0].Find("warnings"), nullptr);
  EXPECT_EQ(*rows[0].Find("usage")->Find("completion_tokens"), Json(5));
  ASSERT_EQ(runtime_.submissions.size(), 5u);
  std::string order;
  for (const auto& submission : runtime_.submissions) {
    order += static_cast<char>(submission.prompt.ids.back());
  }
  EXPECT_EQ(order, "abcaa");
  EXPECT_EQ(runtime_.submissions[3].prompt.ids, runtime_.submissions[0].prompt.ids);
  EXPECT_EQ(runtime_.submissions[4].prompt.sampling.seed,
            runtime_.submissions[0].prompt.sampling.seed);
  EXPECT_EQ(rows_done_, 3);
}

TEST_F(RunLoopRetriesTest, TheLastTimeoutSaysHowOftenItWasTried) {
  loop_options_.timeout_retries = 2;
  runtime_.on_submit = [this](const FakeRuntime::Submission& request) {
    runtime_.Answer(request, request.prompt.ids.back() == 'b' ? "half" : "",
                    FinishReason::kTimeout);
  };
  const std::vector<Json> rows =
      RunFile("{\"prompt\": \"a\", \"timeout_s\": 0.5}\n{\"prompt\": \"b\", \"timeout_s\": 0.5}\n");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(*rows[0].Find("error")->Find("message"),
            Json("no answer began within 0.5 s (tried 3 times)"));
  EXPECT_EQ(*rows[1].Find("text"), Json("half"));
  EXPECT_EQ(rows[1].Find("warnings")->Dump(),
            "[\"the answer was cut after 0.5 s in each of 3 tries\"]");
  EXPECT_EQ(runtime_.submissions.size(), 6u);
  EXPECT_EQ(rows_done_, 1);
  EXPECT_EQ(rows_failed_, 1);
}

// In input order all rows wait for the first, which is asked again.
TEST_F(RunLoopRetriesTest, ARetryThatOtherRowsWaitForIsNotPutOff) {
  loop_options_.timeout_retries = 1;
  loop_options_.held_rows_max = 4;
  loop_options_.window_answers_max = 2;
  bool first = true;
  runtime_.on_submit = [this, &first](const FakeRuntime::Submission& request) {
    runtime_.Answer(request, "x",
                    std::exchange(first, false) ? FinishReason::kTimeout : FinishReason::kStop);
  };
  std::string input = "{\"prompt\": \"a\", \"timeout_s\": 1}\n";
  for (int i = 0; i < 40; ++i) input += "\"b\"\n";
  const std::vector<Json> rows = RunFile(input);
  ASSERT_EQ(rows.size(), 41u);
  EXPECT_EQ(*rows[0].Find("finish_reason"), Json("stop"));
  size_t retried_at = 1;
  while (runtime_.submissions[retried_at].prompt.ids.back() != 'a') ++retried_at;
  EXPECT_LT(retried_at, 12u);
}

TEST_F(RunLoopRetriesTest, AStopCancelsWhatWasToBeAskedAgain) {
  loop_options_.writes_cancelled = true;
  loop_options_.timeout_retries = 5;
  loop_options_.grace = std::chrono::milliseconds(0);
  bool stops = false;
  loop_options_.stop = [&stops] { return term::StopRequest{stops ? 2 : 0, false}; };
  runtime_.on_submit = [this, &stops](const FakeRuntime::Submission& request) {
    stops = runtime_.submissions.size() > 1;
    runtime_.Answer(request, "", FinishReason::kTimeout);
  };
  const std::vector<Json> rows =
      RunFile("{\"prompt\": \"a\", \"timeout_s\": 1}\n{\"prompt\": \"b\", \"timeout_s\": 1}\n");
  ASSERT_EQ(rows.size(), 2u);
  for (const Json& row : rows) {
    EXPECT_EQ(*row.Find("error")->Find("message"),
              Json("the run was stopped before this row was asked again"));
  }
}

}  // namespace
}  // namespace minisgl::batch
