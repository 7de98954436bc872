#include "minisgl/base/sha256.h"

#include <fmt/core.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cstring>

namespace minisgl {
namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// The length of the message in bits stands in the last bytes of the last block.
constexpr size_t kLengthAt = 56;

uint32_t LoadBigEndian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

#if defined(__x86_64__)
bool AskForInstructions() {
  constexpr unsigned kSsse3 = 1u << 9, kSse41 = 1u << 19, kSha = 1u << 29;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return false;
  const bool shuffles = (c & kSsse3) != 0 && (c & kSse41) != 0;
  return shuffles && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kSha) != 0;
}

// The state is kept as the instructions have it, in lanes from the highest down: abef and cdgh.
// Sixteen times four rounds; `words` are the last sixteen of the message schedule.
__attribute__((target("sha,sse4.1"))) void AddByInstructions(const uint8_t* blocks, size_t count,
                                                             uint32_t* state) {
  const __m128i byte_order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(reinterpret_cast<__m128i*>(state)), 0xB1);
  const __m128i efgh =
      _mm_shuffle_epi32(_mm_loadu_si128(reinterpret_cast<__m128i*>(state + 4)), 0x1B);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
  for (; count > 0; --count, blocks += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i words[4];
    for (size_t i = 0; i < 16; ++i) {
      __m128i& now = words[i % 4];
      if (i < 4) {
        now = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks + 16 * i)),
                               byte_order);
      } else {
        const __m128i last = words[(i + 3) % 4];
        now = _mm_add_epi32(_mm_sha256msg1_epu32(now, words[(i + 1) % 4]),
                            _mm_alignr_epi8(last, words[(i + 2) % 4], 4));
        now = _mm_sha256msg2_epu32(now, last);
      }
      const __m128i added =
          _mm_add_epi32(now, _mm_loadu_si128(reinterpret_cast<const __m128i*>(kRound + 4 * i)));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, added);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(added, 0x0E));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}
#else
bool AskForInstructions() { return false; }
#endif

// Asked once: in a virtual machine the question takes microseconds, and each id is a hash.
bool HasInstructions() {
  static const bool has = AskForInstructions();
  return has;
}

}  // namespace

// The fractional parts of the square roots of the first eight primes.
Sha256::Sha256(Path path)
    : has_instructions_(path == Path::kFastest && HasInstructions()),
      state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

void Sha256::Add(std::string_view bytes) {
  size_t used = num_bytes_ % block_.size();
  num_bytes_ += bytes.size();
  while (!bytes.empty()) {
    if (used == 0 && bytes.size() >= block_.size()) {
      const size_t count = bytes.size() / block_.size();
      AddBlocks(reinterpret_cast<const uint8_t*>(bytes.data()), count);
      bytes.remove_prefix(count * block_.size());
      continue;
    }
    const size_t taken = std::min(block_.size() - used, bytes.size());
    std::memcpy(block_.data() + used, bytes.data(), taken);
    bytes.remove_prefix(taken);
    used += taken;
    if (used < block_.size()) return;
    AddBlocks(block_.data(), 1);
    used = 0;
  }
}

void Sha256::AddBlocks(const uint8_t* blocks, size_t count) {
#if defined(__x86_64__)
  if (has_instructions_) return AddByInstructions(blocks, count, state_.data());
#endif
  for (size_t i = 0; i < count; ++i) AddBlock(blocks + i * block_.size());
}

void Sha256::AddBlock(const uint8_t* block) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i) w[i] = LoadBigEndian(block + 4 * i);
  for (int i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const uint32_t sums[8] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < state_.size(); ++i) state_[i] += sums[i];
}

Sha256::Digest Sha256::Finish() {
  const uint64_t num_bits = num_bytes_ * 8;
  Add(std::string_view("\x80", 1));
  while (num_bytes_ % block_.size() != kLengthAt) Add(std::string_view("\0", 1));
  char length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(num_bits >> (56 - 8 * i));
  Add(std::string_view(length, sizeof length));
  Digest digest;
  for (size_t i = 0; i < digest.size(); ++i) {
    digest[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  }
  return digest;
}

std::string Sha256::FinishHex() {
  std::string text;
  for (const uint8_t byte : Finish()) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace minisgl
