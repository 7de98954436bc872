// Names of models: directories, and owner/name in a hub cache made for each test.
#include "minisgl/weights/find_model_dir.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/base/environment.h"
#include "minisgl/weights/end_tokens.h"
#include "temporary_folder.h"

namespace minisgl {
namespace {

namespace fs = std::filesystem;

class FindModelDirTest : public testing::Test {
 protected:
  FindModelDirTest() { setenv("HF_HUB_CACHE", folder_.Path("hub").c_str(), 1); }
  ~FindModelDirTest() override { unsetenv("HF_HUB_CACHE"); }

  std::string Repo() const { return folder_.Path("hub") + "/models--owner--name"; }

  std::string AddSnapshot(const std::string& commit) const {
    const std::string dir = Repo() + "/snapshots/" + commit;
    fs::create_directories(dir);
    return dir;
  }

  static void Write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path) << text;
  }

  static void ExpectError(const std::string& model, StatusCode code, const std::string& words) {
    const Result<std::string> found = FindModelDir(model);
    ASSERT_FALSE(found.ok()) << *found;
    EXPECT_EQ(found.status().code(), code);
    EXPECT_NE(found.status().message().find(words), std::string::npos) << found.status().message();
  }

  const TemporaryFolder folder_;
};

TEST_F(FindModelDirTest, ADirectoryIsItself) {
  fs::create_directory(folder_.Path("model"));
  EXPECT_EQ(*FindModelDir(folder_.Path("model")), folder_.Path("model"));
}

// The folders of the hub's library, in its order.
TEST_F(FindModelDirTest, TheCacheIsWhereTheHubsLibraryKeepsIt) {
  const std::string home = EnvironmentVariable("HOME");
  for (const char* const name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) unsetenv(name);
  setenv("HOME", "/no/home", 1);
  ExpectError("owner/name", StatusCode::kNoInput, "(/no/home/.cache/huggingface/hub");
  setenv("XDG_CACHE_HOME", "/no/cache", 1);
  ExpectError("owner/name", StatusCode::kNoInput, "(/no/cache/huggingface/hub");
  setenv("HF_HOME", "/no/hf", 1);
  ExpectError("owner/name", StatusCode::kNoInput, "(/no/hf/hub");
  for (const char* const name : {"HF_HOME", "XDG_CACHE_HOME"}) unsetenv(name);
  setenv("HOME", home.c_str(), 1);
}

TEST_F(FindModelDirTest, TheOnlySnapshotIsFound) {
  const std::string only = AddSnapshot("aaa");
  EXPECT_EQ(*FindModelDir("owner/name"), only);
}

TEST_F(FindModelDirTest, RefsMainChoosesAmongSnapshots) {
  AddSnapshot("aaa");
  const std::string main = AddSnapshot("bbb");
  ExpectError("owner/name", StatusCode::kBadInput, "holds 2 snapshots and refs/main names none");
  Write(Repo() + "/refs/main", "bbb\n");
  EXPECT_EQ(*FindModelDir("owner/name"), main);
}

TEST_F(FindModelDirTest, ARevisionIsABranchATagOrACommit) {
  const std::string first = AddSnapshot("0a1b2c3d4e");
  const std::string second = AddSnapshot("0a9f000000");
  Write(Repo() + "/refs/main", "0a1b2c3d4e");
  Write(Repo() + "/refs/refs/pr/1", "0a9f000000\n");
  Write(Repo() + "/refs/v1.0", "0a1b2c3d4e");
  Write(Repo() + "/refs/gone", "ffff");
  EXPECT_EQ(*FindModelDir("owner/name"), first);
  for (const char* revision : {"main", "v1.0", "0a1b2c3d4e", "0a1b", "0a1"}) {
    EXPECT_EQ(*FindModelDir(std::string("owner/name@") + revision), first) << revision;
  }
  for (const char* revision : {"refs/pr/1", "0a9f000000", "0a9"}) {
    EXPECT_EQ(*FindModelDir(std::string("owner/name@") + revision), second) << revision;
  }
  ExpectError("owner/name@0a", StatusCode::kBadInput, "2 commits in the hub cache begin so");
  for (const char* revision : {"v2", "gone", "ffff"}) {
    ExpectError(std::string("owner/name@") + revision, StatusCode::kNoInput,
                "(it has main, refs/pr/1, v1.0, 0a1b2c3d4e, 0a9f000000); download it by minisgl "
                "pull owner/name@");
  }
  ExpectError("owner/other@v1", StatusCode::kNoInput, "not in the hub cache");
  for (const char* model : {"owner/name@", "owner/name@../x", "owner/name@a//b", "owner/name@a b",
                            "owner/name@.", "owner@v/name"}) {
    EXPECT_FALSE(IsHubModel(model)) << model;
    ExpectError(model, StatusCode::kNoInput, "no such model directory");
  }
  EXPECT_TRUE(IsHubModel("owner/name@v1.0"));
}

