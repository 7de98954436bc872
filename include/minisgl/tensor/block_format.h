// Formats of rows of blocks, as GGUF files have them: each block of neighbouring weights has its
// codes and its scales, one after the other.
//
// Unpacking gives f32 by the formula of the format, with each product and sum rounded once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace minisgl {

inline constexpr int64_t kBlockElementsMax = 256;
inline constexpr int64_t kBlockGroupsMax = 16;

// How a block stores its offset: not at all, as a number to add, or as a number to subtract.
enum class BlockOffset : uint8_t { kNone, kAdded, kSubtracted };

// The weights of a block as codes, scales and offsets:
//   number(code) * (scale * its step) + offset * its step
// in f32, where the scale and the offset are the block's, and each group has its steps, integers
// from -128 to 127, or scales' steps of type e4m3. The product of a scale or an offset and a step
// is exact.
struct BlockCodes {
  int32_t bits = 0;  // 4 or 8
  int64_t group_elements = 0;
  const float* (*numbers)() = nullptr;  // values of codes (QuantizedWeights::numbers)
  // Writes the codes of the block, one a byte.
  void (*read)(const std::byte* block, uint8_t* codes) = nullptr;
  BlockOffset offset = BlockOffset::kNone;
  // Writes the steps of each group; null: all are 1, and a block is one group. `offsets` is not
  // written if there are none.
  void (*read_steps)(const std::byte* block, int8_t* scales, int8_t* offsets) = nullptr;
  // True if 8-bit codes in two's complement are from -32 to 31, or from 0 to 63 with an offset.
  bool fit_6_bits = false;
  // Byte offset in a block of its codes as bytes in two's complement, in order; -1: not so stored.
  int32_t bytes_at = -1;
  bool has_e4m3_steps = false;  // read_steps writes codes of type e4m3, none of them NaN
  // [16] integers of 8 bits, among which are all numbers that codes of 8 bits have; null: they have
  // more.
  const float* (*few_numbers)() = nullptr;
};

struct BlockFormat {
  const char* name;  // "Q4_K"
  int64_t block_elements, block_bytes;
  // Byte offsets in a block of its scale and its offset, each an f16; -1: none. If the first is -1,
  // the scale is the block's first byte, an e8m0.
  std::array<int32_t, 2> scale_at;
  // The largest first byte of a block with finite weights.
  uint8_t first_byte_max = 255;
  BlockCodes codes = {};
  // The scale is the f16 times this, a power of two.
  float scale_factor = 1;
  // Reads a scale that is stored otherwise; null: it is stored as scale_at says.
  float (*read_scale)(const std::byte* block) = nullptr;
  // With read_scale: true if the block's weights are finite numbers.
  bool (*is_finite)(const std::byte* block) = nullptr;
  // Codes of 8 bits take far more memory than the block: engines may keep blocks as they are.
  bool is_compact = false;

  int64_t num_groups() const { return block_elements / codes.group_elements; }
  // True if the scale is stored as an f16, and the offset, if there is one.
  bool has_f16_scales() const { return scale_at[0] >= 0 && scale_factor == 1; }
  // Writes the weights of the block at `block`, times `factor`, to values[block_elements].
  void Unpack(const std::byte* block, float* values, float factor = 1) const;
  // The scale and the offset of the block at `block`, and their bits of type f16. REQUIRES an
  // offset; for bits, has_f16_scales().
  float ScaleOf(const std::byte* block) const;
  float OffsetOf(const std::byte* block) const;
  // The number of a step that codes.read_steps wrote for a scale.
  float StepNumber(int8_t step) const;
  uint16_t ScaleBits(const std::byte* block) const { return BitsAt(block, 0); }
  uint16_t OffsetBits(const std::byte* block) const {
    constexpr uint16_t kSign = 0x8000;
    const uint16_t bits = BitsAt(block, 1);
    return codes.offset == BlockOffset::kSubtracted ? bits ^ kSign : bits;
  }

 private:
  uint16_t BitsAt(const std::byte* block, size_t which) const {
    uint16_t bits;
    std::memcpy(&bits, block + scale_at[which], sizeof(bits));
    return bits;
  }
};

// The format of this name; null if there is none.
const BlockFormat* FindBlockFormat(std::string_view name);

}  // namespace minisgl
