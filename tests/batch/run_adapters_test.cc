// The answers of the tiny base with adapters beside the project are the reference's, all in one
// file, in every way in which rows can be run; and what a row or an option may ask for.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "program/run_fixture.h"

namespace minisgl::batch {
namespace {

namespace fs = std::filesystem;

class RunAdaptersTest : public RunProgramTest {
 protected:
  void SetUp() override {
    RunProgramTest::SetUp();
    const char* const given = std::getenv("MINISGL_SHARED");
    dir_ = (given != nullptr ? std::string(given) : MINISGL_SOURCE_DIR "/../shared") +
           "/models/lora/qwen3";
    if (!fs::exists(dir_)) GTEST_SKIP() << "no shared models";
    for (const auto& entry : fs::directory_iterator(dir_ + "/adapters")) {
      names_.push_back(entry.path().filename().string());
    }
    AddExpected("");
    for (const std::string& name : names_) AddExpected(name);
  }
  static std::vector<Json> LinesOf(const std::string& path) {
    std::ifstream file(path);
    std::vector<Json> rows;
    for (std::string line; std::getline(file, line);) rows.push_back(ParseJson(line).value());
    return rows;
  }
  // "ID/NAME": the reference's tokens, and rows for them.
  void AddExpected(const std::string& name) {
    const std::string file = dir_ + "/answers" + (name.empty() ? "" : "." + name) + ".jsonl";
    std::map<std::string, Json> tokens;
    for (const Json& answer : LinesOf(file)) {
      tokens[answer.Find("id")->as_string()] = *answer.Find("token_ids");
    }
    for (Json row : LinesOf(dir_ + "/prompts.jsonl")) {
      const std::string id = row.Find("id")->as_string();
      if (!tokens.contains(id)) continue;
      expected_[id + "/" + name] = tokens[id];
      row.Set("id", id + "/" + name);
      if (!name.empty()) row.Set("adapter", name);
      rows_ += row.Dump() + "\n";
    }
  }
  ProgramResult RunRows(const std::string& rows, const Arguments& more) {
    const std::string file = folder_.Write("rows.jsonl", rows);
    Arguments arguments = {"run", "-m", dir_, "--file", file, "--device", "cpu", "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProgram(arguments, {});
  }
  void ExpectAll(const ProgramResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::map<std::string, Json> found;
    for (const Json& answer : Answers(result.out)) {
      found[answer.Find("id")->as_string()] = *answer.Find("token_ids");
    }
    EXPECT_EQ(found, expected_);
  }
  static std::vector<Json> Answers(const std::string& text) {
    std::vector<Json> answers;
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      answers.push_back(ParseJson(text.substr(at, end - at)).value());
      at = end + 1;
    }
    return answers;
  }

