// Blocks in memory: what is kept, what goes first, and a store over two others.
#include "minisgl/store/kv_block_memory.h"

#include "store/store_fixture.h"

namespace minisgl {
namespace {

const std::string kIdentity = "a model";

std::unique_ptr<KvBlockStore> MakeMemory(int64_t blocks) {
  return MakeKvBlockMemory({.max_bytes = blocks * kTestBlockBytes + 1,
                            .identity = kIdentity,
                            .block_bytes = kTestBlockBytes});
}

bool Holds(KvBlockStore* store, const TestPrompt& prompt, int64_t block) {
  std::vector<std::byte> data(kTestBlockBytes);
  const KvBlockPath path = prompt.PathTo(block);
  return store->Read(path, prompt.TokensOf(block), data) && data == DataOf(path.back());
}

TEST(KvBlockMemoryTest, ReadsWhatWasWritten) {
  const auto store = MakeMemory(10);
  const TestPrompt prompt(kIdentity, 1, 4), other(kIdentity, 2, 2);
  EXPECT_EQ(store->Keys(prompt.tokens), prompt.keys);
  EXPECT_EQ(store->Find(prompt.keys), 0);
  EXPECT_EQ(WriteAllBlocks(store.get(), prompt), 4);
  EXPECT_EQ(store->Find(prompt.keys), 4);
  EXPECT_EQ(store->Find(other.keys), 0);
  for (int64_t block = 0; block < 4; ++block) EXPECT_TRUE(Holds(store.get(), prompt, block));
  EXPECT_FALSE(Holds(store.get(), other, 0));
  // The same key with other tokens is no block: no hash is believed alone.
  std::vector<std::byte> data(kTestBlockBytes);
  EXPECT_FALSE(store->Read(prompt.PathTo(0), other.TokensOf(0), data));
}

TEST(KvBlockMemoryTest, TheLeastRecentlyUsedPrefixLosesItsEndFirst) {
  const auto store = MakeMemory(6);
  const TestPrompt first(kIdentity, 1, 3), second(kIdentity, 2, 3), third(kIdentity, 3, 2);
  WriteAllBlocks(store.get(), first);
  WriteAllBlocks(store.get(), second);
  store->Touch(first.PathTo(2));
  WriteAllBlocks(store.get(), third);
  EXPECT_EQ(store->Find(first.keys), 3);
  EXPECT_EQ(store->Find(second.keys), 1);
  EXPECT_EQ(store->Find(third.keys), 2);
  EXPECT_EQ(store->stats().blocks_evicted, 2);
}

TEST(KvBlockMemoryTest, TiersReadTheNearOneFirstAndFillIt) {
  auto near_store = MakeMemory(2), far_store = MakeMemory(10);
  KvBlockStore* const near = near_store.get();
  KvBlockStore* const far = far_store.get();
  const auto tiers = MakeKvBlockTiers(std::move(near_store), std::move(far_store));
  const TestPrompt prompt(kIdentity, 1, 4);
  EXPECT_EQ(WriteAllBlocks(tiers.get(), prompt), 4);
  EXPECT_EQ(near->Find(prompt.keys), 2);
  EXPECT_EQ(far->Find(prompt.keys), 4);
  EXPECT_EQ(tiers->Find(prompt.keys), 4);
  for (int64_t block = 0; block < 4; ++block) EXPECT_TRUE(Holds(tiers.get(), prompt, block));
  const int64_t far_reads = far->stats().blocks_read;
  EXPECT_EQ(far_reads, 2);
  EXPECT_TRUE(Holds(tiers.get(), prompt, 0));
  EXPECT_EQ(far->stats().blocks_read, far_reads);
}

TEST(KvBlockMemoryTest, StatesCountAndGoBeforeTheirBlocks) {
  const auto store = MakeKvBlockMemory({.max_bytes = 5 * kTestBlockBytes,
                                        .identity = kIdentity,
                                        .block_bytes = kTestBlockBytes,
                                        .state_bytes = 2 * kTestBlockBytes});
  const TestPrompt first(kIdentity, 1, 2), second(kIdentity, 2, 2);
  const auto state = DataOf(first.keys[1], 2 * kTestBlockBytes);
  EXPECT_FALSE(store->WriteState(first.PathTo(1), first.TokensOf(1), state));
  WriteAllBlocks(store.get(), first);
  EXPECT_TRUE(store->WriteState(first.PathTo(1), first.TokensOf(1), state));
  EXPECT_TRUE(store->HasState(first.PathTo(1)));
  EXPECT_FALSE(store->HasState(first.PathTo(0)));
  std::vector<std::byte> data(state.size());
  EXPECT_TRUE(store->ReadState(first.PathTo(1), first.TokensOf(1), data));
  EXPECT_TRUE(data == state);
  EXPECT_FALSE(store->ReadState(first.PathTo(1), second.TokensOf(1), data));
  WriteAllBlocks(store.get(), second);
  EXPECT_FALSE(store->HasState(first.PathTo(1)));
  EXPECT_EQ(store->Find(first.keys), 2);
  EXPECT_EQ(store->Find(second.keys), 2);
  EXPECT_EQ(store->stats().blocks_evicted, 1);
}

}  // namespace
}  // namespace minisgl
