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

  // The instructions for it where the processor has them, or plain code: the digests are the same.
  enum class Path { kFastest, kPlain };

  explicit Sha256(Path path = Path::kFastest);
  void Add(std::string_view bytes);
  // Of all that was added. Call once.
  Digest Finish();
  // The same as 64 hexadecimal digits.
  std::string FinishHex();

 private:
  void AddBlocks(const uint8_t* blocks, size_t count);
  void AddBlock(const uint8_t* block);

  const bool has_instructions_;
  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> block_{};
  uint64_t num_bytes_ = 0;
};

}  // namespace minisgl
