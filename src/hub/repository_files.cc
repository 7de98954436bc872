// See repository_files.h.
#include "hub/repository_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "hub/blob_hash.h"
#include "minisgl/base/json.h"
#include "minisgl/base/utf8.h"

namespace minisgl::hub {
namespace {

constexpr size_t kFileNameBytesMax = 1024, kPartBytesMax = 255, kPartsMax = 16;
constexpr size_t kCommitDigits = 40;
constexpr size_t kRepositoryNameBytesMax = 96;  // the hub's own limit
constexpr std::string_view kAdapterConfig = "adapter_config.json";
constexpr std::string_view kAdapterTensors = "adapter_model.safetensors";
constexpr std::string_view kSafetensors = ".safetensors";
constexpr const char* kSingleFile = "model.safetensors";

// Parts of `path` between slashes.
std::vector<std::string_view> PartsOf(std::string_view path) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t slash = path.find('/', begin);
    parts.push_back(path.substr(begin, slash - begin));
    if (slash == std::string_view::npos) return parts;
    begin = slash + 1;
  }
}

bool IsNamePart(std::string_view text) {
  const bool has_only_allowed = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  });
  return !text.empty() && text.size() <= kRepositoryNameBytesMax && has_only_allowed &&
         text != "." && text.find("..") == std::string_view::npos &&
         text.find("--") == std::string_view::npos;
}

bool IsRevision(std::string_view text) {
  if (text.size() > kPartBytesMax) return false;
  const std::vector<std::string_view> parts = PartsOf(text);
  return std::all_of(parts.begin(), parts.end(), [](std::string_view part) {
    return !part.empty() && part[0] != '.' && part.find("..") == std::string_view::npos &&
           std::all_of(part.begin(), part.end(), [](char c) {
             return c > ' ' && c < 0x7f && c != '\\' && c != '?' && c != '#' && c != '%';
           });
  });
}

// Tokenizers, templates and configurations, but no index of weights of another format.
bool IsModelText(std::string_view name) {
  if (name == weights::kShardIndexName) return true;
  if (name.ends_with(".json")) return !name.ends_with(".index.json");
  return name.ends_with(".jinja") || name == "tokenizer.model" || name == "merges.txt" ||
         name == "vocab.txt";
}

bool IsListed(const std::vector<RepositoryFile>& files, std::string_view name) {
  return std::any_of(files.begin(), files.end(),
                     [&](const RepositoryFile& file) { return file.name == name; });
}

// True for a file of a module of sentence-transformers: "2_Dense/model.safetensors".
bool IsOfModule(std::string_view name) {
  const std::vector<std::string_view> parts = PartsOf(name);
  if (parts.size() != 2 || (parts[1] != "config.json" && parts[1] != kSingleFile)) return false;
  const size_t num_digits = parts[0].find_first_not_of("0123456789");
  return num_digits > 0 && num_digits < parts[0].size() && parts[0][num_digits] == '_';
}

// The files of an adapter in a repository without a model; empty if it has none.
std::vector<RepositoryFile> AdapterFiles(const std::vector<RepositoryFile>& files) {
  std::vector<RepositoryFile> chosen;
  if (IsListed(files, "config.json") || !IsListed(files, kAdapterConfig)) return chosen;
  for (const RepositoryFile& file : files) {
    if (file.name == kAdapterConfig || file.name == kAdapterTensors) chosen.push_back(file);
  }
  return chosen;
}

// The files in the repository's own folder that a model needs, and in those of its modules.
std::vector<RepositoryFile> ModelFiles(const std::vector<RepositoryFile>& files) {
  if (auto adapter = AdapterFiles(files); !adapter.empty()) return adapter;
  const bool is_single = IsListed(files, kSingleFile);
  const bool has_modules = IsListed(files, "modules.json");
  std::vector<RepositoryFile> chosen;
  for (const RepositoryFile& file : files) {
    if (file.name.find('/') != std::string::npos) {
      if (has_modules && IsOfModule(file.name)) chosen.push_back(file);
      continue;
    }
    const bool is_weights = file.name.ends_with(kSafetensors);
    if (is_single &&
        (is_weights ? file.name != kSingleFile : file.name == weights::kShardIndexName))
      continue;
    if (is_weights || IsModelText(file.name)) chosen.push_back(file);
  }
  return chosen;
}

Result<RepositoryFile> ParseFile(const Json& json, size_t index) {
  const auto bad = [&](const char* what) {
    return BadInput("the hub's list of files: siblings[{}]: {}", index, what);
  };
  const Json* const name = json.Find("rfilename");
  if (name == nullptr || !name->is_string()) return bad("has no string rfilename");
  RepositoryFile file{.name = name->as_string()};
  const Json *hash = json.Find("blobId"), *size = json.Find("size");
  const Json* const lfs = json.Find("lfs");
  if (lfs != nullptr && lfs->is_object()) hash = lfs->Find("sha256"), size = lfs->Find("size");
  if (hash == nullptr || size == nullptr || hash->is_null() || size->is_null()) return file;
  if (!hash->is_string() || !IsBlobHash(hash->as_string()))
    return bad("has no hash of 40 or 64 digits");
  if (!size->is_int() || size->as_int() < 0) return bad("size is no number of bytes");
  file.hash = hash->as_string();
  file.num_bytes = static_cast<uint64_t>(size->as_int());
  return file;
}

}  // namespace

