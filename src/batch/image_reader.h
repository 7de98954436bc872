// Reads the pictures that rows name: regular files of a bounded size, if wanted only those within
// one folder, and if wanted files of the network. Paths and URLs come from rows, which are
// untrusted.
//
// The bytes of the last files are kept, so that a picture of many rows is read once and is once in
// memory. Fetched files are kept likewise, and failures to fetch them. Thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "batch/fetched_files.h"
#include "batch/row_images.h"
#include "load/image_options.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/status.h"
#include "minisgl/text/prompt_images.h"
#include "minisgl/text/text_model.h"

namespace minisgl::batch {

// Upper bound on the bytes of a row's pictures together, in which equal files count once.
inline constexpr uint64_t kRowImageBytesMax = uint64_t{512} << 20;

// The bytes of a file of a picture and what is known of it.
struct ImageFile {
  std::string path;  // absolute, as it was found
  std::shared_ptr<const std::string> bytes;
};

class ImageReader {
 public:
  // `folder`: what the paths of rows are relative to, usually that of their file; "" is the working
  // directory.
  ImageReader(load::ImageOptions options, std::string folder);

  // Reads the file at `path`. kBadInput: it is outside of --image-root, no regular file, too large
  // or no picture that can be decoded; kNoInput: it cannot be opened.
  Result<ImageFile> Read(const std::string& path) const { return ReadAt(path, false); }

  // The picture of a row for its conversation, with its bytes and the bounds that the options, its
  // detail and `text` say. Its header is read, and it is laid out if the model reads pictures.
  // Errors as above, without the place in the row, and those of LayOutImage.
  Result<ConversationImage> Take(const RowImage& image, const TextModel& text) const;

 private:
  struct Kept {
    FileStamp stamp;
    std::shared_ptr<const std::string> bytes;
  };
  Result<ImageFile> ReadAt(const std::string& path, bool is_users) const;
  // The file at a URL. The path is the URL.
  Result<ImageFile> ReadUrl(const std::string& url) const;
  Result<ImageFile> ReadOpened(int fd, const std::string& path) const;
  void SetBounds(const RowImage& image, const TextModel& text, ConversationImage* out) const;
  std::shared_ptr<const std::string> Find(const FileStamp& stamp) const;
  void Keep(const FileStamp& stamp, std::shared_ptr<const std::string> bytes) const;

  const load::ImageOptions options_;
  const PictureLimits limits_;
  const std::string folder_;
  mutable FetchedFiles fetched_;
  mutable std::mutex mutex_;
  mutable std::list<Kept> kept_;  // the last used first; guarded by mutex_, like the next
  mutable uint64_t kept_bytes_ = 0;
};

// True if `bytes` are a file of a picture, however large it is.
bool IsPicture(std::string_view bytes);

// The folder of the file at `path`, for paths relative to it; "" for standard input.
std::string FolderOfRows(const std::string& path);

}  // namespace minisgl::batch
