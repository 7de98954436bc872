// Options shared by the commands, and the sampling defaults that they leave to the model.
#include "load/options.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "batch/run_options.h"
#include "engine/host_device_ops.h"
#include "load/device_choice.h"
#include "load/model_loader.h"
#include "load/option_names.h"
#include "load/run_options_fixture.h"
#include "load/sampling.h"
#include "minisgl/base/log.h"
#include "report/summary.h"
#include "temporary_folder.h"

namespace minisgl::load {
namespace {

using OptionsTest = RunOptionsTest;

TEST_F(OptionsTest, SettingsInMessagesAreNamedByOptionsOfRun) {
  OptionTable app("test", "");
  batch::AddRunOptions(&app, &options_);
  const CommandSpec spec = app.Describe();
  for (int i = 0; i <= static_cast<int>(Setting::kTensorParallel); ++i) {
    const std::string name = OptionName(static_cast<Setting>(i));
    EXPECT_NE(spec.FindOption(name), nullptr) << name;
  }
}

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
      {"--max-prefill-length", "1048577"},
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
      {"--quantize", "int3"},
      {"--cpu-experts", "-1"},
      {"--cpu-experts", "some"},
      {"--cpu-experts", "1.5"},
      {"--cpu-experts", "2147483648"},
      {"--cpu-experts", ""},
      {"--quantize", ""},
      {"--cpu-target", ""},
      {"--speculate", "ngram"},
      {"--speculate", "ngram:"},
      {"--speculate", "ngram:0"},
      {"--speculate", "ngram:17"},
      {"--speculate", "mtp:0"},
      {"--speculate", "mtp:"},
      {"--speculate", "draft:"},
      {"--speculate", "draft::3"},
      {"--speculate", "auto:3"},
      {"--speculate", "ngram:4x"},
      {"--speculate", "4"},
      {"--speculate", ""},
      {"--trace", ""},
      {"--events", ""},
      {"--summary", ""},
      {"--template-arg", "x"},
      {"--template-arg", "=x"},
      {"--chat-template", ""},
      {"--template-content", "list"},
      {"--think", "maybe"},
      {"--temperature", "-0.1"},
      {"--temperature", "101"},
      {"--temperature", "inf"},
      {"--top-k", "-2"},
      {"--top-p", "-0.1"},
      {"--top-p", "1.01"},
      {"--min-p", "-0.1"},
      {"--min-p", "2"},
      {"--repetition-penalty", "0"},
      {"--presence-penalty", "2.1"},
      {"--frequency-penalty", "-2.1"},
      {"--seed", "-2"},
      {"--seed", "18446744073709551616"},
      {"--seed", "1.0"},
      {"--seed", "x"},
      {"--max-tokens", "0"},
      {"--max-tokens", "-2"},
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

TEST_F(OptionsTest, ErrorsSpellRangesInFull) {
  const struct {
    const char* option;
    const char* value;
    const char* error;
  } cases[] = {
      {"--temperature", "101", "must be a number from 0 to 100"},
      {"--top-k", "-2", "must be an integer from -1 to 2147483647"},
      {"--top-p", "-1", "must be a number from 0 to 1"},
      {"--min-p", "1.5", "must be a number from 0 to 1"},
      {"--repetition-penalty", "0", "must be a number above 0 and at most 100"},
      {"--presence-penalty", "-3", "must be a number from -2 to 2"},
      {"--frequency-penalty", "3", "must be a number from -2 to 2"},
      {"--logprobs", "21", "must be an integer from 0 to 20"},
      {"--seed", "-2", "must be an integer from 0 to 18446744073709551615, or -1"},
      {"--max-tokens", "0", "must be an integer from 1 to 2147483647, or -1"},
      {"--min-tokens", "-1", "must be an integer from 0 to 2147483647"},
  };
  for (const auto& test : cases) {
    const std::string error = Parse({test.option, test.value});
    const std::string expected =
        std::string(test.option) + ": " + test.error + " (found " + test.value + ")";
    EXPECT_NE(error.find(expected), std::string::npos) << error;
  }
}

TEST_F(OptionsTest, MinusOneIsOffWhereOtherProgramsHaveItSo) {
  ASSERT_EQ(Parse({"--top-k", "-1", "--max-tokens", "-1", "--seed", "-1"}), "");
  EXPECT_EQ(options_.sampling.top_k, 0);
  EXPECT_EQ(options_.sampling.max_tokens, -1);
  EXPECT_TRUE(options_.sampling.draws_seed);
  EXPECT_EQ(options_.sampling.seed, std::nullopt);
  GenerationConfig generation;
  generation.max_new_tokens = 9;
  EXPECT_EQ(ResolveSamplingDefaults(options_.sampling, generation).max_tokens, -1);
  ASSERT_EQ(Parse({"--seed", "18446744073709551615"}), "");
  EXPECT_EQ(options_.sampling.seed, ~uint64_t{0});
  EXPECT_FALSE(options_.sampling.draws_seed);
}

TEST_F(OptionsTest, MinTokensIsNotAboveMaxTokens) {
  ASSERT_EQ(Parse({"--min-tokens", "6", "--max-tokens", "5", "-p", "a"}), "");
  const Status status = batch::CheckRunOptions(options_);
  EXPECT_EQ(status.code(), StatusCode::kUsage);
  EXPECT_NE(status.message().find("found 6 and 5"), std::string::npos) << status.message();
  for (const char* max_tokens : {"6", "-1"}) {
    ASSERT_EQ(Parse({"--min-tokens", "6", "--max-tokens", max_tokens, "-p", "a"}), "");
    EXPECT_TRUE(batch::CheckRunOptions(options_).ok());
  }
}

TEST_F(OptionsTest, AnEscapeInAStopStringIsNamed) {
  std::vector<std::string> warnings;
  SetLogSink([&](LogLevel, const std::string& line) { warnings.push_back(line); });
  SamplingOptions options;
  options.stop = {"a\nb", "c:\\dir", "\\n\\n"};
  EXPECT_TRUE(CheckSamplingOptions(options).ok());
  SetLogSink(nullptr);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("--stop '\\n\\n' holds a backslash and the letter n"),
            std::string::npos)
      << warnings[0];
}

TEST_F(OptionsTest, UnknownOptionsAndArgumentsAreRefused) {
  for (const char* name : {"--quantize", "--resume", "--pipeline-parallel", "file.jsonl"}) {
    EXPECT_NE(Parse({name, "1"}), "") << name;
  }
}

TEST_F(OptionsTest, RepeatedOptionsTakeOneValueEachAsItStands) {
  ASSERT_EQ(Parse({"--stop", "[a,b]", "--stop", "-x", "-p", "--help me"}), "");
  EXPECT_EQ(options_.sampling.stop, (std::vector<std::string>{"[a,b]", "-x"}));
  EXPECT_EQ(options_.prompt, "--help me");
}

TEST_F(OptionsTest, ValuesReachTheirFields) {
  ASSERT_EQ(Parse({"-m",          "dir",     "-t",      "0.5",           "-n",
                   "7",           "--seed",  "9",       "--max-seq-len", "100",
                   "--page-size", "64",      "--cache", "naive",         "--device",
                   "cuda:1",      "--top-k", "0",       "--quantize",    "int8"}),
            "");
  EXPECT_EQ(options_.model.model, "dir");
  EXPECT_EQ(options_.sampling.temperature, 0.5);
  EXPECT_EQ(options_.sampling.max_tokens, 7);
  EXPECT_EQ(options_.sampling.seed, 9u);
  EXPECT_EQ(options_.sampling.top_k, 0);
  EXPECT_EQ(options_.sampling.top_p, std::nullopt);
  EXPECT_EQ(options_.engine.max_seq_len, 100);
  EXPECT_EQ(options_.engine.page_size, 64);
  EXPECT_EQ(options_.engine.cache, CacheKind::kNaive);
  EXPECT_EQ(options_.engine.device.kind, DeviceKind::kCuda);
  EXPECT_EQ(options_.engine.device.index(), 1);
  EXPECT_EQ(options_.engine.quantize, Quantization::kInt8);
}

TEST(ParseDeviceTest, SeveralGpusAreListed) {
  EXPECT_EQ(ParseDevice("cuda:2,0")->indices, (std::vector<int>{2, 0}));
  EXPECT_EQ(ParseDevice("cuda:0,0")->indices, (std::vector<int>{0, 0}));
  EXPECT_EQ(ParseDevice("cuda")->indices, std::vector<int>{0});
  EXPECT_TRUE(ParseDevice("cuda:all")->indices.empty());
  for (const char* name : {"cuda:", "cuda:0,", "cuda:,1", "cuda:0,-1", "cuda:0 1", "cuda:al"}) {
    EXPECT_FALSE(ParseDevice(name).has_value()) << name;
  }
}

TEST_F(OptionsTest, SpeculateSaysWhatIsAllowedAndTakesItAll) {
  EXPECT_NE(Parse({"--speculate", "medusa:3"}).find("none or ngram:K with K from 1 to 16"),
            std::string::npos);
  ASSERT_EQ(Parse({}), "");
  EXPECT_EQ(options_.engine.drafts.max_drafts, 0);
  ASSERT_EQ(Parse({"--speculate", "none"}), "");
  EXPECT_EQ(options_.engine.drafts.max_drafts, 0);
  using Kind = DraftKind;
  const std::pair<const char*, DraftOption> forms[] = {
      {"mtp", {Kind::kMtp, 3, ""}},
      {"mtp:5", {Kind::kMtp, 5, ""}},
      {"draft:models/small", {Kind::kModel, 0, "models/small"}},
      {"draft:models/small:16", {Kind::kModel, 16, "models/small"}},
      {"draft:c:small:17", {Kind::kModel, 0, "c:small:17"}},  // no count: a name with colons
      {"eagle:3", {Kind::kEagle, 0, "3"}},
      {"eagle:heads/e:5", {Kind::kEagle, 5, "heads/e"}},
      {"dflash:heads/d", {Kind::kBlock, 0, "heads/d"}},
      {"auto", {Kind::kAuto, 4, ""}}};
  for (const auto& [text, wanted] : forms) {
    ASSERT_EQ(Parse({"--speculate", text}), "");
    EXPECT_EQ(options_.engine.drafts, wanted) << text;
  }
  for (const int drafts : {1, 16}) {
    ASSERT_EQ(Parse({"--speculate", "ngram:" + std::to_string(drafts)}), "");
    EXPECT_EQ(options_.engine.drafts.max_drafts, drafts);
  }
}

TEST_F(OptionsTest, AGrammarIsReadAndCompiled) {
  const auto take = [this](const std::vector<std::string>& arguments) {
    EXPECT_EQ(Parse(arguments), "");
    const Status status = TakeGrammar(&options_.sampling);
    EXPECT_TRUE(status.ok()) << status.message();
    return options_.sampling.grammar;
  };
  EXPECT_EQ(take({}).text, nullptr);
  const TemporaryFolder folder;
  const std::string schema = folder.Write("s.json", "\xEF\xBB\xBF{\"properties\": {\"a\": true}}");
  const AnswerGrammar file = take({"--json-schema", schema});
  EXPECT_EQ(file.file, schema);
  EXPECT_EQ(file.text->kind, GrammarKind::kJsonSchema);
  EXPECT_EQ(file.text->text, "{\"properties\": {\"a\": true}}") << "without the mark";
  EXPECT_EQ(take({"--regex", ""}).text->kind, GrammarKind::kRegularExpression);
  EXPECT_EQ(take({"--choice", "[a,b]", "--choice", "-x"}).text->choices,
            (std::vector<std::string>{"[a,b]", "-x"}));
  const AnswerGrammar gbnf = take({"--grammar", folder.Write("g", "root ::= \"a\"")});
  EXPECT_EQ(gbnf.text->kind, GrammarKind::kGbnf);
  EXPECT_EQ(ResolveSamplingDefaults(options_.sampling, {}).grammar.text, gbnf.text);
  // The text in place of a file, as llama-cli takes it.
  EXPECT_EQ(take({"--json-schema", " {\"type\":\"string\"}"}).text->text, " {\"type\":\"string\"}");
  EXPECT_EQ(take({"--grammar", "root ::= \"b\""}).text->text, "root ::= \"b\"");
}

TEST_F(OptionsTest, ABadGrammarIsNamedWithItsPlace) {
  const TemporaryFolder folder;
  const std::string schema = folder.Write("s.json", R"({"properties": {"a": {"type": "strin"}}})");
  const std::string grammar = folder.Write("g", "root ::= item");
  const struct {
    std::vector<std::string> arguments;
    StatusCode code;
    std::string message;
  } cases[] = {
      {{"--json-schema", schema},
       StatusCode::kBadInput,
       schema + ": #/properties/a/type: unknown type \"strin\""},
      {{"--json-schema", folder.Path("none")}, StatusCode::kNoInput, folder.Path("none")},
      {{"--grammar", grammar}, StatusCode::kBadInput, grammar + ": line 1"},
      {{"--json-schema", "{\"type\":1}"}, StatusCode::kBadInput, "JSON schema: #/type"},
      {{"--grammar", "root ::= item"}, StatusCode::kBadInput, "grammar: line 1"},
      {{"--regex", "(?=a)"},
       StatusCode::kBadInput,
       "regular expression: no text matches: its conditions exclude each other"},
      {{"--choice", "\xFF"}, StatusCode::kBadInput, "choices: choice 0 is not valid UTF-8"},
  };
  for (const auto& test : cases) {
    ASSERT_EQ(Parse(test.arguments), "");
    const Status status = TakeGrammar(&options_.sampling);
    EXPECT_EQ(status.code(), test.code) << test.arguments[0];
    EXPECT_TRUE(status.message().starts_with(test.message)) << status.message();
  }
}

TEST_F(OptionsTest, OptionsThatContradictEachOtherAreWrongUsage) {
  const std::vector<std::vector<std::string>> cases = {{"--file", "f", "-p", "x"},
                                                       {"--file", "f", "--system", "x"},
                                                       {"--file", "f", "--raw", "--chat"},
                                                       {"--strict", "-p", "x"},
                                                       {"--lenient", "-p", "x"},
                                                       {"--no-stdin"},
                                                       {"--raw", "--system", "x", "-p", "x"},
                                                       {"--regex", "a", "--choice", "b"},
                                                       {"--json-schema", "f", "--grammar", "f"}};
  for (const std::vector<std::string>& arguments : cases) {
    ASSERT_EQ(Parse(arguments), "");
    EXPECT_EQ(batch::CheckRunOptions(options_).code(), StatusCode::kUsage) << arguments[0];
  }
}

TEST_F(OptionsTest, ADeviceThatThisProgramCannotUseIsUnavailable) {
  ASSERT_EQ(Parse({"--device", "cuda:1000", "-p", "x"}), "");
  const Status status = batch::CheckRunOptions(options_);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(status.message().starts_with("--device cuda:1000: ")) << status.message();
  EXPECT_NE(status.message().find("use --device cpu"), std::string::npos) << status.message();
}

TEST_F(OptionsTest, KernelsAreProfiledOnRequest) {
  ASSERT_EQ(Parse({"-p", "x"}), "");
  EXPECT_FALSE(options_.engine.profile_kernels);
  ASSERT_EQ(Parse({"-p", "x", "--profile-kernels", "--device", "cpu"}), "");
  EXPECT_TRUE(options_.engine.profile_kernels);
  const auto device = ChooseDevice(options_.engine, ModelConfig());
  ASSERT_TRUE(device.ok()) << device.status().message();
  EXPECT_EQ(device->profile, nullptr) << "the CPU has none";
}

TEST(KernelReportTest, ItsEndPrintsTheTable) {
  const auto profile = std::make_shared<KernelProfile>();
  const auto now = std::chrono::steady_clock::now();
  testing::internal::CaptureStderr();
  {
    const KernelReport report(profile);
    profile->Add("Norm: NormKernel", now, now + std::chrono::microseconds(5));
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("Norm: NormKernel"), std::string::npos) << text;
  EXPECT_EQ(text, FormatKernelProfile(*profile) + "\n");
}

TEST_F(OptionsTest, QuantizedWeightsKeepNothingFromADevice) {
  for (const auto& [kind, value] :
       {std::pair("int8", Quantization::kInt8), std::pair("int4", Quantization::kInt4)}) {
    ASSERT_EQ(Parse({"-p", "x", "--quantize", kind}), "");
    EXPECT_EQ(options_.engine.quantize, value);
    const auto device = ChooseDevice(options_.engine, ModelConfig());
    ASSERT_TRUE(device.ok()) << device.status().message();
    EXPECT_EQ(device->fallback.find("--quantize"), std::string::npos) << device->fallback;
  }
}

TEST_F(OptionsTest, EncodersKeepNothingFromADevice) {
  ModelConfig encoder;
  encoder.architecture = "BertModel";
  encoder.is_encoder = true;
  ASSERT_EQ(Parse({"-p", "x"}), "");
  const auto device = ChooseDevice(options_.engine, encoder);
  ASSERT_TRUE(device.ok()) << device.status().message();
  EXPECT_EQ(device->fallback, ChooseDevice(options_.engine, ModelConfig())->fallback);
}

TEST_F(OptionsTest, RanksAreOnTheCpuWithoutGpus) {
  ASSERT_EQ(Parse({"-p", "x", "--tensor-parallel", "2"}), "");
  EXPECT_EQ(options_.engine.tensor_parallel, 2);
  const auto device = ChooseDevice(options_.engine, ModelConfig());
  ASSERT_TRUE(device.ok()) << device.status().message();
  EXPECT_EQ(device->cuda, nullptr);
  EXPECT_EQ(device->fallback, "--tensor-parallel 2: 0 GPUs are found");
  ASSERT_EQ(Parse({"-p", "x", "--tensor-parallel", "2", "--device", "cuda"}), "");
  EXPECT_EQ(ChooseDevice(options_.engine, ModelConfig()).status().message(),
            "--device cuda: --tensor-parallel 2: 0 GPUs are found; use --device cpu");
  ASSERT_EQ(Parse({"-p", "x", "--tensor-parallel", "3", "--device", "cuda:0,1"}), "");
  EXPECT_EQ(ChooseDevice(options_.engine, ModelConfig()).status().message(),
            "--tensor-parallel 3 and --device cuda:0,1, which names 2 devices; leave one out");
  ASSERT_EQ(Parse({"-p", "x", "--tensor-parallel", "2", "--pin-threads"}), "");
  EXPECT_EQ(ResolveEngine(options_.engine, ModelConfig()).status().message(),
            "--pin-threads and --tensor-parallel exclude each other");
  for (const auto& [device, num_ranks] :
       {std::pair{"cpu", 1}, {"cuda", 1}, {"cuda:1", 1}, {"cuda:0,1", 2}, {"cuda:0,1,0", 3}}) {
    ASSERT_EQ(Parse({"-p", "x", "--device", device}), "");
    EXPECT_EQ(NumRanks(options_.engine), num_ranks) << device;
  }
  ASSERT_EQ(Parse({"-p", "x", "--device", "cpu", "--tensor-parallel", "4"}), "");
  EXPECT_EQ(NumRanks(options_.engine), 4);
  for (const char* count : {"0", "65", "-1", "x"}) {
    EXPECT_NE(Parse({"-p", "x", "--tensor-parallel", count}), "") << count;
  }
}

TEST_F(OptionsTest, NcclIsForSeveralGpus) {
  ASSERT_EQ(Parse({"-p", "x"}), "");
  EXPECT_EQ(options_.engine.all_reduce, RankSumsBy::kOwn);
  ASSERT_EQ(Parse({"-p", "x", "--all-reduce", "nccl", "--deterministic"}), "");
  EXPECT_EQ(ResolveEngine(options_.engine, ModelConfig()).status().message(),
            "--deterministic and --all-reduce nccl exclude each other: NCCL adds in an order that "
            "depends on how many tokens a step has");
  EXPECT_NE(Parse({"-p", "x", "--all-reduce", "ring"}), "");
}

TEST_F(OptionsTest, WhatDependsOnTheDeviceIsLeftOpenUntilItIsKnown) {
  ASSERT_EQ(Parse({"-p", "x"}), "");
  const EngineOptions on_cpu = WithDeviceDefaults(options_.engine, Device());
  EXPECT_EQ(on_cpu.max_prefill_length, 512);
  EXPECT_EQ(on_cpu.memory_ratio, 0.25);
  Device cuda;
  cuda.cuda = MakeHostDeviceOps();
  ModelConfig both_ways;
  both_ways.attends_both_ways = true;
  for (const auto& [longest, length] : {std::pair(300, 512), {2048, 2048}, {131072, 8192}}) {
    both_ways.max_seq_len = longest;
    EXPECT_EQ(WithDeviceDefaults(options_.engine, Device(), both_ways).max_prefill_length, length);
  }
  both_ways.is_encoder = true;
  both_ways.max_seq_len = 512;
  EXPECT_EQ(WithDeviceDefaults(options_.engine, Device(), both_ways).max_prefill_length, 2048);
  const EngineOptions on_cuda = WithDeviceDefaults(options_.engine, cuda);
  EXPECT_EQ(on_cuda.max_prefill_length, 8192);
  EXPECT_EQ(on_cuda.memory_ratio, 0.9);
  ASSERT_EQ(Parse({"-p", "x", "--max-prefill-length", "77", "--memory-ratio", "0.5"}), "");
  EXPECT_EQ(WithDeviceDefaults(options_.engine, cuda).max_prefill_length, 77);
  EXPECT_EQ(WithDeviceDefaults(options_.engine, cuda).memory_ratio, 0.5);
}

GenerationConfig SamplingModel() {
  GenerationConfig generation;
  generation.do_sample = true;
  generation.temperature = 0.6;
  generation.top_p = 0.9;
  generation.max_new_tokens = 50;
  return generation;
}

TEST(SamplingDefaultsTest, TheModelsValuesApplyAndAreReported) {
  const SamplingDefaults defaults = ResolveSamplingDefaults({}, SamplingModel());
  EXPECT_EQ(defaults.sampling.temperature, 0.6);
  EXPECT_EQ(defaults.sampling.top_p, 0.9);
  EXPECT_EQ(defaults.max_tokens, 50);
  for (const char* part : {"temperature 0.6", "top_p 0.9", "max_tokens 50"}) {
    EXPECT_NE(defaults.note.find(part), std::string::npos) << defaults.note;
  }
}

// The message names only the room that the model gives an answer, and not a limit that it may not
// reach.
TEST(SamplingDefaultsTest, AnAnswerHasANoteOfWhatItLeavesOpen) {
  SamplingOptions options;
  options.temperature = 0.5;
  const SamplingDefaults defaults = ResolveSamplingDefaults(options, SamplingModel());
  EXPECT_EQ(
      NoteForAnswer(defaults, {}),
      "defaults of generation_config.json: top_p 0.9 (--sampling-defaults neutral leaves them "
      "out)");
  AnswerOverrides own;
  own.top_p = 1;
  EXPECT_EQ(NoteForAnswer(defaults, own), "");
  GenerationConfig limit;
  limit.max_new_tokens = 50;
  EXPECT_EQ(NoteForAnswer(ResolveSamplingDefaults({}, limit), {}), "");
}

TEST(SamplingDefaultsTest, OptionsOverrideFieldByField) {
  SamplingOptions options;
  options.temperature = 0;
  options.max_tokens = 3;
  const SamplingDefaults defaults = ResolveSamplingDefaults(options, SamplingModel());
  EXPECT_EQ(defaults.sampling.temperature, 0);
  EXPECT_EQ(defaults.sampling.top_p, 0.9);
  EXPECT_EQ(defaults.max_tokens, 3);
  EXPECT_EQ(defaults.note.find("temperature"), std::string::npos) << defaults.note;
}

TEST(SamplingDefaultsTest, NeutralLeavesTheModelOut) {
  SamplingOptions options;
  options.sampling_defaults = SamplingSource::kNeutral;
  const SamplingDefaults defaults = ResolveSamplingDefaults(options, SamplingModel());
  EXPECT_EQ(defaults.sampling.temperature, 0);
  EXPECT_EQ(defaults.sampling.top_p, 1);
  EXPECT_EQ(defaults.max_tokens, -1);
  EXPECT_EQ(defaults.note, "");
}

TEST(SamplingDefaultsTest, GreedyUnlessTheModelSamples) {
  GenerationConfig generation;
  EXPECT_EQ(ResolveSamplingDefaults({}, generation).sampling.temperature, 0);
  EXPECT_EQ(ResolveSamplingDefaults({}, generation).note, "");
  generation.temperature = 0.7;
  EXPECT_EQ(ResolveSamplingDefaults({}, generation).sampling.temperature, 0.7);
  generation.do_sample = false;
  EXPECT_EQ(ResolveSamplingDefaults({}, generation).sampling.temperature, 0);
  generation.temperature.reset();
  generation.do_sample = true;
  EXPECT_EQ(ResolveSamplingDefaults({}, generation).sampling.temperature, 1);
}

report::RunSummary SomeSummary() {
  report::RunSummary summary;
  summary.rows_done = 9;
  summary.rows_failed = 1;
  summary.seconds = 2;
  SchedulerStats& scheduler = summary.stats.scheduler;
  scheduler.submitted = 10;
  scheduler.prompt_tokens = 1000;
  scheduler.cached_tokens = 900;
  scheduler.computed_tokens = 100;
  scheduler.generated_tokens = 50;
  scheduler.preemptions = 3;
  scheduler.recomputed_tokens = 77;
  summary.stats.waiting_s.Add(0.25);
  summary.stats.first_token_s.Add(0.5);
  summary.stats.between_tokens_s.Add(0.01);
  summary.stats.host_step_s.Add(0.0001);
  return summary;
}

void ExpectHasAll(const std::string& text, const std::vector<const char*>& parts) {
  for (const char* part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

// A histogram's percentile is at most the largest value: of one value, that value.
TEST(SummaryTest, FiguresAreInTextAndJson) {
  const report::RunSummary summary = SomeSummary();
  ExpectHasAll(
      report::FormatSummary(summary),
      {"9 done, 1 failed, 2.00 s", "1,000 (900 from the prefix cache, 90.0 %; 100 computed)",
       "500 in, 25 out; 4.50 requests/s", "waiting         p50 0.250 s",
       "first token     p50 0.500 s", "p99 10.0 ms", "preemptions     3"});
  const Json json = report::SummaryJson(summary);
  EXPECT_EQ(*json.Find("rows_failed"), Json(1));
  EXPECT_EQ(*json.Find("cached_tokens"), Json(900));
  EXPECT_EQ(*json.Find("cache_hit_percent"), Json(90.0));
  EXPECT_EQ(*json.Find("preemptions"), Json(3));
  EXPECT_EQ(*json.Find("recomputed_tokens"), Json(77));
  EXPECT_EQ(*json.Find("scheduler")->Find("computed_tokens"), Json(100));
  EXPECT_EQ(*json.Find("scheduler")->Find("recomputed_tokens"), Json(77));
  const std::pair<const char*, double> spreads[] = {{"waiting_s", 0.25},
                                                    {"first_token_s", 0.5},
                                                    {"between_tokens_s", 0.01},
                                                    {"host_step_s", 0.0001}};
  for (const auto& [name, value] : spreads) {
    ASSERT_NE(json.Find(name), nullptr) << name;
    for (const char* figure : {"p50", "p99", "max"}) {
      EXPECT_NEAR(json.Find(name)->Find(figure)->as_double() / value, 1, 0.012) << name << figure;
    }
  }
}

TEST(SummaryTest, StatsHoldTheSchedulersFiguresAndTheRuntimesTimes) {
  ExpectHasAll(
      report::FormatStats(SomeSummary().stats),
      {"recomputed_tokens 77\n", "preemptions       3\n", "hit_rate          90.0 %\n",
       "waiting           p50 2", "max 250.000 ms\n", "first_token       p50 ", "max 500.000 ms\n",
       "between_tokens    p50 ", "max 10.000 ms\n", "host_step         p50 0.", "max 0.100 ms"});
}

TEST(SummaryTest, AcceptanceIsSaidWhereThereWereDrafts) {
  report::RunSummary summary = SomeSummary();
  EXPECT_EQ(report::FormatStats(summary.stats).find("draft_acceptance"), std::string::npos);
  EXPECT_EQ(report::SummaryJson(summary).Find("draft_acceptance_percent"), nullptr);
  summary.stats.scheduler.drafted_tokens = 40;
  summary.stats.scheduler.accepted_drafts = 30;
  ExpectHasAll(report::FormatStats(summary.stats), {"draft_acceptance  75.0 %\n"});
  summary.stats.scheduler.drafted_at = {20, 20};
  summary.stats.scheduler.accepted_at = {20, 10};
  summary.stats.scheduler.answer_rows = 20;
  summary.stats.scheduler.generated_tokens = 50;
  ExpectHasAll(report::FormatStats(summary.stats),
               {"draft_acceptance  75.0 %, by place 100 %, 50 %; 2.50 tokens a step\n"});
  ASSERT_NE(report::SummaryJson(summary).Find("draft_acceptance_percent"), nullptr);
  EXPECT_EQ(*report::SummaryJson(summary).Find("draft_acceptance_percent"), Json(75.0));
}

}  // namespace
}  // namespace minisgl::load
