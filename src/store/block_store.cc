// Implements OpenKvBlockFolder: a store in a folder on disk (cache_folder.h says what is in it).
//
// A block is written to a temporary file, which is then renamed, so that a process that is killed
// never leaves a part of a block under a block's name. It is not synced to the disk: after a power
// cut a file may be empty or have wrong bytes, which its checksum tells.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "minisgl/base/check.h"
#include "minisgl/base/file_io.h"
#include "minisgl/base/log.h"
#include "minisgl/base/setting.h"
#include "minisgl/base/utf8.h"
#include "store/block_file.h"
#include "store/block_key.h"
#include "store/cache_folder.h"

namespace minisgl {
namespace store {
namespace {

// The default limit is this part of what is free or used by the cache.
constexpr int64_t kDefaultPart = 10;
// An eviction makes room for this part of the limit, and other processes' blocks are counted anew
// after this process has written as much, so that the folder is seldom listed.
constexpr int64_t kSlackPart = 16;
constexpr int kTriesAfterClear = 4;

// A key is a hash already.
struct FileHash {
  size_t operator()(const FileId& file) const {
    size_t hash = 0;
    std::memcpy(&hash, file.key.data(), sizeof(hash));
    return file.kind == FileKind::kBlock ? hash : ~hash;
  }
};

std::string_view AsText(std::span<const std::byte> data) {
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

// Reads the header and the data with as few calls as possible. False if the file is shorter. (To
// add each piece of 256 KiB to the checksum as it is read was no faster, with blocks of 4 and of
// 64 MiB.)
bool ReadBlock(int fd, BlockHeader* header, std::span<std::byte> data) {
  iovec parts[] = {{header, sizeof(*header)}, {data.data(), data.size()}};
  ssize_t got = 0;
  do {
    got = preadv(fd, parts, 2, 0);
  } while (got < 0 && errno == EINTR);
  if (got < static_cast<ssize_t>(sizeof(*header))) return false;
  const size_t done = static_cast<size_t>(got) - sizeof(*header);
  return ReadAt(fd, data.data() + done, data.size() - done, sizeof(*header) + done);
}

// The folder, as messages name it.
std::string NameOf(const std::string& folder) {
  return fmt::format("{}: {}", SettingName(Setting::kPrefixCache), Visible(folder, 400));
}

// Errors that say nothing about the file.
bool IsOfProcess(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM; }

class FolderStore final : public KvBlockStore {
 public:
  FolderStore(const KvBlockFolderOptions& options, FileHandle folder)
      : options_(options),
        root_(RootKey(options.identity)),
        folder_(std::move(folder)),
        max_bytes_(options.max_bytes) {}

  // Finds what is stored. Call once, before the other functions.
  Status Begin();

  std::vector<KvBlockKey> Keys(const PrefixKey& key) const override {
    return KvBlockKeys(options_.identity, key);
  }
  int64_t Find(KvBlockPath path) override;
  bool Read(KvBlockPath path, const PrefixKey& block, std::span<std::byte> data) override {
    return ReadFile(FileKind::kBlock, path, block, data);
  }
  bool Write(KvBlockPath path, const PrefixKey& block, std::span<const std::byte> data) override {
    return WriteFile(FileKind::kBlock, path, block, data);
  }
  bool HasState(KvBlockPath path) override { return IsStored(model(), StateOf(path)); }
  bool ReadState(KvBlockPath path, const PrefixKey& block, std::span<std::byte> data) override {
    return ReadFile(FileKind::kState, path, block, data);
  }
  bool WriteState(KvBlockPath path, const PrefixKey& block,
                  std::span<const std::byte> data) override {
    return IsStored(model(), {path.back()}) && WriteFile(FileKind::kState, path, block, data);
  }
  void Touch(KvBlockPath path) override;
  bool accepts_blocks() const override { return accepts_blocks_; }
  KvBlockStoreStats stats() const override;

 private:
  // The folder of the model. Shared, because it is opened anew after another process removed it.
  using ModelFolder = std::shared_ptr<const FileHandle>;

  static FileId StateOf(KvBlockPath path) { return {path.back(), FileKind::kState}; }
  // Bytes of the data of a file, and of a whole file.
  int64_t DataBytes(FileKind kind) const {
    return kind == FileKind::kBlock ? options_.block_bytes : options_.state_bytes;
  }
  int64_t FileBytes(FileKind kind) const {
    return DataBytes(kind) + static_cast<int64_t>(kBlockHeaderBytes);
  }
  ModelFolder model() const;
  ModelFolder ReopenModel();
  bool IsStored(const ModelFolder& model, const FileId& file);
  void Forget(const FileId& file);
  void DropDamaged(const ModelFolder& model, const FileId& file);
  bool MakeRoom(int64_t file_bytes);
  bool ReadFile(FileKind kind, KvBlockPath path, const PrefixKey& block, std::span<std::byte> data);
  bool WriteFile(FileKind kind, KvBlockPath path, const PrefixKey& block,
                 std::span<const std::byte> data);
  int WriteTo(const FileHandle& model, const FileId& file, const BlockHeader& header,
              std::span<const std::byte> data);
  void CheckCall(FileKind kind, KvBlockPath path, const PrefixKey& block, size_t data_bytes) const;
  void StopSaving(const std::string& why);

  const KvBlockFolderOptions options_;
  const KvBlockKey root_;
  const FileHandle folder_;
  int64_t max_bytes_;  // constant after Begin

  // Held for short operations in memory.
  mutable std::mutex mutex_;
  ModelFolder model_;
  // The files that are known to be stored, and the minutes of their times of use.
  std::unordered_map<FileId, int64_t, FileHash> known_;
  KvBlockStoreStats stats_;

  // Held while room is made, which lists the folder.
  std::mutex room_mutex_;
  int64_t used_bytes_ = 0;       // of all files in the folder, as far as this process knows
  int64_t uncounted_bytes_ = 0;  // written by this process since it listed the folder

  std::atomic<bool> accepts_blocks_{true};
  std::atomic<bool> warned_of_damage_{false};
};

Status FolderStore::Begin() {
  WriteCacheTag(folder_.fd());
  model_ = std::make_shared<const FileHandle>(OpenModelFolder(folder_.fd(), root_, true));
  if (!model_->is_open()) {
    StopSaving(fmt::format("{}: {}", ModelFolderName(root_), std::strerror(errno)));
  }
  for (const FileEntry& entry : FilesIn(model_->fd())) {
    known_.emplace(entry.file, entry.used.tv_sec / 60);
  }
  constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  used_bytes_ = EvictAbove(folder_.fd(), kNoLimit, kNoLimit).bytes_left;
  const int64_t largest = std::max(FileBytes(FileKind::kBlock), FileBytes(FileKind::kState));
  if (max_bytes_ == 0) {
    struct statvfs disk {};
    if (fstatvfs(folder_.fd(), &disk) != 0) {
      return MakeStatus(StatusCode::kIoError, "{}: the disk's free space is unknown ({})",
                        NameOf(options_.folder), std::strerror(errno));
    }
    const double free_bytes =
        static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
    max_bytes_ = static_cast<int64_t>((free_bytes + static_cast<double>(used_bytes_)) /
                                      static_cast<double>(kDefaultPart));
    if (max_bytes_ < largest) StopSaving("the disk has little free space");
  } else if (max_bytes_ < largest) {
    return UsageError("{} is too small (found {} bytes); one {} of this model has {} bytes",
                      SettingName(Setting::kPrefixCacheSize), max_bytes_,
                      largest == FileBytes(FileKind::kBlock) ? "block" : "state", largest);
  }
  return Status();
}

FolderStore::ModelFolder FolderStore::model() const {
  const std::lock_guard lock(mutex_);
  return model_;
}

FolderStore::ModelFolder FolderStore::ReopenModel() {
  auto opened = std::make_shared<const FileHandle>(OpenModelFolder(folder_.fd(), root_, true));
  const std::lock_guard lock(mutex_);
  if (opened->is_open()) model_ = std::move(opened);
  return model_;
}

bool FolderStore::IsStored(const ModelFolder& model, const FileId& file) {
  {
    const std::lock_guard lock(mutex_);
    if (known_.contains(file)) return true;
  }
  // Another process may have stored it.
  struct stat info {};
  if (fstatat(model->fd(), FileName(file).c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
      !S_ISREG(info.st_mode)) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  known_.emplace(file, info.st_mtim.tv_sec / 60);
  return true;
}

int64_t FolderStore::Find(KvBlockPath path) {
  const ModelFolder model = this->model();
  int64_t found = 0;
  while (found < std::ssize(path) && IsStored(model, {path[static_cast<size_t>(found)]})) {
    ++found;
  }
  return found;
}

void FolderStore::Forget(const FileId& file) {
  const std::lock_guard lock(mutex_);
  known_.erase(file);
}

void FolderStore::DropDamaged(const ModelFolder& model, const FileId& file) {
  unlinkat(model->fd(), FileName(file).c_str(), 0);
  {
    const std::lock_guard lock(mutex_);
    known_.erase(file);
    ++stats_.blocks_damaged;
  }
  if (!warned_of_damage_.exchange(true)) {
    Log(LogLevel::kWarning,
        fmt::format("{}: a {} was damaged; it was removed (minisgl cache verify finds others)",
                    NameOf(options_.folder), file.kind == FileKind::kBlock ? "block" : "state"));
  }
}

void FolderStore::CheckCall(FileKind kind, KvBlockPath path, const PrefixKey& block,
                            size_t data_bytes) const {
  MINISGL_CHECK(!path.empty() && block.size() == kKvBlockTokens &&
                    static_cast<int64_t>(data_bytes) == DataBytes(kind),
                "a file for {} tokens with {} bytes of data", block.size(), data_bytes);
}

bool FolderStore::ReadFile(FileKind kind, KvBlockPath path, const PrefixKey& block,
                           std::span<std::byte> data) {
  CheckCall(kind, path, block, data.size());
  const ModelFolder model = this->model();
  if (!model->is_open()) return false;
  const FileId id = {path.back(), kind};
  struct stat info {};
  const FileHandle file = OpenFile(model->fd(), id, &info);
  if (!file.is_open()) {
    if (errno == ENOENT) {
      Forget(id);
    } else if (!IsOfProcess(errno)) {
      DropDamaged(model, id);
    }
    return false;
  }
  BlockHeader header{};
  if (info.st_size != FileBytes(kind) || !ReadBlock(file.fd(), &header, data) ||
      !IsBlock(kind, header, root_, path, block, data)) {
    DropDamaged(model, id);
    return false;
  }
  {
    const std::lock_guard lock(mutex_);
    ++(kind == FileKind::kBlock ? stats_.blocks_read : stats_.states_read);
  }
  Touch(path);
  return true;
}

// Makes room for one more file. False if there is none.
bool FolderStore::MakeRoom(int64_t file_bytes) {
  const std::lock_guard lock(room_mutex_);
  const int64_t slack = std::max(max_bytes_ / kSlackPart, file_bytes);
  const int64_t bytes_max = max_bytes_ - file_bytes;
  if (used_bytes_ > bytes_max || uncounted_bytes_ >= slack) {
    const Eviction eviction =
        EvictAbove(folder_.fd(), bytes_max, std::min(bytes_max, max_bytes_ - slack));
    used_bytes_ = eviction.bytes_left;
    uncounted_bytes_ = 0;
    {
      const std::lock_guard names_lock(mutex_);
      for (const FileId& file : eviction.removed) known_.erase(file);
      stats_.blocks_evicted += std::ssize(eviction.removed);
    }
    if (used_bytes_ > bytes_max) return false;
  }
  used_bytes_ += file_bytes;
  uncounted_bytes_ += file_bytes;
  return true;
}

// Returns 0, or the errno of what failed. Leaves no temporary file.
int FolderStore::WriteTo(const FileHandle& model, const FileId& id, const BlockHeader& header,
                         std::span<const std::byte> data) {
  const std::string temporary = TemporaryName(id.key);
  const FileHandle file(openat(model.fd(), temporary.c_str(),
                               O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.is_open()) return errno;
  flock(file.fd(), LOCK_EX | LOCK_NB);  // for RemoveAbandoned of others
  const timespec used = UseTime(MinuteNow(), header.index);
  const timespec times[] = {used, used};
  const bool is_written =
      WriteAll(file.fd(), AsText(std::as_bytes(std::span(&header, 1)))) &&
      WriteAll(file.fd(), AsText(data)) && futimens(file.fd(), times) == 0 &&
      renameat(model.fd(), temporary.c_str(), model.fd(), FileName(id).c_str()) == 0;
  if (is_written) return 0;
  const int error = errno;
  unlinkat(model.fd(), temporary.c_str(), 0);
  return error;
}

void FolderStore::StopSaving(const std::string& why) {
  if (!accepts_blocks_.exchange(false)) return;
  Log(LogLevel::kWarning, fmt::format("{}: no more blocks are saved ({}); those in it are used",
                                      NameOf(options_.folder), why));
}

bool FolderStore::WriteFile(FileKind kind, KvBlockPath path, const PrefixKey& block,
                            std::span<const std::byte> data) {
  CheckCall(kind, path, block, data.size());
  ModelFolder model = this->model();
  const FileId id = {path.back(), kind};
  if (IsStored(model, id)) {
    Touch(path);
    return true;
  }
  const auto not_written = [this] {
    const std::lock_guard lock(mutex_);
    ++stats_.blocks_not_written;
    return false;
  };
  if (!accepts_blocks_ || !MakeRoom(FileBytes(kind))) return not_written();
  const BlockHeader header = MakeBlockHeader(kind, root_, path, block, options_.model_name, data);
  int error = WriteTo(*model, id, header, data);
  // `minisgl cache clear` removes the folder of the model, or the temporary file.
  for (int i = 0; error == ENOENT && i < kTriesAfterClear; ++i) {
    model = ReopenModel();
    error = WriteTo(*model, id, header, data);
  }
  if (error != 0) {
    {
      const std::lock_guard lock(room_mutex_);
      used_bytes_ -= FileBytes(kind);
    }
    // A folder with the name of a block is damage, and leaves other blocks alone.
    if (!IsOfProcess(error) && error != EISDIR) StopSaving(std::strerror(error));
    return not_written();
  }
  {
    const std::lock_guard lock(mutex_);
    known_[id] = MinuteNow();
    ++(kind == FileKind::kBlock ? stats_.blocks_written : stats_.states_written);
  }
  const size_t before = path.size() - (kind == FileKind::kBlock ? 1 : 0);
  if (before > 0) Touch(path.first(before));
  return true;
}

void FolderStore::Touch(KvBlockPath path) {
  const int64_t minute = MinuteNow();
  ModelFolder model;
  // Blocks [begin, end) of the path. A block is never marked without those before it, so the
  // search from the last block on ends at the first one that is marked.
  size_t begin = path.size();
  std::vector<size_t> stale;
  bool state_is_stale = false;
  {
    const std::lock_guard lock(mutex_);
    model = model_;
    if (const auto at = known_.find(StateOf(path)); at != known_.end()) {
      state_is_stale = std::exchange(at->second, minute) != minute;
    }
    while (begin > 0) {
      const auto at = known_.find({path[begin - 1]});
      if (at != known_.end()) {
        if (at->second == minute) break;
        at->second = minute;
        stale.push_back(begin - 1);
      }
      --begin;
    }
  }
  const auto mark = [&](const FileId& file, size_t index) {
    const timespec used = UseTime(minute, static_cast<int64_t>(index));
    const timespec times[] = {used, used};
    utimensat(model->fd(), FileName(file).c_str(), times, AT_SYMLINK_NOFOLLOW);
  };
  // From the first block on: a kill in between must leave no block newer than one before it.
  for (auto index = stale.rbegin(); index != stale.rend(); ++index) mark({path[*index]}, *index);
  if (state_is_stale) mark(StateOf(path), path.size() - 1);
}

KvBlockStoreStats FolderStore::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace
}  // namespace store

Status PrepareKvBlockFolder(const std::string& folder) {
  const Result<FileHandle> opened = store::OpenCacheFolder(folder, true);
  return opened.ok() ? Status() : opened.status().WithPrefix(store::NameOf(folder));
}

Result<std::unique_ptr<KvBlockStore>> OpenKvBlockFolder(const KvBlockFolderOptions& options) {
  MINISGL_CHECK(options.block_bytes > 0 && options.state_bytes >= 0 && options.max_bytes >= 0,
                "blocks of {} bytes, states of {} in {}", options.block_bytes, options.state_bytes,
                options.max_bytes);
  Result<FileHandle> folder = store::OpenCacheFolder(options.folder, true);
  if (!folder.ok()) return folder.status().WithPrefix(store::NameOf(options.folder));
  auto opened = std::make_unique<store::FolderStore>(options, std::move(*folder));
  MINISGL_RETURN_IF_ERROR(opened->Begin());
  return std::unique_ptr<KvBlockStore>(std::move(opened));
}

}  // namespace minisgl
