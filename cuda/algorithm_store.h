// Algorithms of matrix products that were timed on this machine, kept in a file for the next start.
//
// An algorithm is opaque here: the bytes of cuBLASLt's, valid for one version of the library on one
// kind of GPU. These are the file's identity, and a hash of it is part of the file's name and
// contents. The last line of the file is a hash of all others. A file that is damaged counts as
// none, with one warning; a folder that cannot be used keeps nothing. A lock file in the folder
// makes processes that save take turns. For one thread.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "cuda_api.h"
#include "minisgl/base/trusted_folder.h"

namespace minisgl::cuda {

class AlgorithmStore {
 public:
  using Bytes = std::array<unsigned char, 64>;
  // A model has some 40 numbers of tokens for each of 5 matrices; this many are many models.
  static constexpr size_t kEntriesMax = 20'000;

  // Reads the file of `identity` in `folder`, if there is one.
  AlgorithmStore(const std::string& folder, const std::string& identity);
  // Saves; what fails then is dropped.
  ~AlgorithmStore();
  AlgorithmStore(const AlgorithmStore&) = delete;
  AlgorithmStore& operator=(const AlgorithmStore&) = delete;

  // Null if there is none.
  const Bytes* Find(const MatmulShape& shape) const;
  // A shape that is not there is left out if there are kEntriesMax. Products whose outputs stand
  // apart, token from token, are neither kept nor found.
  void Add(const MatmulShape& shape, const Bytes& algorithm);
  // Writes the file if something was added, with what other processes wrote meanwhile. Waits for
  // one that saves for at most some seconds; then what that one adds may be lost.
  void Save();

 private:
  using Key = std::tuple<int64_t, int64_t, int64_t, int, int>;
  using Entries = std::map<Key, Bytes>;

  static Key KeyOf(const MatmulShape& shape);
  std::string Text(const Entries& entries) const;
  std::optional<Entries> Parse(const std::string& text) const;
  // The file's entries; none if it is damaged.
  Entries Read(bool warns) const;

  std::string identity_;  // its hash
  std::string name_;
  std::string path_;  // for messages
  std::optional<TrustedFolder> folder_;
  Entries entries_;
  bool has_new_ = false;
};

}  // namespace minisgl::cuda
