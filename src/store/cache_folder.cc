#include "store/cache_folder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <tuple>

#include "minisgl/base/file_io.h"
#include "minisgl/base/folder.h"
#include "store/block_key.h"

namespace minisgl::store {
namespace {

constexpr std::string_view kModelPrefix = "kv-", kBlockSuffix = ".kv", kStateSuffix = ".state";
constexpr std::string_view kTemporarySuffix = ".tmp";
constexpr mode_t kFolderMode = 0700, kFileMode = 0600, kOthersAccess = 0077;
constexpr int64_t kMinute_s = 60;
constexpr int64_t kNanoseconds = 1'000'000'000;
// A temporary file is locked while it is written. This is for the moment between its creation and
// its lock.
constexpr time_t kAbandonedAfter_s = 60;

// The format of https://bford.info/cachedir/.
constexpr std::string_view kCacheTag =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This folder is a prefix cache of minisgl. It may be deleted.\n";

// Not through symbolic links, and without waiting for the writer of a FIFO.
constexpr int kReadFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

std::optional<KvBlockKey> KeyOfHex(std::string_view hex) {
  KvBlockKey key{};
  if (hex.size() != 2 * key.size()) return std::nullopt;
  for (size_t i = 0; i < hex.size(); ++i) {
    const char digit = hex[i];
    int value = 0;
    if (digit >= '0' && digit <= '9') {
      value = digit - '0';
    } else if (digit >= 'a' && digit <= 'f') {
      value = digit - 'a' + 10;
    } else {
      return std::nullopt;
    }
    key[i / 2] = static_cast<uint8_t>(key[i / 2] << 4 | value);
  }
  return key;
}

// True if it is a cache, or nothing lies in it: other users need no access then.
bool MayBeClosed(const std::string& path, int folder) {
  return HasCacheTag(folder) || NamesIn(path).empty();
}

Status CheckRights(const std::string& path, int folder) {
  struct stat info {};
  if (fstat(folder, &info) != 0) {
    return MakeStatus(StatusCode::kIoError, "cannot be examined ({})", std::strerror(errno));
  }
  if (info.st_uid != geteuid()) {
    return BadInput(
        "belongs to another user (found user {}, and this is user {}); name a folder of this user",
        info.st_uid, geteuid());
  }
  if ((info.st_mode & kOthersAccess) != 0) {
    return BadInput("gives other users access to what prompts said (found mode {:04o}); {}",
                    info.st_mode & 07777,
                    MayBeClosed(path, folder) ? "chmod 700 it"
                                              : "give a folder of its own, which is then made");
  }
  return Status();
}

// True if `model_folder` is a folder of this user.
bool IsOwn(int model_folder) {
  struct stat info {};
  return fstat(model_folder, &info) == 0 && info.st_uid == geteuid();
}

}  // namespace

std::string ModelFolderName(const KvBlockKey& root) {
  return std::string(kModelPrefix) + HexOf(root);
}

std::optional<KvBlockKey> RootOfName(std::string_view name) {
  if (!name.starts_with(kModelPrefix)) return std::nullopt;
  return KeyOfHex(name.substr(kModelPrefix.size()));
}

std::string FileName(const FileId& file) {
  return HexOf(file.key) + std::string(file.kind == FileKind::kBlock ? kBlockSuffix : kStateSuffix);
}

std::optional<FileId> FileOfName(std::string_view name) {
  const bool is_state = name.ends_with(kStateSuffix);
  const std::string_view suffix = is_state ? kStateSuffix : kBlockSuffix;
  if (!name.ends_with(suffix)) return std::nullopt;
  const std::optional<KvBlockKey> key = KeyOfHex(name.substr(0, name.size() - suffix.size()));
  if (!key) return std::nullopt;
  return FileId{*key, is_state ? FileKind::kState : FileKind::kBlock};
}

std::string TemporaryName(const KvBlockKey& key) {
  static std::atomic<uint64_t> number{0};
  return fmt::format(".{}.{}.{:x}{}", HexOf(key), getpid(), ++number, kTemporarySuffix);
}

bool IsTemporaryName(std::string_view name) {
  constexpr size_t kHexBegin = 1, kHexEnd = 1 + 2 * sizeof(KvBlockKey);
  return name.size() > kHexEnd && name.front() == '.' && name[kHexEnd] == '.' &&
         name.ends_with(kTemporarySuffix) &&
         KeyOfHex(name.substr(kHexBegin, kHexEnd - kHexBegin)).has_value();
}

bool IsWeightsHashName(std::string_view name) {
  constexpr std::string_view kBegin = "minisgl-", kEnd = ".sha256";
  constexpr size_t kDigits = 16;
  const bool is_temporary = name.starts_with('.') && name.ends_with(kTemporarySuffix);
  if (is_temporary) name = name.substr(1, kBegin.size() + kDigits + kEnd.size());
  return name.size() == kBegin.size() + kDigits + kEnd.size() && name.starts_with(kBegin) &&
         name.ends_with(kEnd) &&
         name.substr(kBegin.size(), kDigits).find_first_not_of("0123456789abcdef") ==
             std::string_view::npos;
}

int64_t MinuteNow() { return time(nullptr) / kMinute_s; }

timespec UseTime(int64_t minute, int64_t index) {
  timespec used{};
  used.tv_sec = minute * kMinute_s;
  used.tv_nsec = std::max<int64_t>(kNanoseconds - 1 - index, 0);
  return used;
}

Result<FileHandle> OpenCacheFolder(const std::string& path, bool creates) {
  if (creates && mkdir(path.c_str(), kFolderMode) != 0 && errno == ENOENT) {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    mkdir(path.c_str(), kFolderMode);
  }
  FileHandle folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.is_open()) {
    const StatusCode code = errno == ENOTDIR  ? StatusCode::kBadInput
                            : creates         ? StatusCode::kCannotCreate
                            : errno == ENOENT ? StatusCode::kNoInput
                                              : StatusCode::kIoError;
    return MakeStatus(code, "cannot be opened as a folder ({})", std::strerror(errno));
  }
  MINISGL_RETURN_IF_ERROR(CheckRights(path, folder.fd()));
  return folder;
}

