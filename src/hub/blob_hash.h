// The hash that names a file in a hub's repository, computed as its bytes arrive.
//
// 64 hexadecimal digits: the SHA-256 of the contents (files of Git LFS). 40: the SHA-1 of
// "blob SIZE\0" and the contents (git's name of a blob).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "minisgl/base/sha256.h"

namespace minisgl::hub {

// SHA-1 (FIPS 180-4), of which git makes its names. It does not withstand an attacker, who can make
// two files with one SHA-1, but finds every damaged file.
class Sha1 {
 public:
  void Add(std::string_view bytes);
  // The digest of all added bytes as 40 hexadecimal digits. Call once.
  std::string FinishHex();

 private:
  void AddBlock(const uint8_t* block);

  std::array<uint32_t, 5> state_{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  std::array<uint8_t, 64> block_{};
  uint64_t num_bytes_ = 0;
};

// True for 40 or 64 hexadecimal digits, in lower case.
bool IsBlobHash(std::string_view text);

class BlobHash {
 public:
  // For a file of `num_bytes` that `expected` names. REQUIRES IsBlobHash(expected).
  BlobHash(std::string_view expected, uint64_t num_bytes);
  void Add(std::string_view bytes);
  // The hash of all added bytes, of the kind of `expected`. Call once.
  std::string FinishHex();

 private:
  const bool is_sha256_;
  Sha256 sha256_;
  Sha1 sha1_;
};

}  // namespace minisgl::hub
