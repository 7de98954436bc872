// See algorithm_store.h.
#include "algorithm_store.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <string_view>
#include <thread>
#include <utility>

#include "minisgl/base/file_io.h"
#include "minisgl/base/log.h"
#include "minisgl/base/parse_number.h"
#include "minisgl/base/sha256.h"
#include "minisgl/base/utf8.h"

namespace minisgl::cuda {
namespace {

constexpr std::string_view kTitle = "minisgl products 1";
constexpr off_t kFileBytesMax = 8 << 20;
constexpr mode_t kMode = 0600;
constexpr std::string_view kLockName = ".minisgl-products.lock";
constexpr std::chrono::milliseconds kLockPause(10);
constexpr int kLockTries = 500;

std::string Hash(std::string_view text) {
  Sha256 sha;
  sha.Add(text);
  return sha.FinishHex();
}

// Locks the folder against other stores until the handle is destroyed; not open if that fails, as
// where the file system has no locks.
FileHandle LockFolder(const std::string& folder) {
  FileHandle file(open(fmt::format("{}/{}", folder, kLockName).c_str(),
                       O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, kMode));
  for (int tries = 0; file.is_open() && tries < kLockTries; ++tries) {
    if (flock(file.fd(), LOCK_EX | LOCK_NB) == 0) return file;
    if (errno != EWOULDBLOCK && errno != EINTR) break;
    std::this_thread::sleep_for(kLockPause);
  }
  return FileHandle();
}

// Takes the next line off `text`, without its end. nullopt if there is none that ends.
std::optional<std::string_view> TakeLine(std::string_view* text) {
  const size_t end = text->find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(end + 1);
  return line;
}

std::string_view TakeWord(std::string_view* line) {
  const std::string_view word = line->substr(0, line->find(' '));
  line->remove_prefix(std::min(line->size(), word.size() + 1));
  return word;
}

std::optional<AlgorithmStore::Bytes> FromHex(std::string_view hex) {
  AlgorithmStore::Bytes bytes;
  if (hex.size() != 2 * bytes.size()) return std::nullopt;
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (size_t i = 0; i < bytes.size(); ++i) {
    const size_t high = kDigits.find(hex[2 * i]), low = kDigits.find(hex[2 * i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    bytes[i] = static_cast<unsigned char>(high * 16 + low);
  }
  return bytes;
}

}  // namespace

AlgorithmStore::AlgorithmStore(const std::string& folder, const std::string& identity)
    : identity_(Hash(identity)),
      name_(fmt::format("minisgl-products-{}.txt", identity_.substr(0, 16))),
      path_(folder + "/" + name_) {
  Result<TrustedFolder> opened = TrustedFolder::Open(folder);
  if (!opened.ok()) {
    // Nobody may have asked for this folder: only one that is not safe to use is worth a warning.
    const bool is_unsafe = opened.status().code() == StatusCode::kBadInput;
    Log(is_unsafe ? LogLevel::kWarning : LogLevel::kVerbose,
        fmt::format("{}: {}; timings of products are not kept", Visible(folder, 400),
                    opened.status().message()));
    return;
  }
  folder_ = std::move(opened).value();
  entries_ = Read(/*warns=*/true);
}

AlgorithmStore::~AlgorithmStore() {
  try {
    Save();
  } catch (const std::exception&) {
    // Out of memory: the next start times again.
  }
}

AlgorithmStore::Key AlgorithmStore::KeyOf(const MatmulShape& shape) {
  constexpr int kTypes = 100;
  const int in = static_cast<int>(shape.dtype) + kTypes * static_cast<int>(shape.scales);
  return {shape.num_tokens, shape.num_out, shape.num_in, in, static_cast<int>(shape.out_dtype)};
}

const AlgorithmStore::Bytes* AlgorithmStore::Find(const MatmulShape& shape) const {
  if (shape.row_stride() != shape.num_out) return nullptr;
  const auto found = entries_.find(KeyOf(shape));
  return found == entries_.end() ? nullptr : &found->second;
}

void AlgorithmStore::Add(const MatmulShape& shape, const Bytes& algorithm) {
  if (shape.row_stride() != shape.num_out) return;
  const Key key = KeyOf(shape);
  if (entries_.size() >= kEntriesMax && !entries_.contains(key)) return;
  entries_[key] = algorithm;
  has_new_ = true;
}

std::string AlgorithmStore::Text(const Entries& entries) const {
  std::string text = fmt::format("{}\n{}\n", kTitle, identity_);
  for (const auto& [key, algorithm] : entries) {
    const auto& [tokens, num_out, num_in, dtype, out_dtype] = key;
    text += fmt::format("{} {} {} {} {} ", tokens, num_out, num_in, dtype, out_dtype);
    for (const unsigned char byte : algorithm) text += fmt::format("{:02x}", byte);
    text += '\n';
  }
  return text + Hash(text) + '\n';
}

std::optional<AlgorithmStore::Entries> AlgorithmStore::Parse(const std::string& text) const {
  constexpr size_t kHashLine = 65;  // with its end
  if (text.size() < kHashLine) return std::nullopt;
  std::string_view left(text.data(), text.size() - kHashLine);
  if (std::string_view(text).substr(left.size()) != Hash(left) + '\n') return std::nullopt;
  if (TakeLine(&left) != kTitle || TakeLine(&left) != std::string_view(identity_)) {
    return std::nullopt;
  }
  Entries entries;
  while (std::optional<std::string_view> line = TakeLine(&left)) {
    int64_t numbers[5] = {};
    for (int64_t& number : numbers) {
      const std::optional<int64_t> parsed = ParseNumber<int64_t>(TakeWord(&*line));
      if (!parsed) return std::nullopt;
      number = *parsed;
    }
    const std::optional<Bytes> algorithm = FromHex(*line);
    if (!algorithm) return std::nullopt;
    entries[{numbers[0], numbers[1], numbers[2], static_cast<int>(numbers[3]),
             static_cast<int>(numbers[4])}] = *algorithm;
    if (entries.size() > kEntriesMax) return std::nullopt;
  }
  return entries;
}

AlgorithmStore::Entries AlgorithmStore::Read(bool warns) const {
  const auto warn = [&](std::string_view what) {
    if (!warns) return;
    Log(LogLevel::kWarning,
        fmt::format("{}: {}; products are timed anew", Visible(path_, 400), what));
  };
  const Result<FileHandle> file = folder_->OpenFile(name_);
  if (!file.ok()) {
    if (file.status().code() != StatusCode::kNoInput) warn(file.status().message());
    return {};
  }
  struct stat info {};
  std::string text;
  bool is_read = fstat(file->fd(), &info) == 0 && info.st_size <= kFileBytesMax;
  if (is_read) {
    text.resize(static_cast<size_t>(info.st_size));
    is_read = ReadAt(file->fd(), text.data(), text.size(), 0);
  }
  std::optional<Entries> entries = is_read ? Parse(text) : std::nullopt;
  if (!entries) {
    warn("is damaged");
    return {};
  }
  return std::move(*entries);
}

void AlgorithmStore::Save() {
  if (!folder_ || !std::exchange(has_new_, false)) return;
  const FileHandle lock = LockFolder(folder_->path());
  for (const auto& [key, algorithm] : Read(/*warns=*/false)) {
    if (entries_.size() >= kEntriesMax) break;
    entries_.emplace(key, algorithm);
  }
  const Status written = folder_->ReplaceFile(name_, kMode, [&](int fd) {
    return WriteAll(fd, Text(entries_)) ? Status()
                                        : Status(StatusCode::kIoError, "cannot be written");
  });
  Log(LogLevel::kVerbose,
      fmt::format("{}: {}", Visible(path_, 400),
                  written.ok() ? fmt::format("{} products", entries_.size()) : written.message()));
}

}  // namespace minisgl::cuda
