// `minisgl score` as a program: its output against `minisgl run` on the same model; pipes, kills
// and --resume; the options that do not change a score.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "program/program.h"
#include "program/run_fixture.h"
#include "slow.h"
#include "vision/vision_test_util.h"

namespace minisgl::batch {
namespace {

class ScoreProgramTest : public RunProgramTest {
 protected:
  static Arguments Score(const Arguments& more) {
    Arguments arguments = {"score", "-m", DemoModel(), "--num-pages", "512"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    if (std::find(more.begin(), more.end(), "--threads") == more.end()) {
      arguments.insert(arguments.end(), {"--threads", "1"});
    }
    return arguments;
  }
  static ProgramResult RunScore(const Arguments& more, const std::string& input = "") {
    return RunProgram(Score(more), {input, "", {}});
  }
  static double NumberOf(const Json& row, const char* name) {
    const Json* number = row.Find(name);
    return number == nullptr ? NAN : number->as_double();
  }
  // Many rows, some of which share a prompt.
  static std::string ManyRows(int count) {
    std::string rows;
    for (int i = 0; i < count; ++i) {
      rows += "{\"id\": " + std::to_string(i) + ", \"prompt\": \"Where does Cora live? She lives " +
              std::string(static_cast<size_t>(i % 7), 'o') + "\", \"text\": \" in London, number " +
              std::to_string(i) + ".\"}\n";
    }
    return rows;
  }
};

constexpr const char* kScoreRows =
    "{\"id\": \"a\", \"prompt\": \"Once upon a time\", \"text\": \" there was a wren.\"}\n"
    "{\"id\": \"space\", \"prompt\": \"Once upon a time \", \"text\": \"there was a wren.\"}\n"
    "{\"id\": \"empty\", \"text\": \"\"}\n"
    "{\"id\": \"one\", \"text\": \"a\"}\n"
    "{\"id\": \"unicode\", \"prompt\": \"Gr\xC3\xBC\xC3\x9F\x65\", \"text\": \" aus K\xC3\xB6ln "
    "\xF0\x9F\x99\x82\"}\n"
    "{\"id\": \"broken\", \"text\": \"x\"\n"
    "\"only a text\"\n";

TEST_F(ScoreProgramTest, RowsComeFromAPipeAndBadOnesAreErrors) {
  const ProgramResult result = RunScore({}, kScoreRows);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const std::vector<Json> rows = Rows(result.out);
  ASSERT_EQ(rows.size(), 7u);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(NumberOf(rows[i], "index"), i);
  EXPECT_LT(NumberOf(rows[0], "logprob"), 0);
  EXPECT_EQ(rows[0].Find("logprob")->Dump(), rows[1].Find("logprob")->Dump());
  EXPECT_EQ(Code(rows[2]), "invalid_row");
  EXPECT_EQ(NumberOf(rows[3], "num_tokens"), 1);
  EXPECT_GT(NumberOf(rows[4], "num_tokens"), 5);
  EXPECT_EQ(Code(rows[5]), "invalid_row");
  EXPECT_GT(NumberOf(rows[6], "num_tokens"), 1);
  EXPECT_NE(result.err.find("scored tokens"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("perplexity"), std::string::npos) << result.err;
  EXPECT_EQ(RunScore({"--quiet"}, "\"a text\"\n").err, "");
}

// The answer of `run` to `asked`, scored: token by token what `run --logprobs` reported.
void ExpectScoresOfRun(const std::string& model, Json asked, Json scored_row) {
  const Arguments common = {"-m",  model,       "--file", "-", "--num-pages",
                            "512", "--threads", "1",      "-q"};
  const auto run_with = [&](Arguments arguments, const Json& row) {
    arguments.insert(arguments.end(), common.begin(), common.end());
    const ProgramResult result = RunProgram(arguments, {row.Dump() + "\n", "", {}});
    EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
    const auto json = ParseJson(result.out);
    return json.ok() ? *json : Json();
  };
  asked.Set("max_tokens", 12).Set("temperature", 0).Set("ignore_eos", true);
  const Json answer = run_with({"run", "--logprobs", "2"}, asked);
  const auto& reported = answer.Find("logprobs")->Find("content")->as_array();
  scored_row.Set("text", answer.Find("text")->as_string());
  const Json scored = run_with({"score", "--logprobs", "2"}, scored_row);
  const auto& tokens = scored.Find("logprobs")->Find("content")->as_array();
  ASSERT_GE(tokens.size(), 1u);
  double sum = 0;
  size_t num_equal = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    sum += tokens[i].Find("logprob")->as_double();
    // The text may be encoded with other tokens than were sampled. As long as tokens are equal, so
    // is every digit.
    if (num_equal < i || i >= reported.size()) continue;
    if (*tokens[i].Find("id") != *reported[i].Find("id")) continue;
    EXPECT_EQ(tokens[i].Dump(), reported[i].Dump());
    ++num_equal;
  }
  // Whatever is scored first, the same tokens are likely in its place.
  const auto likely = [](const Json& token) { return token.Find("top_logprobs")->Dump(); };
  EXPECT_EQ(likely(tokens[0]), likely(reported[0]));
  EXPECT_NEAR(scored.Find("logprob")->as_double(), sum, 1e-5);
}

TEST_F(ScoreProgramTest, AnAnswerHasTheLogProbabilitiesThatRunReported) {
  const Json row(Json::Object{{"prompt", Json("Viola lives in")}});
  ExpectScoresOfRun(DemoModel(), row, row);
}

TEST_F(ScoreProgramTest, AnAnswerToMessagesHasTheLogProbabilitiesThatRunReported) {
  const Json row(Json::Object{{"messages", *ParseJson(R"([{"role": "user", "content": "Hi"}])")}});
  ExpectScoresOfRun(DemoModel(), row, row);
}

TEST_F(ScoreProgramTest, AnAnswerToAPictureHasTheLogProbabilitiesThatRunReported) {
  const std::string model = SharedFolder("models/vision/qwen2_5_vl");
  if (!std::filesystem::exists(model)) GTEST_SKIP() << "no " << model;
  const auto row_of = [&](const std::string& picture) {
    const std::string url = "file:" + model + "/images/" + picture;
    Json part(Json::Object{{"type", Json("image_url")}});
    part.Set("image_url", Json(Json::Object{{"url", Json(url)}}));
    const Json text(Json::Object{{"type", Json("text")}, {"text", Json("Describe the circle.")}});
    Json message(Json::Object{{"role", Json("user")}});
    message.Set("content", Json(Json::Array{std::move(part), text}));
    return Json(Json::Object{{"messages", Json(Json::Array{std::move(message)})}});
  };
  ExpectScoresOfRun(model, row_of("square.png"), row_of("square.png"));
  // Another picture gives another score.
  const auto score_of = [&](const std::string& picture) {
    Json row = row_of(picture);
    row.Set("text", "a circle");
    const ProgramResult result =
        RunProgram({"score", "-m", model, "--threads", "1", "-q"}, {row.Dump() + "\n", "", {}});
    EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
    return NumberOf(Rows(result.out).at(0), "logprob");
  };
  EXPECT_NE(score_of("square.png"), score_of("odd.png"));
}

TEST_F(ScoreProgramTest, NoOptionOfTheScheduleChangesABit) {
  const std::string rows = ManyRows(30);
  const std::string wanted = RunScore({"--logprobs", "1", "-q"}, rows).out;
  ASSERT_EQ(Lines(wanted).size(), 30u);
  const std::vector<Arguments> settings = {
      {"--cache", "naive"},
      {"--threads", "3"},
      {"--max-prefill-length", "5"},
      {"--max-running-requests", "1"},
      {"--page-size", "1"},
      {"--page-size", "64", "--max-prefill-length", "64"},
      {"--schedule", "prefill-first", "--disable-overlap"},
      {"--max-seq-len", "64", "--page-size", "8"},
      {"--policy", "fcfs", "--admission", "reserve"},
  };
  for (const Arguments& setting : settings) {
    Arguments arguments = {"--logprobs", "1", "-q"};
    arguments.insert(arguments.end(), setting.begin(), setting.end());
    const ProgramResult result = RunScore(arguments, rows);
    EXPECT_TRUE(result.out == wanted) << setting[0] << " " << setting[1] << result.err;
  }
}

TEST_F(ScoreProgramTest, TextsOfOnePromptComputeItOnce) {
  const std::string stem(200, 'a');
  std::string rows;
  for (int i = 0; i < 4; ++i) {
    rows += "{\"prompt\": \"" + stem + "\", \"text\": \" and " + std::to_string(i) + "\"}\n";
  }
  const std::string summary = folder_.Path("summary.json");
  const ProgramResult result = RunScore({"--summary", summary}, rows);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = ParseJson(folder_.Read("summary.json"));
  ASSERT_TRUE(json.ok());
  const double prompt_tokens = NumberOf(*json, "prompt_tokens");
  EXPECT_GT(NumberOf(*json, "cached_tokens"), prompt_tokens / 2);
  const Json& scores = *json->Find("scores");
  EXPECT_EQ(NumberOf(scores, "rows"), 4);
  double sum = 0, tokens = 0;
  for (const Json& row : Rows(result.out)) {
    sum += NumberOf(row, "logprob");
    tokens += NumberOf(row, "num_tokens");
  }
  EXPECT_EQ(NumberOf(scores, "tokens"), tokens);
  EXPECT_NEAR(NumberOf(scores, "logprob"), sum, 1e-5);
  EXPECT_NEAR(NumberOf(scores, "perplexity"), std::exp(-sum / tokens), 1e-3);
}

TEST_F(ScoreProgramTest, ARowLongerThanTheContextFailsAlone) {
  const ProgramResult result =
      RunScore({"--max-seq-len", "32", "-q"},
               "{\"id\": 1, \"text\": \"" + std::string(400, '?') + "\"}\n{\"text\": \"a b\"}\n");
  EXPECT_EQ(result.exit_code, 1);
  const std::vector<Json> rows = Rows(result.out);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(Code(rows[0]), "length_exceeded");
  EXPECT_EQ(Code(rows[1]), "");
}

TEST_F(ScoreProgramTest, ChecksRowsWithoutScoring) {
  const std::string file = folder_.Write("rows.jsonl", kScoreRows);
  const ProgramResult check = RunScore({"--file", file, "--check"});
  EXPECT_EQ(check.exit_code, 65) << check.err;
  EXPECT_EQ(check.out, "");
  EXPECT_NE(check.err.find("7 rows, 2 bad"), std::string::npos) << check.err;
  ExpectFails(RunScore({"--file", file, "--strict"}), 65, "text is empty");
}

TEST_F(ScoreProgramTest, ResumesAfterAKillAndAddsUpTheWholeFile) {
  MarkSlow("a killed run");
  const std::string file = folder_.Write("rows.jsonl", ManyRows(400));
  const std::string whole = folder_.Path("whole.jsonl"), out = folder_.Path("out.jsonl");
  const std::string summary = folder_.Path("summary.json");
  ASSERT_EQ(RunScore({"--file", file, "-o", whole, "--ordered", "--summary", summary}).exit_code,
            0);
  const auto once = ParseJson(folder_.Read("summary.json"));
  {
    Program program(Score({"--file", file, "-o", out, "--ordered", "--max-prefill-length", "16"}),
                    {});
    while (program.Runs() && folder_.Read("out.jsonl").size() < 500) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    program.Signal(SIGKILL);
    program.Wait();
  }
  const size_t written = Lines(folder_.Read("out.jsonl")).size();
  EXPECT_LT(written, 400u);
  const ProgramResult resumed = RunScore(
      {"--file", file, "-o", out, "--resume", "--ordered", "--summary", summary, "--force"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(folder_.Read("out.jsonl"), folder_.Read("whole.jsonl"));
  const auto twice = ParseJson(folder_.Read("summary.json"));
  ASSERT_TRUE(once.ok() && twice.ok());
  EXPECT_EQ(twice->Find("scores")->Dump(), once->Find("scores")->Dump());
  // Nothing is left to do: the figures come from the file.
  const ProgramResult again = RunScore({"--file", file, "-o", out, "--resume"});
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_NE(again.err.find("in 400 rows"), std::string::npos) << again.err;
}

TEST_F(ScoreProgramTest, AnOutputOfAnotherCommandIsNotContinued) {
  const std::string file = folder_.Write("rows.jsonl", "{\"text\": \"a b\"}\n");
  const std::string out = folder_.Path("out.jsonl");
  ASSERT_EQ(RunScore({"--file", file, "-o", out}).exit_code, 0);
  const ProgramResult run = RunModel({"--file", file, "-o", out, "--resume"});
  EXPECT_EQ(run.exit_code, 73);
  EXPECT_NE(run.err.find("was begun with minisgl score (not minisgl run)"), std::string::npos)
      << run.err;
  EXPECT_EQ(RunScore({"--file", file, "-o", out, "--resume", "--logprobs", "0"}).exit_code, 73);
}

// max_tokens 0 with echo, the usual way to score over the completions API.
TEST_F(ScoreProgramTest, ACompletionThatEchoesGivesTheSameNumbers) {
  const ProgramResult score =
      RunScore({"--logprobs", "0", "-q"}, "{\"text\": \"Viola lives in Athens.\"}\n");
  const ProgramResult echo = RunModel(
      {"--file", "-", "-q"},
      "{\"custom_id\": \"e\", \"url\": \"/v1/completions\", \"body\": {\"prompt\": \"Viola lives "
      "in Athens.\", \"echo\": true, \"logprobs\": 0, \"max_tokens\": 0}}\n");
  ASSERT_EQ(echo.exit_code, 0) << echo.err;
  const Json line = Rows(echo.out).at(0);
  const Json& choice = line.Find("response")->Find("body")->Find("choices")->as_array()[0];
  EXPECT_EQ(choice.Find("text")->as_string(), "Viola lives in Athens.");
  const auto& values = choice.Find("logprobs")->Find("token_logprobs")->as_array();
  const auto scored = Rows(score.out).at(0).Find("logprobs")->Find("content")->as_array();
  ASSERT_EQ(values.size(), scored.size() + 1);
  EXPECT_TRUE(values[0].is_null());
  for (size_t i = 0; i < scored.size(); ++i) {
    EXPECT_EQ(values[i + 1].Dump(), scored[i].Find("logprob")->Dump());
  }
}

TEST_F(ScoreProgramTest, NoRowsIsSaid) {
  const ProgramResult empty = RunScore({"--file", folder_.Write("none", "")});
  EXPECT_EQ(empty.exit_code, 0);
  EXPECT_NE(empty.err.find("has no rows"), std::string::npos) << empty.err;
  ExpectFails(RunScore({"--prompt", "x"}), 64, "--prompt");
}

}  // namespace
}  // namespace minisgl::batch
