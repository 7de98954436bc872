// Damage of every kind in a store's folder: a miss, never an error and never a wrong byte.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "slow.h"
#include "store_fixture.h"

namespace minisgl {
namespace {

namespace fs = std::filesystem;

std::string ReadFile(const std::string& path) {
  std::stringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

class DamageTest : public StoreTest {
 protected:
  DamageTest() { WriteAllBlocks(Open().get(), prompt_); }

  std::string File() const { return FileOf(prompt_.keys[1]); }

  // The damaged block 1 is a miss: it is removed, and can be written anew.
  void ExpectMiss(const std::string& what) {
    SCOPED_TRACE(what);
    const auto store = Open();
    warnings_.clear();
    EXPECT_FALSE(ReadsBlock(store.get(), prompt_, 1));
    EXPECT_FALSE(fs::exists(fs::symlink_status(File()))) << "the damaged file is still there";
    EXPECT_EQ(store->stats().blocks_damaged, 1);
    ASSERT_EQ(warnings_.size(), 1u);
    EXPECT_EQ(warnings_[0],
              "prefix_cache: " + Folder() +
                  ": a block was damaged; it was removed (minisgl cache verify finds others)");
    EXPECT_EQ(store->Find(prompt_.keys), 1);
    EXPECT_TRUE(ReadsBlock(store.get(), prompt_, 0));
    EXPECT_TRUE(ReadsBlock(store.get(), prompt_, 2));
    EXPECT_TRUE(WriteBlock(store.get(), prompt_, 1));
    EXPECT_TRUE(ReadsBlock(store.get(), prompt_, 1));
    EXPECT_EQ(store->Find(prompt_.keys), 3);
  }

  const TestPrompt prompt_ = TestPrompt("model", 1, 3);
};

TEST_F(DamageTest, AnyChangedByteIsAMiss) {
  const std::string good = ReadFile(File());
  ASSERT_EQ(std::ssize(good), kTestFileBytes);
  const auto store = Open();
  for (size_t at = 0; at < good.size(); at += at < 512 ? 1 : 97) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    WriteFile(File(), bad);
    EXPECT_FALSE(ReadsBlock(store.get(), prompt_, 1)) << at;
    EXPECT_FALSE(fs::exists(File())) << at;
  }
  WriteFile(File(), good);
  EXPECT_TRUE(ReadsBlock(store.get(), prompt_, 1));
  EXPECT_EQ(warnings_.size(), 1u) << "one warning, however many blocks are damaged";
}

TEST_F(DamageTest, AnyOtherLengthIsAMiss) {
  const std::string good = ReadFile(File());
  for (const size_t size : {size_t{0}, size_t{1}, size_t{511}, size_t{512}, good.size() - 1}) {
    WriteFile(File(), good.substr(0, size));
    ExpectMiss(fmt::format("{} bytes", size));
  }
  WriteFile(File(), good + "x");
  ExpectMiss("a byte more");
  WriteFile(File(), std::string(good.size(), '\0'));
  ExpectMiss("zeros, as after a power cut");
}

// Another block's file is whole and has a right checksum.
TEST_F(DamageTest, AFileUnderAnotherName) {
  fs::copy_file(FileOf(prompt_.keys[2]), File(), fs::copy_options::overwrite_existing);
  ExpectMiss("the next block");
  const TestPrompt other("model", 2, 3);
  WriteAllBlocks(Open().get(), other);
  fs::copy_file(FileOf(other.keys[1]), File(), fs::copy_options::overwrite_existing);
  ExpectMiss("a block of another prompt");
}

TEST_F(DamageTest, AFileOfAnotherModelUnderThisOnesName) {
  KvBlockFolderOptions options = Options();
  options.folder = folder_.Path("other");
  options.identity = "another model";
  const TestPrompt same_tokens(options.identity, 1, 3);
  WriteAllBlocks(Open(options).get(), same_tokens);
  for (const auto& entry : fs::recursive_directory_iterator(options.folder)) {
    if (entry.path().extension() != ".kv") continue;
    fs::copy_file(entry.path(), File(), fs::copy_options::overwrite_existing);
    ExpectMiss(entry.path().string());
  }
}

TEST_F(DamageTest, ALinkIsNotFollowed) {
  const std::string elsewhere = folder_.Write("elsewhere", ReadFile(File()));
  fs::remove(File());
  fs::create_symlink(elsewhere, File());
  ExpectMiss("a link to a good block");
  EXPECT_EQ(std::ssize(ReadFile(elsewhere)), kTestFileBytes) << "the link's target was changed";
}

TEST_F(DamageTest, AFifoIsNotWaitedFor) {
  fs::remove(File());
  ASSERT_EQ(mkfifo(File().c_str(), 0600), 0);
  ExpectMiss("a FIFO");
}

TEST_F(DamageTest, AnotherUsersFileIsNotBelieved) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(chown(File().c_str(), 65534, 65534), 0);
  ExpectMiss("another user's file");
}

TEST_F(DamageTest, AFolderWithABlocksNameIsAMiss) {
  fs::remove(File());
  fs::create_directory(File());
  const auto store = Open();
  EXPECT_EQ(store->Find(prompt_.keys), 1);
  EXPECT_FALSE(ReadsBlock(store.get(), prompt_, 1));
  EXPECT_FALSE(WriteBlock(store.get(), prompt_, 1));
  EXPECT_TRUE(store->accepts_blocks()) << "other blocks can be saved";
  EXPECT_TRUE(WriteBlock(store.get(), TestPrompt("model", 2, 1), 0));
  EXPECT_TRUE(Files(".tmp").empty());
}

TEST_F(DamageTest, TheModelsFolderMayBeAnything) {
  const std::string model = ModelFolder();
  const std::string elsewhere = folder_.Path("elsewhere");
  fs::rename(model, elsewhere);
  const auto expect_anew = [&](const std::string& what) {
    SCOPED_TRACE(what);
    const auto store = Open();
    EXPECT_EQ(store->Find(prompt_.keys), 0);
    EXPECT_EQ(WriteAllBlocks(store.get(), prompt_), 3);
    EXPECT_EQ(CountReadable(store.get(), prompt_), 3);
    EXPECT_FALSE(fs::is_symlink(model));
    fs::remove_all(model);
  };
  expect_anew("it is not there");
  fs::create_directory_symlink(elsewhere, model);
  expect_anew("a link to a folder with good blocks");
  EXPECT_EQ(std::distance(fs::directory_iterator(elsewhere), fs::directory_iterator()), 3);
  fs::create_symlink("/nonexistent", model);
  expect_anew("a link to nothing");
  WriteFile(model, "text");
  expect_anew("a file");
}

TEST_F(DamageTest, AFolderThatCannotBeUsedIsNoError) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  ASSERT_EQ(chown(ModelFolder().c_str(), 65534, 65534), 0);
  const auto store = Open();
  EXPECT_EQ(store->Find(prompt_.keys), 0);
  EXPECT_FALSE(ReadsBlock(store.get(), prompt_, 0));
  EXPECT_FALSE(WriteBlock(store.get(), prompt_, 0));
  EXPECT_FALSE(store->accepts_blocks());
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("no more blocks are saved"), std::string::npos);
}

