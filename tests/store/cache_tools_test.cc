// What `minisgl cache` says about a folder, and what it removes.
#include "minisgl/store/cache_tools.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "store/block_key.h"
#include "store/cache_folder.h"
#include "store_fixture.h"

namespace minisgl {
namespace {

namespace fs = std::filesystem;

class CacheToolsTest : public StoreTest {
 protected:
  CacheToolsTest() {
    WriteAllBlocks(Open().get(), prompt_);
    KvBlockFolderOptions options = Options();
    options.identity = "another model";
    options.model_name = "Another\nmodel";
    WriteAllBlocks(Open(options).get(), TestPrompt(options.identity, 2, 2));
  }
  std::string FolderOf(const std::string& identity) const {
    return Folder() + "/" + store::ModelFolderName(store::RootKey(identity));
  }
  void Damage(const std::string& path) const {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(700);
    file.put('\0').put('\x55').put('\0');
  }
  void ExpectRefused(StatusCode code, const std::string& part) const {
    for (const Status& status :
         {ListPrefixCache(Folder()).status(), VerifyPrefixCache(Folder(), true).status(),
          ClearPrefixCache(Folder()).status()}) {
      EXPECT_EQ(status.code(), code) << status.message();
      EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    }
  }

  const TestPrompt prompt_ = TestPrompt("model", 1, 3);
};

TEST_F(CacheToolsTest, ModelsAreListed) {
  // The model that was used last is the first.
  for (const std::string& path : Files()) {
    if (!path.starts_with(FolderOf("model"))) Age(path, 5);
  }
  const auto models = ListPrefixCache(Folder());
  ASSERT_TRUE(models.ok()) << models.status().message();
  ASSERT_EQ(models->size(), 2u);
  int64_t blocks = 0;
  for (const CachedModel& model : *models) {
    EXPECT_TRUE(fs::is_directory(Folder() + "/" + model.folder));
    EXPECT_EQ(model.blocks, model.model_name == "A model" ? 3 : 2);
    EXPECT_TRUE(model.model_name == "A model" || model.model_name == "Another\nmodel");
    EXPECT_EQ(model.tokens, 64 * model.blocks);
    EXPECT_EQ(model.file_bytes, model.blocks * kTestFileBytes);
    EXPECT_GT(model.last_use_s, time(nullptr) - 500);
    EXPECT_EQ(model.last_use_s % 60, 0);
    blocks += model.blocks;
  }
  EXPECT_EQ(blocks, 5);
  EXPECT_EQ((*models)[0].model_name, "A model");
}

TEST_F(CacheToolsTest, StatesAreCountedApart) {
  KvBlockFolderOptions options = Options();
  options.state_bytes = 2000;
  const KvBlockPath path = prompt_.PathTo(1);
  ASSERT_TRUE(Open(options)->WriteState(path, prompt_.TokensOf(1), DataOf(path.back(), 2000)));
  const auto models = ListPrefixCache(Folder());
  ASSERT_TRUE(models.ok());
  for (const CachedModel& model : *models) {
    const bool is_first = model.model_name == "A model";
    EXPECT_EQ(model.states, is_first ? 1 : 0);
    EXPECT_EQ(model.blocks, is_first ? 3 : 2);
    EXPECT_EQ(model.tokens, 64 * model.blocks);
    EXPECT_EQ(model.file_bytes, model.blocks * kTestFileBytes + (is_first ? 2512 : 0));
  }
  const std::string file = Files(".state")[0];
  Damage(file);
  const auto check = VerifyPrefixCache(Folder(), true);
  ASSERT_TRUE(check.ok());
  EXPECT_EQ(check->blocks, 5);
  EXPECT_EQ(check->states, 1);
  ASSERT_EQ(check->damaged.size(), 1u);
  EXPECT_EQ(Folder() + "/" + check->damaged[0].file, file);
  EXPECT_FALSE(fs::exists(file));
  ASSERT_TRUE(Open(options)->WriteState(path, prompt_.TokensOf(1), DataOf(path.back(), 2000)));
  const auto cleared = ClearPrefixCache(Folder());
  ASSERT_TRUE(cleared.ok());
  EXPECT_EQ(cleared->states, 1);
  EXPECT_EQ(cleared->blocks, 5);
  EXPECT_TRUE(fs::is_empty(Folder()));
}

TEST_F(CacheToolsTest, AModelsNameComesFromAGoodBlock) {
  for (const std::string& path : Files()) truncate(path.c_str(), 100);
  auto models = ListPrefixCache(Folder());
  ASSERT_TRUE(models.ok());
  ASSERT_EQ(models->size(), 2u);
  EXPECT_EQ((*models)[0].model_name, "");
}

TEST_F(CacheToolsTest, DamagedBlocksAreNamed) {
  auto check = VerifyPrefixCache(Folder(), false);
  ASSERT_TRUE(check.ok());
  EXPECT_EQ(check->blocks, 5);
  EXPECT_EQ(check->file_bytes, 5 * kTestFileBytes);
  EXPECT_TRUE(check->damaged.empty());
  const std::vector<std::string> files = Files();
  Damage(files[0]);
  ASSERT_EQ(truncate(files[1].c_str(), 2000), 0);
  ASSERT_EQ(truncate(files[2].c_str(), 20), 0);
  fs::copy_file(files[4], files[3], fs::copy_options::overwrite_existing);
  check = VerifyPrefixCache(Folder(), false);
  ASSERT_TRUE(check.ok());
  EXPECT_EQ(check->blocks, 5);
  ASSERT_EQ(check->damaged.size(), 4u);
  EXPECT_EQ(Folder() + "/" + check->damaged[0].file, files[0]);
  EXPECT_EQ(check->damaged[0].what, "has another checksum than its contents");
  EXPECT_EQ(check->damaged[1].what, "is cut off, or too long");
  EXPECT_EQ(check->damaged[2].what, "is cut off");
  EXPECT_EQ(Files().size(), 5u);
  check = VerifyPrefixCache(Folder(), true);
  ASSERT_TRUE(check.ok());
  EXPECT_EQ(check->damaged.size(), 4u);
  EXPECT_EQ(Files(), (std::vector<std::string>{files[4]}));
}

TEST_F(CacheToolsTest, AFirstBlockInAnotherModelsFolderIsDamage) {
  const std::string name = store::FileName({prompt_.keys[0]});
  fs::rename(FolderOf("model") + "/" + name, FolderOf("another model") + "/" + name);
  const auto check = VerifyPrefixCache(Folder(), false);
  ASSERT_TRUE(check.ok());
  ASSERT_EQ(check->damaged.size(), 1u);
  EXPECT_EQ(check->damaged[0].what, "has another key than its tokens");
}

TEST_F(CacheToolsTest, ClearRemovesOnlyWhatTheProgramMade) {
  const std::string model = fs::path(Files()[0]).parent_path().string();
  const std::string hex(64, 'b');
  std::ofstream(Folder() + "/notes.txt") << "mine";
  std::ofstream(model + "/notes.txt") << "mine";
  std::ofstream(model + "/." + hex + ".12.1.tmp") << "part";
  fs::create_directory(Folder() + "/kv-x");
  const std::string elsewhere = folder_.Write("elsewhere", "precious");
  fs::create_symlink(elsewhere, model + "/" + hex + ".kv");
  const std::string linked = "." + hex + ".12.2.tmp";
  fs::create_symlink(elsewhere, model + "/" + linked);
  fs::create_directory(folder_.Path("far"));
  folder_.Write("far/" + hex + ".kv", "precious");
  fs::create_directory_symlink(folder_.Path("far"), Folder() + "/kv-" + hex);
  const auto cleared = ClearPrefixCache(Folder());
  ASSERT_TRUE(cleared.ok()) << cleared.status().message();
  EXPECT_EQ(cleared->blocks, 5);
  EXPECT_EQ(cleared->file_bytes, 5 * kTestFileBytes);
  std::vector<std::string> left = cleared->left;
  std::sort(left.begin(), left.end());
  const std::string model_name = fs::path(model).filename().string();
  std::vector<std::string> expected = {"kv-x",
                                       "kv-" + hex,
                                       "notes.txt",
                                       model_name + "/notes.txt",
                                       model_name + "/" + linked,
                                       model_name + "/" + hex + ".kv"};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(left, expected);
  EXPECT_EQ(folder_.Read("elsewhere"), "precious");
  EXPECT_EQ(folder_.Read("far/" + hex + ".kv"), "precious");
  EXPECT_TRUE(fs::exists(Folder() + "/notes.txt"));
  EXPECT_FALSE(fs::exists(Folder() + "/CACHEDIR.TAG"));
}

TEST_F(CacheToolsTest, ClearRemovesTheHashesOfWeights) {
  const std::string hash = "minisgl-0123456789abcdef.sha256";
  std::ofstream(Folder() + "/" + hash) << "hash";
  std::ofstream(Folder() + "/." + hash + ".12.3.tmp") << "part";
  EXPECT_TRUE(ListPrefixCache(Folder()).ok());
  std::vector<std::string> others = {"minisgl-0123456789abcdeX.sha256", "minisgl-.sha256",
                                     "x" + hash, hash + ".tmp", ".x" + hash + ".tmp"};
  for (const std::string& name : others) std::ofstream(Folder() + "/" + name) << "mine";
  const auto cleared = ClearPrefixCache(Folder());
  ASSERT_TRUE(cleared.ok());
  std::sort(others.begin(), others.end());
  EXPECT_EQ(cleared->left, others);
}

TEST_F(CacheToolsTest, AClearedCacheIsEmptyAndCanBeUsedAgain) {
  const auto store = Open();
  ASSERT_TRUE(ClearPrefixCache(Folder()).ok());
  EXPECT_TRUE(fs::is_empty(Folder()));
  const auto models = ListPrefixCache(Folder());
  ASSERT_TRUE(models.ok()) << models.status().message();
  EXPECT_TRUE(models->empty());
  EXPECT_TRUE(ClearPrefixCache(Folder()).ok());
  // A process that has it open goes on.
  EXPECT_EQ(CountReadable(store.get(), prompt_), 0);
  EXPECT_EQ(WriteAllBlocks(store.get(), prompt_), 3);
  EXPECT_EQ(CountReadable(store.get(), prompt_), 3);
}

TEST_F(CacheToolsTest, AFolderOfOtherFilesIsRefused) {
  fs::remove_all(Folder());
  fs::create_directory(Folder());
  ASSERT_EQ(chmod(Folder().c_str(), 0700), 0);
  std::ofstream(Folder() + "/notes.txt") << "mine";
  ExpectRefused(StatusCode::kBadInput,
                Folder() + ": is not a prefix cache (found notes.txt in it); nothing was done");
  std::ofstream(Folder() + "/CACHEDIR.TAG") << "Signature: 8a477f597d28d172789f06886806bc55\n";
  ExpectRefused(StatusCode::kBadInput, "is not a prefix cache");
  EXPECT_TRUE(fs::exists(Folder() + "/notes.txt"));
}

// A process that is killed at its start has made the folder, a file of hashes or an empty tag.
TEST_F(CacheToolsTest, AFolderThatWasJustBegunIsAnEmptyCache) {
  fs::remove_all(Folder());
  fs::create_directory(Folder());
  ASSERT_EQ(chmod(Folder().c_str(), 0700), 0);
  std::ofstream(Folder() + "/.minisgl-0123456789abcdef.sha256.17.1.tmp") << "01";
  std::ofstream(Folder() + "/CACHEDIR.TAG").flush();
  const auto models = ListPrefixCache(Folder());
  ASSERT_TRUE(models.ok()) << models.status().message();
  EXPECT_TRUE(models->empty());
  const auto check = VerifyPrefixCache(Folder(), true);
  EXPECT_TRUE(check.ok()) << check.status().message();
  Open(Options());
  EXPECT_NE(fs::file_size(Folder() + "/CACHEDIR.TAG"), 0u);
  const auto cleared = ClearPrefixCache(Folder());
  ASSERT_TRUE(cleared.ok()) << cleared.status().message();
  EXPECT_TRUE(cleared->left.empty()) << cleared->left.front();
}

TEST_F(CacheToolsTest, AFolderThatCannotBeTrustedIsRefused) {
  ASSERT_EQ(chmod(Folder().c_str(), 0755), 0);
  ExpectRefused(StatusCode::kBadInput, "gives other users access to what prompts said");
  EXPECT_EQ(Files().size(), 5u);
  fs::remove_all(Folder());
  ExpectRefused(StatusCode::kNoInput, "cannot be opened as a folder (No such file or directory)");
  EXPECT_FALSE(fs::exists(Folder()));
}

}  // namespace
}  // namespace minisgl
