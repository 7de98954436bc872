// See blob_hash.h.
#include "hub/blob_hash.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "minisgl/base/check.h"

namespace minisgl::hub {
namespace {

constexpr size_t kSha1Digits = 40, kSha256Digits = 64;
// The length of the message in bits stands in the last bytes of the last block.
constexpr size_t kLengthAt = 56;

uint32_t LoadBigEndian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

}  // namespace

void Sha1::AddBlock(const uint8_t* block) {
  std::array<uint32_t, 80> words{};
  for (size_t i = 0; i < 16; ++i) words[i] = LoadBigEndian(block + 4 * i);
  for (size_t i = 16; i < words.size(); ++i) {
    words[i] = std::rotl(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
  }
  auto [a, b, c, d, e] = state_;
  for (size_t i = 0; i < words.size(); ++i) {
    uint32_t mixed = b ^ c ^ d, constant = 0xca62c1d6;
    if (i < 20) {
      mixed = (b & c) | (~b & d), constant = 0x5a827999;
    } else if (i < 40) {
      constant = 0x6ed9eba1;
    } else if (i < 60) {
      mixed = (b & c) | (b & d) | (c & d), constant = 0x8f1bbcdc;
    }
    const uint32_t next = std::rotl(a, 5) + mixed + e + constant + words[i];
    e = d, d = c, c = std::rotl(b, 30), b = a, a = next;
  }
  state_ = {state_[0] + a, state_[1] + b, state_[2] + c, state_[3] + d, state_[4] + e};
}

void Sha1::Add(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t used = num_bytes_ % block_.size();
    const size_t count = std::min(bytes.size(), block_.size() - used);
    std::memcpy(block_.data() + used, bytes.data(), count);
    num_bytes_ += count;
    bytes.remove_prefix(count);
    if (used + count == block_.size()) AddBlock(block_.data());
  }
}

std::string Sha1::FinishHex() {
  const uint64_t num_bits = num_bytes_ * 8;
  Add(std::string_view("\x80", 1));
  while (num_bytes_ % block_.size() != kLengthAt) Add(std::string_view("\0", 1));
  for (int shift = 56; shift >= 0; shift -= 8) {
    const char byte = static_cast<char>(num_bits >> shift & 0xff);
    Add(std::string_view(&byte, 1));
  }
  std::string hex;
  for (const uint32_t word : state_) hex += fmt::format("{:08x}", word);
  return hex;
}

bool IsBlobHash(std::string_view text) {
  return (text.size() == kSha1Digits || text.size() == kSha256Digits) &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

BlobHash::BlobHash(std::string_view expected, uint64_t num_bytes)
    : is_sha256_(expected.size() == kSha256Digits) {
  MINISGL_CHECK(IsBlobHash(expected), "no hash of a blob");
  if (!is_sha256_) {
    sha1_.Add(fmt::format("blob {}", num_bytes));
    sha1_.Add(std::string_view("\0", 1));
  }
}

void BlobHash::Add(std::string_view bytes) {
  if (is_sha256_) {
    sha256_.Add(bytes);
  } else {
    sha1_.Add(bytes);
  }
}

std::string BlobHash::FinishHex() { return is_sha256_ ? sha256_.FinishHex() : sha1_.FinishHex(); }

}  // namespace minisgl::hub