TEST_F(DamageTest, FilesThatAreNoBlocksAreLeftAlone) {
  for (const char* name : {"notes.txt", "x.kv", ".hidden", "kv-x"}) {
    WriteFile(Folder() + "/" + name, "text");
    WriteFile(ModelFolder() + "/" + name, "text");
  }
  KvBlockFolderOptions options = Options();
  options.max_bytes = 4 * kTestFileBytes;
  const auto store = Open(options);
  for (uint64_t prompt = 0; prompt < 10; ++prompt) {
    WriteAllBlocks(store.get(), TestPrompt("model", prompt, 2));
  }
  for (const char* name : {"notes.txt", "x.kv", ".hidden", "kv-x"}) {
    EXPECT_TRUE(fs::exists(Folder() + "/" + name)) << name;
    EXPECT_TRUE(fs::exists(ModelFolder() + "/" + name)) << name;
  }
}

TEST_F(DamageTest, FilesOfDeadWritersAreRemoved) {
  const std::string stem = ModelFolder() + "/." + std::string(64, 'a');
  const std::string dead = stem + ".1.1.tmp", living = stem + ".1.2.tmp", fresh = stem + ".1.3.tmp";
  for (const std::string& path : {dead, living, fresh}) WriteFile(path, "part");
  Age(dead, 2);
  Age(living, 2);
  const int fd = open(living.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  Open();
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(living)) << "it is locked: a process is writing it";
  EXPECT_TRUE(fs::exists(fresh)) << "it may not yet be locked";
  close(fd);
}

