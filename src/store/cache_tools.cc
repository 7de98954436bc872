// Implements cache_tools.h.
#include "minisgl/store/cache_tools.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "minisgl/base/folder.h"
#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"
#include "store/block_file.h"
#include "store/cache_folder.h"

namespace minisgl {
namespace store {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

// Returns the first name in a folder that a prefix cache does not have, "" if there is none. A
// process that is killed at its start leaves a file of weights' hashes, or an empty tag.
std::string ForeignName(int folder) {
  for (const std::string& name : NamesIn(folder)) {
    struct stat info {};
    const bool is_empty_tag = name == kCacheTagName &&
                              fstatat(folder, kCacheTagName, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                              S_ISREG(info.st_mode) && info.st_size == 0;
    if (!IsWeightsHashName(name) && !is_empty_tag) return name;
  }
  return "";
}

// Opens a folder that is a prefix cache, or has nothing of anybody else in it.
Result<FileHandle> OpenCache(const std::string& path) {
  Result<FileHandle> folder = OpenCacheFolder(path, false);
  if (!folder.ok()) return folder.status().WithPrefix(Visible(path, 400));
  const int fd = folder->fd();
  if (HasCacheTag(fd) || !ModelsIn(fd).empty()) return folder;
  const std::string foreign = ForeignName(fd);
  if (foreign.empty()) return folder;
  return BadInput("{}: is not a prefix cache (found {} in it); nothing was done",
                  Visible(path, 400), Visible(foreign));
}

std::optional<BlockHeader> ReadHeader(int fd) {
  BlockHeader header{};
  if (!ReadAt(fd, &header, sizeof(header), 0)) return std::nullopt;
  return header;
}

// The name of the model in the first file that has a good header.
std::string FindModelName(int model_folder, const KvBlockKey& root,
                          const std::vector<FileEntry>& files) {
  for (const FileEntry& entry : files) {
    const auto& [key, kind] = entry.file;
    struct stat info {};
    const FileHandle file = OpenFile(model_folder, entry.file, &info);
    const std::optional<BlockHeader> header = file.is_open() ? ReadHeader(file.fd()) : std::nullopt;
    if (!header) continue;
    const auto file_bytes = static_cast<uint64_t>(info.st_size);
    if (HeaderFault(kind, *header, root, key, file_bytes).empty()) return ModelNameOf(*header);
  }
  return "";
}

// What is wrong with the open `file`: "" if it is good.
std::string FaultOf(const FileHandle& file, const KvBlockKey& root, const FileId& id,
                    int64_t file_bytes, std::vector<std::byte>* buffer) {
  const std::optional<BlockHeader> header = ReadHeader(file.fd());
  if (!header) return "is cut off";
  const std::string_view fault =
      HeaderFault(id.kind, *header, root, id.key, static_cast<uint64_t>(file_bytes));
  if (!fault.empty()) return std::string(fault);
  BlockChecksum checksum(*header);
  uint64_t at = kBlockHeaderBytes;
  for (uint64_t left = header->data_bytes; left > 0;) {
    const size_t count = static_cast<size_t>(std::min<uint64_t>(left, buffer->size()));
    if (!ReadAt(file.fd(), buffer->data(), count, at)) return "cannot be read";
    checksum.Add(std::span(*buffer).first(count));
    at += count;
    left -= count;
  }
  return checksum.value() == header->checksum ? "" : "has another checksum than its contents";
}

void VerifyModel(int folder, const KvBlockKey& root, bool removes_damaged,
                 PrefixCacheCheck* check) {
  const FileHandle model = OpenModelFolder(folder, root, false);
  std::vector<std::byte> buffer(kReadBytes);
  const std::vector<FileEntry> files = FilesIn(model.fd());
  for (size_t i = 0; i < files.size(); ++i) {
    const FileEntry& entry = files[i];
    struct stat info {};
    const FileHandle file = OpenFile(model.fd(), entry.file, &info);
    if (!file.is_open() && errno == ENOENT) continue;  // another process removed it
    const std::string fault = file.is_open()
                                  ? FaultOf(file, root, entry.file, info.st_size, &buffer)
                                  : fmt::format("cannot be opened ({})", std::strerror(errno));
    ++(entry.file.kind == FileKind::kBlock ? check->blocks : check->states);
    check->file_bytes += entry.file_bytes;
    const std::string name = FileName(entry.file);
    if (!fault.empty()) {
      check->damaged.push_back({ModelFolderName(root) + "/" + name, fault});
      if (removes_damaged) unlinkat(model.fd(), name.c_str(), 0);
    }
    ReportProgress("reading blocks", static_cast<int64_t>(i + 1), std::ssize(files));
  }
}

bool IsRegularFile(int folder, const std::string& name) {
  struct stat info {};
  return fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode);
}

void ClearModel(int folder, const KvBlockKey& root, ClearedPrefixCache* cleared) {
  const std::string folder_name = ModelFolderName(root);
  const FileHandle model = OpenModelFolder(folder, root, false);
  if (!model.is_open()) return;
  for (const FileEntry& entry : FilesIn(model.fd())) {
    if (unlinkat(model.fd(), FileName(entry.file).c_str(), 0) != 0) continue;
    ++(entry.file.kind == FileKind::kBlock ? cleared->blocks : cleared->states);
    cleared->file_bytes += entry.file_bytes;
  }
  for (const std::string& name : NamesIn(model.fd())) {
    const bool is_own = IsTemporaryName(name) && IsRegularFile(model.fd(), name);
    if (!is_own || unlinkat(model.fd(), name.c_str(), 0) != 0) {
      cleared->left.push_back(folder_name + "/" + name);
    }
  }
  unlinkat(folder, folder_name.c_str(), AT_REMOVEDIR);
}

}  // namespace
}  // namespace store

