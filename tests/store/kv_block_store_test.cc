// Blocks in a folder on disk: what is found, who may look, and what goes if there is too much.
#include "minisgl/store/kv_block_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "store/block_key.h"
#include "store_fixture.h"

namespace minisgl {
namespace {

namespace fs = std::filesystem;

TEST_F(StoreTest, ABlockIsReadAsItWasWritten) {
  for (const int64_t bytes : {int64_t{1}, int64_t{512}, int64_t{4096}, int64_t{3} << 20}) {
    KvBlockFolderOptions options = Options();
    options.identity = std::to_string(bytes);
    options.block_bytes = bytes;
    const auto store = Open(options);
    const TestPrompt prompt(options.identity, 1, 3);
    for (int64_t block = 0; block < 3; ++block) {
      EXPECT_FALSE(ReadsBlock(store.get(), prompt, block, bytes));
      EXPECT_TRUE(WriteBlock(store.get(), prompt, block, bytes));
      EXPECT_TRUE(ReadsBlock(store.get(), prompt, block, bytes));
    }
    EXPECT_EQ(store->stats().blocks_written, 3);
    EXPECT_EQ(store->stats().blocks_read, 3);
    EXPECT_EQ(store->Keys(prompt.tokens), prompt.keys);
  }
  EXPECT_TRUE(warnings_.empty()) << warnings_[0];
}

TEST_F(StoreTest, TheNextProcessFindsWhatThisOneWrote) {
  const TestPrompt prompt("model", 1, 5);
  EXPECT_EQ(WriteAllBlocks(Open().get(), prompt), 5);
  const auto later = Open();
  EXPECT_EQ(later->Find(prompt.keys), 5);
  EXPECT_EQ(CountReadable(later.get(), prompt), 5);
}

TEST_F(StoreTest, AProcessFindsWhatAnotherWritesMeanwhile) {
  const auto first = Open(), second = Open();
  const TestPrompt prompt("model", 1, 5);
  EXPECT_EQ(second->Find(prompt.keys), 0);
  EXPECT_EQ(WriteAllBlocks(first.get(), prompt), 5);
  EXPECT_EQ(second->Find(prompt.keys), 5);
  EXPECT_EQ(CountReadable(second.get(), prompt), 5);
  // It need not be written again.
  EXPECT_EQ(WriteAllBlocks(second.get(), prompt), 5);
  EXPECT_EQ(second->stats().blocks_written, 0);
}

TEST_F(StoreTest, FindEndsAtTheFirstBlockThatIsMissing) {
  const auto store = Open();
  const TestPrompt prompt("model", 1, 6);
  WriteAllBlocks(store.get(), prompt);
  EXPECT_EQ(store->Find(TestPrompt("model", 2, 6).keys), 0);
  EXPECT_EQ(store->Find({}), 0);
  ASSERT_EQ(unlink(FileOf(prompt.keys[2]).c_str()), 0);
  EXPECT_FALSE(ReadsBlock(store.get(), prompt, 2));
  EXPECT_EQ(store->Find(prompt.keys), 2);
  EXPECT_EQ(store->stats().blocks_damaged, 0) << "a block that is gone is no damage";
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(StoreTest, BlocksOfAnotherIdentityAreNotFound) {
  const TestPrompt prompt("model", 1, 3);
  WriteAllBlocks(Open().get(), prompt);
  KvBlockFolderOptions options = Options();
  options.identity = "another model";
  const auto other = Open(options);
  EXPECT_EQ(other->Find(TestPrompt(options.identity, 1, 3).keys), 0);
  EXPECT_EQ(other->Find(prompt.keys), 0);
  EXPECT_FALSE(ReadsBlock(other.get(), prompt, 0));
}

// The hash chain makes this impossible; a caller with a wrong path must not get the block either.
TEST_F(StoreTest, ABlockBehindOtherTokensIsNotReturned) {
  const auto store = Open();
  const TestPrompt prompt("model", 1, 3), other("model", 2, 3);
  WriteAllBlocks(store.get(), prompt);
  std::vector<std::byte> data(kTestBlockBytes);
  EXPECT_FALSE(store->Read(prompt.PathTo(1), other.TokensOf(1), data));
  WriteAllBlocks(store.get(), prompt);
  const std::vector<KvBlockKey> wrong_parent = {other.keys[0], prompt.keys[1]};
  EXPECT_FALSE(store->Read(wrong_parent, prompt.TokensOf(1), data));
  WriteAllBlocks(store.get(), prompt);
  const std::vector<KvBlockKey> no_parent = {prompt.keys[1]};
  EXPECT_FALSE(store->Read(no_parent, prompt.TokensOf(1), data));
}

TEST_F(StoreTest, TheFolderIsMadeForItsUserAlone) {
  KvBlockFolderOptions options = Options();
  options.folder = folder_.Path("a/b/cache");
  const mode_t old = umask(0);
  const auto store = Open(options);
  WriteAllBlocks(store.get(), TestPrompt("model", 1, 1));
  umask(old);
  struct stat info {};
  ASSERT_EQ(stat(options.folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
  for (const auto& entry : fs::recursive_directory_iterator(options.folder)) {
    ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0077, 0u) << entry.path();
  }
}

TEST_F(StoreTest, AFolderThatOthersCanReadIsRefused) {
  ASSERT_NE(Open(), nullptr);
  for (const mode_t mode : {0750, 0701, 0710, 0704, 0720, 0777}) {
    ASSERT_EQ(chmod(Folder().c_str(), mode), 0);
    const auto store = OpenKvBlockFolder(Options());
    ASSERT_FALSE(store.ok()) << mode;
    EXPECT_EQ(store.status().code(), StatusCode::kBadInput);
    EXPECT_EQ(store.status().message(), "prefix_cache: " + Folder() +
                                            ": gives other users access to what prompts said " +
                                            fmt::format("(found mode {:04o}); chmod 700 it", mode));
  }
}

// As /tmp, which the system needs open.
TEST_F(StoreTest, AFolderOfOtherThingsIsNotToBeClosed) {
  ASSERT_EQ(mkdir(Folder().c_str(), 0755), 0);
  ASSERT_EQ(chmod(Folder().c_str(), 0755), 0);
  const auto message = [this] { return OpenKvBlockFolder(Options()).status().message(); };
  EXPECT_NE(message().find("chmod 700 it"), std::string::npos) << "it is empty: " << message();
  std::ofstream(Folder() + "/notes.txt") << "x";
  EXPECT_NE(message().find("(found mode 0755); give a folder of its own"), std::string::npos)
      << message();
}

TEST_F(StoreTest, AFolderCanBePreparedBeforeTheStoreIsOpened) {
  EXPECT_TRUE(PrepareKvBlockFolder(Folder()).ok());
  struct stat info {};
  ASSERT_EQ(stat(Folder().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
  EXPECT_TRUE(PrepareKvBlockFolder(Folder()).ok());
  ASSERT_EQ(chmod(Folder().c_str(), 0755), 0);
  EXPECT_EQ(PrepareKvBlockFolder(Folder()).message(),
            OpenKvBlockFolder(Options()).status().message());
}

TEST_F(StoreTest, AnotherUsersFolderIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  ASSERT_NE(Open(), nullptr);
  ASSERT_EQ(chown(Folder().c_str(), 65534, 65534), 0);
  const auto store = OpenKvBlockFolder(Options());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), StatusCode::kBadInput);
  EXPECT_NE(store.status().message().find("belongs to another user (found user 65534"),
            std::string::npos)
      << store.status().message();
}

TEST_F(StoreTest, AFileIsNoFolder) {
  folder_.Write("cache", "text");
  const auto store = OpenKvBlockFolder(Options());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), StatusCode::kBadInput);
}

TEST_F(StoreTest, TheFolderTellsBackupsToLeaveItOut) {
  Open();
  EXPECT_TRUE(folder_.Read("cache/CACHEDIR.TAG")
                  .starts_with("Signature: 8a477f597d28d172789f06886806bc55"));
}

class StoreLimitTest : public StoreTest {
 protected:
  // A store with a limit of `blocks` blocks.
  std::unique_ptr<KvBlockStore> OpenFor(int64_t blocks) const {
    KvBlockFolderOptions options = Options();
    options.max_bytes = blocks * kTestFileBytes;
    return Open(options);
  }
};

TEST_F(StoreLimitTest, TheLimitIsNeverExceeded) {
  const auto store = OpenFor(20);
  for (uint64_t prompt = 0; prompt < 30; ++prompt) {
    for (int64_t block = 0; block < 4; ++block) {
      EXPECT_TRUE(WriteBlock(store.get(), TestPrompt("model", prompt, 4), block));
      EXPECT_LE(Files().size(), 20u);
    }
  }
  EXPECT_EQ(store->stats().blocks_written, 120);
  EXPECT_EQ(store->stats().blocks_evicted, 120 - std::ssize(Files()));
  EXPECT_GE(Files().size(), 18u) << "more was removed than needed";
}

TEST_F(StoreLimitTest, TheLeastRecentlyUsedBlocksGoFirst) {
  const auto store = OpenFor(12);
  const TestPrompt first("model", 1, 4), second("model", 2, 4), third("model", 3, 4);
  WriteAllBlocks(store.get(), first);
  WriteAllBlocks(store.get(), second);
  WriteAllBlocks(store.get(), third);
  for (const std::string& path : Files()) Age(path, 10);
  // A later process, to which the ages are known, uses the first prompt.
  const auto later = OpenFor(12);
  EXPECT_EQ(CountReadable(later.get(), first), 4);
  WriteAllBlocks(later.get(), TestPrompt("model", 4, 3));
  EXPECT_EQ(later->Find(first.keys), 4);
  EXPECT_EQ(later->Find(TestPrompt("model", 4, 3).keys), 3);
  EXPECT_LT(later->Find(second.keys) + later->Find(third.keys), 8);
}

// Without its first block none of a prefix can be used.
TEST_F(StoreLimitTest, TheLastBlocksOfAPrefixGoFirst) {
  const auto store = OpenFor(10);
  const TestPrompt prompt("model", 1, 10);
  WriteAllBlocks(store.get(), prompt);
  WriteBlock(store.get(), TestPrompt("model", 2, 1), 0);
  const int64_t left = store->Find(prompt.keys);
  EXPECT_LT(left, 10);
  EXPECT_EQ(CountReadable(store.get(), prompt), left) << "blocks are left that none can reach";
}

TEST_F(StoreLimitTest, APrefixLongerThanTheLimitKeepsItsBeginning) {
  const auto store = OpenFor(8);
  const TestPrompt prompt("model", 1, 30);
  WriteAllBlocks(store.get(), prompt);
  EXPECT_GE(store->Find(prompt.keys), 6);
}

TEST_F(StoreLimitTest, TheUseOfABlockIsAUseOfThoseBeforeIt) {
  const TestPrompt prompt("model", 1, 4);
  WriteAllBlocks(Open().get(), prompt);
  for (const std::string& path : Files()) Age(path, 10);
  const timespec old = UsedAt(FileOf(prompt.keys[3]));
  const auto store = Open();
  EXPECT_TRUE(ReadsBlock(store.get(), prompt, 2));
  for (size_t block = 0; block < 3; ++block) {
    const timespec used = UsedAt(FileOf(prompt.keys[block]));
    EXPECT_GT(used.tv_sec, old.tv_sec + 500);
    EXPECT_EQ(used.tv_sec % 60, 0);
    EXPECT_EQ(used.tv_nsec, 999'999'999 - static_cast<int64_t>(block));
  }
  EXPECT_EQ(UsedAt(FileOf(prompt.keys[3])).tv_sec, old.tv_sec);
  store->Touch(prompt.keys);
  EXPECT_GT(UsedAt(FileOf(prompt.keys[3])).tv_sec, old.tv_sec + 500);
}

TEST_F(StoreLimitTest, ANewBlockIsAUseOfThoseBeforeIt) {
  const TestPrompt prompt("model", 1, 4);
  WriteAllBlocks(Open().get(), prompt);
  ASSERT_EQ(unlink(FileOf(prompt.keys[3]).c_str()), 0);
  for (const std::string& path : Files()) Age(path, 10);
  const timespec old = UsedAt(FileOf(prompt.keys[0]));
  EXPECT_TRUE(WriteBlock(Open().get(), prompt, 3));
  for (size_t block = 0; block < 4; ++block) {
    EXPECT_GT(UsedAt(FileOf(prompt.keys[block])).tv_sec, old.tv_sec + 500) << block;
  }
}

TEST_F(StoreLimitTest, AMarkedBlockIsNotMarkedAgainInTheSameMinute) {
  const auto store = Open();
  const TestPrompt prompt("model", 1, 2);
  WriteAllBlocks(store.get(), prompt);
  Age(FileOf(prompt.keys[0]), 3);
  const timespec aged = UsedAt(FileOf(prompt.keys[0]));
  store->Touch(prompt.keys);  // unless the minute has just ended
  if (UsedAt(FileOf(prompt.keys[1])).tv_sec - aged.tv_sec > 3 * 60) return;
  EXPECT_EQ(UsedAt(FileOf(prompt.keys[0])).tv_sec, aged.tv_sec);
}

TEST_F(StoreLimitTest, BlocksOfOtherModelsCountAndGoToo) {
  KvBlockFolderOptions options = Options();
  options.identity = "another model";
  options.block_bytes = 10 * kTestBlockBytes;
  const TestPrompt other(options.identity, 1, 2);
  {
    const auto store = Open(options);
    for (int64_t block = 0; block < 2; ++block) {
      ASSERT_TRUE(WriteBlock(store.get(), other, block, options.block_bytes));
    }
  }
  for (const std::string& path : Files()) Age(path, 10);
  const auto store = OpenFor(16);
  EXPECT_EQ(Files().size(), 2u) << "opening a store removes nothing";
  EXPECT_TRUE(WriteBlock(store.get(), TestPrompt("model", 1, 1), 0));
  EXPECT_LE(Files().size(), 2u);
  EXPECT_EQ(Open(options)->Find(other.keys), 1);
}

TEST_F(StoreLimitTest, TwoWritersKeepNearTheLimit) {
  const auto first = OpenFor(64), second = OpenFor(64);
  for (uint64_t prompt = 0; prompt < 100; ++prompt) {
    KvBlockStore* const store = prompt % 2 == 0 ? first.get() : second.get();
    EXPECT_EQ(WriteAllBlocks(store, TestPrompt("model", prompt, 3)), 3);
    // Each learns of the other's blocks after it has written a sixteenth of the limit.
    EXPECT_LE(Files().size(), 64u + 8);
  }
}

TEST_F(StoreLimitTest, ALimitBelowOneBlockIsRefused) {
  KvBlockFolderOptions options = Options();
  options.max_bytes = kTestFileBytes - 1;
  const auto store = OpenKvBlockFolder(options);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), StatusCode::kUsage);
  EXPECT_NE(store.status().message().find(
                "prefix_cache_size is too small (found 3511 bytes); one block of this model has "
                "3512 bytes"),
            std::string::npos)
      << store.status().message();
  options.max_bytes = kTestFileBytes;
  const auto smallest = Open(options);
  const TestPrompt prompt("model", 1, 3);
  EXPECT_EQ(WriteAllBlocks(smallest.get(), prompt), 3);
  EXPECT_EQ(Files().size(), 1u);
}

