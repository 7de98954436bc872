// Blocks with marks, and the bytes of those without.
#include <algorithm>
#include <string>
#include <vector>

#include "minisgl/base/sha256.h"
#include "minisgl/store/kv_block_memory.h"
#include "store/block_file.h"
#include "store/block_key.h"
#include "store/store_fixture.h"

namespace minisgl {
namespace {

using store::BlockHeader;
using store::FileKind;

constexpr ContentHash kCat = {7, 1}, kDog = {7, 2};

std::vector<TokenId> Odd(size_t count) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(7 + 3 * i));
  return tokens;
}

std::vector<std::byte> Data() {
  std::vector<std::byte> data;
  for (int i = 0; i < 200; ++i) data.push_back(static_cast<std::byte>(7 * i));
  return data;
}

std::string HashOf(const BlockHeader& header) {
  Sha256 hash;
  hash.Add({reinterpret_cast<const char*>(&header), sizeof(header)});
  return hash.FinishHex();
}

// Files on disk outlive the program.
TEST(BlockMarksTest, HeadersWithoutMarksAreThoseOfEarlierVersions) {
  const std::vector<TokenId> tokens = Odd(128);
  const std::vector<KvBlockKey> keys = KvBlockKeys("model", tokens);
  const auto hash_of = [&](FileKind kind) {
    return HashOf(MakeBlockHeader(kind, store::RootKey("model"), keys, std::span(tokens).last(64),
                                  "A model", Data()));
  };
  EXPECT_EQ(hash_of(FileKind::kBlock),
            "d60d0fac18ea7f26f0353f961d778fdc6f63cf9e55ccb3c82b59692c3031df10");
  EXPECT_EQ(hash_of(FileKind::kState),
            "833255f6aa1992e09b7306f0c7afbd1e47243c60f20c7361200d3ef4760119a5");
}

TEST(BlockMarksTest, AMarkChangesTheKeyOfItsBlockAndOfAllBehindIt) {
  const std::vector<TokenId> tokens = Odd(256);
  const std::vector<KvBlockKey> keys = KvBlockKeys("model", tokens);
  std::vector<KvBlockKey> seen = keys;
  for (const int64_t place : {0, 1, 63, 64, 100, 255}) {
    for (const ContentHash& hash : {kCat, kDog}) {
      const std::vector<KeyMark> marks = {{place, hash}};
      const std::vector<KvBlockKey> others = KvBlockKeys("model", {tokens, marks});
      for (size_t block = 0; block < keys.size(); ++block) {
        EXPECT_EQ(others[block] == keys[block], static_cast<int64_t>(block) < place / 64) << place;
        if (static_cast<int64_t>(block) < place / 64) continue;
        EXPECT_EQ(std::count(seen.begin(), seen.end(), others[block]), 0) << place;
        seen.push_back(others[block]);
      }
    }
  }
}

TEST(BlockMarksTest, AFileSaysWhichMarksItsBlockHas) {
  const std::vector<TokenId> tokens = Odd(128);
  const std::vector<KeyMark> marks = {{10, kCat}, {70, kCat}}, others = {{10, kCat}, {70, kDog}};
  const PrefixKey key(tokens, marks), other(tokens, others);
  const KvBlockKey root = store::RootKey("model");
  const std::vector<KvBlockKey> path = KvBlockKeys("model", key);
  const std::string name(200, 'n');
  for (const FileKind kind : {FileKind::kBlock, FileKind::kState}) {
    const BlockHeader header = MakeBlockHeader(kind, root, path, key.subspan(64), name, Data());
    EXPECT_EQ(HeaderFault(kind, header, root, path.back(), sizeof(header) + 200), "");
    EXPECT_TRUE(IsBlock(kind, header, root, path, key.subspan(64), Data()));
    EXPECT_FALSE(IsBlock(kind, header, root, path, other.subspan(64), Data()));
    EXPECT_FALSE(IsBlock(kind, header, root, path, PrefixKey(tokens).subspan(64), Data()));
    EXPECT_EQ(ModelNameOf(header), std::string(119, 'n')) << "the digest takes room of the name";
    // As if another picture, or none, had made it.
    BlockHeader forged = header;
    forged.model_name.back() ^= 1;
    EXPECT_NE(HeaderFault(kind, forged, root, path.back(), sizeof(header) + 200), "");
    forged = header;
    forged.magic = kind == FileKind::kBlock ? store::kBlockMagic : store::kStateMagic;
    EXPECT_NE(HeaderFault(kind, forged, root, path.back(), sizeof(header) + 200), "");
  }
}

class MarkedStoreTest : public StoreTest {};

// On disk, in memory, and on disk as another process finds it.
TEST_F(MarkedStoreTest, ABlockIsFoundWithItsMarksAlone) {
  const std::vector<TokenId> tokens = Odd(128);
  const std::vector<KeyMark> cat = {{70, kCat}}, dog = {{70, kDog}};
  std::vector<std::byte> data(kTestBlockBytes), read(kTestBlockBytes);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 31);
  const auto check = [&](KvBlockStore* store) {
    const std::vector<KvBlockKey> path = store->Keys(PrefixKey(tokens, cat));
    EXPECT_EQ(store->Find(path), 2);
    EXPECT_TRUE(store->Read(path, PrefixKey(tokens, cat).subspan(64), read) && read == data);
    EXPECT_EQ(store->Find(store->Keys(PrefixKey(tokens, dog))), 1);
    EXPECT_EQ(store->Find(store->Keys(tokens)), 1);
  };
  const auto fill = [&](KvBlockStore* store) {
    const std::vector<KvBlockKey> path = store->Keys(PrefixKey(tokens, cat));
    const PrefixKey key(tokens, cat);
    EXPECT_TRUE(store->Write(KvBlockPath(path).first(1), key.first(64), data));
    EXPECT_TRUE(store->Write(path, key.subspan(64), data));
  };
  const auto memory = MakeKvBlockMemory(
      {.max_bytes = 1 << 20, .identity = "model", .block_bytes = kTestBlockBytes});
  fill(memory.get());
  check(memory.get());
  {
    const auto store = Open();
    fill(store.get());
    check(store.get());
  }
  check(Open().get());
  EXPECT_EQ(warnings_, std::vector<std::string>{});
}

}  // namespace
}  // namespace minisgl