Result<std::vector<CachedModel>> ListPrefixCache(const std::string& folder) {
  MINISGL_ASSIGN_OR_RETURN(const FileHandle opened, store::OpenCache(folder));
  std::vector<CachedModel> models;
  for (const KvBlockKey& root : store::ModelsIn(opened.fd())) {
    const FileHandle model = store::OpenModelFolder(opened.fd(), root, false);
    const std::vector<store::FileEntry> files = store::FilesIn(model.fd());
    if (files.empty()) continue;
    CachedModel found;
    found.folder = store::ModelFolderName(root);
    found.model_name = store::FindModelName(model.fd(), root, files);
    for (const store::FileEntry& entry : files) {
      ++(entry.file.kind == store::FileKind::kBlock ? found.blocks : found.states);
      found.file_bytes += entry.file_bytes;
      found.last_use_s = std::max<int64_t>(found.last_use_s, entry.used.tv_sec);
    }
    found.tokens = found.blocks * kKvBlockTokens;
    models.push_back(std::move(found));
  }
  std::stable_sort(models.begin(), models.end(), [](const CachedModel& a, const CachedModel& b) {
    return a.last_use_s > b.last_use_s;
  });
  return models;
}

Result<PrefixCacheCheck> VerifyPrefixCache(const std::string& folder, bool removes_damaged) {
  MINISGL_ASSIGN_OR_RETURN(const FileHandle opened, store::OpenCache(folder));
  PrefixCacheCheck check;
  for (const KvBlockKey& root : store::ModelsIn(opened.fd())) {
    store::VerifyModel(opened.fd(), root, removes_damaged, &check);
  }
  return check;
}

Result<ClearedPrefixCache> ClearPrefixCache(const std::string& folder) {
  MINISGL_ASSIGN_OR_RETURN(const FileHandle opened, store::OpenCache(folder));
  ClearedPrefixCache cleared;
  for (const KvBlockKey& root : store::ModelsIn(opened.fd())) {
    store::ClearModel(opened.fd(), root, &cleared);
  }
  if (store::HasCacheTag(opened.fd())) unlinkat(opened.fd(), store::kCacheTagName, 0);
  for (const std::string& name : NamesIn(opened.fd())) {
    if (store::IsWeightsHashName(name) && store::IsRegularFile(opened.fd(), name) &&
        unlinkat(opened.fd(), name.c_str(), 0) == 0) {
      continue;
    }
    const bool is_named =
        std::any_of(cleared.left.begin(), cleared.left.end(),
                    [&name](const std::string& left) { return left.starts_with(name + "/"); });
    if (!is_named) cleared.left.push_back(name);
  }
  return cleared;
}

}  // namespace minisgl
