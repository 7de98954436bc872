#include "batch/image_reader.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "minisgl/base/mapped_file.h"
#include "minisgl/base/trusted_folder.h"
#include "minisgl/base/utf8.h"
#include "minisgl/vision/image_layout.h"
#include "minisgl/vision/image_rules.h"
#include "minisgl/vision/picture.h"

namespace minisgl::batch {
namespace {

// Files that are kept for later rows: so many bytes, and so few that a search is nothing.
constexpr uint64_t kKeptBytesMax = uint64_t{64} << 20;
constexpr size_t kKeptFilesMax = 256;
// What detail "low" allows: the least that any model is trained with (Gemma 4's smallest budget),
// and never less than a tile of the model.
constexpr int32_t kLowTokens = 70;
constexpr int kNoFollow = O_NOFOLLOW | O_CLOEXEC;

std::string Shown(const std::string& path) { return Visible(path, 400); }

// The path without links, "." and ".."; nullopt if there is no such file.
std::optional<std::string> RealPath(const std::string& path) {
  char real[PATH_MAX];
  if (realpath(path.c_str(), real) == nullptr) return std::nullopt;
  return std::string(real);
}

Status CannotOpen(const std::string& path, int error) {
  return MakeStatus(StatusCode::kNoInput, "{}: cannot be opened ({})", Shown(path),
                    std::strerror(error));
}

Status CheckIsRegular(int fd, const std::string& path, struct stat* info) {
  if (fstat(fd, info) != 0) return CannotOpen(path, errno);
  if (S_ISREG(info->st_mode)) return Status();
  return BadInput("{}: is {}, not a file of a picture", Shown(path),
                  S_ISDIR(info->st_mode) ? "a folder" : "a device or a pipe");
}

// Opens a regular file below the folder `dir` for reading. A device or a FIFO is recognised before
// it is opened, which may wait or have an effect.
Result<FileHandle> OpenRegular(int dir, const char* name, const std::string& path, int flags) {
  struct stat info {};
  const FileHandle place(openat(dir, name, O_PATH | O_CLOEXEC | flags));
  if (!place.is_open()) return CannotOpen(path, errno);
  MINISGL_RETURN_IF_ERROR(CheckIsRegular(place.fd(), path, &info));
  FileHandle file(openat(dir, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags));
  if (!file.is_open()) return CannotOpen(path, errno);
  MINISGL_RETURN_IF_ERROR(CheckIsRegular(file.fd(), path, &info));
  return file;
}

// Opens the file at `real`, a path without links, within the folder at `root`, another. No link is
// followed on the way, so that what was checked is what is opened.
Result<FileHandle> OpenWithin(const std::string& root, const std::string& real,
                              const std::string& path) {
  FileHandle folder(open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.is_open()) return CannotOpen(root, errno);
  std::string_view rest(real);
  rest.remove_prefix(root == "/" ? 1 : root.size() + 1);
  for (size_t slash = rest.find('/'); slash != rest.npos; slash = rest.find('/')) {
    const std::string name(rest.substr(0, slash));
    FileHandle next(openat(folder.fd(), name.c_str(), O_PATH | O_DIRECTORY | kNoFollow));
    if (!next.is_open()) return CannotOpen(path, errno);
    folder = std::move(next);
    rest.remove_prefix(slash + 1);
  }
  return OpenRegular(folder.fd(), std::string(rest).c_str(), path, O_NOFOLLOW);
}

bool IsWithin(const std::string& root, const std::string& real) {
  return root == "/" ||
         (real.size() > root.size() + 1 && real.starts_with(root) && real[root.size()] == '/');
}

// Opens `path`, which a row names, if it is within `root`. One error for all that is not there, so
// that a row learns nothing of files outside.
Result<FileHandle> OpenSandboxed(const std::string& root, const std::string& path) {
  const std::optional<std::string> real_root = RealPath(root);
  if (!real_root) return CannotOpen(root, errno).WithPrefix("--image-root");
  const std::optional<std::string> real = RealPath(path);
  if (!real || !IsWithin(*real_root, *real)) {
    return BadInput("{}: is no file in the folder that --image-root allows ({})", Shown(path),
                    Shown(root));
  }
  return OpenWithin(*real_root, *real, path);
}

Result<std::string> ReadBytes(int fd, const std::string& path, uint64_t size, uint64_t bytes_max) {
  std::string bytes(std::min(size, bytes_max) + 1, '\0');
  size_t num_read = 0;
  while (num_read < bytes.size()) {
    const ssize_t count = read(fd, bytes.data() + num_read, bytes.size() - num_read);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return MakeStatus(StatusCode::kIoError, "{}: cannot be read ({})", Shown(path),
                        std::strerror(errno));
    }
    if (count == 0) break;
    num_read += static_cast<size_t>(count);
  }
  if (num_read > size) return BadInput("{}: grew while it was read", Shown(path));
  bytes.resize(num_read);
  return bytes;
}

}  // namespace

ImageReader::ImageReader(load::ImageOptions options, std::string folder)
    : options_(std::move(options)),
      limits_(load::LimitsOf(options_)),
      folder_(std::move(folder)),
      fetched_(kKeptFilesMax, kKeptBytesMax) {}

