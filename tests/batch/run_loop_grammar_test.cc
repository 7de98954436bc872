// Rows whose answers must be of a form, in the loop of `minisgl run` over a fake runtime.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "batch/run_loop_fixture.h"

namespace minisgl::batch {
namespace {

class RunLoopGrammarTest : public RunLoopTest {};

TEST_F(RunLoopGrammarTest, AnswersCutInTheirGrammarWarnInTheOrderOfTheRow) {
  runtime_.on_submit = [this](const FakeRuntime::Submission&) {
    if (runtime_.open.size() < 5) return;
    for (auto request = runtime_.submissions.rbegin(); request != runtime_.submissions.rend();
         ++request) {
      Event done;
      done.token_ids = {97};
      done.text = "a";
      done.finish_reason = FinishReason::kLength;
      done.cut_in_grammar = request->id % 2 != 0;
      runtime_.End(*request, std::move(done));
    }
  };
  const std::vector<Json> rows =
      RunFile(R"({"prompt": "a", "n": 3, "guided_regex": "aa"})"
              "\n"
              R"({"prompt": "a"})"
              "\n"
              R"({"custom_id": "c", "body": {"prompt": "a", "guided_regex": "aa"}})");
  ASSERT_EQ(rows.size(), 3u);
  const std::string what = "ended before the grammar allowed an end: not a whole text of it";
  EXPECT_EQ(rows[0].Find("warnings")->Dump(), "[\"of the answers, 0, 2 " + what + "\"]");
  EXPECT_EQ(*rows[0].Find("choices")->as_array()[0].Find("finish_reason"), Json("length"));
  EXPECT_EQ(rows[1].Find("warnings"), nullptr);
  EXPECT_EQ(rows[2].Find("response")->Find("body")->Find("warnings")->Dump(),
            "[\"the answer " + what + "\"]");
}

TEST_F(RunLoopGrammarTest, ASchemaThatRowsShareCountsOnce) {
  // Everything submitted in a turn is answered at its end.
  loop_options_.on_numbers = [this](const term::Progress::Numbers&) {
    for (const FakeRuntime::Submission& request : runtime_.submissions) {
      if (runtime_.open.count(request.id) != 0) runtime_.Answer(request, "x");
    }
  };
  loop_options_.bytes_ahead_max = 30'000;
  const auto open_max_of = [this](bool is_shared) {
    std::string input;
    for (int i = 0; i < 16; ++i) {
      input += R"({"prompt": "a", "guided_regex": ")" + std::string(10'000, 'a') +
               (is_shared ? "" : std::to_string(i)) + "\"}\n";
    }
    runtime_.open_max = 0;
    EXPECT_EQ(RunFile(input).size(), 16u);
    return runtime_.open_max;
  };
  EXPECT_LE(open_max_of(/*is_shared=*/false), 4u);
  EXPECT_GE(open_max_of(/*is_shared=*/true), 12u);
}

TEST_F(RunLoopGrammarTest, AGrammarThatCannotBeCompiledIsAnErrorOfItsField) {
  runtime_.on_submit = [this](const FakeRuntime::Submission& request) {
    Event done;
    done.finish_reason = FinishReason::kError;
    done.error_code = "invalid_grammar";
    done.error_message = "byte 2: what is wrong";
    runtime_.End(request, std::move(done));
  };
  const std::vector<Json> rows = RunFile(R"({"prompt": "a", "structured_outputs": {"regex": "a("}})"
                                         "\n\"b\"\n");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].Find("error")->Dump(),
            R"({"code": "invalid_grammar", "message": "byte 2: what is wrong", "line": 1, )"
            R"("field": "structured_outputs.regex"})");
  EXPECT_EQ(*rows[1].Find("error")->Find("code"), Json("invalid_grammar"));
  EXPECT_EQ(rows[1].Find("error")->Find("field"), nullptr);
  EXPECT_EQ(rows_failed_, 2);
}

}  // namespace
}  // namespace minisgl::batch