TEST_F(StoreLimitTest, TheDefaultLimitIsAPartOfTheFreeDisk) {
  KvBlockFolderOptions options = Options();
  options.max_bytes = 0;
  EXPECT_EQ(WriteAllBlocks(Open(options).get(), TestPrompt("model", 1, 3)), 3);
}

class StateStoreTest : public StoreTest {
 protected:
  static constexpr int64_t kStateBytes = 5000;
  static constexpr int64_t kStateFileBytes = kStateBytes + 512;

  KvBlockFolderOptions WithStates() const {
    KvBlockFolderOptions options = Options();
    options.state_bytes = kStateBytes;
    return options;
  }
  static bool WriteStateAfter(KvBlockStore* store, const TestPrompt& prompt, int64_t block) {
    const KvBlockPath path = prompt.PathTo(block);
    return store->WriteState(path, prompt.TokensOf(block), DataOf(path.back(), kStateBytes));
  }
  static bool ReadsStateAfter(KvBlockStore* store, const TestPrompt& prompt, int64_t block) {
    const KvBlockPath path = prompt.PathTo(block);
    std::vector<std::byte> data(kStateBytes, std::byte{0xA5});
    if (!store->ReadState(path, prompt.TokensOf(block), data)) return false;
    EXPECT_TRUE(data == DataOf(path.back(), kStateBytes)) << "a wrong byte of a state";
    return true;
  }
};

