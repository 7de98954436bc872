// Pictures on the command line: options, and the commands that look at rows without running them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "program/run_fixture.h"

namespace minisgl::batch {
namespace {

std::string Golden(const std::string& name) {
  std::ifstream file(MINISGL_SOURCE_DIR "/tests/vision/golden/pictures/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class RunPicturesTest : public RunProgramTest {
 protected:
  std::string Picture() const { return folder_.Write("a.png", Golden("png_2_8.png")); }
};

constexpr const char* kPictureRow =
    R"({"id": 1, "messages": [{"role": "user", "content": [{"type": "image", "image": "a.png"}]}]})"
    "\n";

TEST_F(RunPicturesTest, AModelOfTextRefusesThem) {
  const std::string picture = Picture();
  const std::string rows = folder_.Write("in.jsonl", kPictureRow + kPeruRow + "\n");
  for (const char* check : {"--check", "--no-config"}) {
    const ProgramResult result = RunModel({"--file", rows, "--max-tokens", "1", check});
    EXPECT_NE(result.exit_code, 0);
    EXPECT_NE((result.out + result.err).find("unsupported_field"), std::string::npos)
        << result.out << result.err;
  }
  ExpectFails(RunModel({"-p", "What is it?", "--image", picture, "--no-stdin"}), 64,
              "the model reads no images");
}

TEST_F(RunPicturesTest, APictureIsNoText) {
  const std::string picture = Picture();
  ExpectFails(RunModel({"-p", "@" + picture, "--no-stdin"}), 64,
              "--prompt: " + picture + " is a picture and no text; --image " + picture +
                  " shows it to the model");
}

TEST_F(RunPicturesTest, OptionsThatConflict) {
  const std::string rows = folder_.Write("in.jsonl", kPeruRow + "\n");
  ExpectFails(RunModel({"--file", rows, "--image", "a.png"}), 64,
              "--file and --image exclude each other");
  ExpectFails(RunModel({"--file", rows, "--image-column", "photo"}), 64,
              "--image-column requires --template");
  ExpectFails(RunModel({"--file", rows, "--raw", "--template", "{{ x }}", "--image-column", "x"}),
              64, "--raw and --image-column exclude each other");
  ExpectFails(RunModel({"--file", rows, "--image-min-tokens", "9", "--image-max-tokens", "8"}), 64,
              "--image-min-tokens is more than --image-max-tokens (found 9 and 8)");
  ExpectFails(RunModel({"--file", rows, "--image-root", folder_.Path("none")}), 66,
              "--image-root: " + folder_.Path("none") + " is no folder");
  ExpectFails(RunModel({"--file", rows, "--image-background", "black"}), 64,
              "must be one of drop, white");
  ExpectFails(RunModel({"--file", rows, "--max-image-pixels", "0"}), 64, "--max-image-pixels");
  const std::string table = folder_.Write("in.csv", "id,name\n1,x\n");
  ExpectFails(RunModel({"--file", table, "--template", "{{ name }}", "--image-column", "photo"}),
              64, "--image-column photo: is no column; the columns are id, name");
}

TEST_F(RunPicturesTest, ARunGoesOnWithTheSameOptions) {
  const std::string rows = folder_.Write("in.jsonl", kPeruRow + "\n"), out = folder_.Path("out");
  const Arguments first = {"--file", rows, "-o", out, "-n", "1", "--image-max-tokens", "9"};
  EXPECT_EQ(RunModel(first).exit_code, 0);
  Arguments again = first;
  again.insert(again.end(), {"--resume"});
  EXPECT_EQ(RunModel(again).exit_code, 0);
  again[again.size() - 2] = "8";
  const ProgramResult other = RunModel(again);
  EXPECT_NE(other.exit_code, 0);
  EXPECT_NE(other.err.find("--image-max-tokens 9 (not --image-max-tokens 8)"), std::string::npos)
      << other.err;
}

// A tiny multimodal model beside the project: its rows without their answers.
class SharedPicturesTest : public RunProgramTest {
 protected:
  void SetUp() override {
    RunProgramTest::SetUp();
    const char* const given = std::getenv("MINISGL_SHARED");
    dir_ = (given != nullptr ? std::string(given) : MINISGL_SOURCE_DIR "/../shared") +
           "/models/vision/qwen2_vl";
    if (!std::filesystem::exists(dir_)) GTEST_SKIP() << "no shared models";
  }
  static std::vector<Json> JsonLines(const std::string& path) {
    std::ifstream file(path);
    std::vector<Json> rows;
    for (std::string line; std::getline(file, line);) rows.push_back(ParseJson(line).value());
    return rows;
  }
  int64_t PromptTokens() const {
    int64_t tokens = 0;
    for (const Json& answer : JsonLines(dir_ + "/answers.jsonl")) {
      tokens += std::ssize(answer.Find("prompt_token_ids")->as_array());
    }
    return tokens;
  }

  std::string dir_;
};

TEST_F(SharedPicturesTest, TokenizeShowsThem) {
  const ProgramResult result =
      RunProgram({"tokenize", "-m", dir_, "--file", dir_ + "/prompts.jsonl"}, {});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<Json> rows = Rows(result.out), answers = JsonLines(dir_ + "/answers.jsonl");
  ASSERT_EQ(rows.size(), answers.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(*rows[i].Find("prompt_token_ids"), *answers[i].Find("prompt_token_ids")) << i;
    const Json* const images = rows[i].Find("images");
    const Json* const runs = answers[i].Find("image_token_runs");
    const size_t wanted = runs == nullptr ? 0 : runs->as_array().size();
    ASSERT_EQ(images == nullptr ? 0 : images->as_array().size(), wanted) << i;
    for (size_t image = 0; image < wanted; ++image) {
      const Json& shown = images->as_array()[image];
      const Json& run = shown.Find("runs")->as_array().at(0);  // one, in this family
      EXPECT_EQ(*shown.Find("num_tokens"), runs->as_array()[image]) << i;
      EXPECT_EQ(run.as_array().at(1), runs->as_array()[image]) << i;
      const auto place = static_cast<size_t>(run.as_array().at(0).as_int());
      EXPECT_EQ(rows[i].Find("prompt_token_ids")->as_array().at(place), Json(368)) << "a pad";
    }
  }
}

TEST_F(SharedPicturesTest, CheckAndPlanCountTheirTokens) {
  const std::string expected = fmt::format("10 rows, 0 bad, {} prompt tokens", PromptTokens());
  const ProgramResult check = RunProgram({"run", "-m", dir_, "--threads", "1", "--num-pages", "512",
                                          "--file", dir_ + "/prompts.jsonl", "--check"},
                                         {});
  EXPECT_EQ(check.exit_code, 0) << check.err;
  EXPECT_NE(check.err.find(expected), std::string::npos) << check.err;
  const ProgramResult plan = RunProgram({"plan", "-m", dir_, "--threads", "1", "--num-pages", "512",
                                         "--json", dir_ + "/prompts.jsonl"},
                                        {});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_EQ(*ParseJson(plan.out)->Find("prompt_tokens"), Json(PromptTokens()));
}

TEST_F(SharedPicturesTest, OnePromptAndTablesAreCounted) {
  const std::string picture = dir_ + "/images/odd.png";
  const auto check = [&](Arguments more) {
    Arguments arguments = {"run", "-m", dir_, "--threads", "1", "--num-pages", "512", "--check"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = RunProgram(arguments, {});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const std::string& err = result.err;
    const size_t end = err.find(" prompt tokens");
    return end == std::string::npos ? -1 : std::stol(err.substr(err.rfind(' ', end - 1)));
  };
  const ProgramResult none = RunProgram(
      {"run", "-m", dir_, "-p", "x", "--no-stdin", "--image", folder_.Path("none.png")}, {});
  ExpectFails(none, 66, "--image: " + folder_.Path("none.png") + ": cannot be opened");
  const std::string cut = folder_.Write("cut.png", Golden("png_2_8.png").substr(0, 60));
  ExpectFails(RunProgram({"run", "-m", dir_, "--threads", "1", "--num-pages", "512", "-p", "x",
                          "--no-stdin", "--image", cut},
                         {}),
              65, "cut.png: ");
  const int64_t text = check({"-p", "What is it?", "--no-stdin"});
  const int64_t one = check({"-p", "What is it?", "--no-stdin", "--image", picture});
  const int64_t two =
      check({"-p", "What is it?", "--no-stdin", "--image", picture, "--image", picture});
  EXPECT_GT(one, text);
  EXPECT_EQ(two - one, one - text);
  const std::string table = folder_.Write("in.csv", "id,photo\n1," + picture + "\n");
  EXPECT_EQ(check({"--file", table, "--template", "What is it?", "--image-column", "photo"}), one);
  // A row names no file outside of the folder.
  const ProgramResult refused =
      RunProgram({"run", "-m", dir_, "--check", "--file", table, "--template", "What is it?",
                  "--image-column", "photo", "--image-root", folder_.Path("")},
                 {});
  EXPECT_EQ(refused.exit_code, 65);
  EXPECT_NE(refused.err.find("is no file in the folder that --image-root allows"),
            std::string::npos)
      << refused.err;
}

}  // namespace
}  // namespace minisgl::batch
