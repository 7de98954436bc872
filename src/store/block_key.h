// The chain of hashes that names blocks.
#pragma once

#include <span>
#include <string>

#include "minisgl/base/ids.h"
#include "minisgl/store/kv_block_store.h"

namespace minisgl::store {

// What stands before the first block of a prefix.
KvBlockKey RootKey(const std::string& identity);

// The key of a block behind the block `parent` (the root for the first one).
KvBlockKey ChildKey(const KvBlockKey& parent, std::span<const TokenId> block_tokens);

// 64 hexadecimal digits.
std::string HexOf(const KvBlockKey& key);

}  // namespace minisgl::store
