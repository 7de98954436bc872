// `minisgl classify` and `minisgl rerank` with encoders: labels of texts and scores of pairs
// against the reference, the same bits in every batch; cosines of vectors; files that are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "minisgl/base/json.h"
#include "program/program.h"
#include "program/run_fixture.h"
#include "vision/vision_test_util.h"

namespace minisgl::batch {
namespace {

const std::string kScoringGoldens = MINISGL_SOURCE_DIR "/tests/golden/scoring/cross_";

class CrossEncoderTest : public RunProgramTest {
 protected:
  static ProgramResult RunOn(const std::string& command, const std::string& model,
                             const Arguments& more, const std::string& input) {
    Arguments arguments = {command, "-m", model, "-q", "--num-pages", "512"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    if (std::find(more.begin(), more.end(), "--threads") == more.end()) {
      arguments.insert(arguments.end(), {"--threads", "1"});
    }
    return RunProgram(arguments, {input, "", {}});
  }
  static void ExpectNear(const std::vector<double>& found, const Json& wanted,
                         const std::string& at) {
    ASSERT_EQ(found.size(), wanted.as_array().size()) << at;
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i], wanted.as_array()[i].as_double(), 5e-6) << at << " number " << i;
    }
  }
  // The scores of results, by their indexes.
  static std::vector<double> ScoresOf(const Json& results) {
    std::vector<double> scores(results.as_array().size(), NAN);
    double last = INFINITY;
    for (const Json& result : results.as_array()) {
      const double score = result.Find("relevance_score")->as_double();
      EXPECT_LE(score, last) << "the best first";
      last = score;
      scores.at(static_cast<size_t>(result.Find("index")->as_int())) = score;
    }
    return scores;
  }
  static std::vector<double> VectorOf(const Json& row) {
    std::vector<double> numbers;
    for (const Json& number : row.Find("embedding")->as_array()) {
      numbers.push_back(number.as_double());
    }
    return numbers;
  }
  // A copy of a model of which `from` in a file is replaced.
  std::string Changed(const std::string& model, const char* file, const std::string& from,
                      const std::string& to) {
    const std::string path = folder_.Path("changed");
    std::filesystem::remove_all(path);
    std::filesystem::copy(model, path, std::filesystem::copy_options::recursive);
    std::string text = folder_.Read(std::string("changed/") + file);
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
    folder_.Write(std::string("changed/") + file, text);
    return path;
  }
};

TEST_F(CrossEncoderTest, LabelsAreTheReferences) {
  for (const std::string name : {"bert", "xlm", "roberta", "modernbert", "distilbert"}) {
    const std::string model = kScoringGoldens + name;
    std::string texts;
    std::vector<Json> wanted;
    for (const Json& row : ReadJsonLines(model + "/expected.jsonl")) {
      const Json* const text = row.Find("text");
      if (text == nullptr) continue;
      texts += text->Dump() + "\n";
      wanted.push_back(row);
    }
    ASSERT_GE(wanted.size(), 18u);
    for (const char* const kind : {"scores", "logits"}) {
      Arguments more;
      if (kind == std::string("logits")) more.emplace_back("--raw-scores");
      const std::string out = RunOn("classify", model, more, texts).out;
      const std::vector<Json> found = Rows(out);
      ASSERT_EQ(found.size(), wanted.size()) << name;
      for (size_t i = 0; i < found.size(); ++i) {
        std::vector<double> scores;
        const Json* const labels = found[i].Find("scores");
        ASSERT_NE(labels, nullptr) << found[i].Dump();
        for (const auto& [label, score] : labels->as_object()) scores.push_back(score.as_double());
        ExpectNear(scores, *wanted[i].Find(kind), name + " text " + std::to_string(i));
      }
      more.insert(more.end(), {"--max-running-requests", "2", "--page-size", "1"});
      EXPECT_EQ(RunOn("classify", model, more, texts).out, out) << name;
    }
  }
  const std::string roberta = kScoringGoldens + "roberta";
  EXPECT_NE(RunProgram({"info", "-m", roberta}, {}).out.find("contradiction, entailment, neutral"),
            std::string::npos);
}

