// Packed matrices kept in a file from one start to the next, which reads them instead of packing.
//
// A file holds the matrices of one model in one format, in the order they are asked for. Its name
// and header carry a key: a hash of what the caller says of the source, and of how this program
// packs a small matrix, so that a changed source or layout is another file. Each matrix carries an
// identity (format, shape, samples of the source) and a hash of all its bytes, which is checked as
// they are read into memory: a later change of the file changes nothing. A file that is not exactly
// right is written anew, and so is one that others may write; a folder that others may write is not
// used (trusted_folder.h). Nothing here fails a run: what cannot be read or written is packed, and
// said in a warning.
//
// Find, Add and Finish are called from one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cpu/packed_matrix.h"
#include "minisgl/base/status.h"
#include "minisgl/base/thread_pool.h"
#include "minisgl/base/trusted_folder.h"
#include "minisgl/ops.h"
#include "minisgl/tensor/tensor_view.h"

namespace minisgl::cpu {

class PackStore {
 public:
  // For the model that `source` stands for, in `dir`, which is made where it is missing.
  PackStore(std::string dir, PackSource source);
  // Waits until a file that is being written is there.
  ~PackStore();
  PackStore(const PackStore&) = delete;
  PackStore& operator=(const PackStore&) = delete;

  // The next matrix, if the file has it whole, else null: then it is packed, and handed to Add.
  // `pool` (may be null) checks it.
  std::shared_ptr<void> Find(uint64_t identity, size_t num_bytes, ThreadPool* pool = nullptr);
  // `data` must not change any more.
  void Add(uint64_t identity, std::shared_ptr<void> data, size_t num_bytes);
  // All matrices were asked for. Where one was not found, a thread begins to write the file. Later
  // calls do nothing.
  void Finish();

  int64_t num_found() const { return num_found_; }
  int64_t num_packed() const { return num_packed_; }
  const std::string& path() const { return path_; }

 private:
  struct Entry {  // as the file has it
    uint64_t identity, offset, num_bytes, content_hash;
  };
  struct Kept {
    uint64_t identity;
    std::shared_ptr<void> data;
    size_t num_bytes;
  };

  static Result<std::vector<Entry>> ReadEntries(int fd, const uint64_t (&key)[2]);
  void Read();
  std::shared_ptr<void> ReadMatrix(const Entry& entry, ThreadPool* pool) const;
  Status Write() const;
  Status WriteTo(int fd) const;

  const PackSource source_;
  uint64_t key_[2] = {};
  std::string name_;                     // within folder_
  std::string path_;                     // for messages
  std::optional<TrustedFolder> folder_;  // empty where nothing is kept
  FileHandle file_;                      // not open where none is to be read
  std::vector<Entry> entries_;           // of file_
  std::vector<Kept> matrices_;           // asked for so far
  int64_t num_found_ = 0, num_packed_ = 0;
  bool finished_ = false;
  std::thread writer_;
};

// PackParts, or what `store` (may be null) has of it.
Result<PackedMatrix> FindOrPack(std::span<const TensorView> parts, const WeightFormat& format,
                                PackStore* store, ThreadPool* pool);

}  // namespace minisgl::cpu
