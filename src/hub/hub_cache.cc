// See hub_cache.h.
#include "hub/hub_cache.h"

#include <sys/stat.h>

#include <map>
#include <utility>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/folder.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/status.h"
#include "minisgl/weights/find_model_dir.h"

namespace minisgl::hub {
namespace {

constexpr std::string_view kModelPrefix = "models--";
constexpr std::string_view kPartSuffix = ".incomplete";
constexpr int kDepthMax = 16;  // of folders in folders; files of a repository lie less deep
constexpr uint64_t kRefBytesMax = 4096;

bool IsFolder(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// Bytes of all regular files below `folder`, and of those that links lead to. Links to folders are
// not followed.
uint64_t BytesBelow(const std::string& folder, int depth = 0) {
  uint64_t sum = 0;
  for (const std::string& name : NamesIn(folder)) {
    const std::string path = folder + "/" + name;
    struct stat info {};
    uint64_t num_bytes = 0;
    if (IsFolder(path)) {
      if (depth < kDepthMax) num_bytes = BytesBelow(path, depth + 1);
    } else if (stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
      num_bytes = static_cast<uint64_t>(info.st_size);
    }
    sum = CheckedAdd(sum, num_bytes).value_or(UINT64_MAX);
  }
  return sum;
}

// Sets what `blobs` has of files that are not complete.
void CountParts(const std::string& blobs, CachedSnapshot* snapshot) {
  for (const std::string& name : NamesIn(blobs)) {
    struct stat info {};
    if (!name.ends_with(kPartSuffix) || lstat((blobs + "/" + name).c_str(), &info) != 0) continue;
    snapshot->is_downloading = true;
    const uint64_t num_bytes = S_ISREG(info.st_mode) ? static_cast<uint64_t>(info.st_size) : 0;
    snapshot->part_bytes = CheckedAdd(snapshot->part_bytes, num_bytes).value_or(UINT64_MAX);
  }
}

// Adds the names of all refs below `folder`, by the commit that each holds.
void AddRefs(const std::string& folder, const std::string& prefix, int depth,
             std::map<std::string, std::vector<std::string>>* refs) {
  for (const std::string& name : NamesIn(folder)) {
    const std::string path = folder + "/" + name;
    if (IsFolder(path)) {
      if (depth < kDepthMax) AddRefs(path, prefix + name + "/", depth + 1, refs);
    } else if (const Result<std::string> text = ReadFile(path, kRefBytesMax); text.ok()) {
      (*refs)[text->substr(0, text->find_last_not_of(" \t\r\n") + 1)].push_back(prefix + name);
    }
  }
}

}  // namespace

std::string ModelOfFolder(std::string_view folder_name) {
  if (!folder_name.starts_with(kModelPrefix)) return "";
  const std::string_view name = folder_name.substr(kModelPrefix.size());
  const size_t split = name.find("--");
  std::string model(name.substr(0, split));
  if (split != std::string_view::npos) model.append("/").append(name.substr(split + 2));
  return model;
}

std::vector<CachedSnapshot> ListSnapshots() {
  const std::string folder = HubCacheDir();
  std::vector<CachedSnapshot> list;
  for (const std::string& name : NamesIn(folder)) {
    const std::string model = ModelOfFolder(name);
    const std::string repository = folder + "/" + name;
    if (model.empty() || !IsFolder(repository)) continue;
    std::map<std::string, std::vector<std::string>> refs;
    AddRefs(repository + "/refs", "", 0, &refs);
    const Result<std::string> used = FindHubSnapshot(model);
    const size_t first = list.size();
    for (const std::string& commit : NamesIn(repository + "/snapshots")) {
      CachedSnapshot snapshot{.model = model, .commit = commit, .refs = refs[commit]};
      snapshot.folder = repository + "/snapshots/" + commit;
      if (!IsFolder(snapshot.folder)) continue;
      snapshot.num_bytes = BytesBelow(snapshot.folder);
      snapshot.is_default = used.ok() && *used == snapshot.folder;
      list.push_back(std::move(snapshot));
    }
    if (list.size() == first) {
      list.push_back(
          {.model = model, .folder = repository, .num_bytes = BytesBelow(repository + "/blobs")});
    }
    for (size_t i = first; i < list.size(); ++i) CountParts(repository + "/blobs", &list[i]);
  }
  return list;
}

}  // namespace minisgl::hub
