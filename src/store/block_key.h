// The chain of hashes that names blocks.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "minisgl/base/prefix_key.h"
#include "minisgl/base/sha256.h"
#include "minisgl/store/kv_block_store.h"

namespace minisgl::store {

// What stands before the first block of a prefix.
KvBlockKey RootKey(const std::string& identity);

// The digest of a block's marks, their places counted from its first token; unset without marks.
using MarksDigest = std::optional<Sha256::Digest>;
MarksDigest DigestOfMarks(const PrefixKey& block);

// The key of a block behind the block `parent` (the root for the first one).
KvBlockKey ChildKey(const KvBlockKey& parent, std::span<const TokenId> block_tokens,
                    const MarksDigest& marks);
inline KvBlockKey ChildKey(const KvBlockKey& parent, const PrefixKey& block) {
  return ChildKey(parent, block.tokens(), DigestOfMarks(block));
}

// 64 hexadecimal digits.
std::string HexOf(const KvBlockKey& key);

}  // namespace minisgl::store