TEST_F(DamageTest, AClearedFolderIsMadeAgain) {
  const auto store = Open();
  fs::remove_all(ModelFolder());
  EXPECT_FALSE(ReadsBlock(store.get(), prompt_, 0));
  EXPECT_EQ(WriteAllBlocks(store.get(), TestPrompt("model", 2, 3)), 3);
  EXPECT_EQ(CountReadable(store.get(), TestPrompt("model", 2, 3)), 3);
  EXPECT_TRUE(store->accepts_blocks());
}

TEST_F(DamageTest, ARemovedFolderEndsTheSaving) {
  const auto store = Open();
  fs::remove_all(Folder());
  EXPECT_FALSE(WriteBlock(store.get(), TestPrompt("model", 2, 1), 0));
  EXPECT_FALSE(store->accepts_blocks());
  EXPECT_FALSE(fs::exists(Folder()));
}

// Damage at random places of random files. MINISGL_SEEDS sets how many.
TEST_F(DamageTest, RandomDamageIsNeverBelieved) {
  const char* seeds = getenv("MINISGL_SEEDS");
  const uint64_t count = seeds != nullptr ? strtoull(seeds, nullptr, 10) : 500;
  MarkSlow("hundreds of damaged files");
  const TestPrompt prompt("model", 9, 8);
  const auto store = Open();
  WriteAllBlocks(store.get(), prompt);
  int64_t misses = 0;
  for (uint64_t seed = 0; seed < count; ++seed) {
    const RandomBits bits = PhiloxBits(77, seed);
    const int64_t block = bits.word[0] % 8;
    const std::string path = FileOf(prompt.keys[static_cast<size_t>(block)]);
    const std::string good = ReadFile(path);
    std::string bad = good;
    const size_t at = bits.word[1] % bad.size();
    const size_t length = std::min<size_t>(1 + bits.word[2] % 600, bad.size() - at);
    switch (bits.word[3] % 4) {
      case 0:
        bad[at] = static_cast<char>(bits.word[2]);
        break;
      case 1:
        bad.resize(at);
        break;
      case 2:  // a lost sector
        std::fill_n(bad.begin() + static_cast<ptrdiff_t>(at), length, '\0');
        break;
      default:  // a part of another file
        bad.replace(at, length, ReadFile(FileOf(prompt.keys[static_cast<size_t>((block + 1) % 8)])),
                    at, length);
    }
    WriteFile(path, bad);
    const bool is_read = ReadsBlock(store.get(), prompt, block);
    EXPECT_EQ(is_read, bad == good) << "seed " << seed;
    if (is_read) continue;
    ++misses;
    ASSERT_TRUE(WriteBlock(store.get(), prompt, block));
  }
  EXPECT_EQ(store->stats().blocks_damaged, misses);
  EXPECT_GT(misses, static_cast<int64_t>(count * 9 / 10));
  EXPECT_EQ(warnings_.size(), 1u);
}

}  // namespace
}  // namespace minisgl
