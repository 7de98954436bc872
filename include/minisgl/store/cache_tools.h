// What `minisgl cache` does with the folder of a prefix cache (kv_block_store.h).
//
// The folder must belong to this user and give no access to others, as for a store. Other processes
// may use it meanwhile. Errors of all functions: kNoInput, kBadInput (it is refused, or is no
// prefix cache), kIoError.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "minisgl/base/status.h"

namespace minisgl {

// The blocks and states of one model, in one element type, layout and so on.
struct CachedModel {
  std::string folder;      // its name in the cache's folder: an identity of what the blocks hold
  std::string model_name;  // for people; "" if no block could be read
  int64_t blocks = 0;
  int64_t states = 0;
  int64_t tokens = 0;
  int64_t file_bytes = 0;
  int64_t last_use_s = 0;  // seconds from 1970 on, in whole minutes
};
// Models with blocks or states, the last used first. Reads one file's header of each.
Result<std::vector<CachedModel>> ListPrefixCache(const std::string& folder);

struct DamagedFile {
  std::string file;  // relative to the folder
  std::string what;  // is wrong with it: "is cut off"
};
struct PrefixCacheCheck {
  int64_t blocks = 0;  // all, the damaged ones too
  int64_t states = 0;  // likewise
  int64_t file_bytes = 0;
  std::vector<DamagedFile> damaged;
};
// Reads all files. Removes the damaged ones if `removes_damaged`. Reports progress (base/log.h).
Result<PrefixCacheCheck> VerifyPrefixCache(const std::string& folder, bool removes_damaged);

struct ClearedPrefixCache {
  int64_t blocks = 0;
  int64_t states = 0;
  int64_t file_bytes = 0;
  std::vector<std::string> left;  // what else is in the folder, and stays
};
// Removes all files and folders that this program made in `folder`, and nothing else.
Result<ClearedPrefixCache> ClearPrefixCache(const std::string& folder);

}  // namespace minisgl