void WriteCacheTag(int folder) {
  const FileHandle file(openat(
      folder, kCacheTagName, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, kFileMode));
  struct stat info {};
  // An empty tag is one of a process that was killed before it wrote it.
  if (!file.is_open() || fstat(file.fd(), &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_size != 0) {
    return;
  }
  if (!WriteAll(file.fd(), kCacheTag)) unlinkat(folder, kCacheTagName, 0);
}

bool HasCacheTag(int folder) {
  const FileHandle file(openat(folder, kCacheTagName, kReadFlags));
  std::array<char, kCacheTag.size()> text{};
  struct stat info {};
  return file.is_open() && fstat(file.fd(), &info) == 0 && S_ISREG(info.st_mode) &&
         ReadAt(file.fd(), text.data(), text.size(), 0) &&
         std::string_view(text.data(), text.size()) == kCacheTag;
}

FileHandle OpenModelFolder(int folder, const KvBlockKey& root, bool creates) {
  const std::string name = ModelFolderName(root);
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;
  FileHandle opened(openat(folder, name.c_str(), kFlags));
  if (!opened.is_open() && creates) {
    // Something else of this name, such as a symbolic link, is damage.
    if (errno != ENOENT) unlinkat(folder, name.c_str(), 0);
    if (mkdirat(folder, name.c_str(), kFolderMode) != 0 && errno != EEXIST) return opened;
    opened = FileHandle(openat(folder, name.c_str(), kFlags));
  }
  if (opened.is_open() && !IsOwn(opened.fd())) {
    opened = FileHandle();
    errno = EPERM;
  }
  return opened;
}

FileHandle OpenFile(int model_folder, const FileId& file, struct stat* info) {
  FileHandle opened(openat(model_folder, FileName(file).c_str(), kReadFlags));
  if (!opened.is_open()) return opened;
  if (fstat(opened.fd(), info) != 0) return FileHandle();
  if (!S_ISREG(info->st_mode) || info->st_uid != geteuid()) {
    opened = FileHandle();
    errno = EINVAL;
  }
  return opened;
}

std::vector<KvBlockKey> ModelsIn(int folder) {
  std::vector<KvBlockKey> roots;
  for (const std::string& name : NamesIn(folder)) {
    if (const std::optional<KvBlockKey> root = RootOfName(name)) roots.push_back(*root);
  }
  return roots;
}

std::vector<FileEntry> FilesIn(int model_folder) {
  std::vector<FileEntry> files;
  for (const std::string& name : NamesIn(model_folder)) {
    const std::optional<FileId> file = FileOfName(name);
    struct stat info {};
    if (!file || fstatat(model_folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode)) {
      continue;
    }
    files.push_back({*file, info.st_size, info.st_mtim});
  }
  return files;
}

void RemoveAbandoned(int model_folder) {
  for (const std::string& name : NamesIn(model_folder)) {
    if (!IsTemporaryName(name)) continue;
    const FileHandle file(openat(model_folder, name.c_str(), kReadFlags));
    struct stat info {};
    if (!file.is_open() || fstat(file.fd(), &info) != 0) continue;
    if (time(nullptr) - info.st_mtime < kAbandonedAfter_s) continue;
    if (flock(file.fd(), LOCK_EX | LOCK_NB) == 0) unlinkat(model_folder, name.c_str(), 0);
  }
}

Eviction EvictAbove(int folder, int64_t bytes_max, int64_t target) {
  struct Candidate {
    timespec used;
    size_t model;
    FileId file;
    int64_t file_bytes;
  };
  Eviction result;
  std::vector<FileHandle> models;
  std::vector<Candidate> candidates;
  for (const KvBlockKey& root : ModelsIn(folder)) {
    FileHandle model = OpenModelFolder(folder, root, false);
    if (!model.is_open()) continue;
    RemoveAbandoned(model.fd());
    for (const FileEntry& entry : FilesIn(model.fd())) {
      candidates.push_back({entry.used, models.size(), entry.file, entry.file_bytes});
      result.bytes_left += entry.file_bytes;
    }
    models.push_back(std::move(model));
  }
  if (result.bytes_left <= bytes_max) return result;
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    const bool a_is_block = a.file.kind == FileKind::kBlock;
    const bool b_is_block = b.file.kind == FileKind::kBlock;
    return std::tie(a.used.tv_sec, a.used.tv_nsec, a_is_block, a.file.key) <
           std::tie(b.used.tv_sec, b.used.tv_nsec, b_is_block, b.file.key);
  });
  for (const Candidate& candidate : candidates) {
    if (result.bytes_left <= target) break;
    const std::string name = FileName(candidate.file);
    if (unlinkat(models[candidate.model].fd(), name.c_str(), 0) == 0) {
      result.removed.push_back(candidate.file);
    } else if (errno != ENOENT) {
      continue;
    }
    result.bytes_left -= candidate.file_bytes;
  }
  return result;
}

}  // namespace minisgl::store
