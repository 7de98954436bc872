// `minisgl run` as a user runs it, with the demo model: exit statuses, text and rows, pipes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "minisgl/base/json.h"
#include "program/fakes.h"
#include "program/run_fixture.h"
#include "slow.h"

namespace minisgl::batch {
namespace {

TEST_F(RunProgramTest, WrongUsageIs64) {
  ExpectFails(RunProgram({"fly"}), 64, "fly");
  ExpectFails(RunModel({"-p"}), 64, "--prompt needs a value (TEXT|@FILE); see minisgl run --help");
  ExpectFails(RunModel({"-p", "x", "-p", "y"}), 64, "--prompt may be given once (found 2)");
  ExpectFails(RunProgram({"report"}), 64, "FILE is required");
  ExpectFails(RunModel({"-p", "x", "--template-arg", "bos_token=Q"}), 64, "bos_token is set by");
  ExpectFails(RunModel({"--colour"}), 64, "--colour");
  ExpectFails(RunModel({"--page-size", "3", "-p", "x"}), 64, "--page-size");
  ExpectFails(RunModel({"--schedule", "lifo", "-p", "x"}), 64, "lifo");
  ExpectFails(RunModel({"--file", "x", "-p", "x"}), 64, "--prompt");
  ExpectFails(RunModel({"-p", "x", "--row-metrics"}), 64, "--row-metrics");
  ExpectFails(RunProgram({"run", "-p", "x"}, {"", "", {"MINISGL_MODEL="}}), 64, "--model");
}

TEST_F(RunProgramTest, HelpAndVersionAreAnswers) {
  for (const Arguments& arguments :
       {Arguments{"--help"}, Arguments{"run", "--help"}, Arguments{"--version"}}) {
    const ProgramResult result = RunProgram(arguments);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_NE(result.out, "");
    EXPECT_EQ(result.err, "");
  }
}

TEST_F(RunProgramTest, AModelThatCannotBeReadIs66Or65) {
  ExpectFails(RunProgram({"run", "-m", folder_.Path("none"), "-p", "x"}), 66, "none");
  ExpectFails(RunProgram({"run", "-m", "nobody/nothing", "-p", "x"},
                         {"", "", {"HF_HUB_CACHE=" + folder_.Path("hub")}}),
              66, "nobody/nothing");
  ExpectFails(RunProgram({"run", "-m", folder_.Write("model.gguf", "GGUF"), "-p", "x"}), 65,
              "model.gguf: byte 4");
  ExpectFails(RunProgram({"run", "-m", folder_.Write("file", "x"), "-p", "x"}), 65, "directory");
  const std::string copy = folder_.Path("model");
  std::filesystem::copy(DemoModel(), copy);
  folder_.Write("model/config.json", "{");
  ExpectFails(RunProgram({"run", "-m", copy, "-p", "x"}), 65, "config.json");
}

// The error for a directory without a model mentions config.json, not the file that happens to be
// read first.
TEST_F(RunProgramTest, ADirectoryWithoutAModelHasNoConfig) {
  const std::string empty = folder_.Path("empty"), repo = folder_.Path("models--small--wren");
  std::filesystem::create_directories(empty);
  ExpectFails(RunProgram({"run", "-m", empty, "-p", "x"}), 66, "empty: has no config.json; give");
  ExpectFails(RunProgram({"tokenize", "-m", empty}), 66, "empty: has no config.json; give");
  std::filesystem::create_directories(repo + "/snapshots");
  ExpectFails(RunProgram({"run", "-m", repo, "-p", "x"}), 65,
              "has no config.json, and its folder of snapshots is empty");
  std::filesystem::create_directory_symlink(DemoModel(), repo + "/snapshots/0a1b");
  ExpectFails(RunProgram({"run", "-m", repo, "-p", "x"}), 65,
              "give its snapshot, " + repo + "/snapshots/0a1b");
  ExpectFails(RunProgram({"info", "-m", repo}), 65, "it is the folder of a model in the hub cache");
}

// A table gives one error before the model is loaded, not an error row for each line.
TEST_F(RunProgramTest, AnInputThatIsNoJsonLinesIs65) {
  std::string table = "id,question\n";
  for (int i = 0; i < 1000; ++i) table += "x,1\n";
  const std::string csv = folder_.Write("in.csv", table), out = folder_.Path("out");
  const std::string expected = "in.csv: is not a JSON Lines file (it looks like CSV)";
  for (const Arguments& more : {Arguments{"-o", out}, Arguments{"--check"}, Arguments{"--lenient"},
                                Arguments{"--ordered"}}) {
    Arguments arguments = {"--file", csv};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = RunModel(arguments);
    ExpectFails(result, 65, expected);
    EXPECT_EQ(Lines(result.err).size(), 1u) << result.err;
  }
  EXPECT_FALSE(std::filesystem::exists(out));
  ExpectFails(RunModel({"--file", "-", "-q"}, "\x1F\x8B\x08"), 65,
              "its compressed data are cut off");
  ExpectFails(RunProgram({"plan", "-m", DemoModel(), csv}), 65, expected);
  ExpectFails(RunProgram({"tokenize", "-m", DemoModel(), "--file", csv}), 65, expected);
  // Too few lines to tell, except by the name.
  ExpectFails(RunModel({"--file", folder_.Write("few.csv", "a,b\n1\n")}), 65,
              "few.csv: is not a JSON Lines file (it looks like a table); minisgl run --template");
}

TEST_F(RunProgramTest, AModelInTheHubCacheIsFoundByName) {
  const std::string repo = folder_.Path("hub/models--small--wren");
  std::filesystem::create_directories(repo + "/refs");
  std::filesystem::create_directories(repo + "/snapshots");
  std::filesystem::create_directory_symlink(DemoModel(), repo + "/snapshots/0a1b");
  folder_.Write("hub/models--small--wren/refs/main", "0a1b\n");
  const ProgramResult result =
      RunProgram({"run", "-m", "small/wren", "-p", kPeru, "--num-pages", "64"},
                 {"", "", {"HF_HUB_CACHE=" + folder_.Path("hub")}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, std::string(kLima) + "\n");
}

TEST_F(RunProgramTest, AMissingDeviceIs69) {
  ExpectFails(RunModel({"--device", "cuda:1000", "-p", "x"}), 69, "cuda:1000");
}

TEST_F(RunProgramTest, InputThatCannotBeOpenedIs66) {
  ExpectFails(RunModel({"--file", folder_.Path("none.jsonl")}), 66, "none.jsonl");
  ExpectFails(RunModel({"--file", folder_.Path("")}), 66, "directory");
  ExpectFails(RunModel({"-p", "x", "--system", "@" + folder_.Path("none")}), 66, "none");
}

TEST_F(RunProgramTest, AMinusIsStandardOutput) {
  const std::string rows = folder_.Write("in.jsonl", kPeruRow + "\n");
  const ProgramResult result = RunModel({"--file", rows, "-o", "-"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  ASSERT_FALSE(Rows(result.out).empty());
  EXPECT_EQ(Text(Rows(result.out)[0]), kLima);
  // Only a file can be resumed.
  ExpectFails(RunModel({"--file", rows, "-o", "-", "--resume"}), 64, "not standard output");
  ExpectFails(RunModel({"--file", rows, "-o", ""}), 64, "must not be empty");
}

TEST_F(RunProgramTest, OverwritingAnOutputIs73) {
  const std::string rows = folder_.Write("in.jsonl", kPeruRow + "\n");
  const std::string old = folder_.Write("out.jsonl", "old\n");
  ExpectFails(RunModel({"--file", rows, "-o", old}), 73, "--force");
  ExpectFails(RunModel({"--file", rows, "-o", rows, "--force"}), 73, "in.jsonl");
  ExpectFails(RunModel({"--file", rows, "-o", folder_.Path("none/out")}), 73, "none");
  EXPECT_EQ(folder_.Read("in.jsonl"), kPeruRow + "\n");
  EXPECT_EQ(folder_.Read("out.jsonl"), "old\n");
  EXPECT_EQ(RunModel({"--file", rows, "-o", old, "--force"}).exit_code, 0);
  EXPECT_EQ(Text(Rows(folder_.Read("out.jsonl")).at(0)), kLima);
}

TEST_F(RunProgramTest, ATemplateThatFailsOnTheOnePromptIs65) {
  const std::string file =
      folder_.Write("endless.jinja", "{% for i in range(100000000) %}x{% endfor %}");
  const ProgramResult result = RunModel({"-p", "hi", "--chat-template", file});
  EXPECT_EQ(result.exit_code, 65) << result.err;
  EXPECT_NE(result.err.find("range"), std::string::npos) << result.err;
}

TEST_F(RunProgramTest, OnePromptAnswersInPlainText) {
  const ProgramResult result = RunModel({"-p", kPeru, "--quiet"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, std::string(kLima) + "\n");
  EXPECT_EQ(result.err, "");
}

// The second start does not pack again, and gives the same answer.
TEST_F(RunProgramTest, PackedWeightsAreKeptForTheNextStart) {
  const ProgramResult plain = RunModel({"-p", kPeru});
  for (const char* quantize : {"none", "int8"}) {
    for (const char* wanted : {" 0 matrices read, ", ", 0 packed"}) {
      const ProgramResult kept = RunModel({"-p", kPeru, "--device", "cpu", "--quantize", quantize,
                                           "--pack-cache", folder_.Path("packed"), "-v"});
      EXPECT_EQ(kept.exit_code, 0) << kept.err;
      EXPECT_EQ(kept.out, plain.out);
      EXPECT_NE(kept.err.find(wanted), std::string::npos) << kept.err;
    }
  }
}

TEST_F(RunProgramTest, StandardInputIsThePromptOrPrecedesIt) {
  EXPECT_EQ(RunModel({}, std::string(kPeru) + "\n").out, std::string(kLima) + "\n");
  EXPECT_EQ(RunModel({"-p", "capital of Peru?"}, "What is the\n").out,
            RunModel({"--no-stdin", "-p", "What is the\ncapital of Peru?"}, "ignored").out);
  ExpectFails(RunModel({"--no-stdin"}), 64, "no prompt");
}

TEST_F(RunProgramTest, ThePromptMayBeAFile) {
  const std::string file = folder_.Write("question", std::string(kPeru) + "\n");
  EXPECT_EQ(RunModel({"-p", "@" + file}).out, std::string(kLima) + "\n");
  EXPECT_EQ(RunModel({"--raw", "-n", "4", "-p", "@" + file}).out,
            RunModel({"--raw", "-n", "4", "-p", std::string(kPeru) + "\n"}).out);
  EXPECT_EQ(RunModel({"-n", "1", "-p", "@@" + file}).exit_code, 0) << "a text";
  ExpectFails(RunModel({"-p", "@" + file + ".none"}), 66, "@@ begins a text with @");
}

TEST_F(RunProgramTest, OnePromptAsARowAndRaw) {
  const std::vector<Json> rows = Rows(RunModel({"--json", "-p", kPeru}).out);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(Text(rows[0]), kLima);
  const std::vector<Json> raw = Rows(RunModel({"--json", "--raw", "-p", kPeru}).out);
  ASSERT_EQ(raw.size(), 1u);
  EXPECT_LT(raw[0].Find("usage")->Find("prompt_tokens")->as_int(),
            rows[0].Find("usage")->Find("prompt_tokens")->as_int());
}

TEST_F(RunProgramTest, ASystemMessageStandsFirst) {
  const std::string notes = "Answer questions about these notes. Notes:\n- Zora lives in Oslo.\n";
  folder_.Write("system", notes);
  const ProgramResult inline_text =
      RunModel({"--json", "--system", notes, "-p", "Where does Zora live?"});
  const ProgramResult file =
      RunModel({"--json", "--system", "@" + folder_.Path("system"), "-p", "Where does Zora live?"});
  EXPECT_EQ(inline_text.exit_code, 0);
  EXPECT_EQ(inline_text.out, file.out);
  EXPECT_NE(inline_text.out, RunModel({"--json", "-p", "Where does Zora live?"}).out);
}

TEST_F(RunProgramTest, AModelWithoutATemplateIs65ForMessagesAndRunsRaw) {
  const std::string copy = folder_.Path("model");
  std::filesystem::copy(DemoModel(), copy);
  folder_.Write("model/tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  ExpectFails(RunProgram({"run", "-m", copy, "-p", "x", "--num-pages", "64"}), 65,
              "--chat-template");
  EXPECT_EQ(
      RunProgram({"run", "-m", copy, "--raw", "-p", "x", "-n", "2", "--num-pages", "64"}).exit_code,
      0);
}

TEST_F(RunProgramTest, BadRowsAreErrorRowsAmongGoodOnes) {
  const std::string rows = folder_.Write(
      "in.jsonl", kPeruRow + "\n{broken\n{\"id\": \"b\", \"prompt\": \"a\", \"top_p\": 2}\n" +
                      "{\"prompt\": \"a\", \"colour\": 1}\n" + kPeruRow + "\n");
  const ProgramResult result = RunModel({"--file", rows});
  EXPECT_EQ(result.exit_code, 1);
  const std::vector<Json> out = Rows(result.out);
  ASSERT_EQ(out.size(), 5u);
  const char* codes[] = {"", "invalid_row", "invalid_row", "unsupported_field", ""};
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(Code(out[i]), codes[i]);
    EXPECT_EQ(*out[i].Find("index"), Json(static_cast<int64_t>(i)));
  }
  EXPECT_EQ(Text(out[4]), kLima);
  EXPECT_NE(result.err.find("2 done, 3 failed"), std::string::npos) << result.err;
  EXPECT_EQ(RunModel({"--file", rows, "--strict"}).exit_code, 65);
  EXPECT_EQ(Code(Rows(RunModel({"--file", rows, "--lenient"}).out).at(3)), "");
}

TEST_F(RunProgramTest, DuplicateIdsAreErrorRowsOr65WithStrict) {
  const std::string two = "{\"id\": \"a\", \"prompt\": \"x\", \"max_tokens\": 1}\n";
  const std::string rows = folder_.Write("in.jsonl", two + two);
  const char* const expected = "the id \"a\" was already on line 1";
  ExpectFails(RunModel({"--file", rows, "--strict", "-o", folder_.Path("out")}), 65,
              "in.jsonl:2: " + std::string(expected));
  EXPECT_FALSE(std::filesystem::exists(folder_.Path("out")));
  const ProgramResult check = RunModel({"--file", rows, "--check"});
  EXPECT_EQ(check.exit_code, 65);
  EXPECT_NE(check.err.find(expected), std::string::npos) << check.err;
  for (const ProgramResult& result :
       {RunModel({"--file", rows}), RunModel({"--file", "-"}, two + two)}) {
    EXPECT_EQ(result.exit_code, 1) << result.err;
    ASSERT_EQ(Rows(result.out).size(), 2u);
    EXPECT_EQ(Code(Rows(result.out)[0]), "");
    EXPECT_EQ(Code(Rows(result.out)[1]), "duplicate_id");
    EXPECT_NE(result.out.find("was already on line 1"), std::string::npos) << result.out;
  }
  const ProgramResult plan = RunProgram({"plan", rows, "-m", DemoModel()});
  EXPECT_EQ(plan.exit_code, 1);
  EXPECT_NE(plan.out.find("2, 1 bad"), std::string::npos) << plan.out;
  const std::string pipe = folder_.Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  Program program(Run({"--file", pipe}), {});
  const int writing_end = open(pipe.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_EQ(write(writing_end, (two + two).data(), 2 * two.size()),
            static_cast<ssize_t>(2 * two.size()));
  close(writing_end);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(Code(Rows(result.out).at(1)), "duplicate_id");
}

TEST_F(RunProgramTest, CheckReportsErrorsAndRunsNothing) {
  const std::string good = folder_.Write("good.jsonl", kPeruRow + "\n");
  const ProgramResult fine = RunModel({"--check", "--file", good});
  EXPECT_EQ(fine.exit_code, 0) << fine.err;
  EXPECT_EQ(fine.out, "");
  EXPECT_NE(fine.err.find("1 rows, 0 bad"), std::string::npos) << fine.err;
  const std::string bad = folder_.Write(
      "bad.jsonl", "{\n\"" + std::string(20000, 'x') + "\"\n{\"prompt_token_ids\": [2048]}\n");
  const ProgramResult result = RunModel({"--check", "--file", bad});
  EXPECT_EQ(result.exit_code, 65);
  for (const char* expected :
       {"bad.jsonl:1: invalid_row", "bad.jsonl:2: length_exceeded", "bad.jsonl:3: "}) {
    EXPECT_NE(result.err.find(expected), std::string::npos) << result.err;
  }
}

TEST_F(RunProgramTest, CheckShowsNoControlSequenceOfARow) {
  const std::string chat_template =
      folder_.Write("template", "{{ raise_exception(messages[0]['content']) }}");
  const std::string rows =
      folder_.Write("in.jsonl", R"({"messages": [{"role": "user", "content": "a\u001b[2Jb"}]})");
  const ProgramResult result =
      RunModel({"--check", "--file", rows, "--chat-template", chat_template});
  EXPECT_EQ(result.exit_code, 65);
  EXPECT_NE(result.err.find("template_error"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("\\x1b[2J"), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find('\x1b'), std::string::npos) << result.err;
}

TEST_F(RunProgramTest, PromptsThatAreTooLongAreAnsweredAtOnce) {
  MarkSlow("long prompts");
  const std::string row = "\"" + std::string(20000, 'x') + " the end\"\n";
  const std::string rows = folder_.Write("in.jsonl", row);
  EXPECT_EQ(Code(Rows(RunModel({"--file", rows}).out).at(0)), "length_exceeded");
  const std::vector<Json> cut = Rows(RunModel({"--file", rows, "--on-overflow", "truncate-left",
                                               "--max-seq-len", "200", "-n", "3"})
                                         .out);
  ASSERT_EQ(cut.size(), 1u);
  EXPECT_EQ(Code(cut[0]), "");
  ASSERT_NE(cut[0].Find("warnings"), nullptr);
  const std::vector<Json> lowered =
      Rows(RunModel({"--file", "-", "--max-seq-len", "32"},
                    "{\"prompt\": \"a\", \"max_tokens\": 99, \"ignore_eos\": true}")
               .out);
  ASSERT_EQ(lowered.size(), 1u);
  ASSERT_NE(lowered[0].Find("warnings"), nullptr) << lowered[0].Dump();
  EXPECT_EQ(*lowered[0].Find("finish_reason"), Json("length"));
}

TEST_F(RunProgramTest, OrderIsTheInputsOrAsCompleted) {
  MarkSlow("several runs of many rows");
  std::string input;
  for (const int tokens : {24, 1, 12, 2}) {
    input += "{\"prompt\": \"a\", \"ignore_eos\": true, \"max_tokens\": " + std::to_string(tokens) +
             "}\n";
  }
  const std::string rows = folder_.Write("in.jsonl", input);
  const auto order = [](const std::vector<Json>& out) {
    std::string indexes;
    for (const Json& row : out) indexes += row.Find("index")->Dump();
    return indexes;
  };
  EXPECT_EQ(order(Rows(RunModel({"--file", rows}).out)), "0123");
  EXPECT_EQ(RunModel({"--file", rows, "-o", folder_.Path("as-completed")}).exit_code, 0);
  EXPECT_EQ(order(Rows(folder_.Read("as-completed"))), "1320");
  EXPECT_EQ(RunModel({"--file", rows, "--ordered", "-o", folder_.Path("ordered")}).exit_code, 0);
  EXPECT_EQ(order(Rows(folder_.Read("ordered"))), "0123");
}

TEST_F(RunProgramTest, SeveralAnswersDifferAndSeedsRepeatThem) {
  const std::string rows = folder_.Write(
      "in.jsonl",
      "{\"prompt\": \"Once\", \"n\": 3, \"temperature\": 1.5, \"max_tokens\": 12, "
      "\"return_token_ids\": true}\n"
      "{\"prompt\": \"Once\", \"temperature\": 1.5, \"max_tokens\": 12}\n"
      "{\"prompt\": \"Once\", \"temperature\": 1.5, \"max_tokens\": 12, \"seed\": 7}\n"
      "{\"prompt\": \"Once\", \"temperature\": 1.5, \"max_tokens\": 12, \"seed\": 7}\n");
  const ProgramResult result = RunModel({"--file", rows});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<Json> out = Rows(result.out);
  ASSERT_EQ(out.size(), 4u);
  const Json::Array& choices = out[0].Find("choices")->as_array();
  ASSERT_EQ(choices.size(), 3u);
  std::set<std::string> texts;
  for (const Json& choice : choices) {
    texts.insert(Text(choice));
    EXPECT_NE(choice.Find("token_ids"), nullptr);
  }
  texts.insert(Text(out[1]));
  EXPECT_EQ(texts.size(), 4u);
  EXPECT_EQ(Text(out[2]), Text(out[3]));
  EXPECT_EQ(RunModel({"--file", rows}).out, result.out);
  EXPECT_NE(RunModel({"--file", rows, "--seed", "1"}).out, result.out);
}

TEST_F(RunProgramTest, RowsHaveMetricsOnRequest) {
  const std::string rows =
      folder_.Write("in.jsonl",
                    "{\"prompt\": \"Once\", \"max_tokens\": 5}\n"
                    "{\"prompt\": \"Once\", \"max_tokens\": 1}\n"
                    "{\"prompt\": \"Once\", \"max_tokens\": 3, \"n\": 2}\n"
                    "{\"custom_id\": \"a\", \"body\": {\"prompt\": \"Once\", \"max_tokens\": 5}}\n"
                    "{\"prompt\": \"Once\", \"max_tokens\": 0}\n");
  const ProgramResult result = RunModel({"--file", rows, "--row-metrics"});
  const std::vector<Json> out = Rows(result.out);
  ASSERT_EQ(out.size(), 5u) << result.err;
  const auto time = [](const Json& metrics, const char* name) {
    return metrics.Find(name)->as_double();
  };
  const auto check = [&](const Json* metrics) {
    ASSERT_NE(metrics, nullptr);
    EXPECT_GE(time(*metrics, "queue_time_ms"), 0);
    EXPECT_GT(time(*metrics, "time_to_first_token_ms"), time(*metrics, "queue_time_ms"));
    EXPECT_GT(time(*metrics, "tokens_per_second"), 0);
  };
  check(out[0].Find("metrics"));
  const Json& first = *out[0].Find("metrics");
  const int64_t num_gaps = out[0].Find("usage")->Find("completion_tokens")->as_int() - 1;
  ASSERT_GT(num_gaps, 0);
  EXPECT_NEAR(time(first, "mean_itl_ms") * static_cast<double>(num_gaps),
              time(first, "generation_time_ms"), 0.01);
  check(out[1].Find("metrics"));
  EXPECT_TRUE(out[1].Find("metrics")->Find("mean_itl_ms")->is_null()) << "of one token";
  EXPECT_EQ(out[2].Find("metrics"), nullptr) << "of several answers none is the row's";
  for (const Json& choice : out[2].Find("choices")->as_array()) check(choice.Find("metrics"));
  check(out[3].Find("response")->Find("body")->Find("metrics"));
  EXPECT_EQ(out[4].Find("metrics"), nullptr) << "of an error";
  EXPECT_EQ(RunModel({"--file", rows}).out.find("metrics"), std::string::npos);
}

TEST_F(RunProgramTest, StopStringsEndTheTextBeforeThem) {
  const std::string row =
      R"({"messages": [{"role": "user", "content": "What is the capital of Peru?"}], )"
      R"("return_token_ids": true, "stop": ["Lim"]})";
  const std::vector<Json> out = Rows(RunModel({"--file", "-"}, row).out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(Text(out[0]), "The capital of Peru is ");
  EXPECT_EQ(*out[0].Find("finish_reason"), Json("stop"));
  EXPECT_EQ(static_cast<int64_t>(out[0].Find("token_ids")->as_array().size()),
            out[0].Find("usage")->Find("completion_tokens")->as_int());
  EXPECT_EQ(RunModel({"-p", kPeru, "--stop", "capital"}).out, "The \n");
}

TEST_F(RunProgramTest, LogprobsOfEachTokenSumToNoMoreThanOne) {
  const std::vector<Json> out = Rows(
      RunModel(
          {"--file", "-", "-n", "4"},
          R"({"prompt": "Once", "logprobs": true, "top_logprobs": 3, "return_token_ids": true})")
          .out);
  ASSERT_EQ(out.size(), 1u);
  ASSERT_NE(out[0].Find("logprobs"), nullptr) << out[0].Dump();
  const Json::Array& content = out[0].Find("logprobs")->Find("content")->as_array();
  ASSERT_EQ(content.size(), out[0].Find("token_ids")->as_array().size());
  for (size_t i = 0; i < content.size(); ++i) {
    EXPECT_EQ(*content[i].Find("id"), out[0].Find("token_ids")->as_array()[i]);
    const Json::Array& top = content[i].Find("top_logprobs")->as_array();
    ASSERT_EQ(top.size(), 3u);
    // Greedy sampling takes the most likely token.
    EXPECT_EQ(*top[0].Find("logprob"), *content[i].Find("logprob"));
    double sum = 0;
    for (const Json& token : top) sum += std::exp(token.Find("logprob")->as_double());
    EXPECT_LE(sum, 1.0001);
  }
}

TEST_F(RunProgramTest, TheSummaryFileHoldsTheFigures) {
  const std::string path = folder_.Path("summary.json");
  const std::string rows = folder_.Write("in.jsonl", kPeruRow + "\n" + kPeruRow + "\n");
  EXPECT_EQ(RunModel({"--file", rows, "--summary", path, "--quiet"}).exit_code, 0);
  const Result<Json> summary = ParseJson(folder_.Read("summary.json"));
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(*summary.value().Find("rows_done"), Json(2));
  EXPECT_GT(summary.value().Find("completion_tokens")->as_int(), 2);
}

TEST_F(RunProgramTest, ASummaryNeverTakesThePlaceOfAnotherFile) {
  const std::string rows = folder_.Write("in.jsonl", kPeruRow + "\n");
  const std::string notes = folder_.Write("notes", "mine");
  std::filesystem::create_symlink("out.jsonl", folder_.Path("link"));
  const std::string out = folder_.Path("out.jsonl");
  ExpectFails(RunModel({"--file", rows, "--summary", notes}), 73, "--force");
  ExpectFails(RunModel({"--file", rows, "--summary", rows, "--force"}), 73, "in.jsonl");
  ExpectFails(RunModel({"--file", rows, "-o", out, "--summary", folder_.Path("link")}), 73, "link");
  ExpectFails(RunModel({"--file", rows, "--summary", folder_.Path("none/s")}), 73, "none");
  EXPECT_EQ(folder_.Read("in.jsonl"), kPeruRow + "\n");
  EXPECT_EQ(folder_.Read("notes"), "mine");
}

TEST_F(RunProgramTest, BlankLinesAreNoRowsForRunAndTokenize) {
  const std::string rows = "\n\"a\"\n  \n\"b\"\n\nbroken\n";
  const ProgramResult run = RunModel({"--file", "-", "-n", "1"}, rows);
  const ProgramResult tokenize =
      RunProgram({"tokenize", "-m", DemoModel(), "--file", "-"}, {rows, "", {}});
  const ProgramResult lines = RunProgram({"tokenize", "-m", DemoModel()}, {rows, "", {}});
  for (const ProgramResult* result : {&run, &tokenize, &lines}) {
    const std::vector<Json> out = Rows(result->out);
    ASSERT_EQ(out.size(), 3u) << result->out << result->err;
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(*out[i].Find("index"), Json(static_cast<int64_t>(i)));
    }
  }
  EXPECT_EQ(*Rows(run.out).at(2).Find("error")->Find("line"), Json(6));
  EXPECT_EQ(*Rows(tokenize.out).at(2).Find("error")->Find("line"), Json(6));
}

TEST_F(RunProgramTest, InvalidUtf8OnTheCommandLineIsReported) {
  const std::string warning = "is not valid UTF-8; invalid bytes are replaced by U+FFFD\n";
  const ProgramResult bad = RunModel({"--quiet", "-n", "1", "-p", "caf\xe9"});
  EXPECT_EQ(bad.exit_code, 0);
  EXPECT_EQ(bad.err, "minisgl: --prompt: " + warning);
  const ProgramResult good = RunModel({"--quiet", "-n", "1", "-p", "caf\uFFFD"});
  EXPECT_EQ(good.err, "");
  EXPECT_EQ(good.out, bad.out);
  EXPECT_EQ(RunModel({"--quiet", "-n", "1", "--system", "\xff", "-p", "a"}).err,
            "minisgl: --system: " + warning);
  const std::string file = folder_.Write("system", "\xff");
  EXPECT_EQ(RunModel({"--quiet", "-n", "1", "--system", "@" + file, "-p", "a"}).err,
            "minisgl: " + file + ": " + warning);
  const ProgramResult chat =
      RunProgram({"chat", "-m", DemoModel(), "--num-pages", "64", "--threads", "1", "--quiet", "-n",
                  "1", "-p", "caf\xe9", "--system", "\xff"});
  EXPECT_EQ(chat.exit_code, 0);
  EXPECT_EQ(chat.err, "minisgl: --system: " + warning + "minisgl: --prompt: " + warning);
}

}  // namespace
}  // namespace minisgl::batch