TEST_F(CrossEncoderTest, LabelsOfPairsAreTheReferences) {
  for (const std::string name : {"roberta", "distilbert"}) {
    const std::string model = kScoringGoldens + name;
    std::string rows;
    Json firsts = Json(Json::Array()), seconds = Json(Json::Array());
    const std::vector<Json> wanted = ReadJsonLines(model + "/expected_pairs.jsonl");
    ASSERT_EQ(wanted.size(), 21u);
    for (const Json& row : wanted) {
      Json out = Json(Json::Object{{"text", *row.Find("text")}});
      rows += out.Set("text_pair", *row.Find("text_pair")).Dump() + "\n";
      firsts.Append(*row.Find("text"));
      seconds.Append(*row.Find("text_pair"));
    }
    const std::string out = RunOn("classify", model, {}, rows).out;
    const std::vector<Json> found = Rows(out);
    ASSERT_EQ(found.size(), 21u) << out;
    Json list = Json(Json::Object{{"text", firsts}, {"text_pair", seconds}});
    const std::vector<Json> of_list = Rows(RunOn("classify", model, {}, list.Dump()).out);
    ASSERT_NE(of_list.at(0).Find("results"), nullptr) << of_list[0].Dump();
    for (size_t i = 0; i < 21; ++i) {
      std::vector<double> scores;
      const Json* const labels = found[i].Find("scores");
      ASSERT_NE(labels, nullptr) << found[i].Dump();
      for (const auto& [label, score] : labels->as_object()) scores.push_back(score.as_double());
      ExpectNear(scores, *wanted[i].Find("scores"), name + " pair " + std::to_string(i));
      EXPECT_EQ(of_list[0].Find("results")->as_array().at(i).Find("scores")->Dump(),
                labels->Dump());
    }
    const Arguments more = {"--max-running-requests", "1", "--page-size", "1"};
    EXPECT_EQ(RunOn("classify", model, more, rows).out, out) << name;
  }
  const std::vector<Json> bad =
      Rows(RunOn("classify", kScoringGoldens + "roberta", {},
                 "{\"text\": \"a\", \"text_pair\": [\"b\", \"c\"]}\n"
                 "{\"text\": [1, 2], \"text_pair\": \"b\"}\n"
                 "{\"text_pair\": \"b\"}\n{\"text\": \"a\", \"text_pair\": 5}\n")
               .out);
  ASSERT_EQ(bad.size(), 4u);
  for (const Json& row : bad) EXPECT_EQ(Code(row), "invalid_row") << row.Dump();
  const std::string row = "{\"query\": \"q\", \"text\": \"a\", \"text_pair\": \"b\"}\n";
  EXPECT_EQ(Code(Rows(RunOn("rerank", kScoringGoldens + "bert", {}, row).out).at(0)),
            "unsupported_field");
  const std::string decoder = MINISGL_SOURCE_DIR "/tests/golden/scoring/classes";
  const std::string pair = "{\"text\": \"a\", \"text_pair\": \"b\"}\n";
  EXPECT_EQ(Code(Rows(RunOn("classify", decoder, {}, pair).out).at(0)), "unsupported_field");
}

TEST_F(CrossEncoderTest, ScoresOfPairsAreTheReferences) {
  for (const std::string name : {"bert", "xlm", "modernbert"}) {
    const std::string model = kScoringGoldens + name;
    std::string rows;
    std::vector<Json> wanted;
    for (const Json& row : ReadJsonLines(model + "/expected.jsonl")) {
      if (row.Find("query") == nullptr) continue;
      Json out = Json(Json::Object{{"query", *row.Find("query")}});
      rows += out.Set("documents", *row.Find("documents")).Dump() + "\n";
      wanted.push_back(row);
    }
    ASSERT_EQ(wanted.size(), 3u);
    const std::string out = RunOn("rerank", model, {}, rows).out;
    const std::vector<Json> found = Rows(out);
    ASSERT_EQ(found.size(), 3u) << out;
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_NE(found[i].Find("results"), nullptr) << found[i].Dump();
      ExpectNear(ScoresOf(*found[i].Find("results")), *wanted[i].Find("scores"),
                 name + " query " + std::to_string(i));
      int64_t length = 0;
      for (const Json& number : wanted[i].Find("lengths")->as_array()) length += number.as_int();
      EXPECT_EQ(*found[i].Find("num_tokens"), Json(length));
      EXPECT_EQ(i == 2, found[i].Dump().find("document 2 were cut to") != std::string::npos) << i;
    }
    for (const Arguments& more : {Arguments{"--max-running-requests", "1"},
                                  {"--page-size", "1"},
                                  {"--threads", "2", "--max-prefill-length", "130"}}) {
      EXPECT_EQ(RunOn("rerank", model, more, rows).out, out) << name << more[0];
    }
  }
}

