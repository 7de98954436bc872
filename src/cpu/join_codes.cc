// See join_codes.h.
#include "cpu/join_codes.h"

#include <cstring>

#include "cpu/coded_matrix.h"

namespace minisgl::cpu {
namespace {

using Bytes = uint8_t __attribute__((vector_size(16)));
using Halves = uint16_t __attribute__((vector_size(16)));

Halves LoadHalves(const uint8_t* bytes) {
  Halves halves;
  std::memcpy(&halves, bytes, sizeof(halves));
  return halves;
}

// Byte i is the lower byte of half i of both vectors in turn.
Bytes LowerBytes(Halves first, Halves second) {
  return __builtin_shufflevector(reinterpret_cast<Bytes>(first), reinterpret_cast<Bytes>(second), 0,
                                 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}

// Byte i has the lower 4 bits of codes 2 i and 2 i + 1.
Bytes JoinNibbles(const uint8_t* codes) {
  constexpr uint16_t kLower = 0x0F0F;
  const Halves first = LoadHalves(codes) & kLower,
               second = LoadHalves(codes + sizeof(Halves)) & kLower;
  return LowerBytes(first | first >> 4, second | second >> 4);
}

// Byte i has bits 4 and 5 of codes 2 i and 2 i + 1 in its lower half.
Bytes JoinUpperBits(const uint8_t* codes) {
  constexpr uint16_t kUpper = 0x0303;
  const Halves first = LoadHalves(codes) >> 4 & kUpper;
  const Halves second = LoadHalves(codes + sizeof(Halves)) >> 4 & kUpper;
  return LowerBytes(first | first >> 6, second | second >> 6);
}

}  // namespace

void JoinCodes4(uint8_t* codes, int64_t count) {
  for (uint8_t* to = codes; count > 0; count -= kJoined4) {
    const Bytes joined = JoinNibbles(codes);
    std::memcpy(to, &joined, sizeof(joined));
    codes += kJoined4;
    to += sizeof(joined);
  }
}

void JoinCodes6(uint8_t* codes, int64_t count) {
  constexpr int64_t kUnits = kJoined6 / kUnitInputs;
  for (uint8_t* to = codes; count > 0; count -= kJoined6) {
    const Bytes joined[4] = {JoinNibbles(codes), JoinNibbles(codes + kJoined4),
                             JoinUpperBits(codes), JoinUpperBits(codes + kJoined4)};
    uint32_t lower[2 * kUnits], upper[2 * kUnits];  // two words a unit
    std::memcpy(lower, joined, sizeof(lower));
    std::memcpy(upper, joined + 2, sizeof(upper));
    for (int64_t unit = 0; unit < kUnits; ++unit) {
      const uint32_t words[kUnitWords] = {lower[2 * unit], lower[2 * unit + 1],
                                          upper[2 * unit] | upper[2 * unit + 1] << 4};
      std::memcpy(to, words, sizeof(words));
      to += sizeof(words);
    }
    codes += kJoined6;
  }
}

}  // namespace minisgl::cpu
