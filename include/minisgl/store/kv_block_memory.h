// A KvBlockStore in the memory of the process, and one over two stores.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "minisgl/store/kv_block_store.h"

namespace minisgl {

struct KvBlockMemoryOptions {
  int64_t max_bytes = 0;  // of the data of blocks and states; at least one block
  std::string identity;   // as KvBlockFolderOptions::identity
  int64_t block_bytes = 0;
  int64_t state_bytes = 0;  // 0: the model has none
};

// Keeps blocks and states until they are too many; those least recently used go first.
std::unique_ptr<KvBlockStore> MakeKvBlockMemory(const KvBlockMemoryOptions& options);

// Reads from `near` what it has, and else from `far`; what is read there is put into `near`, too.
// Writes go to both. REQUIRES equal identities and sizes of blocks.
std::unique_ptr<KvBlockStore> MakeKvBlockTiers(std::unique_ptr<KvBlockStore> near,
                                               std::unique_ptr<KvBlockStore> far);

}  // namespace minisgl
