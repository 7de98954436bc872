// The file of one block: a header of fixed size, then the block's keys and values. The file of a
// state has the header of the block before it, of another kind, and then the state.
//
// A file may have been damaged, cut off or made by another program, so nothing in it is believed
// before it has been compared with what is expected, and before its checksum was found right. The
// checksum (XXH3, 128 bits) covers the header and the data. It detects accidents; files that are
// made to deceive are kept away by the rights of their folder.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "minisgl/store/kv_block_store.h"

struct XXH3_state_s;

namespace minisgl::store {

// What a file holds: a block of keys and values, or the state after it.
enum class FileKind : uint8_t { kBlock, kState };

inline constexpr std::array<char, 8> kBlockMagic = {'S', 'L', 'G', 'K', 'V', 'B', 'L', '1'};
inline constexpr std::array<char, 8> kStateMagic = {'S', 'L', 'G', 'S', 'T', 'A', 'T', '1'};
// If the block has marks.
inline constexpr std::array<char, 8> kMarkedBlockMagic = {'S', 'L', 'G', 'K', 'V', 'B', 'M', '1'};
inline constexpr std::array<char, 8> kMarkedStateMagic = {'S', 'L', 'G', 'S', 'T', 'A', 'M', '1'};

// As it is in the file. Numbers are little-endian.
struct BlockHeader {
  std::array<char, 8> magic;
  uint32_t num_tokens;
  int32_t index;  // of the block in its prefix, from 0
  uint64_t data_bytes;
  KvBlockKey key;
  KvBlockKey parent;  // the root for the first block of a prefix
  std::array<TokenId, kKvBlockTokens> tokens;
  // For people; filled up with zeros. If the block has marks, the last 32 bytes are their digest.
  std::array<char, 152> model_name;
  std::array<uint64_t, 2> checksum;  // of all before it, and of the data
};
inline constexpr uint64_t kBlockHeaderBytes = 512;
static_assert(sizeof(BlockHeader) == kBlockHeaderBytes, "the header has no gaps");

// The checksum of a file, whose data may be added in pieces.
class BlockChecksum {
 public:
  explicit BlockChecksum(const BlockHeader& header);
  void Add(std::span<const std::byte> data);
  std::array<uint64_t, 2> value() const;

 private:
  std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s*)> state_;
};

// The header of the last block of `path`, whose first block stands behind `root`, or of the state
// after it.
BlockHeader MakeBlockHeader(FileKind kind, const KvBlockKey& root, KvBlockPath path,
                            const PrefixKey& block, std::string_view model_name,
                            std::span<const std::byte> data);

// What is wrong with a file of `file_bytes` that begins with `header`, by the header alone: "" if
// it is the header of a file of this kind of the model `root` under the name `key`.
std::string_view HeaderFault(FileKind kind, const BlockHeader& header, const KvBlockKey& root,
                             const KvBlockKey& key, uint64_t file_bytes);

// True if the header and `data` are those that MakeBlockHeader was given.
bool IsBlock(FileKind kind, const BlockHeader& header, const KvBlockKey& root, KvBlockPath path,
             const PrefixKey& block, std::span<const std::byte> data);

// The name in the header, without its zeros.
std::string ModelNameOf(const BlockHeader& header);

}  // namespace minisgl::store
