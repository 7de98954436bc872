// `minisgl embed` with encoders: vectors against the reference, the same bits in every batch, and
// files and commands that are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "minisgl/base/json.h"
#include "program/program.h"
#include "program/run_fixture.h"
#include "temporary_folder.h"
#include "vision/vision_test_util.h"

namespace minisgl::batch {
namespace {

// Made by tests/golden/encoders.py.
const std::string kGoldens = MINISGL_SOURCE_DIR "/tests/golden/pooling/";

ProgramResult Embed(const std::string& model, const Arguments& more, const std::string& rows) {
  Arguments arguments = {"embed", "-q", "-m", model, "--num-pages", "512"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  if (std::find(more.begin(), more.end(), "--threads") == more.end()) {
    arguments.insert(arguments.end(), {"--threads", "1"});
  }
  return RunProgram(arguments, {rows, "", {}});
}

class EncoderProgramTest : public RunProgramTest,
                           public ::testing::WithParamInterface<const char*> {
 protected:
  // The rows of texts of which the model has vectors, and these.
  void SetUp() override {
    RunProgramTest::SetUp();
    model_ = kGoldens + GetParam();
    for (const Json& row : ReadJsonLines(model_ + "/expected.jsonl")) {
      rows_ += Json(Json::Object{{"text", *row.Find("text")}}).Dump() + "\n";
      wanted_.push_back(*row.Find("embedding"));
    }
    ASSERT_GE(wanted_.size(), 18u);
  }
  std::string model_, rows_;
  std::vector<Json> wanted_;
};

TEST_P(EncoderProgramTest, VectorsAreTheReferences) {
  const std::vector<Json> found = Rows(Embed(model_, {}, rows_).out);
  ASSERT_EQ(found.size(), wanted_.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const Json* const vector = found[i].Find("embedding");
    ASSERT_NE(vector, nullptr) << found[i].Dump();
    ASSERT_EQ(vector->as_array().size(), wanted_[i].as_array().size());
    for (size_t j = 0; j < vector->as_array().size(); ++j) {
      EXPECT_NEAR(vector->as_array()[j].as_double(), wanted_[i].as_array()[j].as_double(), 3e-6)
          << "text " << i << ", element " << j;
    }
  }
}

TEST_P(EncoderProgramTest, EveryBatchHasTheSameBits) {
  const std::string all = Embed(model_, {}, rows_).out;
  ASSERT_FALSE(all.empty());
  for (const Arguments& more : {Arguments{"--max-running-requests", "1"},
                                {"--page-size", "1"},
                                {"--threads", "2", "--max-prefill-length", "130"}}) {
    EXPECT_EQ(Embed(model_, more, rows_).out, all) << more[0];
  }
  const std::vector<Json> found = Rows(all);
  size_t begin = 0;
  for (int line = 0; line < 4; ++line) begin = rows_.find('\n', begin) + 1;
  const std::string alone = rows_.substr(begin, rows_.find('\n', begin) + 1 - begin);
  const std::vector<Json> one = Rows(Embed(model_, {}, alone).out);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(*one[0].Find("embedding"), *found[4].Find("embedding"));
}

// Sums over ranks have an order of their own.
TEST_P(EncoderProgramTest, RanksGiveNearlyTheSame) {
  const ProgramResult result = Embed(model_, {"--threads", "2", "--tensor-parallel", "2"}, rows_);
  if (GetParam() == std::string("jina_bert_normed")) {
    EXPECT_NE(result.err.find("less its mean: one rank"), std::string::npos) << result.err;
    return;
  }
  const std::vector<Json> found = Rows(result.out);
  ASSERT_EQ(found.size(), wanted_.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const Json* const vector = found[i].Find("embedding");
    ASSERT_NE(vector, nullptr) << found[i].Dump();
    for (size_t j = 0; j < vector->as_array().size(); ++j) {
      EXPECT_NEAR(vector->as_array()[j].as_double(), wanted_[i].as_array()[j].as_double(), 5e-6);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EncoderProgramTest,
                         ::testing::Values("bert", "bert_old", "distilbert", "jina_bert",
                                           "jina_bert_normed", "mpnet", "roberta", "xlm_roberta",
                                           "nomic_bert", "modernbert"));

using EncoderFilesTest = RunProgramTest;

TEST_F(EncoderFilesTest, GgufFilesGiveTheSameVectors) {
  for (const std::string name : {"bert", "nomic_bert", "jina_bert"}) {
    std::string rows;
    const std::vector<Json> expected = ReadJsonLines(kGoldens + name + "/expected.jsonl");
    for (const Json& row : expected) {
      rows += Json(Json::Object{{"text", *row.Find("text")}}).Dump() + "\n";
    }
    const std::string model = MINISGL_SOURCE_DIR "/tests/golden/pooling_gguf/" + name + ".gguf";
    const ProgramResult result = Embed(model, {}, rows);
    const std::vector<Json> found = Rows(result.out);
    ASSERT_EQ(found.size(), expected.size()) << result.err;
    for (size_t i = 0; i < found.size(); ++i) {
      const auto& vector = found[i].Find("embedding")->as_array();
      const auto& wanted = expected[i].Find("embedding")->as_array();
      ASSERT_EQ(vector.size(), wanted.size());
      for (size_t j = 0; j < vector.size(); ++j) {
        EXPECT_NEAR(vector[j].as_double(), wanted[j].as_double(), 3e-6) << name << " " << i;
      }
    }
  }
}

TEST_F(EncoderFilesTest, CommandsThatWantAnswersNameTheOneThatDoesNot) {
  const std::string model = kGoldens + "bert";
  for (const Arguments& arguments : {Arguments{"run", "-q", "-p", "a"},
                                     {"run", "-q", "--raw", "--file", "-"},
                                     {"chat"},
                                     {"score", "-q", "--file", "-"},
                                     {"plan", "--command", "run", "--file", "-"}}) {
    Arguments all = arguments;
    all.insert(all.end(), {"-m", model});
    const ProgramResult result =
        RunProgram(all, {"{\"prompt\": \"a\", \"text\": \"b\"}\n", "", {}});
    EXPECT_NE(result.exit_code, 0) << arguments[0];
    EXPECT_NE(result.err.find("is an encoder: it gives vectors of texts (minisgl embed)"),
              std::string::npos)
        << arguments[0] << result.out << result.err;
  }
  const ProgramResult info = RunProgram({"info", "-m", model}, {"", "", {}});
  EXPECT_NE(info.out.find("begins with [CLS], ends with [SEP]"), std::string::npos) << info.out;
  EXPECT_NE(info.out.find("the mean of all states, normalised; 32 elements"), std::string::npos);
}

// Each change of a file, and a part of the error that it gives.
TEST_F(EncoderFilesTest, DamagedFilesGiveOneError) {
  struct Change {
    const char *model, *file, *from, *to, *says;
  };
  constexpr Change kChanges[] = {
      {"bert", "tokenizer.json", nullptr, nullptr, "no tokenizer"},
      {"bert", "tokenizer.json", "\"vocab\": {", "\"vocab\": {\"zzz\": -1, ", "id -1"},
      {"bert", "tokenizer.json", "\"[UNK]\"", "\"[HUH]\"", "[HUH]"},
      {"bert", "tokenizer.json", "\"WordPiece\"", "\"WordLevel\"", "supported are BPE, WordPiece"},
      {"bert_old", "vocab.txt", "[CLS]\n", "", "vocab.txt: has no line \"[CLS]\""},
      {"bert_old", "vocab.txt", nullptr, nullptr, "no tokenizer"},
      {"xlm_roberta", "tokenizer.json", "\"unk_id\": 3", "\"unk_id\": 99999", "unk_id"},
      {"xlm_roberta", "tokenizer.json", "\"precompiled_charsmap\": \"",
       "\"precompiled_charsmap\": \"!", "is not base64"},
      {"xlm_roberta", "config.json", "\"pad_token_id\": 1", "\"pad_token_id\": 65",
       "a text begins at row 66"},
      {"bert", "config.json", "\"type_vocab_size\": 2", "\"type_vocab_size\": 0",
       "type_vocab_size"},
      {"bert", "config.json", "\"is_decoder\": false", "\"is_decoder\": true", "is_decoder"},
      {"bert", "config.json", "\"hidden_act\": \"gelu\"", "\"hidden_act\": \"mish\"", "hidden_act"},
      {"nomic_bert", "config.json", "\"prenorm\": false", "\"prenorm\": true", "prenorm"},
      {"modernbert", "config.json", "\"attention_bias\": false", "\"attention_bias\": true",
       "attention_bias"},
  };
  for (const Change& change : kChanges) {
    const TemporaryFolder folder;
    const std::string model = folder.Path("model");
    std::filesystem::copy(kGoldens + change.model, model, std::filesystem::copy_options::recursive);
    const std::string path = folder.Path(std::string("model/") + change.file);
    if (change.from == nullptr) {
      std::filesystem::remove(path);
    } else {
      std::string text = folder.Read(std::string("model/") + change.file);
      std::string from = change.from;
      size_t at = text.find(from);
      ASSERT_NE(at, std::string::npos) << change.file << ": " << from;
      if (from == "\"[UNK]\"") at = text.rfind("\"unk_token\"");
      if (from == "\"[UNK]\"") at = text.find(from, at);
      text.replace(at, from.size(), change.to);
      folder.Write(std::string("model/") + change.file, text);
    }
    const ProgramResult result = Embed(model, {}, "\"a\"\n");
    EXPECT_EQ(result.exit_code == 0, false) << change.file << " " << change.says;
    EXPECT_NE(result.err.find(change.says), std::string::npos)
        << change.file << ": " << result.err << result.out;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

}  // namespace
}  // namespace minisgl::batch