TEST_F(StateStoreTest, StatesAreKeptBesideTheirBlocks) {
  const TestPrompt prompt("model", 1, 4);
  {
    const auto store = Open(WithStates());
    EXPECT_FALSE(WriteStateAfter(store.get(), prompt, 1)) << "without its block";
    WriteAllBlocks(store.get(), prompt);
    EXPECT_FALSE(store->HasState(prompt.PathTo(1)));
    EXPECT_FALSE(ReadsStateAfter(store.get(), prompt, 1));
    EXPECT_TRUE(WriteStateAfter(store.get(), prompt, 1));
    EXPECT_TRUE(WriteStateAfter(store.get(), prompt, 1)) << "it is there";
    EXPECT_EQ(store->stats().states_written, 1);
  }
  const auto later = Open(WithStates());
  for (int64_t block = 0; block < 4; ++block) {
    EXPECT_EQ(later->HasState(prompt.PathTo(block)), block == 1);
    EXPECT_EQ(ReadsStateAfter(later.get(), prompt, block), block == 1);
    EXPECT_TRUE(ReadsBlock(later.get(), prompt, block));
  }
  EXPECT_EQ(later->stats().states_read, 1);
  EXPECT_TRUE(warnings_.empty()) << warnings_[0];
}

TEST_F(StateStoreTest, ADamagedStateIsRemovedAlone) {
  const TestPrompt prompt("model", 1, 2);
  const auto store = Open(WithStates());
  WriteAllBlocks(store.get(), prompt);
  const auto damages = {
      +[](const std::string& path) { ASSERT_EQ(truncate(path.c_str(), 3000), 0); },
      +[](const std::string& path) {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(4000);
        file.put('\0').put('\x55').put('\0');
      }};
  for (const auto damage : damages) {
    ASSERT_TRUE(WriteStateAfter(store.get(), prompt, 1));
    damage(Files(".state")[0]);
    EXPECT_FALSE(ReadsStateAfter(store.get(), prompt, 1));
    EXPECT_TRUE(Files(".state").empty());
    EXPECT_FALSE(store->HasState(prompt.PathTo(1)));
  }
  // A block under a state's name, of the right size.
  KvBlockFolderOptions same = WithStates();
  same.identity = "same sizes";
  same.block_bytes = kStateBytes;
  const TestPrompt other(same.identity, 1, 2);
  const auto others = Open(same);
  ASSERT_TRUE(WriteBlock(others.get(), other, 0, kStateBytes));
  const std::string block = store::FileName({other.keys[0]});
  const std::string state = store::FileName({other.keys[0], store::FileKind::kState});
  const std::string folder = Folder() + "/" + store::ModelFolderName(store::RootKey(same.identity));
  fs::copy_file(folder + "/" + block, folder + "/" + state);
  EXPECT_TRUE(others->HasState(other.PathTo(0)));
  EXPECT_FALSE(ReadsStateAfter(others.get(), other, 0));
  EXPECT_EQ(others->stats().blocks_damaged, 1);
  EXPECT_EQ(CountReadable(store.get(), prompt), 2);
  ASSERT_EQ(warnings_.size(), 2u) << "one for each store";
  EXPECT_NE(warnings_[0].find("a state was damaged; it was removed"), std::string::npos);
}

