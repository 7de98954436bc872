// model.safetensors.index.json: the file of each tensor of a sharded model.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "minisgl/base/status.h"

namespace minisgl::weights {

inline constexpr const char* kShardIndexName = "model.safetensors.index.json";

struct ShardIndex {
  std::map<std::string, std::string, std::less<>> shard_of;  // tensor name -> file name
  std::set<std::string> shards;                              // bare file names, none empty
};

// `file` is its name in errors. A shard name that leaves the directory is an error.
Result<ShardIndex> ParseShardIndex(const std::string& text, const std::string& file);

}  // namespace minisgl::weights
