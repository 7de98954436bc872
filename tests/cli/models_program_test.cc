// `minisgl models` on a hub cache that each test makes.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "minisgl/base/json.h"
#include "program/program.h"

namespace minisgl::cli {
namespace {

namespace fs = std::filesystem;

class ModelsProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
  }

  std::string Hub() const { return folder_.Path("hub"); }
  // Makes a snapshot with links to the files of the demo model, as downloads have.
  std::string AddDemo(const std::string& model, const std::string& commit) const {
    const std::string dir = AddSnapshot(model, commit);
    for (const auto& entry : fs::directory_iterator(DemoModel())) {
      fs::create_symlink(fs::absolute(entry.path()), fs::path(dir) / entry.path().filename());
    }
    return dir;
  }
  std::string AddSnapshot(const std::string& model, const std::string& commit) const {
    const std::string dir = Hub() + "/models--" + model + "/snapshots/" + commit;
    fs::create_directories(dir);
    return dir;
  }
  static void Write(const std::string& path, const std::string& text) {
    fs::remove(path);
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path) << text;
  }

  ProgramResult Models(const std::vector<std::string>& arguments = {}) const {
    std::vector<std::string> all = {"models"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    ProgramResult result = RunProgram(all, {.environment = {"HF_HUB_CACHE=" + Hub()}});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    return result;
  }
  // The line of the model that is listed as `name`.
  std::string Line(const std::string& name) const {
    const std::string out = "\n" + Models().out;
    const size_t begin = out.find("\n" + name + " ");
    EXPECT_NE(begin, std::string::npos) << name << " is not in" << out;
    return begin == std::string::npos ? ""
                                      : out.substr(begin + 1, out.find('\n', begin + 1) - begin);
  }
  // The only model, with --json.
  Json OnlyModel() const {
    const Result<Json> json = ParseJson(Models({"--json"}).out);
    EXPECT_TRUE(json.ok() && json->Find("models")->as_array().size() == 1u);
    return json.ok() ? json->Find("models")->as_array().at(0) : Json();
  }

  TemporaryFolder folder_;
};

TEST_F(ModelsProgramTest, AnEmptyCacheIsNamed) {
  EXPECT_EQ(Models().out, "no models in " + Hub() + "; minisgl pull OWNER/NAME downloads one\n");
  EXPECT_EQ(Models({"--json"}).out, R"({"folder": ")" + Hub() + R"(", "models": []})" + "\n");
}

TEST_F(ModelsProgramTest, AModelThatRunsIsShownWithItsSizeAndFormat) {
  const std::string dir = AddDemo("small--wren", "0123456789abcdef");
  Write(Hub() + "/models--small--wren/refs/main", "0123456789abcdef");
  const std::string line = Line("small/wren");
  EXPECT_NE(line.find(" MiB  LlamaForCausalLM  bf16    yes\n"), std::string::npos) << line;
  const Json model = OnlyModel();
  uint64_t num_bytes = 0;
  for (const auto& entry : fs::directory_iterator(dir)) num_bytes += fs::file_size(entry.path());
  EXPECT_EQ(*model.Find("bytes"), Json(num_bytes));
  EXPECT_EQ(*model.Find("model"), Json("small/wren"));
  EXPECT_EQ(*model.Find("commit"), Json("0123456789abcdef"));
  EXPECT_EQ(model.Find("refs")->Dump(), R"(["main"])");
  EXPECT_EQ(*model.Find("folder"), Json(dir));
  EXPECT_EQ(*model.Find("runs"), Json(true));
  EXPECT_EQ(model.Find("reason"), nullptr);
}

// OWNER/NAME means the snapshot of refs/main; others are told apart.
TEST_F(ModelsProgramTest, OtherSnapshotsAreNamedByTheirRefOrCommit) {
  AddDemo("small--wren", "0123456789abcdef");
  AddDemo("small--wren", "1111111111111111");
  AddDemo("small--wren", "2222222222222222");
  Write(Hub() + "/models--small--wren/refs/main", "0123456789abcdef");
  Write(Hub() + "/models--small--wren/refs/pr/7", "1111111111111111");
  EXPECT_NE(Line("small/wren").find("yes"), std::string::npos);
  EXPECT_NE(Line("small/wren@pr/7").find("yes"), std::string::npos);
  EXPECT_NE(Line("small/wren@222222222222").find("yes"), std::string::npos);
}

