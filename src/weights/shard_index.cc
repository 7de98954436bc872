// Reads only the weight map; the metadata (a total size) is not needed and not trusted.
#include "weights/shard_index.h"

#include "minisgl/base/utf8.h"
#include "weights/field_reader.h"

namespace minisgl::weights {
namespace {

constexpr int kIndexDepthMax = 8;

// `name` without "./" at its beginning, which means the model directory, too.
std::string WithoutDots(std::string_view name) {
  while (name.starts_with("./")) name.remove_prefix(2);
  return std::string(name);
}

// True for a name that can only be a file in the model directory itself.
bool IsBareFileName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

}  // namespace

Result<ShardIndex> ParseShardIndex(const std::string& text, const std::string& file) {
  const std::string place = Visible(file, 400);
  MINISGL_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, file, kIndexDepthMax));
  const Json* weight_map = json.Find("weight_map");
  if (weight_map == nullptr || !weight_map->is_object() || weight_map->as_object().empty()) {
    return BadInput(
        "{}: key \"weight_map\": found {}; an object of tensor and file names is needed", place,
        weight_map == nullptr ? "nothing" : Visible(weight_map->Dump(), 60));
  }
  ShardIndex index;
  for (const auto& [tensor, shard] : weight_map->as_object()) {
    const std::string name = shard.is_string() ? WithoutDots(shard.as_string()) : "";
    if (!IsBareFileName(name)) {
      return BadInput(
          "{}: tensor \"{}\": found {}; the name of a file in the same directory is needed", place,
          Visible(tensor), Visible(shard.Dump(), 60));
    }
    index.shards.insert(name);
    index.shard_of.emplace(tensor, name);
  }
  return index;
}

}  // namespace minisgl::weights
