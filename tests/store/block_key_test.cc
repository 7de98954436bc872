// The names of blocks on disk.
#include "store/block_key.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

namespace minisgl {
namespace {

std::vector<TokenId> Counting(size_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 7);
  return tokens;
}

TEST(KvBlockKeysTest, OnlyWholeBlocksHaveKeys) {
  for (const size_t count : {0, 1, 63, 64, 65, 127, 128, 1000}) {
    EXPECT_EQ(KvBlockKeys("model", Counting(count)).size(), count / 64) << count;
  }
}

// Files on disk outlive the program: another key for the same tokens would lose them.
TEST(KvBlockKeysTest, KeysAreThoseOfEarlierVersions) {
  const std::vector<KvBlockKey> keys = KvBlockKeys("model", Counting(128));
  EXPECT_EQ(store::HexOf(store::RootKey("model")),
            "0e81c4d726b030c350cd95e4727cad5cf13c633353dc09db180a0b701579351b");
  EXPECT_EQ(store::HexOf(keys[0]),
            "04cdc26666610f05dffb7ccb437df25bf191fbe718d0123dca058d8ca41b81ba");
  EXPECT_EQ(store::HexOf(keys[1]),
            "1bcb44174319e1870f48dec4e0f1d1922a30995bddeddb16dc82855f750177a8");
}

TEST(KvBlockKeysTest, AKeyDependsOnAllTokensUpToItsBlocksEndAndOnNoOther) {
  const std::vector<TokenId> tokens = Counting(256);
  const std::vector<KvBlockKey> keys = KvBlockKeys("model", tokens);
  for (size_t changed = 0; changed < tokens.size(); ++changed) {
    std::vector<TokenId> others = tokens;
    others[changed] += 1 << (changed % 31);
    const std::vector<KvBlockKey> other_keys = KvBlockKeys("model", others);
    for (size_t block = 0; block < keys.size(); ++block) {
      EXPECT_EQ(other_keys[block] == keys[block], block < changed / 64) << changed;
    }
  }
}

TEST(KvBlockKeysTest, KeysOfOtherIdentitiesDiffer) {
  std::set<KvBlockKey> all;
  for (const char* identity : {"", "model", "model ", "Model"}) {
    for (const KvBlockKey& key : KvBlockKeys(identity, Counting(128))) all.insert(key);
    all.insert(store::RootKey(identity));
  }
  EXPECT_EQ(all.size(), 12u);
}

}  // namespace
}  // namespace minisgl