TEST_F(ModelsProgramTest, AModelThatDoesNotRunHasTheReason) {
  std::string dir = AddDemo("small--unknown", "0123");
  Write(dir + "/config.json", R"({"architectures": ["NoSuchModel"]})");
  std::string line = Line("small/unknown");
  EXPECT_NE(line.find("NoSuchModel"), std::string::npos) << line;
  EXPECT_NE(line.find("no: config.json: "), std::string::npos) << line;

  dir = AddDemo("small--cut", "0123");
  Write(dir + "/model.safetensors", "shorter");
  line = Line("small/cut");
  EXPECT_NE(line.find("LlamaForCausalLM  bf16    no: model.safetensors: "), std::string::npos)
      << line;

  dir = AddDemo("small--mute", "0123");
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) fs::remove(dir + "/" + name);
  line = Line("small/mute");
  EXPECT_NE(line.find("no: has no tokenizer.json\n"), std::string::npos) << line;

  Write(AddSnapshot("small--gguf", "0123") + "/small-Q4_K_M.gguf", "GGUF");
  line = Line("small/gguf");
  EXPECT_NE(line.find("gguf    no: small-Q4_K_M.gguf: byte 4: the version has 4 bytes"),
            std::string::npos)
      << line;
}

// A config.json with one layer more than the files have.
TEST_F(ModelsProgramTest, AMissingTensorIsNamed) {
  const std::string dir = AddDemo("small--wren", "0123");
  std::ifstream file(dir + "/config.json");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Result<Json> config = ParseJson(text);
  ASSERT_TRUE(config.ok());
  const int64_t num_layers = config->Find("num_hidden_layers")->as_int();
  config->Set("num_hidden_layers", num_layers + 1);
  Write(dir + "/config.json", config->Dump());
  const Json model = OnlyModel();
  EXPECT_EQ(*model.Find("runs"), Json(false));
  const std::string layer = "model.layers." + std::to_string(num_layers) + ".";
  EXPECT_NE(model.Find("reason")->as_string().find(layer), std::string::npos)
      << model.Find("reason")->as_string();
}

TEST_F(ModelsProgramTest, ADownloadWithoutASnapshotIsShownAsIncomplete) {
  Write(Hub() + "/models--small--wren/blobs/4d7a.incomplete", "1234567");
  Write(Hub() + "/datasets--small--texts/blobs/4d7a", "of another kind");
  const Json model = OnlyModel();
  EXPECT_EQ(*model.Find("bytes"), Json(7));
  EXPECT_EQ(*model.Find("commit"), Json(""));
  EXPECT_NE(model.Find("reason")->as_string().find("incomplete"), std::string::npos);
}

// As an interrupted pull leaves it: the small files, and a part of the weights.
TEST_F(ModelsProgramTest, AnInterruptedDownloadSaysHowItGoesOn) {
  const std::string dir = AddDemo("small--wren", "0123");
  Write(Hub() + "/models--small--wren/refs/main", "0123");
  const std::string hash(64, 'a');
  Write(Hub() + "/models--small--wren/blobs/" + hash + ".incomplete", "1234567");
  EXPECT_EQ(*OnlyModel().Find("runs"), Json(true)) << "the part is of another file";
  fs::remove(dir + "/model.safetensors");
  fs::create_symlink("../../blobs/" + hash, dir + "/model.safetensors");
  const std::string line = Line("small/wren");
  EXPECT_NE(line.find("  no: its download is incomplete; minisgl pull small/wren goes on\n"),
            std::string::npos)
      << line;
  uint64_t num_bytes = 7;
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (fs::exists(entry)) num_bytes += fs::file_size(entry.path());
  }
  EXPECT_EQ(*OnlyModel().Find("bytes"), Json(num_bytes));
}

}  // namespace
}  // namespace minisgl::cli
