#include "minisgl/kv/state_pool.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "minisgl/kv/prefix_cache.h"

namespace minisgl {
namespace {

std::vector<TokenId> Range(int32_t first, int32_t count) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// A radix cache over pages of four tokens, with states.
class StateCacheTest : public testing::Test {
 protected:
  // Caches `tokens` and locks nothing.
  void Cache(const std::vector<TokenId>& tokens) {
    const PrefixMatch match = cache_->Match({});
    cache_->Lock(match.node);
    std::vector<PageId> pages(tokens.size() / 4);
    std::iota(pages.begin(), pages.end(), next_page_);
    next_page_ += static_cast<PageId>(pages.size());
    const PrefixInsertion inserted = cache_->Insert(match.node, 0, tokens, pages);
    cache_->Unlock(match.node);
    static_cast<void>(inserted);
  }
  StateSlot Attach(const std::vector<TokenId>& tokens) {
    const StateSlot slot = pool_.Take();
    EXPECT_TRUE(cache_->AttachState(tokens, slot));
    return slot;
  }
  void Check() {
    cache_->CheckInvariants({});
    pool_.CheckInvariants({}, {});
  }

  StatePool pool_{4};
  std::unique_ptr<PrefixCache> cache_ = MakeRadixCache(4, nullptr, &pool_);
  PageId next_page_ = 0;
};

TEST_F(StateCacheTest, AMatchEndsAtTheDeepestSnapshot) {
  const std::vector<TokenId> tokens = Range(0, 40);
  Cache(tokens);
  PrefixMatch match = cache_->Match(tokens);
  EXPECT_TRUE(match.pages.empty());
  EXPECT_EQ(match.state, kZeroState);
  EXPECT_EQ(match.cached_pages, 10u);
  const StateSlot early = Attach(Range(0, 8)), late = Attach(Range(0, 24));
  match = cache_->Match(tokens);
  EXPECT_EQ(match.pages.size(), 6u);
  EXPECT_EQ(match.state, late);
  EXPECT_EQ(match.cached_pages, 10u);
  match = cache_->Match(Range(0, 20));
  EXPECT_EQ(match.pages.size(), 2u);
  EXPECT_EQ(match.state, early);
  EXPECT_EQ(match.cached_pages, 5u);
  Check();
}

TEST_F(StateCacheTest, ASnapshotIsOfWholeCachedPrefixesAndOnlyOnce) {
  Cache(Range(0, 16));
  Attach(Range(0, 8));
  const StateSlot slot = pool_.Take();
  EXPECT_FALSE(cache_->AttachState(Range(0, 8), slot));
  EXPECT_FALSE(cache_->AttachState(Range(0, 20), slot));
  EXPECT_FALSE(cache_->AttachState(Range(1, 8), slot));
  pool_.Give(slot);
  Check();
}

// The cached path goes on after a node with a snapshot, in a node of its own.
TEST_F(StateCacheTest, ANodeWithASnapshotDoesNotGrow) {
  Cache(Range(0, 8));
  const StateSlot slot = Attach(Range(0, 8));
  Cache(Range(0, 16));
  const PrefixMatch match = cache_->Match(Range(0, 16));
  EXPECT_EQ(match.pages.size(), 2u);
  EXPECT_EQ(match.state, slot);
  EXPECT_EQ(match.cached_pages, 4u);
}

TEST_F(StateCacheTest, SnapshotsGoWithTheirPages) {
  Cache(Range(0, 16));
  Attach(Range(0, 16));
  Attach(Range(0, 8));
  std::vector<PageId> freed;
  cache_->Evict(1, &freed);  // the last page of the longer prefix
  EXPECT_EQ(pool_.num_snapshots(), 1);
  EXPECT_EQ(pool_.num_free(), 3);
  Check();
  cache_->Evict(3, &freed);
  EXPECT_EQ(pool_.num_snapshots(), 0);
  EXPECT_EQ(pool_.num_free(), 4);
  Check();
}

TEST_F(StateCacheTest, TheLeastRecentlyUsedSnapshotIsEvicted) {
  Cache(Range(0, 32));
  for (const int32_t length : {8, 16, 24, 32}) Attach(Range(0, length));
  EXPECT_EQ(pool_.num_free(), 0);
  EXPECT_EQ(pool_.num_available(), 4);
  const PrefixMatch used = cache_->Match(Range(0, 8));
  const StateSlot pinned = cache_->Match(Range(0, 16)).state;
  pool_.Pin(pinned);
  EXPECT_EQ(pool_.num_available(), 3);
  std::vector<StateSlot> taken = {pool_.Take()};
  EXPECT_EQ(cache_->Match(Range(0, 31)).pages.size(), 4u) << "the third went, which was oldest";
  taken.push_back(pool_.Take());
  EXPECT_EQ(cache_->Match(Range(0, 32)).pages.size(), 4u);
  taken.push_back(pool_.Take());
  EXPECT_EQ(taken.back(), used.state);
  EXPECT_EQ(pool_.num_available(), 0) << "the last one has a pin";
  pool_.CheckInvariants(taken, std::vector<StateSlot>{pinned});
  pool_.Unpin(pinned);
  EXPECT_EQ(pool_.Take(), pinned);
}

TEST_F(StateCacheTest, AHeldSnapshotStaysUntilItIsCopied) {
  Cache(Range(0, 32));
  for (const int32_t length : {8, 16, 24, 32}) Attach(Range(0, length));
  const StateSlot held = cache_->Match(Range(0, 8)).state;
  pool_.Hold(held);
  pool_.Hold(held);
  EXPECT_EQ(pool_.num_held(), 1);
  EXPECT_EQ(pool_.num_available(), 3);
  // A pin beside a hold promises nothing: it may end first.
  pool_.Pin(held);
  EXPECT_EQ(pool_.num_pinned(), 0);
  pool_.CheckInvariants({}, std::vector<StateSlot>{held}, std::vector<StateSlot>{held, held});
  std::vector<StateSlot> taken;
  while (pool_.num_available() > 0) taken.push_back(pool_.Take());
  EXPECT_EQ(taken.size(), 3u);
  EXPECT_EQ(std::count(taken.begin(), taken.end(), held), 0);
  pool_.Unhold(held);
  pool_.Unhold(held);
  EXPECT_EQ(pool_.num_held(), 0);
  EXPECT_EQ(pool_.num_pinned(), 1);
  pool_.Unpin(held);
  EXPECT_EQ(pool_.Take(), held);
}

TEST_F(StateCacheTest, ThePathHasItsSnapshots) {
  Cache(Range(0, 32));
  const PrefixMatch whole = cache_->Match(Range(0, 32));
  EXPECT_TRUE(cache_->PathStates(whole.node).empty());
  Attach(Range(0, 24));
  Attach(Range(0, 8));
  PrefixMatch match = cache_->Match(Range(0, 24));
  std::vector<PathState> states = cache_->PathStates(match.node);
  ASSERT_EQ(states.size(), 2u);
  EXPECT_EQ(states[0].num_pages, std::ssize(match.pages));
  EXPECT_EQ(states[0].slot, match.state);
  match = cache_->Match(Range(0, 8));
  EXPECT_EQ(states[1].num_pages, std::ssize(match.pages));
  EXPECT_EQ(states[1].slot, match.state);
}

}  // namespace
}  // namespace minisgl