// Files as llama.cpp's converter makes them give the scores of the directory, bit for bit.
TEST_F(CrossEncoderTest, GgufFilesGiveTheSameScores) {
  const std::string model = kScoringGoldens + "xlm";
  std::string texts, pairs;
  for (const Json& row : ReadJsonLines(model + "/expected.jsonl")) {
    if (const Json* const text = row.Find("text")) {
      texts += text->Dump() + "\n";
      continue;
    }
    Json out = Json(Json::Object{{"query", *row.Find("query")}});
    pairs += out.Set("documents", *row.Find("documents")).Dump() + "\n";
  }
  const std::string file = model + ".gguf";
  EXPECT_EQ(RunOn("classify", file, {}, texts).out, RunOn("classify", model, {}, texts).out);
  const std::string scores = RunOn("rerank", model, {}, pairs).out;
  EXPECT_EQ(Rows(scores).size(), 3u);
  EXPECT_EQ(RunOn("rerank", file, {}, pairs).out, scores);
  EXPECT_NE(RunProgram({"info", "-m", file}, {}).out.find("labels        1 (LABEL_0)"),
            std::string::npos);
}

// The files of a cross encoder say whether its scores are probabilities.
TEST_F(CrossEncoderTest, TheFilesNameTheScale) {
  const auto score_of = [](const std::string& model, const Arguments& more) {
    Arguments arguments = {"--query", "Where does Omar live?", "-p", "Omar lives in Paris."};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Rows(RunOn("rerank", model, arguments, "").out).at(0).Find("score")->as_double();
  };
  const std::string bert = kScoringGoldens + "bert";
  const double logit = score_of(bert, {});
  for (const Json& row : ReadJsonLines(bert + "/expected.jsonl")) {
    const Json* const query = row.Find("query");
    if (query == nullptr || *query != Json("Where does Omar live?")) continue;
    EXPECT_NEAR(logit, row.Find("scores")->as_array()[0].as_double(), 5e-6);
  }
  EXPECT_EQ(score_of(bert, {"--raw-scores"}), logit);
  const double sigmoid = 1 / (1 + std::exp(-logit));
  EXPECT_NEAR(score_of(Changed(bert, "config.json", "torch.nn.modules.linear.Identity",
                               "torch.nn.modules.activation.Sigmoid"),
                       {}),
              sigmoid, 1e-6);
  EXPECT_NEAR(score_of(Changed(bert, "config.json", "activation_fn", "other"), {}), sigmoid, 1e-6);
  const std::string old = Changed(bert, "config.json", "\"sentence_transformers\": {",
                                  "\"sbert_ce_default_activation_function\": "
                                  "\"torch.nn.modules.linear.Identity\", \"other\": {");
  EXPECT_EQ(score_of(old, {}), logit);
  folder_.Write("changed/config_sentence_transformers.json",
                R"({"activation_fn": "torch.nn.modules.activation.Sigmoid"})");
  EXPECT_NEAR(score_of(old, {}), sigmoid, 1e-6) << "the newest file goes first";
  ExpectFails(RunOn("rerank", Changed(bert, "config.json", "linear.Identity", "activation.GELU"),
                    {"--query", "q"}, "\"a\"\n"),
              65, "Sigmoid and Identity");
}

