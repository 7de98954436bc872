// `minisgl embed` as a program: vectors against the reference, all forms of rows, the options that
// do not change a vector, kills and --resume.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "minisgl/base/base64.h"
#include "program/program.h"
#include "program/run_fixture.h"
#include "slow.h"
#include "vision/vision_test_util.h"

namespace minisgl::batch {
namespace {

class EmbedProgramTest : public RunProgramTest {
 protected:
  static ProgramResult RunEmbed(const std::string& model, const Arguments& more,
                                const std::string& input = "") {
    Arguments arguments = {"embed", "-m", model, "--num-pages", "512"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    if (std::find(more.begin(), more.end(), "--threads") == more.end()) {
      arguments.insert(arguments.end(), {"--threads", "1"});
    }
    return RunProgram(arguments, {input, "", {}});
  }
  static std::vector<double> VectorOf(const Json& json) {
    std::vector<double> vector;
    if (!json.is_array()) return vector;
    for (const Json& number : json.as_array()) vector.push_back(number.as_double());
    return vector;
  }
  static std::vector<double> VectorOf(const Json& row, const char* name) {
    const Json* const found = row.Find(name);
    return found == nullptr ? std::vector<double>() : VectorOf(*found);
  }
  static std::string ManyRows(int count) {
    std::string rows;
    for (int i = 0; i < count; ++i) {
      rows += "{\"id\": " + std::to_string(i) + ", \"text\": \"Where does Cora live? She lives " +
              std::string(static_cast<size_t>(i * 7 % 40), 'o') + std::to_string(i % 3) + "\"}\n";
    }
    return rows;
  }
};

double LargestDifference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size() || a.empty()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// A model whose tokens attend to later ones, too, some layers within a window; made by
// tests/golden/make_pooling.py.
TEST_F(EmbedProgramTest, TokensAttendBothWays) {
  const std::string model = MINISGL_SOURCE_DIR "/tests/golden/pooling/gemma3";
  const std::vector<Json> expected = ReadJsonLines(model + "/expected.jsonl");
  for (const std::string prompt : {"", "query", "document"}) {
    std::string rows;
    std::vector<std::vector<double>> wanted;
    for (const Json& row : expected) {
      if (row.Find("prompt")->as_string() != prompt) continue;
      wanted.push_back(VectorOf(row, "embedding"));
      rows += Json(Json::Object{{"text", *row.Find("text")}}).Dump() + "\n";
    }
    ASSERT_EQ(wanted.size(), 6u);
    Arguments arguments = {"-q"};
    if (!prompt.empty()) arguments.insert(arguments.end(), {"--prompt-name", prompt});
    for (const Arguments& more : {Arguments{},
                                  {"--page-size", "1"},
                                  {"--max-running-requests", "2"},
                                  {"--threads", "2", "--max-prefill-length", "80"}}) {
      Arguments all = arguments;
      all.insert(all.end(), more.begin(), more.end());
      const std::vector<Json> found = Rows(RunEmbed(model, all, rows).out);
      ASSERT_EQ(found.size(), wanted.size());
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_LT(LargestDifference(VectorOf(found[i], "embedding"), wanted[i]), 2e-6)
            << prompt << " " << i << found[i].Dump();
      }
    }
  }
  // A text that no step has room for, and a command that wants answers.
  const ProgramResult longer = RunEmbed(model, {"-q", "--max-prefill-length", "4"},
                                        "\"one two three four five six\"\n\"a\"\n");
  EXPECT_EQ(longer.exit_code, 1);
  EXPECT_EQ(Code(Rows(longer.out).at(0)), "length_exceeded") << longer.out;
  EXPECT_EQ(VectorOf(Rows(longer.out).at(1), "embedding").size(), 24u) << longer.out;
  const ProgramResult run = RunProgram({"run", "-m", model, "--raw", "-q", "--file", "-"},
                                       {"{\"prompt\": \"a\"}\n", "", {}});
  EXPECT_NE(run.out.find("gives vectors of texts"), std::string::npos) << run.out << run.err;
}

// Vectors of sentence-transformers, in f32.
TEST_F(EmbedProgramTest, VectorsAreTheReferences) {
  const std::string model = SharedFolder("models/pooling/qwen3-embedding");
  if (!std::filesystem::exists(model)) GTEST_SKIP() << "no " << model;
  const std::vector<Json> expected = ReadJsonLines(model + "/expected.jsonl");
  int num_compared = 0;
  for (const bool is_query : {false, true}) {
    Arguments arguments = {"--file", model + "/texts.jsonl", "-q"};
    arguments.emplace_back(is_query ? "--query" : "--document");
    const ProgramResult result = RunEmbed(model, arguments);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    for (const Json& row : Rows(result.out)) {
      for (const Json& wanted : expected) {
        if (*wanted.Find("id") != *row.Find("id")) continue;
        if ((*wanted.Find("prompt") == Json("query")) != is_query) continue;
        EXPECT_LT(LargestDifference(VectorOf(row, "embedding"), VectorOf(wanted, "embedding")),
                  2e-6)
            << row.Find("id")->Dump();
        ++num_compared;
      }
    }
  }
  EXPECT_EQ(num_compared, static_cast<int>(expected.size()));
}

TEST_F(EmbedProgramTest, RowsOfEveryForm) {
  const std::string rows =
      "\"one\"\n"
      "{\"id\": \"a\", \"text\": \"one\", \"metadata\": [1]}\n"
      "{\"id\": \"b\", \"input\": [\"two\", \"one\"]}\n"
      "{\"id\": \"c\", \"input\": [[5, 6], [7]]}\n"
      "{\"id\": \"d\", \"input\": [5, 6], \"dimensions\": 3}\n"
      "{\"id\": \"e\", \"text\": \"one\", \"encoding_format\": \"base64\"}\n"
      "{\"id\": \"f\", \"text\": \"one\", \"temperature\": 1}\n"
      "{\"id\": \"g\"}\n"
      "{\"id\": \"h\", \"input\": [99999999]}\n"
      "{\"id\": \"i\", \"text\": 5}\n"
      "{\"custom_id\": \"j\", \"method\": \"POST\", \"url\": \"/v1/embeddings\", \"body\": "
      "{\"model\": \"m\", \"input\": [\"one\", \"two\"], \"user\": \"u\"}}\n"
      "{\"custom_id\": \"k\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": "
      "{\"model\": \"m\", \"prompt\": \"one\"}}\n";
  const ProgramResult result = RunEmbed(DemoModel(), {"-q"}, rows);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const std::vector<Json> out = Rows(result.out);
  ASSERT_EQ(out.size(), 12u);
  const std::vector<double> one = VectorOf(out[0], "embedding");
  ASSERT_GT(one.size(), 16u);
  EXPECT_EQ(VectorOf(out[1], "embedding"), one);
  EXPECT_EQ(out[1].Find("metadata")->Dump(), "[1]");
  const auto& several = out[2].Find("embeddings")->as_array();
  ASSERT_EQ(several.size(), 2u);
  EXPECT_EQ(VectorOf(several[1]), one);
  EXPECT_NE(VectorOf(several[0]), one);
  const auto& of_ids = out[3].Find("embeddings")->as_array();
  ASSERT_EQ(of_ids.size(), 2u);
  std::vector<double> cut = VectorOf(of_ids[0]);
  cut.resize(3);
  EXPECT_EQ(VectorOf(out[4], "embedding"), cut);
  const auto bytes = DecodeBase64(out[5].Find("embedding")->as_string());
  ASSERT_TRUE(bytes && bytes->size() == 4 * one.size());
  for (size_t i = 0; i < one.size(); ++i) {
    float value = 0;
    std::memcpy(&value, bytes->data() + 4 * i, 4);
    EXPECT_EQ(value, static_cast<float>(one[i]));
  }
  EXPECT_EQ(Code(out[6]), "unsupported_field");
  EXPECT_EQ(Code(out[7]), "invalid_row");
  EXPECT_EQ(Code(out[8]), "invalid_row");
  EXPECT_EQ(Code(out[9]), "invalid_row");
  const Json& body = *out[10].Find("response")->Find("body");
  EXPECT_EQ(body.Find("object")->as_string(), "list");
  EXPECT_EQ(VectorOf(body.Find("data")->as_array().at(0), "embedding"), one);
  EXPECT_EQ(*body.Find("data")->as_array().at(1).Find("index"), Json(1));
  EXPECT_GT(body.Find("usage")->Find("prompt_tokens")->as_int(), 1);
  EXPECT_NE(out[11].Dump().find("url must be /v1/embeddings"), std::string::npos) << out[11].Dump();
}

TEST_F(EmbedProgramTest, NoOptionOfTheScheduleChangesABit) {
  MarkSlow("twenty runs of the program");
  std::vector<std::string> models = {DemoModel()};
  const std::string embedding = SharedFolder("models/pooling/qwen3-embedding");
  if (std::filesystem::exists(embedding)) models.push_back(embedding);
  const std::string rows = ManyRows(30);
  for (const std::string& model : models) {
    const std::string wanted = RunEmbed(model, {"-q"}, rows).out;
    ASSERT_EQ(Lines(wanted).size(), 30u);
    const std::vector<Arguments> settings = {
        {"--cache", "naive"},
        {"--threads", "2"},
        {"--max-prefill-length", "5"},
        {"--max-running-requests", "1"},
        {"--page-size", "1"},
        {"--page-size", "64", "--max-prefill-length", "64"},
        {"--schedule", "prefill-first", "--disable-overlap"},
        {"--policy", "fcfs", "--admission", "reserve"},
    };
    for (const Arguments& setting : settings) {
      Arguments arguments = {"-q"};
      arguments.insert(arguments.end(), setting.begin(), setting.end());
      const ProgramResult result = RunEmbed(model, arguments, rows);
      EXPECT_TRUE(result.out == wanted) << setting[0] << " " << setting[1] << result.err;
    }
  }
}

TEST_F(EmbedProgramTest, OneTextTablesAndPrompts) {
  const std::string vector = RunEmbed(DemoModel(), {"-q", "-p", "one"}).out;
  EXPECT_EQ(VectorOf(Rows(vector).at(0), "embedding"),
            VectorOf(Rows(RunEmbed(DemoModel(), {"-q"}, "\"one\"\n").out).at(0), "embedding"));
  const std::string table = folder_.Write("t.csv", "id,text\n7,one\n8,two\n");
  const std::string out = folder_.Path("out.csv");
  const ProgramResult result = RunEmbed(DemoModel(), {"-q", "--file", table, "-o", out});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::string> lines = Lines(folder_.Read("out.csv"));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], "id,text,embedding,num_tokens,error");
  EXPECT_TRUE(lines[1].starts_with("7,one,\"[")) << lines[1];
  ExpectFails(RunEmbed(DemoModel(), {"-q", "-p", "x", "--query"}), 64,
              "the model has no prompt named query (it has none)");
  ExpectFails(RunEmbed(DemoModel(), {"-q", "-p", "x", "--query", "--document"}), 64,
              "exclude each other");
}

