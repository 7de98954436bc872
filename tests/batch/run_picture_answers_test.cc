// The answers of the tiny multimodal models beside the project are the reference's, in every way in
// which their rows can be run.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "program/run_fixture.h"

namespace minisgl::batch {
namespace {

class PictureAnswersTest : public RunProgramTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    RunProgramTest::SetUp();
    const char* const given = std::getenv("MINISGL_SHARED");
    dir_ = (given != nullptr ? std::string(given) : MINISGL_SOURCE_DIR "/../shared") +
           "/models/vision/" + GetParam();
    if (!std::filesystem::exists(dir_)) GTEST_SKIP() << "no shared models";
    for (const Json& answer : JsonLines(dir_ + "/answers.jsonl")) {
      expected_[answer.Find("id")->as_string()] = *answer.Find("token_ids");
    }
    ASSERT_EQ(expected_.size(), 10u);
  }
  static std::vector<Json> JsonLines(const std::string& path) {
    std::ifstream file(path);
    std::vector<Json> rows;
    for (std::string line; std::getline(file, line);) rows.push_back(ParseJson(line).value());
    return rows;
  }
  // In f32, as the reference.
  ProgramResult RunFile(const std::string& file, const Arguments& more) {
    Arguments arguments = {"run", "-m",      dir_,  "--file",    file, "--device",
                           "cpu", "--dtype", "f32", "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProgram(arguments, {});
  }

  std::string dir_;
  std::map<std::string, Json> expected_;
};

TEST_P(PictureAnswersTest, AreTheReferencesHoweverTheyAreRun) {
  const std::vector<Arguments> ways = {
      {"--num-pages", "512"},
      {"--page-size", "1", "--num-pages", "8192", "--max-prefill-length", "80"},
      {"--page-size", "4", "--num-pages", "2048", "--max-prefill-length", "80", "--speculate",
       "ngram:4"},
      {"--num-pages", "512", "--tensor-parallel", "2"},
      {"--num-pages", "512", "--cache", "naive", "--max-running-requests", "2"},
      {"--num-pages", "512", "--encoder-budget", "1", "--encoder-cache", "1",
       "--max-prefill-length", "70"},
      {"--num-pages", "512", "--schedule", "prefill-first", "--disable-overlap"}};
  for (const Arguments& way : ways) {
    SCOPED_TRACE(testing::PrintToString(way));
    const ProgramResult result = RunFile(dir_ + "/prompts.jsonl", way);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const std::vector<Json> rows = Rows(result.out);
    ASSERT_EQ(rows.size(), expected_.size());
    for (const Json& row : rows) {
      const std::string id = row.Find("id")->as_string();
      const Json* const ids = row.Find("token_ids");
      ASSERT_NE(ids, nullptr) << row.Dump();
      EXPECT_EQ(*ids, expected_[id]) << id;
    }
  }
}

// Every row three times, interleaved: a picture is encoded once, and each copy has its answer.
TEST_P(PictureAnswersTest, RowsShareEncodedPictures) {
  std::string rows;
  for (int copy = 0; copy < 3; ++copy) {
    for (Json row : JsonLines(dir_ + "/prompts.jsonl")) {
      row.Set("id", fmt::format("{} {}", copy, row.Find("id")->as_string()));
      rows += row.Dump() + "\n";
    }
  }
  // Beside the pictures, whose paths are relative to the file of rows.
  std::filesystem::copy(dir_ + "/images", folder_.Path("images"));
  const std::string file = folder_.Write("rows.jsonl", rows), summary = folder_.Path("summary");
  const ProgramResult result =
      RunFile(file, {"--num-pages", "512", "--cache", "naive", "--summary", summary});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const Json& row : Rows(result.out)) {
    const std::string id = row.Find("id")->as_string().substr(2);
    EXPECT_EQ(*row.Find("token_ids"), expected_[id]) << id;
  }
  std::ifstream written(summary);
  const auto json = ParseJson(std::string(std::istreambuf_iterator<char>(written), {}));
  ASSERT_TRUE(json.ok());
  const Json& scheduler = *json->Find("scheduler");
  const int64_t encoded = scheduler.Find("encoded_images")->as_int();
  const int64_t reused = scheduler.Find("reused_images")->as_int();
  EXPECT_GT(encoded, 0);
  EXPECT_LE(encoded, 12) << "at most one for each picture of the rows";
  EXPECT_GE(reused, 2 * encoded);
}

// The same model as llama.cpp's converter writes it: a GGUF file and its projector
// (golden/convert_projectors.py). The files leave out the bounds of a picture, and what all
// published models of a family have alike: the directory is given that.
class ProjectorAnswersTest : public PictureAnswersTest {};

TEST_P(ProjectorAnswersTest, AreThoseOfTheDirectory) {
  const std::string golden = MINISGL_SOURCE_DIR "/tests/golden/gguf/projectors/";
  const std::string name = GetParam();
  const std::string file = golden + name + ".gguf", projector = golden + "mmproj-" + name + ".gguf";
  const std::map<std::string, std::string> tokens_max = {
      {"qwen2_vl", "54"}, {"qwen2_5_vl", "70"}, {"gemma4", "70"}};
  Arguments more = {"--num-pages", "512", "--chat-template", dir_ + "/chat_template.jinja"};
  if (tokens_max.contains(name)) {
    more.insert(more.end(), {"--image-max-tokens", tokens_max.at(name)});
  }
  const std::string rows = dir_ + "/prompts.jsonl";
  const std::string folder = folder_.Path("changed");
  std::filesystem::copy(dir_, folder);
  std::filesystem::permissions(folder + "/config.json", std::filesystem::perms::owner_write,
                               std::filesystem::perm_options::add);
  std::ifstream in(folder + "/config.json");
  Json config = ParseJson(std::string(std::istreambuf_iterator<char>(in), {})).value();
  if (name == "qwen2_5_vl") config.Find("vision_config")->Set("window_size", 112);
  if (name == "gemma3") config.Find("text_config")->Set("query_pre_attn_scalar", 24);
  std::ofstream(folder + "/config.json") << config.Dump();
  dir_ = folder;
  const ProgramResult expected = RunFile(rows, more);
  EXPECT_EQ(expected.exit_code, 0) << expected.err;
  dir_ = file;
  for (const Arguments& way :
       {Arguments{}, Arguments{"--page-size", "4", "--max-prefill-length", "80", "--speculate",
                               "ngram:4", "--tensor-parallel", "2"}}) {
    Arguments all = more;
    all.insert(all.end(), {"--mmproj", projector});
    all.insert(all.end(), way.begin(), way.end());
    const ProgramResult result = RunFile(rows, all);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    ASSERT_EQ(Rows(result.out).size(), 10u);
    for (size_t i = 0; i < 10; ++i) {
      EXPECT_EQ(*Rows(result.out)[i].Find("token_ids"), *Rows(expected.out)[i].Find("token_ids"))
          << i;
      EXPECT_EQ(Rows(result.out)[i].Find("usage")->Find("prompt_tokens")->as_int(),
                Rows(expected.out)[i].Find("usage")->Find("prompt_tokens")->as_int());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shared, ProjectorAnswersTest,
                         testing::Values("gemma3", "gemma4", "pixtral", "qwen2_5_vl", "qwen2_vl",
                                         "smolvlm"),
                         [](const auto& test) { return std::string(test.param); });

INSTANTIATE_TEST_SUITE_P(Shared, PictureAnswersTest,
                         testing::Values("gemma3", "gemma4", "llava", "llava_onevision", "pixtral",
                                         "qwen2_5_vl", "qwen2_vl", "smolvlm"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace minisgl::batch
