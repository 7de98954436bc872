// Keys and values of prompt prefixes that outlive the process, in blocks of kKvBlockTokens tokens.
//
// A block is found by the hash of all tokens and marks (base/prefix_key.h) up to its end and of the
// store's identity, so a block of another model, or behind other tokens, is never found. Neither is
// a damaged block: a store may lose blocks at any time, but never returns a wrong byte.
//
// If layers of the model have states, a store keeps them, too, at the ends of blocks alone: a state
// elsewhere would need the keys of a part of a block. A state has the key of the block before it.
// It is of use only with all blocks up to there, and is lost no later than the last of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/prefix_key.h"
#include "minisgl/base/status.h"

namespace minisgl {

inline constexpr int32_t kKvBlockTokens = 64;  // a multiple of every page size

using KvBlockKey = std::array<uint8_t, 32>;

// The keys of a prefix's blocks from its first block up to and including the block that is meant.
using KvBlockPath = std::span<const KvBlockKey>;

// Returns the keys of the whole blocks of `key`, from the first on, under `identity`.
std::vector<KvBlockKey> KvBlockKeys(const std::string& identity, const PrefixKey& key);

// Since the store was opened.
struct KvBlockStoreStats {
  int64_t blocks_read = 0;
  int64_t blocks_written = 0;
  int64_t states_read = 0;
  int64_t states_written = 0;
  // Blocks and states.
  int64_t blocks_not_written = 0;  // failed or refused, for example on a full disk
  int64_t blocks_evicted = 0;      // removed to keep to the limit of size
  int64_t blocks_damaged = 0;      // found damaged, and removed
};

// Thread-safe. Read, Write, those of states, and Touch wait for the disk; the others do not.
class KvBlockStore {
 public:
  virtual ~KvBlockStore() = default;

  // KvBlockKeys with the store's identity: about 1 us for each block. Compute once per request.
  virtual std::vector<KvBlockKey> Keys(const PrefixKey& key) const = 0;

  // Returns how many blocks of `path`, from the first on, are stored. Looks at names only, so that
  // Read of such a block may still find it damaged or gone.
  virtual int64_t Find(KvBlockPath path) = 0;

  // Fills `data` with the last block of `path`, whose tokens and marks are `block`. False: the
  // block is not there or is damaged, and the contents of `data` are undefined.
  // REQUIRES kKvBlockTokens tokens, and data.size() == block_bytes.
  virtual bool Read(KvBlockPath path, const PrefixKey& block, std::span<std::byte> data) = 0;

  // Stores the last block of `path`, whose tokens and marks are `block`, and removes the least
  // recently used blocks if there are too many. True also if it is stored already. False: it was
  // not stored; `accepts_blocks` says whether later ones may be.
  // REQUIRES kKvBlockTokens tokens, and data.size() == block_bytes.
  virtual bool Write(KvBlockPath path, const PrefixKey& block, std::span<const std::byte> data) = 0;

  // Marks all blocks of `path`, and the state after the last one, as used now, as Read and Write
  // do. For those that were found in memory and therefore not read.
  virtual void Touch(KvBlockPath path) = 0;

  // As Find, Read and Write, of the state after the last block of `path`. A state is not stored
  // without that block. REQUIRES data.size() == state_bytes.
  virtual bool HasState(KvBlockPath path) = 0;
  virtual bool ReadState(KvBlockPath path, const PrefixKey& block, std::span<std::byte> data) = 0;
  virtual bool WriteState(KvBlockPath path, const PrefixKey& block,
                          std::span<const std::byte> data) = 0;

  // False after a failed write, such as on a full disk: Write then returns false at once.
  virtual bool accepts_blocks() const = 0;

  virtual KvBlockStoreStats stats() const = 0;
};

struct KvBlockFolderOptions {
  std::string folder;
  // Upper bound on all blocks and states in the folder, of all models; 0: a tenth of the bytes free
  // on the disk or used by the folder.
  int64_t max_bytes = 0;
  // Says what makes keys and values equal: the model's weights and configuration, element type and
  // layout of the keys and values, and whatever else changes a bit of them.
  std::string identity;
  std::string model_name;   // for people: `minisgl cache ls` shows it
  int64_t block_bytes = 0;  // of one block's keys and values; > 0
  int64_t state_bytes = 0;  // of one state; 0: the model has none
};

// Opens a store in a folder on disk, which it makes if it is missing, with access for this user
// only. Reports damage and a full disk once each, as a warning (base/log.h). Several processes may
// use one folder.
// kBadInput: the folder belongs to another user, or others have access to it. kUsage: max_bytes is
// less than one block, or one state, needs. kCannotCreate, kIoError.
Result<std::unique_ptr<KvBlockStore>> OpenKvBlockFolder(const KvBlockFolderOptions& options);

// Makes the folder of a store if it is missing, and returns the errors of OpenKvBlockFolder that
// are about the folder itself. For a program that uses the folder before it can open the store.
Status PrepareKvBlockFolder(const std::string& folder);

}  // namespace minisgl