Result<ImageFile> ImageReader::ReadUrl(const std::string& url) const {
  const bool fetches = options_.fetches || options_.fetches_private;
  if (!fetches || options_.fetch == nullptr) {
    return BadInput(
        "{}: is a picture of the network; give --fetch-images to have it fetched, or download it "
        "and name the file",
        Shown(url));
  }
  ImageFile file;
  file.path = url;
  MINISGL_ASSIGN_OR_RETURN(file.bytes, fetched_.Get(url, [this](const std::string& at) {
    return options_.fetch(at, limits_.bytes_max, !options_.fetches_private);
  }));
  const Status header = ReadPictureHeader(*file.bytes, limits_).status();
  if (!header.ok()) return header.WithPrefix(Shown(url));
  return file;
}

Result<ImageFile> ImageReader::ReadAt(const std::string& path, bool is_users) const {
  const bool is_relative = !path.starts_with('/') && !is_users && !folder_.empty();
  const std::string whole = is_relative ? folder_ + "/" + path : path;
  const bool is_sandboxed = !options_.root.empty() && !is_users;
  Result<FileHandle> file = is_sandboxed ? OpenSandboxed(options_.root, whole)
                                         : OpenRegular(AT_FDCWD, whole.c_str(), whole, 0);
  if (!file.ok()) return file.status();
  return ReadOpened(file->fd(), whole);
}

Result<ImageFile> ImageReader::ReadOpened(int fd, const std::string& path) const {
  struct stat info {};
  MINISGL_RETURN_IF_ERROR(CheckIsRegular(fd, path, &info));
  const FileStamp stamp = StampOf(info);
  if (stamp.num_bytes > limits_.bytes_max) {
    return BadInput("{}: has {} bytes, and a picture may have {}", Shown(path), stamp.num_bytes,
                    limits_.bytes_max);
  }
  ImageFile file;
  std::error_code error;
  file.path = std::filesystem::absolute(path, error).lexically_normal().string();
  file.bytes = Find(stamp);
  if (file.bytes != nullptr) return file;
  MINISGL_ASSIGN_OR_RETURN(std::string bytes,
                           ReadBytes(fd, path, stamp.num_bytes, limits_.bytes_max));
  const Status header = ReadPictureHeader(bytes, limits_).status();
  if (!header.ok()) return header.WithPrefix(Shown(path));
  file.bytes = std::make_shared<const std::string>(std::move(bytes));
  Keep(stamp, file.bytes);
  return file;
}

Result<ConversationImage> ImageReader::Take(const RowImage& image, const TextModel& text) const {
  ConversationImage taken;
  taken.name = image.name;
  taken.bytes = image.bytes;
  if (image.bytes == nullptr) {
    MINISGL_ASSIGN_OR_RETURN(ImageFile file, image.url.empty() ? ReadAt(image.path, image.is_users)
                                                               : ReadUrl(image.url));
    taken.name = std::move(file.path);
    taken.bytes = std::move(file.bytes);
  } else if (image.bytes->size() > limits_.bytes_max) {
    return BadInput("{}: a picture may have {} bytes", image.name, limits_.bytes_max);
  } else {
    const Status header = ReadPictureHeader(*image.bytes, limits_).status();
    if (!header.ok()) return header.WithPrefix(image.name);
  }
  taken.background = options_.background;
  taken.limits = limits_;
  SetBounds(image, text, &taken);
  if (!text.images) return taken;
  MINISGL_ASSIGN_OR_RETURN(const ImageRules rules,
                           WithTokenBounds(text.images->rules, taken.tokens_min, taken.tokens_max));
  const Status fits = LayOutImageFile(rules, *taken.bytes, limits_).status();
  if (!fits.ok()) return fits.WithPrefix(Visible(taken.name, 400));
  return taken;
}

void ImageReader::SetBounds(const RowImage& image, const TextModel& text,
                            ConversationImage* out) const {
  out->tokens_min = options_.tokens_min;
  out->tokens_max = options_.tokens_max;
  if (image.detail != ImageDetail::kLow || !text.images) return;
  const ImageRules& rules = text.images->rules;
  int32_t low = std::max({kLowTokens, rules.tokens_per_tile, options_.tokens_min.value_or(1)});
  low = std::min(low, options_.tokens_max.value_or(low));
  // A model whose pictures cannot be so small shows them as always.
  if (WithTokenBounds(rules, options_.tokens_min, low).ok()) out->tokens_max = low;
}

std::shared_ptr<const std::string> ImageReader::Find(const FileStamp& stamp) const {
  const std::lock_guard lock(mutex_);
  for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
    if (kept->stamp != stamp) continue;
    kept_.splice(kept_.begin(), kept_, kept);
    return kept_.front().bytes;
  }
  return nullptr;
}

void ImageReader::Keep(const FileStamp& stamp, std::shared_ptr<const std::string> bytes) const {
  if (bytes->size() > kKeptBytesMax) return;
  const std::lock_guard lock(mutex_);
  kept_bytes_ += bytes->size();
  kept_.push_front({stamp, std::move(bytes)});
  while (kept_bytes_ > kKeptBytesMax || kept_.size() > kKeptFilesMax) {
    kept_bytes_ -= kept_.back().bytes->size();
    kept_.pop_back();
  }
}

bool IsPicture(std::string_view bytes) {
  PictureLimits limits;
  limits.bytes_max = limits.pixels_max = std::numeric_limits<uint64_t>::max();
  limits.sides_ratio_max = std::numeric_limits<double>::infinity();
  return ReadPictureHeader(bytes, limits).ok();
}

std::string FolderOfRows(const std::string& path) {
  if (path == "-" || path.starts_with("/dev/")) return "";
  return std::filesystem::path(path).parent_path().string();
}

}  // namespace minisgl::batch
