// SHA-256 (FIPS 180-4): for telling files and ids apart where a chance collision must not matter.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace minisgl {

class Sha256 {
 public:
  using Digest = std::array<uint8_t, 32>;

  Sha256();
  void Add(std::string_view bytes);
  // Of all that was added. Call once.
  Digest Finish();
  // The same as 64 hexadecimal digits.
  std::string FinishHex();

 private:
  void AddBlock(const uint8_t* block);

  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> block_{};
  uint64_t num_bytes_ = 0;
};

}  // namespace minisgl
