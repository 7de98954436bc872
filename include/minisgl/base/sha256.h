// SHA-256 (FIPS 180-4), to identify files and ids without chance collisions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace minisgl {

class Sha256 {
 public:
  using Digest = std::array<uint8_t, 32>;

  // kFastest: the processor's SHA instructions if it has them. kPlain: portable code. Both give the
  // same digests.
  enum class Path { kFastest, kPlain };

  explicit Sha256(Path path = Path::kFastest);
  void Add(std::string_view bytes);
  // The digest of all added bytes. Call once.
  Digest Finish();
  // Finish() as 64 hexadecimal digits.
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
