// One store used by several threads at once.
#include <atomic>
#include <thread>

#include "minisgl/store/cache_tools.h"
#include "slow.h"
#include "store_fixture.h"

namespace minisgl {
namespace {

TEST_F(StoreTest, ThreadsShareAStore) {
  MarkSlow("under the thread sanitizer");
  KvBlockFolderOptions options = Options();
  options.max_bytes = 40 * kTestFileBytes;  // less than all prompts need: blocks are removed
  const auto store = Open(options);
  constexpr uint64_t kNumPrompts = 12;
  std::vector<TestPrompt> prompts;
  for (uint64_t number = 0; number < kNumPrompts; ++number)
    prompts.emplace_back("model", number, 5);
  std::atomic<int64_t> blocks_read{0};
  const auto work = [&](uint64_t seed) {
    for (uint64_t round = 0; round < 60; ++round) {
      const RandomBits bits = PhiloxBits(seed, round);
      const TestPrompt& prompt = prompts[bits.word[0] % kNumPrompts];
      const int64_t found = store->Find(prompt.keys);
      for (int64_t block = 0; block < found; ++block) {
        blocks_read += ReadsBlock(store.get(), prompt, block) ? 1 : 0;
      }
      for (int64_t block = 0; block < prompt.size(); ++block) {
        EXPECT_TRUE(WriteBlock(store.get(), prompt, block));
      }
      store->Touch(prompt.PathTo(bits.word[1] % 5));
      if (bits.word[2] % 16 == 0) {
        EXPECT_TRUE(ClearPrefixCache(Folder()).ok());
      }
      EXPECT_GE(store->stats().blocks_written, 0);
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(blocks_read, 0);
  EXPECT_EQ(store->stats().blocks_damaged, 0);
  EXPECT_TRUE(store->accepts_blocks());
  EXPECT_TRUE(warnings_.empty());
}

}  // namespace
}  // namespace minisgl
