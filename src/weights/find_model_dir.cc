// See find_model_dir.h. File system errors count as "does not exist": opening the files later
// reports them.
#include "minisgl/weights/find_model_dir.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "minisgl/base/environment.h"
#include "minisgl/base/folder.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "minisgl/gguf/gguf_file.h"
#include "minisgl/gguf/gguf_parts.h"
#include "weights/model_dir.h"

namespace minisgl {
namespace {

namespace fs = std::filesystem;

bool IsDirectory(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// The models in GGUF files that a directory without config.json holds: a file of each.
std::vector<std::string> GgufModelsIn(const fs::path& dir) {
  std::error_code error;
  std::vector<std::string> paths;
  if (fs::exists(dir / "config.json", error)) return paths;
  for (const std::string& name : NamesIn(dir.string())) {
    const std::string path = (dir / name).string();
    if (!IsGgufFile(path)) continue;
    // Parts of a model follow one another.
    const bool is_next = !paths.empty() && GgufPartPaths(path)[0] == GgufPartPaths(paths.back())[0];
    if (!is_next) paths.push_back(path);
  }
  return paths;
}

// The file of a model that `path` is, or the first of its parts.
Result<std::string> FindGgufModel(const std::string& path) {
  const std::vector<std::string> parts = GgufPartPaths(path);
  std::error_code error;
  if (fs::exists(parts[0], error)) return parts[0];
  return BadInput("{}: is missing: the model has {} parts, and all are needed",
                  Visible(parts[0], 400), parts.size());
}

// True for a name of letters, digits, '-', '_' and '.', except "." and "..".
bool IsHubName(std::string_view name) {
  if (name.empty() || name == "." || name == "..") return false;
  return std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.');
  });
}

// The snapshot of `owner/name` in the hub cache that refs/main names, or the only one.
Result<std::string> FindInHubCache(const std::string& owner, const std::string& name) {
  const fs::path repo = fs::path(HubCacheDir()) / ("models--" + owner + "--" + name);
  const fs::path snapshots = repo / "snapshots";
  if (const Result<std::string> ref = ReadFile((repo / "refs" / "main").string(), 4096); ref.ok()) {
    std::string commit = *ref;
    while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back())) != 0) {
      commit.pop_back();
    }
    if (IsHubName(commit) && IsDirectory(snapshots / commit)) return (snapshots / commit).string();
  }
  std::vector<std::string> found;
  for (const std::string& commit : NamesIn(snapshots.string())) {
    if (IsDirectory(snapshots / commit)) found.push_back((snapshots / commit).string());
  }
  if (found.size() == 1) return found.front();
  if (found.empty()) {
    return MakeStatus(StatusCode::kNoInput,
                      "{}/{}: no such directory, and not in the hub cache ({}); download it by "
                      "minisgl pull {}/{}, or give its directory",
                      owner, name, Visible(HubCacheDir(), 400), owner, name);
  }
  return BadInput(
      "{}/{}: the hub cache holds {} snapshots and refs/main names none; give the "
      "directory of one ({})",
      owner, name, found.size(), Visible(snapshots.string(), 400));
}

// kBadInput for the folder of a model in the hub cache, which holds model directories.
Status CheckIsNotHubFolder(const fs::path& dir) {
  std::error_code error;
  const fs::path snapshots = dir / "snapshots";
  if (fs::exists(dir / "config.json", error) || !IsDirectory(snapshots)) return Status();
  const std::vector<std::string> names = NamesIn(snapshots.string());
  if (names.empty()) {
    return BadInput(
        "{}: has no config.json, and its folder of snapshots is empty; download the "
        "model",
        Visible(dir.string(), 400));
  }
  return BadInput(
      "{}: has no config.json: it is the folder of a model in the hub cache; give its snapshot, "
      "{}{}",
      Visible(dir.string(), 400), Visible((snapshots / names[0]).string(), 400),
      names.size() > 1 ? fmt::format(", or another of {}", names.size()) : "");
}

// The model in a directory: itself, or its only model in GGUF files.
Result<std::string> FindInDirectory(const std::string& dir) {
  const std::vector<std::string> models = GgufModelsIn(dir);
  if (models.size() == 1) return FindGgufModel(models[0]);
  if (models.size() > 1) {
    return BadInput("{}: holds {} models in GGUF files; give one, such as {}", Visible(dir, 400),
                    models.size(), Visible(models[0], 400));
  }
  MINISGL_RETURN_IF_ERROR(CheckIsNotHubFolder(dir));
  return dir;
}

}  // namespace

std::string HubCacheDir() {
  if (std::string cache = EnvironmentVariable("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = EnvironmentVariable("HF_HOME"); !home.empty())
    return (fs::path(home) / "hub").string();
  std::string base = EnvironmentVariable("XDG_CACHE_HOME");
  if (base.empty()) base = EnvironmentVariable("HOME") + "/.cache";
  return (fs::path(base) / "huggingface" / "hub").string();
}

Result<std::string> FindModelDir(const std::string& model) {
  std::error_code error;
  if (IsDirectory(model)) return FindInDirectory(model);
  if (HasGgufName(model)) {
    if (fs::exists(model, error)) return FindGgufModel(model);
    return MakeStatus(StatusCode::kNoInput, "{}: no such file", Visible(model, 400));
  }
  if (fs::exists(model, error)) {
    return BadInput(
        "{}: is not a directory; give the directory that holds config.json, or a file "
        "whose name ends in .gguf",
        Visible(model, 400));
  }
  MINISGL_RETURN_IF_ERROR(CheckLink(model));
  MINISGL_ASSIGN_OR_RETURN(const std::string snapshot, FindHubSnapshot(model));
  return FindInDirectory(snapshot);
}

bool IsHubModel(const std::string& model) {
  const size_t slash = model.find('/');
  return slash != std::string::npos && IsHubName(model.substr(0, slash)) &&
         IsHubName(model.substr(slash + 1));
}

Result<std::string> FindHubSnapshot(const std::string& model) {
  const size_t slash = model.find('/');
  if (IsHubModel(model)) return FindInHubCache(model.substr(0, slash), model.substr(slash + 1));
  return MakeStatus(StatusCode::kNoInput,
                    "{}: no such model directory; minisgl models lists what the hub cache has, and "
                    "minisgl pull OWNER/NAME downloads one",
                    Visible(model, 400));
}

Status CheckHasModelFiles(const std::string& model_dir) {
  if (IsGgufFile(model_dir)) return Status();
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer.model", "tekken.json"}) {
    if (weights::IsListed(model_dir, name)) return Status();
  }
  return weights::MissingFile(model_dir, "config.json");
}

}  // namespace minisgl
