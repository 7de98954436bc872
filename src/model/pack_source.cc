#include "minisgl/model/pack_source.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "minisgl/base/mapped_file.h"
#include "minisgl/base/trusted_folder.h"
#include "minisgl/weights/weights_key.h"

namespace minisgl {
namespace {

PackSource SourceOf(const ListedModel& model, const Checkpoint& checkpoint,
                    const WeightFormat& format, const std::string& weights_hash) {
  PackSource source;
  source.key = fmt::format("{}\n{}", model.PackKey(format), weights_hash);
  source.format = format;
  source.is_public = IsWorldReadable(checkpoint);
  std::vector<std::pair<std::string, FileStamp>> stamps;
  for (const MappedFile* file : checkpoint.Files()) {
    stamps.emplace_back(file->path(), file->stamp());
  }
  source.holds = [stamps = std::move(stamps)] {
    return std::all_of(stamps.begin(), stamps.end(),
                       [](const auto& file) { return StampOf(file.first) == file.second; });
  };
  return source;
}

// Adds the weights of a model that is packed after those of `source`.
void AddSource(const ListedModel& model, PackSource other, PackSource* source) {
  source->key += fmt::format("\n{} {}", ModelRoleName(model.role()), other.key);
  source->is_public = source->is_public && other.is_public;
  source->holds = [first = std::move(source->holds), second = std::move(other.holds)] {
    return first() && second();
  };
}

}  // namespace

std::optional<PackSource> MakePackSource(const ModelList& models, const ModelFiles& files,
                                         std::span<const WeightFormat> formats,
                                         const std::string& pack_cache, int num_threads) {
  if (pack_cache.empty()) return std::nullopt;
  for (size_t i = 0; i < models.size(); ++i) {
    if (files[i].Files().empty()) return std::nullopt;
  }
  const Result<TrustedFolder> folder = TrustedFolder::Open(pack_cache);
  if (!folder.ok()) return PackSource();  // MakeCpuOps opens it too, and reports the error
  std::optional<PackSource> all;
  std::string target_hash;
  for (size_t i = 0; i < models.size(); ++i) {
    const bool is_targets = i > 0 && &files[i] == &files[0];
    const std::string hash = is_targets ? target_hash : HashWeights(files[i], *folder, num_threads);
    PackSource source = SourceOf(models[i], files[i], formats[i], hash);
    if (i == 0) {
      target_hash = hash;
      all = std::move(source);
    } else {
      AddSource(models[i], std::move(source), &*all);
    }
  }
  if (all && models.merged() != nullptr) {
    all->key += fmt::format("\nmerged {}", HashText(models.merged()->hash));
  }
  return all;
}

}  // namespace minisgl
