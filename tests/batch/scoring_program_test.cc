// `minisgl classify` and `minisgl rerank` as programs: labels and scores against the reference, all
// forms of rows, the options that change no score, and --resume.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "program/program.h"
#include "program/run_fixture.h"
#include "slow.h"
#include "vision/vision_test_util.h"

namespace minisgl::batch {
namespace {

class ScoringProgramTest : public RunProgramTest {
 protected:
  // Made by tests/golden/make_scoring.py.
  static std::string Model(const std::string& name) {
    return MINISGL_SOURCE_DIR "/tests/golden/scoring/" + name;
  }
  static std::vector<Json> Expected(const std::string& name) {
    return ReadJsonLines(Model(name) + "/expected.jsonl");
  }
  static ProgramResult RunOn(const std::string& command, const std::string& model,
                             const Arguments& more, const std::string& input = "") {
    Arguments arguments = {command, "-m", Model(model), "--num-pages", "512", "-q"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    if (std::find(more.begin(), more.end(), "--threads") == more.end()) {
      arguments.insert(arguments.end(), {"--threads", "1"});
    }
    return RunProgram(arguments, {input, "", {}});
  }
  static std::vector<double> Numbers(const Json& json) {
    std::vector<double> numbers;
    if (json.is_array()) {
      for (const Json& number : json.as_array()) numbers.push_back(number.as_double());
    } else if (json.is_object()) {
      for (const auto& [name, number] : json.as_object()) numbers.push_back(number.as_double());
    }
    return numbers;
  }
  static std::vector<double> Numbers(const Json& row, const char* name) {
    const Json* const found = row.Find(name);
    return found == nullptr ? std::vector<double>() : Numbers(*found);
  }
  static double Distance(const std::vector<double>& a, const std::vector<double>& b) {
    if (a.size() != b.size() || a.empty()) return INFINITY;
    double largest = 0;
    for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
    return largest;
  }
  // The scores in the results of a row or of a service's answer, by their indexes.
  static std::vector<double> ScoresOf(const Json& results) {
    std::vector<double> scores(results.as_array().size(), -1);
    double last = INFINITY;
    for (const Json& result : results.as_array()) {
      const double score = result.Find("relevance_score")->as_double();
      EXPECT_LE(score, last) << "the best first";
      last = score;
      scores.at(static_cast<size_t>(result.Find("index")->as_int())) = score;
    }
    return scores;
  }
  static std::string RowsWith(const std::vector<Json>& rows, const std::vector<const char*>& keys) {
    std::string text;
    for (const Json& row : rows) {
      Json out = Json(Json::Object());
      for (const char* const key : keys) out.Set(key, *row.Find(key));
      text += out.Dump() + "\n";
    }
    return text;
  }
};

TEST_F(ScoringProgramTest, LabelsAreTheReferences) {
  for (const std::string model : {"classes", "topics"}) {
    const std::vector<Json> expected = Expected(model);
    const std::string input = RowsWith(expected, {"text"});
    for (const Arguments& more : {Arguments{},
                                  {"--page-size", "1", "--max-running-requests", "2"},
                                  {"--threads", "2", "--max-prefill-length", "16"},
                                  {"--raw-scores"}}) {
      const ProgramResult result = RunOn("classify", model, more, input);
      ASSERT_EQ(result.exit_code, 0) << result.err;
      EXPECT_EQ(result.err, "");
      const std::vector<Json> rows = Rows(result.out);
      ASSERT_EQ(rows.size(), expected.size());
      const bool is_raw = !more.empty() && more[0] == "--raw-scores";
      for (size_t i = 0; i < rows.size(); ++i) {
        const std::vector<double> scores = Numbers(rows[i], "scores");
        EXPECT_LT(Distance(scores, Numbers(expected[i], is_raw ? "logits" : "scores")), 5e-6)
            << model << rows[i].Dump();
        const auto best = std::max_element(scores.begin(), scores.end()) - scores.begin();
        EXPECT_EQ(*rows[i].Find("label"),
                  Json(rows[i].Find("scores")->as_object()[static_cast<size_t>(best)].first));
      }
    }
  }
  const std::vector<Json> one = Rows(RunOn("classify", "classes", {"-p", "a"}).out);
  EXPECT_EQ(*one.at(0).Find("label"), Json("glad")) << "of the file";
}

TEST_F(ScoringProgramTest, RewardsAreOfConversations) {
  const std::vector<Json> expected = Expected("reward");
  const std::vector<Json> rows =
      Rows(RunOn("classify", "reward", {"--raw-scores"}, RowsWith(expected, {"messages"})).out);
  ASSERT_EQ(rows.size(), expected.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_LT(Distance(Numbers(rows[i], "scores"), Numbers(expected[i], "logits")), 5e-6) << i;
  }
}

// One model has the scores of two tokens; the other is the same, converted to a classifier.
TEST_F(ScoringProgramTest, OrdersAreTheReferences) {
  for (const std::string model : {"reranker", "reranker1"}) {
    const std::vector<Json> expected = Expected(model);
    const std::string input = RowsWith(expected, {"query", "documents", "instruction"});
    for (const Arguments& more : {Arguments{},
                                  {"--page-size", "1", "--max-running-requests", "2"},
                                  {"--threads", "2", "--max-prefill-length", "16"},
                                  {"--cache", "naive"}}) {
      const std::vector<Json> rows = Rows(RunOn("rerank", model, more, input).out);
      ASSERT_EQ(rows.size(), expected.size());
      for (size_t i = 0; i < rows.size(); ++i) {
        EXPECT_LT(Distance(ScoresOf(*rows[i].Find("results")), Numbers(expected[i], "scores")),
                  2e-6)
            << model << rows[i].Dump();
      }
    }
  }
}

TEST_F(ScoringProgramTest, NoOptionOfTheScheduleChangesABit) {
  MarkSlow("thirty runs of the program");
  const struct {
    const char* command;
    const char* model;
    std::vector<const char*> keys;
  } cases[] = {{"classify", "classes", {"text"}},
               {"classify", "reward", {"messages"}},
               {"rerank", "reranker", {"query", "documents", "instruction"}},
               {"rerank", "reranker1", {"query", "documents", "instruction"}}};
  for (const auto& [command, model, keys] : cases) {
    const std::string input = RowsWith(Expected(model), keys);
    const std::string wanted = RunOn(command, model, {}, input).out;
    ASSERT_FALSE(wanted.empty()) << model;
    const std::vector<Arguments> settings = {{"--cache", "naive"},
                                             {"--threads", "2"},
                                             {"--max-prefill-length", "5"},
                                             {"--max-running-requests", "1"},
                                             {"--page-size", "1"},
                                             {"--page-size", "64", "--max-prefill-length", "64"},
                                             {"--schedule", "prefill-first", "--disable-overlap"},
                                             {"--policy", "fcfs", "--admission", "reserve"}};
    for (const Arguments& setting : settings) {
      EXPECT_EQ(RunOn(command, model, setting, input).out, wanted) << model << setting[0];
    }
    // Beside other rows, in another order.
    std::string reversed;
    const std::vector<std::string> lines = Lines(input);
    for (auto line = lines.rbegin(); line != lines.rend(); ++line) reversed += *line + "\n";
    const std::vector<std::string> found = Lines(RunOn(command, model, {}, reversed).out);
    const std::vector<std::string> rows = Lines(wanted);
    ASSERT_EQ(found.size(), rows.size());
    const auto without_index = [](std::string row) {
      const size_t at = row.find("\"index\"");
      return row.erase(at, row.find(',', at) - at);
    };
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(without_index(found[rows.size() - 1 - i]), without_index(rows[i])) << model;
    }
  }
}

// Without an instruction the rows have that of the model card, which is the first one's.
TEST_F(ScoringProgramTest, DocumentsAreRowsOrListsOrTables) {
  const Json expected = Expected("reranker").at(0);
  const std::vector<double> wanted = Numbers(expected, "scores");
  const std::string query = expected.Find("query")->as_string();
  const Json::Array& documents = expected.Find("documents")->as_array();
  std::string rows, texts, csv = "text,query\n";
  for (const Json& document : documents) {
    rows += Json(Json::Object{{"text", document}}).Dump() + "\n";
    texts += document.Dump() + "\n";
    csv += "\"" + document.as_string() + "\"," + query + "\n";
  }
  for (const std::string& input : {rows, texts}) {
    std::vector<double> scores;
    for (const Json& row : Rows(RunOn("rerank", "reranker", {"--query", query}, input).out)) {
      scores.push_back(row.Find("score")->as_double());
    }
    EXPECT_LT(Distance(scores, wanted), 2e-6);
  }
  std::vector<double> of_table;
  const ProgramResult table =
      RunOn("rerank", "reranker", {"--file", folder_.Write("docs.csv", csv)});
  for (const Json& row : Rows(table.out)) of_table.push_back(row.Find("score")->as_double());
  EXPECT_LT(Distance(of_table, wanted), 2e-6) << table.err;
  Json list = Json(Json::Array());
  for (const Json& document : documents) list.Append(Json(Json::Object{{"text", document}}));
  Json row = Json(Json::Object{{"documents", list}, {"return_documents", true}, {"top_n", 2}});
  const Json results =
      *Rows(RunOn("rerank", "reranker", {"--query", query}, row.Dump()).out).at(0).Find("results");
  ASSERT_EQ(results.as_array().size(), 2u);
  for (const Json& result : results.as_array()) {
    EXPECT_EQ(*result.Find("document")->Find("text"),
              documents[static_cast<size_t>(result.Find("index")->as_int())]);
  }
}

TEST_F(ScoringProgramTest, LinesOfServicesAreAnsweredInTheirFormats) {
  const Json expected = Expected("reranker").at(0);
  const std::vector<double> wanted = Numbers(expected, "scores");
  int64_t number = 0;
  const auto line = [&](const std::string& url, Json body) {
    Json out = Json(Json::Object{{"custom_id", ++number}, {"method", "POST"}, {"url", url}});
    return out.Set("body", std::move(body)).Dump() + "\n";
  };
  const Json query = *expected.Find("query"), documents = *expected.Find("documents");
  const Json queries = Json(Json::Array(documents.as_array().size(), query));
  const std::string input =
      line("/v1/rerank",
           Json(Json::Object{{"model", "m"}, {"query", query}, {"documents", documents}})) +
      line("/v1/score", Json(Json::Object{{"text_1", query}, {"text_2", documents}})) +
      line("/score", Json(Json::Object{{"data_1", queries}, {"items", documents}, {"user", "u"}})) +
      line("/v1/score", Json(Json::Object{{"text_1", "a"}, {"text_2", "b"}})) +
      line("/v1/score", Json(Json::Object{{"text_1", queries}, {"text_2", "b"}})) +
      line("/v1/embeddings", Json(Json::Object{{"input", "a"}}));
  const ProgramResult result = RunOn("rerank", "reranker", {}, input);
  EXPECT_EQ(result.exit_code, 1);
  const std::vector<Json> rows = Rows(result.out);
  ASSERT_EQ(rows.size(), 6u);
  const auto body = [&](size_t i) { return *rows.at(i).Find("response")->Find("body"); };
  EXPECT_LT(Distance(ScoresOf(*body(0).Find("results")), wanted), 2e-6);
  EXPECT_EQ(*body(0).Find("model"), Json("m"));
  EXPECT_NE(body(0).Find("results")->as_array()[0].Find("document"), nullptr);
  for (const size_t i : {1, 2}) {
    std::vector<double> scores;
    const Json data = *body(i).Find("data");
    for (const Json& entry : data.as_array()) {
      EXPECT_EQ(*entry.Find("index"), Json(std::ssize(scores)));
      EXPECT_EQ(*entry.Find("object"), Json("score"));
      scores.push_back(entry.Find("score")->as_double());
    }
    EXPECT_LT(Distance(scores, wanted), 2e-6) << i;
    EXPECT_EQ(*body(i).Find("object"), Json("list"));
  }
  EXPECT_EQ(body(3).Find("data")->as_array().size(), 1u);
  for (const size_t i : {4, 5}) {
    EXPECT_EQ(*rows[i].Find("response")->Find("status_code"), Json(int64_t{400})) << rows[i].Dump();
  }
}

// What stands before the documents is computed once.
TEST_F(ScoringProgramTest, DocumentsOfAQueryShareTheirBeginning) {
  Json documents = Json(Json::Array());
  for (int i = 0; i < 50; ++i) documents.Append("document " + std::to_string(i));
  const Json row = Json(Json::Object{{"query", "Where does Omar live?"}, {"documents", documents}});
  const std::string summary = folder_.Path("summary");
  const ProgramResult result = RunOn("rerank", "reranker", {"--summary", summary}, row.Dump());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Result<Json> figures = ParseJson(folder_.Read("summary"));
  ASSERT_TRUE(figures.ok());
  const double tokens = figures->Find("prompt_tokens")->as_double();
  EXPECT_GT(figures->Find("cached_tokens")->as_double(), 0.6 * tokens) << figures->Dump();
}

// The document is cut, and not what stands behind it.
TEST_F(ScoringProgramTest, ALongDocumentIsCutBeforeTheEndOfTheTemplate) {
  const auto row = [](int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += "x ";
    return Json(Json::Object{{"query", "q"}, {"text", text}}).Dump() + "\n";
  };
  const ProgramResult result = RunOn("rerank", "reranker", {}, row(2000) + row(3000));
  const std::vector<Json> rows = Rows(result.out);
  ASSERT_EQ(rows.size(), 2u) << result.err;
  EXPECT_EQ(*rows[0].Find("score"), *rows[1].Find("score"));
  EXPECT_EQ(*rows[0].Find("num_tokens"), Json(int64_t{512}));
  EXPECT_NE(rows[0].Find("warnings")->Dump().find("was cut to 512"), std::string::npos);
}

TEST_F(ScoringProgramTest, ATemplateThatDoesNotFitIsAnErrorOfTheRow) {
  const ProgramResult result =
      RunOn("rerank", "reranker", {"--query", "q", "--max-seq-len", "64"}, "\"a\"\n");
  EXPECT_EQ(Code(Rows(result.out).at(0)), "length_exceeded") << result.out << result.err;
}

TEST_F(ScoringProgramTest, RowsThatAskForOtherThingsAreRefused) {
  const std::string long_query =
      Json(Json::Object{{"query", std::string(70'000, 'q')}, {"text", "a"}}).Dump();
  const struct {
    const char* command;
    const char* row;
    const char* code;
  } cases[] = {{"classify", R"({"text": "a", "query": "b"})", "unsupported_field"},
               {"classify", R"({"text": "a", "dimensions": 3})", "unsupported_field"},
               {"classify", R"({"text": "a", "messages": [{"role": "user", "content": "b"}]})",
                "invalid_row"},
               {"classify", R"({})", "invalid_row"},
               {"classify", R"("")", "invalid_row"},
               {"classify", R"({"text": [1000]})", "invalid_row"},
               {"rerank", R"("a")", "invalid_row"},
               {"rerank", R"({"query": "q"})", "invalid_row"},
               {"rerank", R"({"query": "q", "documents": []})", "invalid_row"},
               {"rerank", R"({"query": "q", "documents": [1]})", "invalid_row"},
               {"rerank", R"({"query": ["q", "r"], "documents": ["a"]})", "invalid_row"},
               {"rerank", R"({"query": "q", "text": ["a", "b"]})", "invalid_row"},
               {"rerank", R"({"query": "q", "text": [1, 2]})", "invalid_row"},
               {"rerank", long_query.c_str(), "invalid_row"},
               {"rerank", R"({"query": "q", "text": "a", "documents": ["b"]})", "invalid_row"},
               {"rerank", R"({"query": "q", "messages": [{"role": "user", "content": "b"}]})",
                "unsupported_field"}};
  for (const auto& one : cases) {
    const bool ranks = one.command == std::string("rerank");
    const std::vector<Json> rows =
        Rows(RunOn(one.command, ranks ? "reranker" : "classes", {}, one.row).out);
    ASSERT_EQ(rows.size(), 1u) << one.row;
    EXPECT_EQ(Code(rows[0]), one.code) << one.row << rows[0].Dump();
  }
}

TEST_F(ScoringProgramTest, LinesOfOtherCommandsAreSentThere) {
  const ProgramResult result =
      RunOn("run", "reranker", {"--file", "-"},
            R"({"custom_id": "a", "method": "POST", "url": "/v1/score", "body": {"text_1": "a"}})");
  EXPECT_NE(result.out.find("minisgl rerank gives scores"), std::string::npos) << result.out;
}

TEST_F(ScoringProgramTest, ModelsThatCannotAreRefusedByName) {
  ExpectFails(RunOn("classify", "reranker", {}, "\"a\"\n"), 64, "no classifier");
  ExpectFails(RunOn("rerank", "classes", {}, "\"a\"\n"), 64, "3 labels, not one");
  ExpectFails(RunOn("rerank", "topics", {}, "\"a\"\n"), 64, "of type llama");
  const ProgramResult run =
      RunOn("run", "classes", {"--raw", "--file", "-"}, "{\"prompt\": \"a\"}\n");
  EXPECT_NE(run.out.find("minisgl classify"), std::string::npos) << run.out << run.err;
}

TEST_F(ScoringProgramTest, ResumesWhereItStopped) {
  std::string rows;
  for (int i = 0; i < 12; ++i) rows += "\"document " + std::to_string(i) + "\"\n";
  const std::string file = folder_.Write("rows.jsonl", rows), out = folder_.Path("out.jsonl");
  const Arguments arguments = {"--file", file, "-o", out, "--ordered", "--query", "q"};
  ASSERT_EQ(RunOn("rerank", "reranker", arguments).exit_code, 0);
  const std::string whole = folder_.Read("out.jsonl");
  const size_t half = whole.find('\n', whole.size() / 2);
  folder_.Write("out.jsonl", whole.substr(0, half + 10));
  Arguments more = arguments;
  more.emplace_back("--resume");
  EXPECT_EQ(RunOn("rerank", "reranker", more).exit_code, 0);
  EXPECT_EQ(folder_.Read("out.jsonl"), whole);
  more.emplace_back("--raw-scores");
  const ProgramResult other = RunOn("rerank", "reranker", more);
  EXPECT_NE(other.exit_code, 0);
  EXPECT_NE(other.err.find("--raw-scores"), std::string::npos) << other.err;
}

TEST_F(ScoringProgramTest, InfoNamesTheLabels) {
  const ProgramResult result = RunProgram({"info", "-m", Model("classes")}, {});
  EXPECT_NE(result.out.find("3 (calm, glad, angry)"), std::string::npos) << result.out;
}

}  // namespace
}  // namespace minisgl::batch