Result<RepositoryName> ParseRepositoryName(const std::string& text) {
  RepositoryName repository;
  const size_t at = text.find('@');
  const std::string path = text.substr(0, at);
  const size_t slash = path.find('/');
  if (slash != std::string::npos) {
    repository.owner = path.substr(0, slash), repository.name = path.substr(slash + 1);
  }
  if (!IsNamePart(repository.owner) || !IsNamePart(repository.name)) {
    return UsageError("{}: is not the name of a model; give OWNER/NAME or OWNER/NAME@REVISION",
                      Visible(text, 200));
  }
  if (at != std::string::npos) repository.revision = text.substr(at + 1);
  if (!IsRevision(repository.revision)) {
    return UsageError("{}: is no revision; give a branch, a tag or a commit after the @",
                      Visible(text, 400));
  }
  return repository;
}

Result<RepositoryList> ParseRepositoryList(const std::string& text) {
  Result<Json> json = ParseJson(text, {.values_max = 2'000'000, .memory_max = uint64_t{1} << 29});
  if (!json.ok()) return json.status().WithPrefix("the hub's list of files");
  RepositoryList list;
  const Json *commit = json->Find("sha"), *siblings = json->Find("siblings");
  if (commit == nullptr || !commit->is_string() || !IsBlobHash(commit->as_string()) ||
      commit->as_string().size() != kCommitDigits) {
    return BadInput("the hub's list of files: sha is not a commit of 40 hexadecimal digits");
  }
  list.commit = commit->as_string();
  if (siblings == nullptr || !siblings->is_array()) {
    return BadInput("the hub's list of files: siblings is not an array");
  }
  std::set<std::string> names;
  for (size_t i = 0; i < siblings->as_array().size(); ++i) {
    MINISGL_ASSIGN_OR_RETURN(RepositoryFile file, ParseFile(siblings->as_array()[i], i));
    if (!names.insert(file.name).second) {
      return BadInput("the hub's list of files: {} stands in it twice", Visible(file.name, 200));
    }
    list.files.push_back(std::move(file));
  }
  return list;
}

Status CheckFileName(const std::string& name) {
  bool is_good = name.size() <= kFileNameBytesMax && IsValidUtf8(name) &&
                 Visible(name, name.size() + 1) == name;
  const std::vector<std::string_view> parts = PartsOf(name);
  is_good = is_good && parts.size() <= kPartsMax;
  for (const std::string_view part : parts) {
    is_good = is_good && !part.empty() && part != "." && part != ".." &&
              part.size() <= kPartBytesMax && part.find('\\') == std::string_view::npos;
  }
  if (is_good) return Status();
  return BadInput("the hub's list of files: the name {} is not accepted; nothing is written",
                  Visible(name, 200));
}

Result<std::vector<RepositoryFile>> ChooseFiles(const std::vector<RepositoryFile>& files,
                                                const std::vector<std::string>& patterns) {
  std::vector<RepositoryFile> chosen;
  if (patterns.empty()) {
    chosen = ModelFiles(files);
  } else {
    std::copy_if(files.begin(), files.end(), std::back_inserter(chosen),
                 [&](const RepositoryFile& file) {
                   return std::any_of(patterns.begin(), patterns.end(), [&](const auto& pattern) {
                     return fnmatch(pattern.c_str(), file.name.c_str(), 0) == 0;
                   });
                 });
  }
  const auto is_weights = [](const RepositoryFile& file) {
    return file.name.ends_with(kSafetensors) && !IsOfModule(file.name);
  };
  for (const RepositoryFile& file : chosen) MINISGL_RETURN_IF_ERROR(CheckFileName(file.name));
  if (chosen.empty() && !patterns.empty()) {
    return MakeStatus(StatusCode::kNoInput, "no file matches (of {} files)", files.size());
  }
  if (patterns.empty() && std::none_of(chosen.begin(), chosen.end(), is_weights)) {
    return MakeStatus(StatusCode::kNoInput,
                      "no safetensors files are in it (of {} files); name the files that are "
                      "wanted by patterns, or take another model",
                      files.size());
  }
  std::stable_partition(chosen.begin(), chosen.end(),
                        [&](const auto& file) { return !is_weights(file); });
  return chosen;
}

Status KeepShards(const weights::ShardIndex& index, std::vector<RepositoryFile>* files) {
  for (const std::string& shard : index.shards) {
    if (!IsListed(*files, shard)) {
      return BadInput("{}: names {}, which is not in the hub's list of files",
                      weights::kShardIndexName, Visible(shard, 200));
    }
  }
  std::erase_if(*files, [&](const RepositoryFile& file) {
    return file.name.ends_with(kSafetensors) && !index.shards.contains(file.name);
  });
  return Status();
}

}  // namespace minisgl::hub
