// See block_codes.h. Blocks of 256. A code of IQ2 and IQ3 is a number of a codebook's row, with a
// sign; steps of scales are 2 s + 1, where the format has s + 1/2 and a part of the block's scale.
// A code of IQ1 is 8 times the number of a row, plus or less 1, for the format adds or subtracts
// an eighth.
#include "tensor/block_codes.h"

#include <cmath>
#include <cstring>

#include "minisgl/base/load_bytes.h"
#include "minisgl/tensor/dtype.h"
#include "tensor/block_grids.h"

namespace minisgl::tensor {
namespace {

// Eight numbers, negated where `mask` has 0xFF. REQUIRES that none is 0, so that no byte carries.
uint64_t Signed(uint64_t numbers, uint64_t mask) {
  return (numbers ^ mask) + (mask & 0x0101010101010101);
}

void Store(uint64_t eight, uint8_t* codes) { std::memcpy(codes, &eight, sizeof(eight)); }

int8_t OddStep(uint32_t bits) { return static_cast<int8_t>(2 * bits + 1); }

// Steps of 4 bits, two a byte, the first in the low half.
template <int kBytes>
void StepsOfNibbles(const std::byte* bytes, int8_t* scales) {
  for (int i = 0; i < kBytes; ++i) {
    const auto both = static_cast<uint32_t>(Byte(bytes + i));
    scales[2 * i] = OddStep(both & 0xF);
    scales[2 * i + 1] = OddStep(both >> 4);
  }
}

}  // namespace

// --- IQ2 -----------------------------------------------------------------------------------------

// d; for each 32: 4 rows of a byte, and a word with 4 times 7 bits of signs and a scale.
void CodesOfIq2Xxs(const std::byte* block, uint8_t* codes) {
  const uint64_t *const grid = Iq2XxsGrid(), *const masks = SignMasksOf7Bits();
  for (int group = 0; group < 8; ++group) {
    const std::byte* const rows = block + 2 + group * 8;
    auto signs = LoadBytes<uint32_t>(rows + 4);
    for (int i = 0; i < 4; ++i, signs >>= 7, codes += 8) {
      Store(Signed(grid[Byte(rows + i)], masks[signs & 0x7F]), codes);
    }
  }
}
void StepsOfIq2Xxs(const std::byte* block, int8_t* scales, int8_t*) {
  for (int group = 0; group < 8; ++group) {
    scales[group] = OddStep(LoadBytes<uint32_t>(block + 6 + group * 8) >> 28);
  }
}

// d; for each 8 a word of 16 bits, a row in 9 and signs in 7; 8 bytes of scales.
void CodesOfIq2Xs(const std::byte* block, uint8_t* codes) {
  const uint64_t *const grid = Iq2XsGrid(), *const masks = SignMasksOf7Bits();
#pragma GCC unroll 4
  for (int i = 0; i < 32; ++i, codes += 8) {
    const uint32_t word = LoadBytes<uint16_t>(block + 2 + 2 * i);
    Store(Signed(grid[word & (kIq2XsRows - 1)], masks[word >> 9]), codes);
  }
}
void StepsOfIq2Xs(const std::byte* block, int8_t* scales, int8_t*) {
  StepsOfNibbles<8>(block + 66, scales);
}

// d; 32 bytes of rows, 32 of signs, 8 of the rows' upper bits, 8 of scales.
void CodesOfIq2S(const std::byte* block, uint8_t* codes) {
  const uint64_t *const grid = Iq2SGrid(), *const masks = SignMasks();
  const std::byte *rows = block + 2, *signs = block + 34;
  for (int group = 0; group < 8; ++group) {
    const int upper = Byte(block + 66 + group) << 8;
    for (int i = 0; i < 4; ++i, codes += 8, ++rows, ++signs) {
      Store(Signed(grid[Byte(rows) | (upper >> (2 * i) & 0x300)], masks[Byte(signs)]), codes);
    }
  }
}
void StepsOfIq2S(const std::byte* block, int8_t* scales, int8_t*) {
  StepsOfNibbles<8>(block + 74, scales);
}

// --- IQ3 -----------------------------------------------------------------------------------------

// d; 64 bytes of rows; for each 32 a word with 4 times 7 bits of signs and a scale.
void CodesOfIq3Xxs(const std::byte* block, uint8_t* codes) {
  const uint32_t* const grid = Iq3XxsGrid();
  const uint64_t* const masks = SignMasksOf7Bits();
  const std::byte* rows = block + 2;
  for (int group = 0; group < 8; ++group) {
    auto signs = LoadBytes<uint32_t>(block + 66 + group * 4);
    for (int i = 0; i < 4; ++i, signs >>= 7, codes += 8, rows += 2) {
      const uint64_t eight = grid[Byte(rows)] | uint64_t{grid[Byte(rows + 1)]} << 32;
      Store(Signed(eight, masks[signs & 0x7F]), codes);
    }
  }
}
void StepsOfIq3Xxs(const std::byte* block, int8_t* scales, int8_t*) {
  for (int group = 0; group < 8; ++group) {
    scales[group] = OddStep(LoadBytes<uint32_t>(block + 66 + group * 4) >> 28);
  }
}

// d; 64 bytes of rows, 8 of their ninth bits, 32 of signs, 4 of scales.
void CodesOfIq3S(const std::byte* block, uint8_t* codes) {
  const uint32_t* const grid = Iq3SGrid();
  const uint64_t* const masks = SignMasks();
  const std::byte *rows = block + 2, *signs = block + 74;
  for (int group = 0; group < 8; ++group) {
    const int ninth = Byte(block + 66 + group) << 8;
    for (int i = 0; i < 4; ++i, codes += 8, rows += 2, ++signs) {
      const int first = Byte(rows) | (ninth >> (2 * i) & 0x100);
      const int second = Byte(rows + 1) | (ninth >> (2 * i + 1) & 0x100);
      const uint64_t eight = grid[first] | uint64_t{grid[second]} << 32;
      Store(Signed(eight, masks[Byte(signs)]), codes);
    }
  }
}
void StepsOfIq3S(const std::byte* block, int8_t* scales, int8_t*) {
  StepsOfNibbles<4>(block + 106, scales);
}

// --- IQ1 -----------------------------------------------------------------------------------------

// d; 32 bytes of rows; for each 32 a word of 16 bits: the upper 3 bits of 4 rows, a scale in 3, and
// whether an eighth is subtracted.
void CodesOfIq1S(const std::byte* block, uint8_t* codes) {
  const uint64_t* const grid = Iq1Grid();
  const std::byte* rows = block + 2;
  for (int group = 0; group < 8; ++group) {
    const size_t word = LoadBytes<uint16_t>(block + 34 + group * 2);
    const uint64_t* const its = grid + (word >> 15) * kIq1Rows;
    for (int i = 0; i < 4; ++i, codes += 8, ++rows) {
      const size_t upper = word >> (3 * i) & 7;
      Store(its[static_cast<size_t>(Byte(rows)) | upper << 8], codes);
    }
  }
}
void StepsOfIq1S(const std::byte* block, int8_t* scales, int8_t*) {
  for (int group = 0; group < 8; ++group) {
    scales[group] = OddStep(LoadBytes<uint16_t>(block + 34 + group * 2) >> 12 & 7U);
  }
}

// 32 bytes of rows; for each 8 the upper 3 bits of its row and whether an eighth is subtracted, in
// 16 bytes; for each 64 a word of 16 bits: 4 scales in 3 bits each, and 4 bits of d.
void CodesOfIq1M(const std::byte* block, uint8_t* codes) {
  static_assert(kIq1Rows == 8 << 8);  // the bit above a row's upper ones
  const uint64_t* const grid = Iq1Grid();
  for (int i = 0; i < 16; ++i, codes += 16) {
    const int both = Byte(block + 32 + i);
    Store(grid[Byte(block + 2 * i) | (both & 0xF) << 8], codes);
    Store(grid[Byte(block + 2 * i + 1) | both >> 4 << 8], codes + 8);
  }
}
void StepsOfIq1M(const std::byte* block, int8_t* scales, int8_t*) {
  for (int of_four = 0; of_four < 4; ++of_four, scales += 4) {
    const uint32_t word = LoadBytes<uint16_t>(block + 48 + of_four * 2);
    for (int i = 0; i < 4; ++i) scales[i] = OddStep(word >> (3 * i) & 7);
  }
}
float ScaleOfIq1M(const std::byte* block) {
  uint32_t bits = 0;
  for (int i = 0; i < 4; ++i)
    bits |= uint32_t{LoadBytes<uint16_t>(block + 48 + 2 * i)} >> 12 << (4 * i);
  return F16ToFloat(static_cast<uint16_t>(bits)) / 8;
}
bool IsFiniteIq1M(const std::byte* block) { return std::isfinite(ScaleOfIq1M(block)); }

}  // namespace minisgl::tensor
