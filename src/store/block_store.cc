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
struct KeyHash {
  size_t operator()(const KvBlockKey& key) const {
    size_t hash = 0;
    std::memcpy(&hash, key.data(), sizeof(hash));
    return hash;
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
        file_bytes_(options.block_bytes + static_cast<int64_t>(kBlockHeaderBytes)),
        folder_(std::move(folder)),
        max_bytes_(options.max_bytes) {}

  // Finds what is stored. Call once, before the other functions.
  Status Begin();

  std::vector<KvBlockKey> Keys(std::span<const TokenId> tokens) const override {
    return KvBlockKeys(options_.identity, tokens);
  }
  int64_t Find(KvBlockPath path) override;
  bool Read(KvBlockPath path, std::span<const TokenId> block_tokens,
            std::span<std::byte> data) override;
  bool Write(KvBlockPath path, std::span<const TokenId> block_tokens,
             std::span<const std::byte> data) override;
  void Touch(KvBlockPath path) override;
  bool accepts_blocks() const override { return accepts_blocks_; }
  KvBlockStoreStats stats() const override;

 private:
  // The folder of the model. Shared, because it is opened anew after another process removed it.
  using ModelFolder = std::shared_ptr<const FileHandle>;

  ModelFolder model() const;
  ModelFolder ReopenModel();
  bool IsStored(const ModelFolder& model, const KvBlockKey& key);
  void Forget(const KvBlockKey& key);
  void DropDamaged(const ModelFolder& model, const KvBlockKey& key);
  bool MakeRoom();
  int WriteFile(const FileHandle& model, KvBlockPath path, const BlockHeader& header,
                std::span<const std::byte> data);
  void StopSaving(const std::string& why);

  const KvBlockFolderOptions options_;
  const KvBlockKey root_;
  const int64_t file_bytes_;  // of one block
  const FileHandle folder_;
  int64_t max_bytes_;  // constant after Begin

  // Held for short operations in memory.
  mutable std::mutex mutex_;
  ModelFolder model_;
  // The blocks that are known to be stored, and the minutes of their times of use.
  std::unordered_map<KvBlockKey, int64_t, KeyHash> known_;
  KvBlockStoreStats stats_;

  // Held while room is made, which lists the folder.
  std::mutex room_mutex_;
  int64_t used_bytes_ = 0;       // of all blocks in the folder, as far as this process knows
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
  for (const BlockEntry& block : BlocksIn(model_->fd())) {
    known_.emplace(block.key, block.used.tv_sec / 60);
  }
  constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  used_bytes_ = EvictAbove(folder_.fd(), kNoLimit, kNoLimit).bytes_left;
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
    if (max_bytes_ < file_bytes_) StopSaving("the disk has little free space");
  } else if (max_bytes_ < file_bytes_) {
    return UsageError("{} is too small (found {} bytes); one block of this model has {} bytes",
                      SettingName(Setting::kPrefixCacheSize), max_bytes_, file_bytes_);
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

bool FolderStore::IsStored(const ModelFolder& model, const KvBlockKey& key) {
  {
    const std::lock_guard lock(mutex_);
    if (known_.contains(key)) return true;
  }
  // Another process may have stored it.
  struct stat info {};
  if (fstatat(model->fd(), BlockName(key).c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
      !S_ISREG(info.st_mode)) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  known_.emplace(key, info.st_mtim.tv_sec / 60);
  return true;
}

int64_t FolderStore::Find(KvBlockPath path) {
  const ModelFolder model = this->model();
  int64_t found = 0;
  while (found < std::ssize(path) && IsStored(model, path[static_cast<size_t>(found)])) ++found;
  return found;
}

void FolderStore::Forget(const KvBlockKey& key) {
  const std::lock_guard lock(mutex_);
  known_.erase(key);
}

void FolderStore::DropDamaged(const ModelFolder& model, const KvBlockKey& key) {
  unlinkat(model->fd(), BlockName(key).c_str(), 0);
  {
    const std::lock_guard lock(mutex_);
    known_.erase(key);
    ++stats_.blocks_damaged;
  }
  if (!warned_of_damage_.exchange(true)) {
    Log(LogLevel::kWarning,
        fmt::format("{}: a block was damaged; it was removed (minisgl cache verify finds others)",
                    NameOf(options_.folder)));
  }
}

bool FolderStore::Read(KvBlockPath path, std::span<const TokenId> block_tokens,
                       std::span<std::byte> data) {
  MINISGL_CHECK(!path.empty() && block_tokens.size() == kKvBlockTokens &&
                    std::ssize(data) == options_.block_bytes,
                "a block of {} tokens and {} bytes", block_tokens.size(), data.size());
  const ModelFolder model = this->model();
  if (!model->is_open()) return false;
  const KvBlockKey& key = path.back();
  struct stat info {};
  const FileHandle file = OpenBlock(model->fd(), key, &info);
  if (!file.is_open()) {
    if (errno == ENOENT) {
      Forget(key);
    } else if (!IsOfProcess(errno)) {
      DropDamaged(model, key);
    }
    return false;
  }
  BlockHeader header{};
  if (info.st_size != file_bytes_ || !ReadBlock(file.fd(), &header, data) ||
      !IsBlock(header, root_, path, block_tokens, data)) {
    DropDamaged(model, key);
    return false;
  }
  {
    const std::lock_guard lock(mutex_);
    ++stats_.blocks_read;
  }
  Touch(path);
  return true;
}

// Makes room for one more block. False if there is none.
bool FolderStore::MakeRoom() {
  const std::lock_guard lock(room_mutex_);
  const int64_t slack = std::max(max_bytes_ / kSlackPart, file_bytes_);
  const int64_t bytes_max = max_bytes_ - file_bytes_;
  if (used_bytes_ > bytes_max || uncounted_bytes_ >= slack) {
    const Eviction eviction =
        EvictAbove(folder_.fd(), bytes_max, std::min(bytes_max, max_bytes_ - slack));
    used_bytes_ = eviction.bytes_left;
    uncounted_bytes_ = 0;
    {
      const std::lock_guard names_lock(mutex_);
      for (const KvBlockKey& key : eviction.removed) known_.erase(key);
      stats_.blocks_evicted += std::ssize(eviction.removed);
    }
    if (used_bytes_ > bytes_max) return false;
  }
  used_bytes_ += file_bytes_;
  uncounted_bytes_ += file_bytes_;
  return true;
}

// Returns 0, or the errno of what failed. Leaves no temporary file.
int FolderStore::WriteFile(const FileHandle& model, KvBlockPath path, const BlockHeader& header,
                           std::span<const std::byte> data) {
  const std::string temporary = TemporaryName(path.back());
  const FileHandle file(openat(model.fd(), temporary.c_str(),
                               O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.is_open()) return errno;
  flock(file.fd(), LOCK_EX | LOCK_NB);  // for RemoveAbandoned of others
  const timespec used = UseTime(MinuteNow(), header.index);
  const timespec times[] = {used, used};
  const bool is_written =
      WriteAll(file.fd(), AsText(std::as_bytes(std::span(&header, 1)))) &&
      WriteAll(file.fd(), AsText(data)) && futimens(file.fd(), times) == 0 &&
      renameat(model.fd(), temporary.c_str(), model.fd(), BlockName(path.back()).c_str()) == 0;
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

bool FolderStore::Write(KvBlockPath path, std::span<const TokenId> block_tokens,
                        std::span<const std::byte> data) {
  MINISGL_CHECK(!path.empty() && block_tokens.size() == kKvBlockTokens &&
                    std::ssize(data) == options_.block_bytes,
                "a block of {} tokens and {} bytes", block_tokens.size(), data.size());
  ModelFolder model = this->model();
  if (IsStored(model, path.back())) {
    Touch(path);
    return true;
  }
  const auto not_written = [this] {
    const std::lock_guard lock(mutex_);
    ++stats_.blocks_not_written;
    return false;
  };
  if (!accepts_blocks_ || !MakeRoom()) return not_written();
  const BlockHeader header = MakeBlockHeader(root_, path, block_tokens, options_.model_name, data);
  int error = WriteFile(*model, path, header, data);
  // `minisgl cache clear` removes the folder of the model, or the temporary file.
  for (int i = 0; error == ENOENT && i < kTriesAfterClear; ++i) {
    model = ReopenModel();
    error = WriteFile(*model, path, header, data);
  }
  if (error != 0) {
    {
      const std::lock_guard lock(room_mutex_);
      used_bytes_ -= file_bytes_;
    }
    // A folder with the name of a block is damage, and leaves other blocks alone.
    if (!IsOfProcess(error) && error != EISDIR) StopSaving(std::strerror(error));
    return not_written();
  }
  {
    const std::lock_guard lock(mutex_);
    known_[path.back()] = MinuteNow();
    ++stats_.blocks_written;
  }
  if (path.size() > 1) Touch(path.first(path.size() - 1));
  return true;
}

void FolderStore::Touch(KvBlockPath path) {
  const int64_t minute = MinuteNow();
  ModelFolder model;
  // Blocks [begin, end) of the path. A block is never marked without those before it, so the
  // search from the last block on ends at the first one that is marked.
  size_t begin = path.size();
  std::vector<size_t> stale;
  {
    const std::lock_guard lock(mutex_);
    model = model_;
    while (begin > 0) {
      const auto at = known_.find(path[begin - 1]);
      if (at != known_.end()) {
        if (at->second == minute) break;
        at->second = minute;
        stale.push_back(begin - 1);
      }
      --begin;
    }
  }
  // From the first block on: a kill in between must leave no block newer than one before it.
  for (auto index = stale.rbegin(); index != stale.rend(); ++index) {
    const timespec used = UseTime(minute, static_cast<int64_t>(*index));
    const timespec times[] = {used, used};
    utimensat(model->fd(), BlockName(path[*index]).c_str(), times, AT_SYMLINK_NOFOLLOW);
  }
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
  MINISGL_CHECK(options.block_bytes > 0 && options.max_bytes >= 0, "blocks of {} bytes in {}",
                options.block_bytes, options.max_bytes);
  Result<FileHandle> folder = store::OpenCacheFolder(options.folder, true);
  if (!folder.ok()) return folder.status().WithPrefix(store::NameOf(options.folder));
  auto opened = std::make_unique<store::FolderStore>(options, std::move(*folder));
  MINISGL_RETURN_IF_ERROR(opened->Begin());
  return std::unique_ptr<KvBlockStore>(std::move(opened));
}

}  // namespace minisgl
