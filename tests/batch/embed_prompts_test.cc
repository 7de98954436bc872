// `minisgl embed` with models whose vectors leave out the tokens of prompts (include_prompt false):
// vectors against the reference, in every batch.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "minisgl/base/json.h"
#include "program/program.h"
#include "program/run_fixture.h"
#include "vision/vision_test_util.h"

namespace minisgl::batch {
namespace {

using EmbedPromptsTest = RunProgramTest;

const std::string kPromptGoldens = MINISGL_SOURCE_DIR "/tests/golden/pooling/";

// Made by tests/golden/make_prompts.py.
TEST_F(EmbedPromptsTest, TokensOfThePromptDoNotCount) {
  std::map<std::string, std::vector<Json>> cases;  // by model, pooling and prompt
  for (const Json& row : ReadJsonLines(MINISGL_SOURCE_DIR "/tests/golden/pooling_prompts.jsonl")) {
    std::string key;
    for (const char* const part : {"model", "mode", "prompt"}) {
      key += row.Find(part)->as_string() + "/";
    }
    cases[key].push_back(row);
  }
  ASSERT_EQ(cases.size(), 28u);
  const std::string prompts =
      R"({"prompts": {"query": "query: ", "same": "the cat",
                      "long": "Represent the sentence for retrieval, please:"}})";
  for (const auto& [key, rows] : cases) {
    const std::string name = rows[0].Find("model")->as_string();
    const std::string prompt = rows[0].Find("prompt")->as_string();
    std::filesystem::remove_all(folder_.Path("model"));
    std::filesystem::copy(kPromptGoldens + name, folder_.Path("model"),
                          std::filesystem::copy_options::recursive);
    folder_.Write("model/config_sentence_transformers.json", prompts);
    folder_.Write(
        "model/1_Pooling/config.json",
        "{\"pooling_mode\": " + rows[0].Find("mode")->Dump() + ", \"include_prompt\": false}");
    std::string texts;
    for (const Json& row : rows) texts += row.Find("text")->Dump() + "\n";
    Arguments arguments = {"embed", "-q", "-m", folder_.Path("model"), "--threads", "1"};
    if (!prompt.empty()) arguments.insert(arguments.end(), {"--prompt-name", prompt});
    const std::string out = RunProgram(arguments, {texts, "", {}}).out;
    const std::vector<Json> found = Rows(out);
    ASSERT_EQ(found.size(), rows.size()) << key;
    for (size_t i = 0; i < rows.size(); ++i) {
      const Json* const vector = found[i].Find("embedding");
      ASSERT_NE(vector, nullptr) << key << found[i].Dump();
      const Json::Array& wanted = rows[i].Find("embedding")->as_array();
      ASSERT_EQ(vector->as_array().size(), wanted.size());
      for (size_t j = 0; j < wanted.size(); ++j) {
        EXPECT_NEAR(vector->as_array()[j].as_double(), wanted[j].as_double(), 3e-6)
            << key << " text " << i << ", element " << j;
      }
    }
    arguments.insert(arguments.end(), {"--max-running-requests", "1", "--page-size", "1"});
    EXPECT_EQ(RunProgram(arguments, {texts, "", {}}).out, out) << key;
  }
}

// A causal model computes a text in chunks: those before the last may hold nothing that counts.
TEST_F(EmbedPromptsTest, ChunksGiveTheSameBits) {
  std::filesystem::copy(DemoModel(), folder_.Path("model"),
                        std::filesystem::copy_options::recursive);
  folder_.Write("model/modules.json",
                R"([{"idx": 0, "name": "0", "path": "", "type": "models.Transformer"},
                    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "models.Pooling"}])");
  folder_.Write("model/config_sentence_transformers.json",
                R"({"prompts": {"query": "Represent this sentence for a search: "}})");
  std::filesystem::create_directory(folder_.Path("model/1_Pooling"));
  for (const std::string mode : {"mean", "cls", "weightedmean", "max", "lasttoken"}) {
    std::vector<std::string> outs;
    for (const char* const counts : {"false", "true"}) {
      folder_.Write("model/1_Pooling/config.json",
                    "{\"pooling_mode\": \"" + mode + "\", \"include_prompt\": " + counts + "}");
      for (const char* const chunk : {"64", "3"}) {
        const Arguments arguments = {"embed",   "-q",        "-m",   folder_.Path("model"),
                                     "--query", "--threads", "1",    "--max-prefill-length",
                                     chunk,     "--cache",   "naive"};
        outs.push_back(RunProgram(arguments, {"\"Where is it?\"\n\"one\"\n", "", {}}).out);
        EXPECT_EQ(Rows(outs.back()).at(1).Find("embedding") != nullptr, true) << outs.back();
      }
    }
    EXPECT_EQ(outs[0], outs[1]) << mode;
    EXPECT_EQ(outs[2], outs[3]) << mode;
    EXPECT_EQ(outs[0] == outs[2], mode == "lasttoken") << mode;
  }
}

}  // namespace
}  // namespace minisgl::batch
