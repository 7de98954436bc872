// A file of packed matrices, which the next start reads instead of packing again.
//
// A file holds the matrices of one model in one format, in the order of the calls to Find. Its name
// and header carry a key: a hash of PackSource::key and of the bytes that this program packs a
// small matrix to, so that another source or layout means another file. CPU targets whose forms
// differ have files of their own. Each matrix has an identity
// (format, shape, samples of the source) and a hash of all its bytes.
//
// Safety: bytes are read into memory and checked there, so that later changes of the file have no
// effect. A file with any error is rewritten, and so is one that other users can write; a folder
// that other users can write is not used (trusted_folder.h).
//
// Errors never fail a run: if the file cannot be read or written, weights are packed, and a warning
// is logged.
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

#include "cpu/memory.h"
#include "cpu/packed_matrix.h"
#include "minisgl/base/status.h"
#include "minisgl/base/trusted_folder.h"
#include "minisgl/ops.h"
#include "minisgl/tensor/weight_tensor.h"

namespace minisgl::cpu {

class PackStore {
 public:
  // Opens the file of the model that `source` identifies, with codes in `orders`, in `dir`, which
  // is created if missing.
  PackStore(std::string dir, PackSource source, CodeOrders orders = CodeOrder::kWords);
  // Waits for the writing of the file to end.
  ~PackStore();
  PackStore(const PackStore&) = delete;
  PackStore& operator=(const PackStore&) = delete;

  // Returns the next matrix, or null if the file does not have it whole; the caller then packs it
  // and calls Add. Its threads, if there are any, share the reading and checking.
  std::shared_ptr<void> Find(uint64_t identity, size_t num_bytes, Packing packing = nullptr);
  // `data` must not change afterwards.
  void Add(uint64_t identity, std::shared_ptr<const void> data, size_t num_bytes);
  // Ends loading. If any matrix was not found, starts a thread that writes the file. Later calls do
  // nothing.
  void Finish();

  // True if the file that was opened has matrices.
  bool has_matrices() const { return !entries_.empty(); }
  int64_t num_found() const { return num_found_; }
  int64_t num_packed() const { return num_packed_; }
  const std::string& path() const { return path_; }

 private:
  struct Entry {  // as stored in the file
    uint64_t identity, offset, num_bytes, content_hash;
  };
  struct Kept {
    uint64_t identity;
    std::shared_ptr<const void> data;
    size_t num_bytes;
  };

  static Result<std::vector<Entry>> ReadEntries(int fd, const uint64_t (&key)[2]);
  void Read();
  std::shared_ptr<void> ReadMatrix(const Entry& entry, Packing packing) const;
  Status Write() const;
  Status WriteTo(int fd) const;

  const PackSource source_;
  uint64_t key_[2] = {};
  std::string name_;                     // within folder_
  std::string path_;                     // for messages
  std::optional<TrustedFolder> folder_;  // empty if the folder cannot be used
  FileHandle file_;                      // open while matrices are read from it
  std::vector<Entry> entries_;           // the table of file_
  std::vector<Kept> matrices_;           // found or added so far
  int64_t num_found_ = 0, num_packed_ = 0;
  bool finished_ = false;
  std::thread writer_;
};

// Returns the packed matrix from `store` (may be null), or packs it with PackParts.
Result<PackedMatrix> FindOrPack(std::span<const WeightTensor> parts, const WeightFormat& format,
                                CodeOrders orders, PackStore* store, Packing packing);
// The same, but of kStored neighbours without common codes are stacked, each in its own form.
Result<PackedMatrix> FindOrPackStack(std::span<const WeightTensor> parts,
                                     const WeightFormat& format, CodeOrders orders,
                                     PackStore* store, Packing packing);

}  // namespace minisgl::cpu
