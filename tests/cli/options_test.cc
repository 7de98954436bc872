// Options shared by the commands, and the sampling defaults that they leave to the model.
#include "cli/options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/run_options.h"
#include "cli/sampling.h"
#include "cli/summary.h"

namespace minisgl {
namespace {

class OptionsTest : public ::testing::Test {
 protected:
  // The error of parsing `arguments`, "" where they are right.
  std::string Parse(std::vector<std::string> arguments) {
    CLI::App app("test");
    options_ = RunOptions();
    AddRunOptions(&app, &options_);
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    try {
      app.parse(reversed);
    } catch (const CLI::ParseError& error) {
      return std::string(error.what()).empty() ? "error" : error.what();
    }
    return "";
  }
  RunOptions options_;
};

TEST_F(OptionsTest, BadValuesAreRefusedNamingTheOption) {
  const std::vector<std::vector<std::string>> cases = {
      {"--page-size", "3"},
      {"--page-size", "0"},
      {"--page-size", "128"},
      {"--page-size", "-1"},
      {"--page-size", "x"},
      {"--max-running-requests", "0"},
      {"--max-running-requests", "5000"},
      {"--max-running-requests", "1.5"},
      {"--max-prefill-length", "0"},
      {"--max-prefill-length", "99999999999999999999"},
      {"--long-prefill-threshold", "0"},
      {"--max-seq-len", "1"},
      {"--max-seq-len", "all"},
      {"--memory-ratio", "0"},
      {"--memory-ratio", "1.1"},
      {"--memory-ratio", "nan"},
      {"--num-pages", "0"},
      {"--num-pages", "2147483648"},
      {"--cache", "lru"},
      {"--schedule", "x"},
      {"--admission", "x"},
      {"--policy", "x"},
      {"--threads", "0"},
      {"--threads", "1025"},
      {"--device", "gpu"},
      {"--device", "cuda:"},
      {"--device", "cuda:-1"},
      {"--dtype", "int8"},
      {"--cpu-target", ""},
      {"--template-arg", "x"},
      {"--template-arg", "=x"},
      {"--chat-template", ""},
      {"--temperature", "-0.1"},
      {"--temperature", "101"},
      {"--temperature", "inf"},
      {"--top-k", "-1"},
      {"--top-p", "0"},
      {"--top-p", "1.01"},
      {"--min-p", "-0.1"},
      {"--min-p", "2"},
      {"--repetition-penalty", "0"},
      {"--presence-penalty", "2.1"},
      {"--frequency-penalty", "-2.1"},
      {"--seed", "-1"},
      {"--seed", "x"},
      {"--max-tokens", "0"},
      {"--min-tokens", "-1"},
      {"--stop", ""},
      {"--logprobs", "21"},
      {"--logprobs", "-1"},
      {"--sampling-defaults", "mine"},
      {"--on-overflow", "drop"},
      {"--output", ""}};
  for (const std::vector<std::string>& arguments : cases) {
    const std::string error = Parse(arguments);
    EXPECT_NE(error.find(arguments[0]), std::string::npos)
        << arguments[0] << " " << arguments[1] << ": " << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
}

TEST_F(OptionsTest, UnknownOptionsAndArgumentsAreRefused) {
  for (const char* name :
       {"--quantize", "--trace", "--resume", "--cuda-graph-max-bs", "file.jsonl"}) {
    EXPECT_NE(Parse({name, "1"}), "") << name;
  }
}

TEST_F(OptionsTest, RepeatedOptionsTakeOneValueEachAsItStands) {
  ASSERT_EQ(Parse({"--stop", "[a,b]", "--stop", "-x", "-p", "--help me"}), "");
  EXPECT_EQ(options_.sampling.stop, (std::vector<std::string>{"[a,b]", "-x"}));
  EXPECT_EQ(options_.prompt, "--help me");
}

TEST_F(OptionsTest, ValuesReachTheirFields) {
  ASSERT_EQ(Parse({"-m", "dir", "-t", "0.5", "-n", "7", "--seed", "9", "--max-seq-len", "100",
                   "--page-size", "64", "--cache", "naive", "--device", "cuda:1", "--top-k", "0"}),
            "");
  EXPECT_EQ(options_.model.model, "dir");
  EXPECT_EQ(options_.sampling.temperature, 0.5);
  EXPECT_EQ(options_.sampling.max_tokens, 7);
  EXPECT_EQ(options_.sampling.seed, 9u);
  EXPECT_EQ(options_.sampling.top_k, 0);
  EXPECT_EQ(options_.sampling.top_p, std::nullopt);
  EXPECT_EQ(options_.engine.max_seq_len, 100);
  EXPECT_EQ(options_.engine.page_size, 64);
  EXPECT_EQ(options_.engine.cache, "naive");
  EXPECT_EQ(options_.engine.device, "cuda:1");
}

TEST_F(OptionsTest, OptionsThatContradictEachOtherAreWrongUsage) {
  const std::vector<std::vector<std::string>> cases = {{"--file", "f", "-p", "x"},
                                                       {"--file", "f", "--system", "x"},
                                                       {"--file", "f", "--raw"},
                                                       {"--strict", "-p", "x"},
                                                       {"--lenient", "-p", "x"},
                                                       {"--no-stdin"},
                                                       {"--raw", "--system", "x", "-p", "x"}};
  for (const std::vector<std::string>& arguments : cases) {
    ASSERT_EQ(Parse(arguments), "");
    EXPECT_EQ(CheckRunOptions(options_).code(), StatusCode::kUsage) << arguments[0];
  }
}

TEST_F(OptionsTest, ADeviceThatThisProgramCannotUseIsUnavailable) {
  ASSERT_EQ(Parse({"--device", "cuda", "-p", "x"}), "");
  const Status status = CheckRunOptions(options_);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("no CUDA engine"), std::string::npos);
}

GenerationConfig SamplingModel() {
  GenerationConfig generation;
  generation.do_sample = true;
  generation.temperature = 0.6;
  generation.top_p = 0.9;
  generation.max_new_tokens = 50;
  return generation;
}

TEST(SamplingDefaultsTest, TheModelsValuesCountAndAreSaid) {
  const SamplingDefaults defaults = ResolveSamplingDefaults({}, SamplingModel());
  EXPECT_EQ(defaults.params.temperature, 0.6);
  EXPECT_EQ(defaults.params.top_p, 0.9);
  EXPECT_EQ(defaults.max_tokens, 50);
  for (const char* said : {"temperature 0.6", "top_p 0.9", "max_tokens 50"}) {
    EXPECT_NE(defaults.note.find(said), std::string::npos) << defaults.note;
  }
}

TEST(SamplingDefaultsTest, OptionsOverrideFieldByField) {
  SamplingOptions options;
  options.temperature = 0;
  options.max_tokens = 3;
  const SamplingDefaults defaults = ResolveSamplingDefaults(options, SamplingModel());
  EXPECT_EQ(defaults.params.temperature, 0);
  EXPECT_EQ(defaults.params.top_p, 0.9);
  EXPECT_EQ(defaults.max_tokens, 3);
  EXPECT_EQ(defaults.note.find("temperature"), std::string::npos) << defaults.note;
}

TEST(SamplingDefaultsTest, NeutralLeavesTheModelOut) {
  SamplingOptions options;
  options.sampling_defaults = "neutral";
  const SamplingDefaults defaults = ResolveSamplingDefaults(options, SamplingModel());
  EXPECT_EQ(defaults.params.temperature, 0);
  EXPECT_EQ(defaults.params.top_p, 1);
  EXPECT_EQ(defaults.max_tokens, std::nullopt);
  EXPECT_EQ(defaults.note, "");
}

TEST(SamplingDefaultsTest, GreedyUnlessTheModelSamples) {
  GenerationConfig generation;
  EXPECT_EQ(ResolveSamplingDefaults({}, generation).params.temperature, 0);
  EXPECT_EQ(ResolveSamplingDefaults({}, generation).note, "");
  generation.temperature = 0.7;
  EXPECT_EQ(ResolveSamplingDefaults({}, generation).params.temperature, 0.7);
  generation.do_sample = false;
  EXPECT_EQ(ResolveSamplingDefaults({}, generation).params.temperature, 0);
  generation.temperature.reset();
  generation.do_sample = true;
  EXPECT_EQ(ResolveSamplingDefaults({}, generation).params.temperature, 1);
}

TEST(SummaryTest, PercentilesAreNearestRanks) {
  EXPECT_EQ(Percentile({}, 50), 0);
  EXPECT_EQ(Percentile({3}, 99), 3);
  EXPECT_EQ(Percentile({4, 1, 3, 2}, 50), 2);
  EXPECT_EQ(Percentile({4, 1, 3, 2}, 99), 4);
}

TEST(SummaryTest, FiguresAreInTextAndJson) {
  RunSummary summary;
  summary.rows_done = 9;
  summary.rows_failed = 1;
  summary.seconds = 2;
  summary.stats.scheduler.prompt_tokens = 1000;
  summary.stats.scheduler.cached_tokens = 900;
  summary.stats.scheduler.computed_tokens = 100;
  summary.stats.scheduler.generated_tokens = 50;
  summary.stats.first_token_s = {0.5};
  summary.stats.between_tokens_s = {0.01};
  const std::string text = FormatSummary(summary);
  for (const char* said :
       {"9 done, 1 failed, 2.00 s", "1000 (900 from the prefix cache, 90.0 %; 100 computed)",
        "500.0 in, 25.0 out", "p50 0.500 s", "p99 10.0 ms"}) {
    EXPECT_NE(text.find(said), std::string::npos) << text;
  }
  const Json json = SummaryJson(summary);
  EXPECT_EQ(*json.Find("rows_failed"), Json(1));
  EXPECT_EQ(*json.Find("cached_tokens"), Json(900));
  EXPECT_EQ(*json.Find("first_token_s")->Find("p99"), Json(0.5));
  EXPECT_EQ(*json.Find("scheduler")->Find("computed_tokens"), Json(100));
}

}  // namespace
}  // namespace minisgl