TEST_F(EmbedProgramTest, NormalisedAndCut) {
  const auto vector_with = [](const Arguments& more) {
    Arguments arguments = {"-q", "-p", "one"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return VectorOf(Rows(RunEmbed(DemoModel(), arguments).out).at(0), "embedding");
  };
  const auto length = [](const std::vector<double>& vector) {
    double sum = 0;
    for (const double value : vector) sum += value * value;
    return std::sqrt(sum);
  };
  EXPECT_GT(std::abs(length(vector_with({})) - 1), 0.01);
  EXPECT_NEAR(length(vector_with({"--normalize"})), 1, 1e-6);
  const std::vector<double> cut = vector_with({"--normalize", "--dimensions", "8"});
  EXPECT_EQ(cut.size(), 8u);
  EXPECT_NEAR(length(cut), 1, 1e-6);
}

TEST_F(EmbedProgramTest, ResumesWhereItStopped) {
  const std::string rows = folder_.Write("rows.jsonl", ManyRows(12));
  const std::string out = folder_.Path("out.jsonl");
  ASSERT_EQ(RunEmbed(DemoModel(), {"-q", "--file", rows, "-o", out, "--ordered"}).exit_code, 0);
  const std::string whole = folder_.Read("out.jsonl");
  const std::vector<std::string> lines = Lines(whole);
  ASSERT_EQ(lines.size(), 12u);
  // A run that was killed left five rows and a part of the next.
  std::string left;
  for (size_t i = 0; i < 5; ++i) left += lines[i] + "\n";
  folder_.Write("out.jsonl", left + lines[5].substr(0, 20));
  const ProgramResult resumed =
      RunEmbed(DemoModel(), {"-q", "--file", rows, "-o", out, "--ordered", "--resume"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(folder_.Read("out.jsonl"), whole);
  // Other vectors are not appended.
  folder_.Write("out.jsonl", left);
  const ProgramResult other = RunEmbed(
      DemoModel(), {"-q", "--file", rows, "-o", out, "--ordered", "--resume", "--normalize"});
  EXPECT_NE(other.exit_code, 0);
  EXPECT_NE(other.err.find("--normalize"), std::string::npos) << other.err;
}

}  // namespace
}  // namespace minisgl::batch
