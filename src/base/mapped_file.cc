#include "minisgl/base/mapped_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "minisgl/base/folder.h"
#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

// The files mapped now, for the SIGBUS handler: of fixed size and lock-free, because a handler may
// only read.
struct Mapping {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
  std::array<char, 512> path{};
};
constexpr int kMappingsMax =
    1024;  // shards of one model; more are mapped all the same, only not named
std::array<Mapping, kMappingsMax> g_mappings;

void Register(const std::byte* data, size_t size, const std::string& path) {
  for (Mapping& mapping : g_mappings) {
    uintptr_t expected = 0;
    if (mapping.begin.compare_exchange_strong(expected, reinterpret_cast<uintptr_t>(data))) {
      const std::string shown = Visible(path, mapping.path.size() - 8);
      std::memcpy(mapping.path.data(), shown.c_str(),
                  std::min(shown.size() + 1, mapping.path.size()));
      mapping.path.back() = '\0';
      mapping.end.store(reinterpret_cast<uintptr_t>(data) + size);
      return;
    }
  }
}

void Unregister(const std::byte* data) {
  for (Mapping& mapping : g_mappings) {
    if (mapping.begin.load() == reinterpret_cast<uintptr_t>(data)) {
      mapping.end.store(0);
      mapping.begin.store(0);
      return;
    }
  }
}

void WriteAll(const char* text) {
  const ssize_t ignored = write(STDERR_FILENO, text, std::strlen(text));
  static_cast<void>(ignored);
}

void OnBusError(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Mapping& mapping : g_mappings) {
    if (address >= mapping.begin.load() && address < mapping.end.load()) {
      WriteAll("minisgl: ");
      WriteAll(mapping.path.data());
      WriteAll(
          ": the file became shorter while it was read (or its disk failed); restore it and run "
          "again\n");
      _exit(74);
    }
  }
  signal(SIGBUS, SIG_DFL);
  raise(SIGBUS);
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Checks that a regular file was opened.
Status CheckRegular(const std::string& path, const FileDescriptor& fd, FileStamp* stamp) {
  if (fd.get() < 0) {
    const int error = errno;
    if (error == ENOENT) MINISGL_RETURN_IF_ERROR(CheckLink(path));
    errno = error;
    return MakeStatus(StatusCode::kNoInput, "{}: cannot be opened ({})", Visible(path, 400),
                      std::strerror(errno));
  }
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) {
    return MakeStatus(StatusCode::kIoError, "{}: {}", Visible(path, 400), std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) {
    return MakeStatus(StatusCode::kNoInput, "{}: is not a regular file", Visible(path, 400));
  }
  *stamp = StampOf(info);
  return Status();
}

}  // namespace

FileStamp StampOf(const struct stat& info) {
  return {.device = info.st_dev,
          .inode = info.st_ino,
          .num_bytes = static_cast<uint64_t>(info.st_size),
          .changed_ns = Nanoseconds(info.st_mtim),
          .inode_changed_ns = Nanoseconds(info.st_ctim),
          .mode = info.st_mode};
}

std::optional<FileStamp> StampOf(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return std::nullopt;
  return StampOf(info);
}

Result<MappedFile> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  MappedFile file;
  file.path_ = path;
  MINISGL_RETURN_IF_ERROR(CheckRegular(path, fd, &file.stamp_));
  const uint64_t size = file.stamp_.num_bytes;
  if (size == 0) return file;
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) {
    return MakeStatus(StatusCode::kIoError, "{}: cannot be mapped ({})", Visible(path, 400),
                      std::strerror(errno));
  }
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size;
  Register(file.data_, file.size_, path);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)),
      stamp_(other.stamp_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    Release();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    path_ = std::move(other.path_);
    stamp_ = other.stamp_;
  }
  return *this;
}

MappedFile::~MappedFile() { Release(); }

void MappedFile::Release() {
  if (data_ == nullptr) return;
  Unregister(data_);
  munmap(const_cast<std::byte*>(data_), size_);
  data_ = nullptr;
  size_ = 0;
}

void MappedFile::DropPages(std::span<const std::byte> part) const {
  if (part.empty()) return;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t begin = static_cast<size_t>(part.data() - data_) / page * page;
  const auto end = static_cast<size_t>(part.data() + part.size() - data_);
  madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

Result<std::string> ReadFile(const std::string& path, uint64_t bytes_max) {
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  FileStamp stamp;
  MINISGL_RETURN_IF_ERROR(CheckRegular(path, fd, &stamp));
  const uint64_t size = stamp.num_bytes;
  if (size > bytes_max) {
    return BadInput("{}: has {} bytes; at most {} are read", Visible(path, 400), size, bytes_max);
  }
  std::string text(size, '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = read(fd.get(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return MakeStatus(StatusCode::kIoError, "{}: cannot be read ({})", Visible(path, 400),
                        std::strerror(errno));
    }
    if (got == 0) break;  // file shrank since fstat; return the bytes that exist
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

void InstallBusErrorHandler() {
  struct sigaction action {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace minisgl