// A state counts for the limit of size, and goes before the blocks that are behind it.
TEST_F(StateStoreTest, OfTheOldestPrefixTheStateGoesFirst) {
  KvBlockFolderOptions options = WithStates();
  options.max_bytes = 4 * kTestFileBytes + 2 * kStateFileBytes;
  const auto store = Open(options);
  const TestPrompt first("model", 1, 2), second("model", 2, 2), third("model", 3, 1);
  WriteAllBlocks(store.get(), first);
  WriteStateAfter(store.get(), first, 1);
  WriteAllBlocks(store.get(), second);
  WriteStateAfter(store.get(), second, 1);
  EXPECT_EQ(Files(".state").size(), 2u);
  for (const std::string& path : Files("")) {
    for (const KvBlockKey& key : first.keys) {
      if (path.find(store::FileName({key}).substr(0, 64)) != std::string::npos) Age(path, 5);
    }
  }
  WriteAllBlocks(store.get(), third);
  EXPECT_FALSE(store->HasState(first.PathTo(1)));
  EXPECT_EQ(store->Find(first.keys), 2);
  EXPECT_TRUE(store->HasState(second.PathTo(1)));
  EXPECT_EQ(store->stats().blocks_evicted, 1);
}

TEST_F(StateStoreTest, ALimitBelowOneStateIsRefused) {
  KvBlockFolderOptions options = WithStates();
  options.max_bytes = kStateFileBytes - 1;
  const auto store = OpenKvBlockFolder(options);
  EXPECT_NE(store.status().message().find("one state of this model has 5512 bytes"),
            std::string::npos)
      << store.status().message();
}

}  // namespace
}  // namespace minisgl