// A directory whose name has an @ is found as any other.
TEST_F(FindModelDirTest, ADirectoryGoesBeforeARevision) {
  fs::create_directories(folder_.Path("a/b@c"));
  EXPECT_EQ(*FindModelDir(folder_.Path("a/b@c")), folder_.Path("a/b@c"));
}

TEST_F(FindModelDirTest, ACommitThatLeavesTheCacheIsIgnored) {
  const std::string only = AddSnapshot("aaa");
  Write(Repo() + "/refs/main", "../../..");
  EXPECT_EQ(*FindModelDir("owner/name"), only);
}

TEST_F(FindModelDirTest, AMissingModelIsNoInput) {
  ExpectError("owner/name", StatusCode::kNoInput, "not in the hub cache (" + folder_.Path("hub"));
  ExpectError(folder_.Path("missing"), StatusCode::kNoInput, "no such model directory");
}

TEST_F(FindModelDirTest, AGgufFileIsAModel) {
  const std::string file = folder_.Path("model/a.GGUF");
  Write(file, "GGUF");
  EXPECT_EQ(*FindModelDir(file), file);
  EXPECT_EQ(*FindModelDir(folder_.Path("model")), file);
  ExpectError(folder_.Path("other.gguf"), StatusCode::kNoInput, "no such file");
  Write(folder_.Path("model/b.gguf"), "GGUF");
  ExpectError(folder_.Path("model"), StatusCode::kBadInput,
              "holds 2 models in GGUF files; give one");
  Write(folder_.Path("model/config.json"), "{}");
  EXPECT_EQ(*FindModelDir(folder_.Path("model")), folder_.Path("model"));
}

// A model that is split is named by its first part, whichever is given.
TEST_F(FindModelDirTest, ThePartsOfAGgufFileAreOneModel) {
  const auto part = [&](int number) {
    return folder_.Path("model/a-0000" + std::to_string(number) + "-of-00003.gguf");
  };
  for (const int number : {2, 3}) Write(part(number), "GGUF");
  ExpectError(part(2), StatusCode::kBadInput, "a-00001-of-00003.gguf: is missing");
  ExpectError(folder_.Path("model"), StatusCode::kBadInput, "a-00001-of-00003.gguf: is missing");
  Write(part(1), "GGUF");
  EXPECT_EQ(*FindModelDir(folder_.Path("model")), part(1));
  EXPECT_EQ(*FindModelDir(part(1)), part(1));
  EXPECT_EQ(*FindModelDir(part(3)), part(1));
  Write(folder_.Path("model/a-00001-of-00002.gguf"), "GGUF");
  ExpectError(folder_.Path("model"), StatusCode::kBadInput, "holds 2 models in GGUF files");
}

// As in a directory that is given by its path.
TEST_F(FindModelDirTest, AGgufFileOfTheHubCacheIsAModel) {
  const std::string snapshot = AddSnapshot("abc");
  Write(snapshot + "/a-00001-of-00002.gguf", "GGUF");
  Write(snapshot + "/a-00002-of-00002.gguf", "GGUF");
  EXPECT_EQ(*FindModelDir("owner/name"), snapshot + "/a-00001-of-00002.gguf");
  Write(snapshot + "/b.gguf", "GGUF");
  ExpectError("owner/name", StatusCode::kBadInput, "holds 2 models in GGUF files; give one");
}

TEST_F(FindModelDirTest, ADirectoryNamedAsAGgufFileIsADirectory) {
  fs::create_directories(folder_.Path("models/old.gguf"));
  Write(folder_.Path("models/new.gguf"), "GGUF");
  EXPECT_EQ(*FindModelDir(folder_.Path("models")), folder_.Path("models/new.gguf"));
  EXPECT_EQ(*FindModelDir(folder_.Path("models/old.gguf")), folder_.Path("models/old.gguf"));
}

TEST_F(FindModelDirTest, AFolderOfSnapshotsIsRefused) {
  fs::create_directories(Repo() + "/snapshots");
  ExpectError(Repo(), StatusCode::kBadInput, "its folder of snapshots is empty");
  const std::string snapshot = AddSnapshot("aaa");
  ExpectError(Repo(), StatusCode::kBadInput, "give its snapshot, " + snapshot);
}

TEST_F(FindModelDirTest, ModelFilesAreLookedFor) {
  fs::create_directory(folder_.Path("model"));
  EXPECT_EQ(CheckHasModelFiles(folder_.Path("model")).code(), StatusCode::kNoInput);
  Write(folder_.Path("model/tokenizer.model"), "");
  EXPECT_TRUE(CheckHasModelFiles(folder_.Path("model")).ok());
}

TEST(EndTokensTest, EndTokensOfAllFilesAreSortedWithoutDuplicates) {
  ModelConfig config;
  config.eos_token_ids = {7, 2};
  GenerationConfig generation;
  generation.eos_token_ids = {9, 7};
  EXPECT_EQ(EndTokens(config, generation, 1), (std::vector<TokenId>{1, 2, 7, 9}));
  EXPECT_EQ(EndTokens(config, generation, std::nullopt), (std::vector<TokenId>{2, 7, 9}));
}

}  // namespace
}  // namespace minisgl
