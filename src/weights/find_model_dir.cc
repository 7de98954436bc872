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

// True for the names of branches, tags and commits that `minisgl pull` takes: parts of printable
// characters with '/' between them, of which none leads out of its folder.
bool IsRevision(std::string_view text) {
  for (;;) {
    const size_t slash = text.find('/');
    const std::string_view part = text.substr(0, slash);
    const bool is_name = std::all_of(part.begin(), part.end(), [](char c) {
      return c > ' ' && c < 0x7f && std::string_view("\\?#%").find(c) == std::string_view::npos;
    });
    if (part.empty() || part[0] == '.' || !is_name) return false;
    if (part.find("..") != std::string_view::npos) return false;
    if (slash == std::string_view::npos) return true;
    text.remove_prefix(slash + 1);
  }
}

// "OWNER/NAME" or "OWNER/NAME@REVISION" in parts; the revision is empty if there is none.
struct HubName {
  std::string owner, name, revision;
};

std::optional<HubName> ParseHubName(const std::string& model) {
  const size_t at = model.find('@');
  const std::string path = model.substr(0, at);
  const size_t slash = path.find('/');
  if (slash == std::string::npos) return std::nullopt;
  HubName hub{path.substr(0, slash), path.substr(slash + 1), ""};
  if (at != std::string::npos) hub.revision = model.substr(at + 1);
  if (!IsHubName(hub.owner) || !IsHubName(hub.name)) return std::nullopt;
  if (at != std::string::npos && !IsRevision(hub.revision)) return std::nullopt;
  return hub;
}

// The folder of a model in the hub cache.
class HubFolder {
 public:
  explicit HubFolder(const HubName& hub)
      : path_(fs::path(HubCacheDir()) / ("models--" + hub.owner + "--" + hub.name)) {}

  fs::path snapshots() const { return path_ / "snapshots"; }
  // The commits of the snapshots, sorted.
  std::vector<std::string> Commits() const {
    std::vector<std::string> commits = NamesIn(snapshots().string());
    std::erase_if(commits, [&](const auto& commit) { return !IsDirectory(snapshots() / commit); });
    return commits;
  }
  // The directory of the snapshot that the branch or tag `ref` names.
  std::optional<std::string> OfRef(const std::string& ref) const {
    const Result<std::string> text = ReadFile((path_ / "refs" / ref).string(), kRefBytesMax);
    if (!text.ok()) return std::nullopt;
    std::string commit = *text;
    while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back())) != 0) {
      commit.pop_back();
    }
    if (!IsHubName(commit) || !IsDirectory(snapshots() / commit)) return std::nullopt;
    return (snapshots() / commit).string();
  }
  // The names of branches and tags that have a snapshot, and the commits: what there is to choose.
  std::string Revisions() const {
    constexpr size_t kNamedMax = 10, kDigits = 12;
    std::vector<std::string> names;
    AddRefs("", 0, &names);
    for (const std::string& commit : Commits()) names.push_back(commit.substr(0, kDigits));
    std::string text;
    for (size_t i = 0; i < std::min(names.size(), kNamedMax); ++i) {
      text += fmt::format("{}{}", i == 0 ? "" : ", ", Visible(names[i], 100));
    }
    if (names.size() > kNamedMax) text += fmt::format(" and {} more", names.size() - kNamedMax);
    return text;
  }

 private:
  static constexpr uint64_t kRefBytesMax = 4096;
  static constexpr int kDepthMax = 8;

  void AddRefs(const std::string& prefix, int depth, std::vector<std::string>* names) const {
    for (const std::string& name : NamesIn((path_ / "refs" / prefix).string())) {
      const std::string ref = prefix + name;
      if (IsDirectory(path_ / "refs" / ref)) {
        if (depth < kDepthMax) AddRefs(ref + "/", depth + 1, names);
      } else if (OfRef(ref)) {
        names->push_back(ref);
      }
    }
  }

  fs::path path_;
};

// The snapshot of a branch, a tag, a commit or the first digits of one.
Result<std::string> FindRevision(const HubFolder& folder, const std::string& model,
                                 const std::string& revision) {
  if (const auto snapshot = folder.OfRef(revision)) return *snapshot;
  std::vector<std::string> found;
  for (const std::string& commit : folder.Commits()) {
    if (commit == revision) return (folder.snapshots() / commit).string();
    if (commit.starts_with(revision)) found.push_back(commit);
  }
  if (found.size() == 1) return (folder.snapshots() / found[0]).string();
  if (found.empty()) {
    return MakeStatus(StatusCode::kNoInput,
                      "{}: the hub cache has no such revision of the model (it has {}); download "
                      "it by minisgl pull {}, or give another",
                      model, folder.Revisions(), model);
  }
  return BadInput("{}: {} commits in the hub cache begin so ({}, {}{}); give more digits", model,
                  found.size(), Visible(found[0]), Visible(found[1]),
                  found.size() > 2 ? ", ..." : "");
}

Result<std::string> FindInHubCache(const HubName& hub) {
  const HubFolder folder(hub);
  const std::string path = hub.owner + "/" + hub.name;
  const std::string model = hub.revision.empty() ? path : path + "@" + hub.revision;
  const std::vector<std::string> found = folder.Commits();
  if (found.empty()) {
    return MakeStatus(StatusCode::kNoInput,
                      "{}: no such directory, and not in the hub cache ({}); download it by "
                      "minisgl pull {}, or give its directory",
                      model, Visible(HubCacheDir(), 400), model);
  }
  if (!hub.revision.empty()) return FindRevision(folder, model, hub.revision);
  if (const auto snapshot = folder.OfRef("main")) return *snapshot;
  if (found.size() == 1) return (folder.snapshots() / found.front()).string();
  return BadInput(
      "{}: the hub cache holds {} snapshots and refs/main names none; give one as {}@REVISION "
      "({}), or its directory ({})",
      model, found.size(), model, folder.Revisions(), Visible(folder.snapshots().string(), 400));
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

bool IsHubModel(const std::string& model) { return ParseHubName(model).has_value(); }

Result<std::string> FindHubSnapshot(const std::string& model) {
  if (const auto hub = ParseHubName(model)) return FindInHubCache(*hub);
  return MakeStatus(StatusCode::kNoInput,
                    "{}: no such model directory; minisgl models lists what the hub cache has, and "
                    "minisgl pull OWNER/NAME downloads one",
                    Visible(model, 400));
}

Status CheckHasModelFiles(const std::string& model_dir) {
  if (IsGgufFile(model_dir)) return Status();
  if (weights::IsListed(model_dir, "adapter_config.json") &&
      !weights::IsListed(model_dir, "config.json")) {
    return MakeStatus(StatusCode::kNoInput,
                      "{}: is an adapter, not a model: name it as an adapter beside its model",
                      Visible(model_dir, 400));
  }
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer.model", "tekken.json"}) {
    if (weights::IsListed(model_dir, name)) return Status();
  }
  return weights::MissingFile(model_dir, "config.json");
}

}  // namespace minisgl
