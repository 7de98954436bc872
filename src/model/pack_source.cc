#include "minisgl/model/pack_source.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "minisgl/base/mapped_file.h"
#include "minisgl/base/trusted_folder.h"
#include "minisgl/weights/weights_key.h"

namespace minisgl {

std::optional<PackSource> MakePackSource(const ModelConfig& config, const Checkpoint& checkpoint,
                                         const WeightFormat& format, const std::string& pack_cache,
                                         int num_threads) {
  const std::vector<const MappedFile*> files = checkpoint.Files();
  if (files.empty() || pack_cache.empty()) return std::nullopt;
  PackSource source;
  const Result<TrustedFolder> folder = TrustedFolder::Open(pack_cache);
  if (!folder.ok()) return source;  // MakeCpuOps opens it too, and reports the error
  std::string ropes;
  for (int32_t i = 0; i < std::ssize(config.layers); ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    ropes += fmt::format(" {}", layer.rope < 0 ? 0 : config.ropes[layer.rope].dim);
    if (layer.num_heads == 0 && layer.num_kv_heads == 0 && layer.head_dim == 0) continue;
    const LayerShape shape = LayerShapeOf(config, i);
    ropes += fmt::format(" {}/{}/{}", shape.num_heads, shape.num_kv_heads, shape.head_dim);
  }
  if (const LatentConfig& latent = config.latent; latent.rank > 0) {
    ropes += fmt::format(" latent {}/{}/{}/{}", latent.rank, latent.plain_dim, latent.rotary_dim,
                         latent.value_dim);
  }
  source.key = fmt::format("{} {} {} {} {} {} {}{} {}\n{}", config.architecture, format.Name(),
                           DTypeName(format.dtype), config.num_heads, config.num_kv_heads,
                           config.head_dim, config.rotary_interleaved, ropes,
                           config.quantization.text, HashWeights(checkpoint, *folder, num_threads));
  std::vector<std::pair<std::string, FileStamp>> stamps;
  for (const MappedFile* file : files) stamps.emplace_back(file->path(), file->stamp());
  source.format = format;
  source.is_public = IsWorldReadable(checkpoint);
  source.holds = [stamps = std::move(stamps)] {
    return std::all_of(stamps.begin(), stamps.end(),
                       [](const auto& file) { return StampOf(file.first) == file.second; });
  };
  return source;
}

}  // namespace minisgl