  std::string dir_, rows_;
  std::vector<std::string> names_;
  std::map<std::string, Json> expected_;
};

TEST_F(RunAdaptersTest, AnswersAreTheReferencesHoweverTheyAreRun) {
  const std::string cache = folder_.Path("cache");
  const std::vector<Arguments> ways = {
      {},
      {"--page-size", "1", "--max-prefill-length", "20"},
      {"--page-size", "4", "--num-pages", "40", "--max-seq-len", "150", "--speculate", "ngram:3"},
      {"--tensor-parallel", "2", "--max-adapters", "2"},
      {"--max-adapters", "1", "--max-running-requests", "2", "--cache", "naive"},
      {"--prefix-cache", cache},
      {"--prefix-cache", cache, "--schedule", "prefill-first", "--disable-overlap"}};
  for (const Arguments& way : ways) {
    SCOPED_TRACE(way.empty() ? "" : way.front());
    Arguments arguments = {"--adapter", dir_ + "/adapters"};
    arguments.insert(arguments.end(), way.begin(), way.end());
    ExpectAll(RunRows(rows_, arguments));
  }
}

TEST_F(RunAdaptersTest, ARowNamesItsAdapterOrNone) {
  const std::string rows = R"({"prompt": "a", "adapter": "nope"}
{"prompt": "a", "model": "gpt-nope"}
{"prompt": "a", "model": "dora", "max_tokens": 8}
{"prompt": "a", "adapter": "twin", "max_tokens": 8}
{"prompt": "a", "max_tokens": 8}
{"prompt": "a", "adapter": "none", "max_tokens": 8}
{"prompt": "a", "model": "qwen3", "adapter": "none", "max_tokens": 8}
)";
  const Arguments adapters = {"--adapter",         dir_ + "/adapters/dora",
                              "--adapter",         "twin=" + dir_ + "/adapters/dora",
                              "--default-adapter", "twin"};
  const ProgramResult result = RunRows(rows, adapters);
  const std::vector<Json> answers = Answers(result.out);
  ASSERT_EQ(answers.size(), 7u) << result.err;
  for (const size_t bad : {0, 1}) {
    const Json* const error = answers[bad].Find("error");
    ASSERT_NE(error, nullptr);
    EXPECT_NE(error->Find("message")->as_string().find("dora, twin"), std::string::npos);
    EXPECT_EQ(error->Find("field")->as_string(), bad == 0 ? "adapter" : "model");
  }
  const auto text = [&](size_t i) { return answers[i].Find("text")->as_string(); };
  EXPECT_EQ(text(2), text(3));
  EXPECT_EQ(text(4), text(3));
  EXPECT_EQ(text(6), text(5));
  EXPECT_NE(text(5), text(3));
  // Without adapters a name is an error, and `model` is any text.
  const ProgramResult without = RunRows(
      "{\"prompt\": \"a\", \"adapter\": \"dora\"}\n{\"prompt\": \"a\", \"model\": \"x\", "
      "\"max_tokens\": 1}\n",
      {});
  EXPECT_EQ(CountOf(without.out, "\"error\""), 1u);
}

TEST_F(RunAdaptersTest, KeysAreSharedAmongRowsOfEqualAdaptersAlone) {
  const std::string prompt(200, 'a');
  const auto row = [&](const std::string& adapter) {
    return "{\"prompt\": \"" + prompt + "\", \"max_tokens\": 1, \"adapter\": \"" + adapter +
           "\"}\n";
  };
  const ProgramResult result =
      RunRows(row("one") + row("none") + row("other") + row("two") + row("one") + row("none"),
              {"--adapter", "one=" + dir_ + "/adapters/dora", "--adapter",
               "two=" + dir_ + "/adapters/dora", "--adapter", "other=" + dir_ + "/adapters/all-rs",
               "--max-running-requests", "1", "--page-size", "4"});
  const std::vector<Json> answers = Answers(result.out);
  ASSERT_EQ(answers.size(), 6u) << result.err;
  for (size_t i = 0; i < answers.size(); ++i) {
    const int64_t cached = answers[i].Find("usage")->Find("cached_tokens")->as_int();
    EXPECT_EQ(cached > 0, i >= 3) << i;
  }
}

TEST_F(RunAdaptersTest, OptionsThatCannotBeAreRefused) {
  const std::string dora = dir_ + "/adapters/dora";
  const auto error = [&](const Arguments& more) {
    const ProgramResult result = RunRows("{\"prompt\": \"a\", \"max_tokens\": 1}\n", more);
    EXPECT_NE(result.exit_code, 0);
    return result.err;
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(error({"--default-adapter", "x"}), "there are no adapters"));
  EXPECT_TRUE(has(error({"--adapter", dora, "--default-adapter", "x"}), "there are dora"));
  EXPECT_TRUE(has(error({"--adapter", dora, "--adapter", "dora=" + dora}), "two adapters"));
  EXPECT_TRUE(has(error({"--adapter", "none=" + dora}), "cannot be called"));
  EXPECT_TRUE(has(error({"--adapter", dir_ + "/nowhere"}), "adapter_config.json"));
  EXPECT_TRUE(has(error({"--adapter", dora, "--merge-adapter", dora}), "exclude each other"));
  EXPECT_TRUE(has(error({"--adapter", "=x"}), "NAME=DIR"));
  // An adapter of another model.
  const ProgramResult other = RunProgram(
      {"run", "-m", DemoModel(), "--device", "cpu", "-p", "a", "--raw", "--adapter", dora});
  EXPECT_NE(other.exit_code, 0);
  EXPECT_TRUE(has(other.err, "self_attn") || has(other.err, "mlp")) << other.err;
}

TEST_F(RunAdaptersTest, ARunDoesNotGoOnWithOtherContent) {
  const std::string own = folder_.Path("own"), out = folder_.Path("out.jsonl");
  fs::copy(dir_ + "/adapters/dora", own);
  const std::string rows = "{\"prompt\": \"a\", \"max_tokens\": 2}\n";
  const Arguments arguments = {"--adapter", "a=" + own, "-o", out};
  ASSERT_EQ(RunRows(rows, arguments).exit_code, 0);
  Arguments again = arguments;
  again.push_back("--resume");
  EXPECT_EQ(RunRows(rows, again).exit_code, 0);
  fs::remove_all(own);
  fs::copy(dir_ + "/adapters/all-rs", own);
  const ProgramResult other = RunRows(rows, again);
  EXPECT_NE(other.exit_code, 0);
  EXPECT_NE(other.err.find("--adapter"), std::string::npos) << other.err;
}

TEST_F(RunAdaptersTest, AFoldedAdapterAnswersAllRows) {
  for (const std::string& name : names_) {
    std::string rows;
    for (const Json& row : LinesOf(dir_ + "/prompts.jsonl")) rows += row.Dump() + "\n";
    const ProgramResult result =
        RunRows(rows, {"--merge-adapter", dir_ + "/adapters/" + name, "--dtype", "f32"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    for (const Json& answer : Answers(result.out)) {
      const auto expected = expected_.find(answer.Find("id")->as_string() + "/" + name);
      if (expected == expected_.end()) continue;
      EXPECT_EQ(*answer.Find("token_ids"), expected->second) << expected->first;
    }
  }
}

TEST_F(RunAdaptersTest, InfoSaysWhatOneChanges) {
  const ProgramResult result =
      RunProgram({"info", "-m", dir_, "--device", "cpu", "--adapter", dir_ + "/adapters/dora"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* part : {"rank 4, DoRA", "self_attn.q_proj x3", "fits", "yes"}) {
    EXPECT_NE(result.out.find(part), std::string::npos) << part << result.out;
  }
}

}  // namespace
}  // namespace minisgl::batch
