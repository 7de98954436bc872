// Several processes on one folder, killed at any moment: a block is whole, or it is not there.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "long_form.h"
#include "minisgl/store/cache_tools.h"
#include "slow.h"
#include "store_fixture.h"

namespace minisgl {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Large enough that many kills hit a write.
constexpr int64_t kBlockBytes = 200'000;
constexpr int64_t kPromptBlocks = 6;
constexpr uint64_t kPrompts = 12;
// Less than all prompts need, so that blocks are removed while others are written and read.
constexpr int64_t kLimitBlocks = 50;

class ProcessesTest : public StoreTest {
 protected:
  KvBlockFolderOptions SmallOptions() const {
    KvBlockFolderOptions options = Options();
    options.block_bytes = kBlockBytes;
    options.max_bytes = kLimitBlocks * (kBlockBytes + 512);
    return options;
  }
  // Writes blocks of random prompts, each behind those before it.
  [[noreturn]] void WriteForever(uint64_t seed) const {
    const auto store = Open(SmallOptions());
    if (store == nullptr) _exit(3);
    for (uint64_t round = 0;; ++round) {
      const TestPrompt prompt("model", PhiloxBits(seed, round).word[0] % kPrompts, kPromptBlocks);
      for (int64_t block = 0; block < prompt.size(); ++block) {
        if (!WriteBlock(store.get(), prompt, block, kBlockBytes)) _exit(4);
      }
    }
  }
  // Reads blocks until the pipe `stop` is closed; ends with 0 if all were right.
  [[noreturn]] void ReadUntil(int stop, uint64_t seed) const {
    const auto store = Open(SmallOptions());
    if (store == nullptr) _exit(3);
    int64_t blocks_read = 0;
    for (uint64_t round = 0; !IsClosed(stop); ++round) {
      const TestPrompt prompt("model", PhiloxBits(seed, round).word[0] % kPrompts, kPromptBlocks);
      const int64_t found = store->Find(prompt.keys);
      for (int64_t block = 0; block < found; ++block) {
        blocks_read += ReadsBlock(store.get(), prompt, block, kBlockBytes) ? 1 : 0;
      }
    }
    const bool is_right = !HasFailure() && store->stats().blocks_damaged == 0;
    _exit(!is_right ? 1 : blocks_read == 0 ? 2 : 0);
  }
  static bool IsClosed(int pipe_end) {
    char byte = 0;
    return read(pipe_end, &byte, 1) == 0;  // not blocking: -1 while the other end is open
  }
  template <typename Body>
  static pid_t Start(Body body) {
    const pid_t pid = fork();
    if (pid == 0) {
      body();
      _exit(0);
    }
    return pid;
  }
  static int ExitStatusOf(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  void ExpectWhole() const {
    const auto check = VerifyPrefixCache(Folder(), false);
    ASSERT_TRUE(check.ok()) << check.status().message();
    EXPECT_TRUE(check->damaged.empty()) << check->damaged[0].file << " " << check->damaged[0].what;
    EXPECT_GT(check->blocks, 10);
  }
};

TEST_F(ProcessesTest, KilledWritersLeaveNoBlockThatIsWrong) {
  MarkSlow("hundreds of processes are killed");
  int stop[2];
  ASSERT_EQ(pipe2(stop, O_CLOEXEC | O_NONBLOCK), 0);
  std::vector<pid_t> readers;
  for (uint64_t i = 0; i < 2; ++i) {
    readers.push_back(Start([&] {
      close(stop[1]);
      ReadUntil(stop[0], 1000 + i);
    }));
  }
  const int64_t kills = ShortOrLong<int64_t>(200, 2000);
  for (int64_t i = 0; i < kills; ++i) {
    const auto seed = static_cast<uint64_t>(i);
    const pid_t writers[] = {Start([&] { WriteForever(seed); }),
                             Start([&] { WriteForever(seed + 5000); })};
    std::this_thread::sleep_for(microseconds(PhiloxBits(9, seed).word[0] % 16'000));
    for (const pid_t writer : writers) kill(writer, SIGKILL);
    for (const pid_t writer : writers) EXPECT_EQ(ExitStatusOf(writer), 128 + SIGKILL) << i;
  }
  close(stop[1]);
  for (const pid_t reader : readers) EXPECT_EQ(ExitStatusOf(reader), 0) << "it read a wrong block";
  ExpectWhole();
  // What the dead left goes after a minute.
  for (const std::string& path : Files(".tmp")) Age(path, 2);
  Open(SmallOptions());
  EXPECT_TRUE(Files(".tmp").empty());
}

TEST_F(ProcessesTest, TwoWritersOfTheSameBlocks) {
  std::vector<pid_t> writers;
  for (int i = 0; i < 2; ++i) {
    writers.push_back(Start([&] {
      const auto store = Open(SmallOptions());
      for (uint64_t number = 0; number < 8; ++number) {
        const TestPrompt prompt("model", number, kPromptBlocks);
        for (int64_t block = 0; block < prompt.size(); ++block) {
          if (!WriteBlock(store.get(), prompt, block, kBlockBytes)) _exit(4);
        }
      }
    }));
  }
  for (const pid_t writer : writers) EXPECT_EQ(ExitStatusOf(writer), 0);
  ExpectWhole();
  EXPECT_EQ(Files().size(), 48u);
}

TEST_F(ProcessesTest, ABlockThatAnotherProcessRemovesIsAMiss) {
  const auto reader = Open(SmallOptions());
  const TestPrompt first("model", 0, kPromptBlocks);
  {
    const auto writer = Open(SmallOptions());
    for (int64_t block = 0; block < first.size(); ++block) {
      ASSERT_TRUE(WriteBlock(writer.get(), first, block, kBlockBytes));
    }
    EXPECT_EQ(reader->Find(first.keys), kPromptBlocks);
    for (const std::string& path : Files()) Age(path, 60);
    for (uint64_t number = 1; number < kPrompts; ++number) {
      const TestPrompt prompt("model", number, kPromptBlocks);
      for (int64_t block = 0; block < prompt.size(); ++block) {
        ASSERT_TRUE(WriteBlock(writer.get(), prompt, block, kBlockBytes));
      }
    }
  }
  EXPECT_EQ(reader->Find(first.keys), kPromptBlocks) << "as far as it knows";
  EXPECT_FALSE(ReadsBlock(reader.get(), first, 0, kBlockBytes));
  EXPECT_EQ(reader->Find(first.keys), 0);
  EXPECT_EQ(reader->stats().blocks_damaged, 0);
  EXPECT_TRUE(warnings_.empty());
}

// A file size limit stands for a full disk: a write ends early with an error.
class FullDiskTest : public StoreTest {
 protected:
  FullDiskTest() {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
  }
  ~FullDiskTest() override { SetRoom(old_.rlim_cur); }
  void SetRoom(rlim_t bytes) const {
    rlimit limit = old_;
    limit.rlim_cur = bytes;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }

  rlimit old_{};
};

TEST_F(FullDiskTest, SavingEndsWithOneWarningAndReadingGoesOn) {
  for (const rlim_t room : {rlim_t{0}, rlim_t{1}, rlim_t{512}, rlim_t{2000}}) {
    warnings_.clear();
    const auto store = Open();
    const TestPrompt stored("model", room, 3), more("model", room + 100'000, 3);
    ASSERT_EQ(WriteAllBlocks(store.get(), stored), 3);
    SetRoom(room);
    EXPECT_EQ(WriteAllBlocks(store.get(), more), 0);
    EXPECT_FALSE(store->accepts_blocks());
    SetRoom(old_.rlim_cur);
    EXPECT_FALSE(WriteBlock(store.get(), more, 0)) << "it does not try again";
    EXPECT_TRUE(WriteBlock(store.get(), stored, 0)) << "it is stored already";
    EXPECT_EQ(store->stats().blocks_not_written, 4);
    EXPECT_TRUE(Files(".tmp").empty());
    EXPECT_EQ(CountReadable(store.get(), stored), 3);
    EXPECT_EQ(CountReadable(store.get(), more), 0);
    ASSERT_EQ(warnings_.size(), 1u);
    EXPECT_EQ(warnings_[0], "prefix_cache: " + Folder() +
                                ": no more blocks are saved (File too large); those in it are "
                                "used");
  }
}

TEST_F(FullDiskTest, AStoreOpensOnAFullDisk) {
  Open();
  std::filesystem::remove(Folder() + "/CACHEDIR.TAG");
  SetRoom(0);
  const auto store = Open();
  EXPECT_EQ(WriteAllBlocks(store.get(), TestPrompt("model", 1, 2)), 0);
  EXPECT_TRUE(Files("TAG").empty()) << "an empty tag would not be recognised";
}

// Mounts a small file system on `folder` that only this process sees. False without the right to.
bool MountSmallDisk(const std::string& folder, const char* options) {
  const std::string uid_map = fmt::format("0 {} 1", geteuid());
  const bool is_root = geteuid() == 0;
  if (unshare(CLONE_NEWNS | (is_root ? 0 : CLONE_NEWUSER)) != 0) return false;
  if (!is_root && !(std::ofstream("/proc/self/uid_map") << uid_map << std::flush)) return false;
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("none", folder.c_str(), "tmpfs", 0, options) == 0;
}

TEST_F(ProcessesTest, AFullDisk) {
  constexpr int kNoMount = 77;
  std::filesystem::create_directory(Folder());
  const pid_t pid = Start([&] {
    if (!MountSmallDisk(Folder(), "size=1m,mode=0700")) _exit(kNoMount);
    const TestPrompt prompt("model", 1, 8);
    const auto store = Open(SmallOptions());
    if (store == nullptr) _exit(3);
    int64_t written = 0;
    while (written < 8 && WriteBlock(store.get(), prompt, written, kBlockBytes)) ++written;
    EXPECT_GE(written, 4);
    EXPECT_LE(written, 5);
    EXPECT_FALSE(store->accepts_blocks());
    EXPECT_TRUE(Files(".tmp").empty());
    EXPECT_EQ(store->Find(prompt.keys), written);
    for (int64_t block = 0; block < written; ++block) {
      EXPECT_TRUE(ReadsBlock(store.get(), prompt, block, kBlockBytes));
    }
    EXPECT_EQ(warnings_.size(), 1u);
    EXPECT_NE(warnings_[0].find("(No space left on device)"), std::string::npos) << warnings_[0];
    // The next process has the blocks, and a limit that suits the disk.
    KvBlockFolderOptions options = SmallOptions();
    options.max_bytes = 0;
    const auto next = Open(options);
    EXPECT_EQ(next->Find(prompt.keys), written);
    EXPECT_FALSE(next->accepts_blocks()) << "a tenth of the disk has no room for a block";
    _exit(HasFailure() ? 1 : 0);
  });
  const int exit_status = ExitStatusOf(pid);
  if (exit_status == kNoMount) GTEST_SKIP() << "a file system cannot be mounted here";
  EXPECT_EQ(exit_status, 0);
}

}  // namespace
}  // namespace minisgl