TEST_F(CrossEncoderTest, ServicesAreAnsweredByCrossEncodersAndByVectors) {
  const auto line = [](const std::string& url, Json body) {
    Json out = Json(Json::Object{{"custom_id", url}, {"method", "POST"}, {"url", url}});
    return out.Set("body", std::move(body)).Dump() + "\n";
  };
  const Json documents = Json(Json::Array{"Omar lives in Paris.", "the cat"});
  const Json queries = Json(Json::Array{"Where does Omar live?", "cats"});
  const std::string lines =
      line("/v1/rerank",
           Json(Json::Object{
               {"query", queries.as_array()[0]}, {"documents", documents}, {"top_n", 1}})) +
      line("/v1/score",
           Json(Json::Object{{"text_1", queries.as_array()[0]}, {"text_2", documents}})) +
      line("/score", Json(Json::Object{{"text_1", queries}, {"text_2", documents}}));
  const auto body = [](const Json& row) { return *row.Find("response")->Find("body"); };
  const auto scores_of = [&](const Json& row) {
    std::vector<double> scores;
    const Json data = *body(row).Find("data");
    for (const Json& entry : data.as_array()) {
      scores.push_back(entry.Find("score")->as_double());
    }
    return scores;
  };
  const std::string bert = kScoringGoldens + "bert";
  const std::vector<Json> pairs = Rows(RunOn("rerank", bert, {}, lines).out);
  ASSERT_EQ(pairs.size(), 3u);
  const std::vector<double> of_one = scores_of(pairs[1]), of_each = scores_of(pairs[2]);
  ASSERT_EQ(of_one.size(), 2u);
  ASSERT_EQ(of_each.size(), 2u);
  EXPECT_EQ(of_one[0], of_each[0]);
  EXPECT_NE(of_one[1], of_each[1]);
  EXPECT_EQ(body(pairs[0]).Find("results")->as_array().size(), 1u);
  // As services do with a model of vectors: cosines, of texts without prompts.
  const std::string vectors = MINISGL_SOURCE_DIR "/tests/golden/pooling/bert_old";
  const std::vector<Json> rows =
      Rows(RunOn("embed", vectors, {},
                 "\"Where does Omar live?\"\n\"cats\"\n\"Omar lives in Paris.\"\n\"the cat\"\n")
               .out);
  ASSERT_EQ(rows.size(), 4u);
  const auto cosine = [&](size_t i, size_t j) {
    const std::vector<double> a = VectorOf(rows[i]), b = VectorOf(rows[j]);
    double product = 0, of_a = 0, of_b = 0;
    for (size_t k = 0; k < a.size(); ++k) {
      product += a[k] * b[k];
      of_a += a[k] * a[k];
      of_b += b[k] * b[k];
    }
    return product / std::sqrt(of_a * of_b);
  };
  const std::vector<Json> cosines = Rows(RunOn("rerank", vectors, {}, lines).out);
  ASSERT_EQ(cosines.size(), 3u);
  ExpectNear(scores_of(cosines[1]), Json(Json::Array{cosine(0, 2), cosine(0, 3)}), "one query");
  ExpectNear(scores_of(cosines[2]), Json(Json::Array{cosine(0, 2), cosine(1, 3)}), "two queries");
  const int64_t tokens = rows[0].Find("num_tokens")->as_int() +
                         rows[2].Find("num_tokens")->as_int() +
                         rows[3].Find("num_tokens")->as_int();
  EXPECT_EQ(*body(cosines[1]).Find("usage")->Find("prompt_tokens"), Json(tokens));
  const std::vector<Json> own = Rows(
      RunOn("rerank", vectors, {"--query", "cats"}, "\"the cat\"\n{\"documents\": [\"the cat\"]}\n")
          .out);
  ASSERT_EQ(own.size(), 2u);
  EXPECT_NEAR(own[0].Find("score")->as_double(), cosine(1, 3), 1e-6);
  ExpectNear(ScoresOf(*own[1].Find("results")), Json(Json::Array{cosine(1, 3)}), "own rows");
}

TEST_F(CrossEncoderTest, WhatDoesNotFitIsRefusedByName) {
  const std::string bert = kScoringGoldens + "bert";
  const std::vector<Json> rows = Rows(RunOn("rerank", bert, {"--query", "q"},
                                            "{\"text\": \"a\", \"instruction\": \"find\"}\n\"a\"\n")
                                          .out);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(Code(rows[0]), "unsupported_field");
  EXPECT_NE(rows[1].Find("score"), nullptr) << rows[1].Dump();
  EXPECT_EQ(Code(Rows(RunOn("rerank", MINISGL_SOURCE_DIR "/tests/golden/pooling/bert",
                            {"--query", "q", "--instruction", "find"}, "\"a\"\n")
                          .out)
                     .at(0)),
            "unsupported_field");
  EXPECT_EQ(
      Code(
          Rows(RunOn("rerank", bert, {"--query", "q", "--max-seq-len", "2"}, "\"a\"\n").out).at(0)),
      "length_exceeded");
  ExpectFails(RunOn("rerank", kScoringGoldens + "roberta", {"--query", "q"}, "\"a\"\n"), 64,
              "3 labels, not one");
  ExpectFails(RunOn("classify", MINISGL_SOURCE_DIR "/tests/golden/pooling/bert", {}, "\"a\"\n"), 64,
              "no tensor classifier.weight");
  ExpectFails(RunOn("rerank", Changed(bert, "tokenizer.json", "\"pair\":", "\"other\":"),
                    {"--query", "q"}, "\"a\"\n"),
              64, "what stands between two texts");
  ExpectFails(RunOn("classify",
                    Changed(kScoringGoldens + "modernbert", "config.json",
                            "\"classifier_pooling\": \"mean\"", "\"classifier_pooling\": \"max\""),
                    {}, "\"a\"\n"),
              65, "classifier_pooling");
  ExpectFails(RunOn("classify",
                    Changed(bert, "model.safetensors", "pooler.dense.bias", "pooler.dense.beer"),
                    {}, "\"a\"\n"),
              65, "\"bert.pooler.dense.bias\"");
}

}  // namespace
}  // namespace minisgl::batch
