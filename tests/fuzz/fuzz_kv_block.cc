// Any bytes as the file of a block: with the block's checksum, believed only if they are the
// block's, bit for bit; with another checksum that is right, only if they say to be that block.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "minisgl/base/check.h"
#include "minisgl/base/utf8.h"
#include "minisgl/store/kv_block_store.h"
#include "store/block_file.h"
#include "store/block_key.h"

namespace {

using namespace minisgl;
using namespace minisgl::store;

// The corpus has the second block of this prompt.
struct Expected {
  Expected() {
    for (TokenId i = 0; i < 2 * kKvBlockTokens; ++i) tokens.push_back(3 * i);
    path = KvBlockKeys("fuzz", tokens);
    for (int i = 0; i < 200; ++i) data.push_back(static_cast<std::byte>(7 * i));
    header = MakeBlockHeader(FileKind::kBlock, root, path, block_tokens(), "A model", data);
  }
  std::span<const TokenId> block_tokens() const { return std::span(tokens).last(kKvBlockTokens); }

  KvBlockKey root = RootKey("fuzz");
  std::vector<TokenId> tokens;
  std::vector<KvBlockKey> path;
  std::vector<std::byte> data;
  BlockHeader header;
};

std::array<uint64_t, 2> ChecksumOf(const BlockHeader& header, std::span<const std::byte> data) {
  BlockChecksum checksum(header);
  for (; data.size() > 50; data = data.subspan(50)) checksum.Add(data.first(50));
  checksum.Add(data);
  return checksum.value();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const Expected expected;
  if (size < sizeof(BlockHeader)) return 0;
  BlockHeader header{};
  std::memcpy(&header, bytes, sizeof(header));
  const auto data = std::as_bytes(std::span(bytes, size)).subspan(sizeof(header));
  const auto is_block = [&] {
    return IsBlock(FileKind::kBlock, header, expected.root, expected.path, expected.block_tokens(),
                   data);
  };
  const bool is_equal =
      std::memcmp(&header, &expected.header, sizeof(header)) == 0 &&
      std::equal(data.begin(), data.end(), expected.data.begin(), expected.data.end());
  // (A fuzzer that watches comparisons finds the checksum of the damaged file.)
  if (is_equal || header.checksum == expected.header.checksum) {
    MINISGL_CHECK(is_block() == is_equal, "{} bytes are believed: {}", size, is_block());
  }

  const auto fault =
      HeaderFault(FileKind::kBlock, header, expected.root, expected.path.back(), size);
  const std::string name = Visible(ModelNameOf(header), 400);
  MINISGL_CHECK(name.size() <= 4 * header.model_name.size(), "a name of {} bytes", name.size());
  header.checksum = ChecksumOf(header, data);
  // With a right checksum the data may differ, but not whose block it is said to be. (A store
  // compares the size of the file before.)
  if (data.size() == expected.data.size() && is_block()) {
    MINISGL_CHECK(fault.empty() && header.key == expected.header.key && header.index == 1 &&
                      header.tokens == expected.header.tokens,
                  "the file of another block is believed ({})", fault);
  }
  // A block is no state.
  MINISGL_CHECK(
      header.magic == kStateMagic || !IsBlock(FileKind::kState, header, expected.root,
                                              expected.path, expected.block_tokens(), data),
      "a file that does not say so is believed to be a state");
  return 0;
}
