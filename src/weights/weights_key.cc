// See weights_key.h. The stored file has lines: a stamp for each file of the checkpoint, the hash,
// and a hash of those lines. Its name is a hash of the stamps.
#include "minisgl/weights/weights_key.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/file_io.h"
#include "minisgl/base/log.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/setting.h"
#include "minisgl/base/sha256.h"
#include "minisgl/base/thread_pool.h"
#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

constexpr size_t kPartBytes = size_t{1} << 20;  // hashed by one thread at a time
constexpr size_t kHexDigits = 64;
constexpr mode_t kPrivateMode = 0600, kPublicMode = 0644;
// File system clocks have a limited resolution: a file changed within this time may be changed
// again and keep the same time.
constexpr int64_t kTooNewNs = 2'000'000'000;
// File systems that store inode change times set by the system only: ext2 to ext4, XFS, Btrfs,
// F2FS, ZFS, tmpfs, NFS. (An image made elsewhere may have any times, and an overlay may lie on
// one.)
constexpr int64_t kKnownFileSystems[] = {0xEF53,     0x58465342, 0x9123683E, 0xF2F52010,
                                         0x2FC12FC1, 0x01021994, 0x6969};

using Files = std::vector<const MappedFile*>;

std::string HexHash(std::string_view text) {
  Sha256 hasher;
  hasher.Add(text);
  return hasher.FinishHex();
}

// The hash of the hashes of all parts, in order.
std::string HashFiles(const Files& files, int num_threads) {
  ThreadPool pool(num_threads);
  Sha256 all;
  for (const MappedFile* file : files) {
    const std::string_view text(reinterpret_cast<const char*>(file->bytes().data()),
                                file->bytes().size());
    std::vector<Sha256::Digest> parts(CeilDiv(text.size(), kPartBytes));
    pool.ParallelFor(std::ssize(parts), [&](int64_t part, int) {
      Sha256 hasher;
      const size_t begin = static_cast<size_t>(part) * kPartBytes;
      const size_t count = std::min(kPartBytes, text.size() - begin);
      hasher.Add(text.substr(begin, count));
      file->DropPages(file->bytes().subspan(begin, count));
      parts[static_cast<size_t>(part)] = hasher.Finish();
    });
    all.Add(fmt::format("{}\n", text.size()));
    for (const Sha256::Digest& part : parts) {
      all.Add({reinterpret_cast<const char*>(part.data()), part.size()});
    }
  }
  return all.FinishHex();
}

bool KeepsTimes(const std::string& path) {
  struct statfs info {};
  if (statfs(path.c_str(), &info) != 0) return false;
  return std::count(std::begin(kKnownFileSystems), std::end(kKnownFileSystems), info.f_type) > 0;
}

// The stamps of `files`, which change with any byte; nullopt if the file system cannot prove that.
std::optional<std::string> StampsOf(const Files& files) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const int64_t now_ns = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  std::string text;
  for (const MappedFile* file : files) {
    const FileStamp& stamp = file->stamp();
    if (!KeepsTimes(file->path()) || StampOf(file->path()) != stamp ||
        stamp.inode_changed_ns > now_ns - kTooNewNs) {
      return std::nullopt;
    }
    text += fmt::format("{} {} {} {} {}\n", stamp.device, stamp.inode, stamp.num_bytes,
                        stamp.changed_ns, stamp.inode_changed_ns);
  }
  return text;
}

std::string Remembered(const std::string& stamps, const std::string& hash) {
  const std::string text = stamps + hash + '\n';
  return text + HexHash(text) + '\n';
}

// The stored hash, or nullopt if there is none.
std::optional<std::string> Recall(const TrustedFolder& folder, const std::string& name,
                                  const std::string& stamps) {
  const Result<FileHandle> file = folder.OpenFile(name);
  if (!file.ok()) {
    if (file.status().code() == StatusCode::kBadInput) {
      Log(LogLevel::kWarning,
          fmt::format("{}: {}/{}: {}; the weights are hashed anew",
                      SettingName(Setting::kPackCache), Visible(folder.path(), 400), name,
                      file.status().message()));
    }
    return std::nullopt;
  }
  std::string text(Remembered(stamps, std::string(kHexDigits, '0')).size(), '\0');
  if (!ReadAt(file->fd(), text.data(), text.size(), 0)) return std::nullopt;
  std::string hash = text.substr(stamps.size(), kHexDigits);
  if (text != Remembered(stamps, hash)) return std::nullopt;
  return hash;
}

}  // namespace

std::string HashWeights(const Checkpoint& checkpoint, const TrustedFolder& folder,
                        int num_threads) {
  const Files files = checkpoint.Files();
  if (files.empty()) return "";
  const std::optional<std::string> stamps = StampsOf(files);
  std::string name;
  if (stamps) {
    name = fmt::format("minisgl-{}.sha256", HexHash(*stamps).substr(0, 16));
    if (std::optional<std::string> hash = Recall(folder, name, *stamps)) return *hash;
  }
  std::string hash = HashFiles(files, num_threads);
  Log(LogLevel::kVerbose, fmt::format("{}: {} bytes of weights hashed",
                                      SettingName(Setting::kPackCache), checkpoint.total_bytes()));
  if (!stamps) return hash;
  const mode_t mode = IsWorldReadable(checkpoint) ? kPublicMode : kPrivateMode;
  const Status kept = folder.ReplaceFile(name, mode, [&](int fd) {
    return WriteAll(fd, Remembered(*stamps, hash))
               ? Status()
               : Status(StatusCode::kIoError, "cannot be written");
  });
  if (!kept.ok()) {
    Log(LogLevel::kVerbose, fmt::format("{}: {}/{}: {}", SettingName(Setting::kPackCache),
                                        Visible(folder.path(), 400), name, kept.message()));
  }
  return hash;
}

bool IsWorldReadable(const Checkpoint& checkpoint) {
  const Files files = checkpoint.Files();
  return std::all_of(files.begin(), files.end(),
                     [](const MappedFile* file) { return (file->stamp().mode & S_IROTH) != 0; });
}

}  // namespace minisgl
