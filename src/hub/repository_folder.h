// Writes a repository's files into the hub cache: blobs, links to them, refs.
//
// - Folders are opened one in another and never through a symbolic link below the cache's own
//   folder, so that no link can lead a write out of it.
// - A blob is written as HASH.incomplete, and renamed after its bytes were checked.
// - While an object exists, no other process has one of the same repository. The hub's Python
//   library takes the locks of single blobs (.locks/models--OWNER--NAME/HASH.lock), and so does
//   this.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "hub/repository_files.h"
#include "minisgl/base/status.h"
#include "minisgl/base/trusted_folder.h"

namespace minisgl::hub {

// A file that is being downloaded, with its lock.
class PartialBlob {
 public:
  // Bytes that are in it.
  uint64_t num_bytes() const { return num_bytes_; }
  // Appends. kIoError.
  Status Append(std::string_view bytes);
  // Empties it. kIoError.
  Status Clear();
  // Passes all bytes to `add`, in pieces of up to 1 MiB. A failure of `add` ends it and is the
  // result. kIoError.
  Status ReadAll(const std::function<Status(std::string_view)>& add) const;

 private:
  friend class RepositoryFolder;
  PartialBlob(FileHandle lock, FileHandle file, std::string name)
      : lock_(std::move(lock)), file_(std::move(file)), name_(std::move(name)) {}

  FileHandle lock_, file_;
  std::string name_;  // for messages
  uint64_t num_bytes_ = 0;
};

class RepositoryFolder {
 public:
  // Makes the missing folders below `cache_dir`. Waits while another process downloads the same
  // repository, until `stops`: then kUnavailable. kCannotCreate, kIoError.
  static Result<std::unique_ptr<RepositoryFolder>> Open(const std::string& cache_dir,
                                                        const RepositoryName& repository,
                                                        std::function<bool()> stops);

  // True if the contents of `file` are there.
  bool HasBlob(const RepositoryFile& file) const;
  // Bytes of `file` that an interrupted download left.
  uint64_t PartialBytes(const RepositoryFile& file) const;
  // Bytes of the disk that this user may still write.
  Result<uint64_t> FreeBytes() const;
  // Locks and opens the blob's part. Waits like Open().
  Result<PartialBlob> OpenPartial(const RepositoryFile& file);
  // Syncs the part, whose bytes were checked, and gives it the blob's name. kIoError.
  Status Keep(const RepositoryFile& file, PartialBlob partial);
  // Links the file's name in the snapshot of `commit` to its blob; replaces what has that name.
  Status Link(const std::string& commit, const RepositoryFile& file);
  // Records `commit` for the branch or tag `revision`.
  Status SetRef(const std::string& revision, const std::string& commit);

  std::string SnapshotPath(const std::string& commit) const;
  std::string BlobPath(const RepositoryFile& file) const;

 private:
  explicit RepositoryFolder(std::string path, std::function<bool()> stops)
      : path_(std::move(path)), stops_(std::move(stops)) {}
  Status OpenFolders(const std::string& cache_dir, const RepositoryName& repository);
  Result<FileHandle> Lock(const std::string& name, const char* waits_for) const;

  std::string path_;  // for messages and paths that are returned
  std::function<bool()> stops_;
  FileHandle folder_, blobs_, snapshots_, refs_, locks_;
  FileHandle lock_;  // of the repository
};

}  // namespace minisgl::hub
