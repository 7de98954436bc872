// Formats of rows of blocks, as GGUF files have them: each block of neighbouring weights has its
// codes and its scales, one after the other.
//
// Unpacking gives f32 by the formula of the format, with each product and sum rounded once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace minisgl {

inline constexpr int64_t kBlockElementsMax = 256;

// By which a group's scale and offset are multiples of the block's. Of 8 bits, with a sign.
struct GroupSteps {
  int scale, offset;
};

// The weights of a block as codes, scales and offsets:
//   number(code) * (scale * its step) + offset * its step
// in f32, where the scale and the offset are the block's, and each group has its steps. The product
// of a scale or an offset and a step is exact.
struct BlockCodes {
  int32_t bits = 0;  // 4 or 8
  int64_t group_elements = 0;
  const float* (*numbers)() = nullptr;  // of each code (QuantizedWeights::numbers)
  // Writes the codes of the block, one a byte.
  void (*read)(const std::byte* block, uint8_t* codes) = nullptr;
  float (*scale)(const std::byte* block) = nullptr;
  float (*offset)(const std::byte* block) = nullptr;                 // null: there are none
  GroupSteps (*steps)(const std::byte* block, int group) = nullptr;  // null: all are 1
  // Of 8-bit codes in two's complement: true if all are from -32 to 31.
  bool fit_6_bits = false;
};

struct BlockFormat {
  const char* name;  // "Q4_K"
  int64_t block_elements, block_bytes;
  // The weights of the block at `block`, to values[block_elements].
  void (*unpack)(const std::byte* block, float* values);
  // Where a block has its scales of type f16, in bytes; -1: none.
  std::array<int32_t, 2> scale_at;
  // The largest first byte of a block with finite weights.
  uint8_t first_byte_max = 255;
  BlockCodes codes = {};
};

// The format of this name; null if there is none.
const BlockFormat* FindBlockFormat(std::string_view name);

}  // namespace minisgl
