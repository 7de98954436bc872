// The formulas of the formats: d and m are scales of a block or of groups in it, q its codes.
//   Q4_0, Q5_0, Q8_0   d q, codes centred on 0
//   Q4_1, Q5_1         d q + m
//   Q2_K, Q4_K, Q5_K   (d s) q - (e m), with a scale s and a minimum m for each group
//   Q3_K, Q6_K         (d s) q, codes centred on 0
//   IQ4_NL, IQ4_XS     the same, q is a number of a table
//   MXFP4              2^e q, q is a number of a table
//   NVFP4              s q, the same with a scale of type e4m3 for each group
//   IQ1, IQ2, IQ3      (d s) q, q are numbers of a row of a codebook (block_codes_grid.cc)
//   TQ1_0, TQ2_0       d q, q is -1, 0 or 1
#include "minisgl/tensor/block_format.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "minisgl/tensor/dtype.h"
#include "minisgl/tensor/weight_tensor.h"
#include "tensor/block_codes.h"
#include "tensor/block_grids.h"

namespace minisgl {
namespace {

using tensor::Byte;

// Loops over neighbouring bytes have constant shifts: compilers turn them to vectors.

const float* NumbersOf4() { return OffsetNumbers(4); }

// The low bits of kCount bytes, then their high ones.
template <int kCount>
void ReadNibbles(const std::byte* bytes, uint8_t* codes) {
  for (int i = 0; i < kCount; ++i) codes[i] = static_cast<uint8_t>(Byte(bytes + i) & 0xF);
  for (int i = 0; i < kCount; ++i) codes[kCount + i] = static_cast<uint8_t>(Byte(bytes + i) >> 4);
}

// 256 numbers of kWidth bits: 32 neighbours are in 32 bytes, the next 32 in the same bytes further
// up.
template <int kWidth>
void ReadSlices(const std::byte* bytes, uint8_t* codes) {
  constexpr int kPart = 32, kPerByte = 8 / kWidth, kMask = (1 << kWidth) - 1;
#pragma GCC unroll 8
  for (int part = 0; part < 256 / kPart; ++part) {
    const std::byte* const from = bytes + part / kPerByte * kPart;
    for (int i = 0; i < kPart; ++i) {
      codes[part * kPart + i] =
          static_cast<uint8_t>(Byte(from + i) >> (part % kPerByte * kWidth) & kMask);
    }
  }
}

// Writes the 32 bits at `bits` one a byte.
void ReadBits(const std::byte* bits, uint8_t* codes) {
  constexpr uint64_t kAll = 0x0101010101010101, kOneOfEach = 0x8040201008040201;
  for (int i = 0; i < 4; ++i) {
    const uint64_t kept = static_cast<uint64_t>(Byte(bits + i)) * kAll & kOneOfEach;
    const uint64_t ones = (kept + 0x7F * kAll) >> 7 & kAll;
    std::memcpy(codes + i * 8, &ones, sizeof(ones));
  }
}

// --- blocks of 32 --------------------------------------------------------------------------------

// Q4_0: d, 16 bytes of codes. Q4_1: d, m, the codes. MXFP4: an exponent, the codes.
template <int kAt>
void CodesOf4(const std::byte* block, uint8_t* codes) {
  ReadNibbles<16>(block + kAt, codes);
}

// Q5_0: d, 4 bytes of fifth bits, 16 of codes, which are 16 less. Q5_1: d, m, the same.
template <int kBitsAt, int kAt, int kLess>
void CodesOf5(const std::byte* block, uint8_t* codes) {
  uint8_t fifth[32];
  ReadBits(block + kBitsAt, fifth);
  ReadNibbles<16>(block + kAt, codes);
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>((codes[i] | fifth[i] << 4) - kLess);
}

// d, 32 codes.
void CodesOfQ8_0(const std::byte* block, uint8_t* codes) { std::memcpy(codes, block + 2, 32); }

constexpr int kIq4Numbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};

// 16 bytes of codes for 32 numbers of that table.
void ReadIq4(const std::byte* bytes, uint8_t* codes) {
  ReadNibbles<16>(bytes, codes);
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(kIq4Numbers[codes[i]]);
}

const float* NumbersOfIq4() {
  static const auto kTable = [] {
    std::array<float, 16> table;
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(kIq4Numbers[i]);
    return table;
  }();
  return kTable.data();
}

// d, 16 bytes of codes.
void CodesOfIq4Nl(const std::byte* block, uint8_t* codes) { ReadIq4(block + 2, codes); }

// --- blocks of 256 -------------------------------------------------------------------------------

// IQ4_XS: d, 2 bytes of the scales' top bits, 4 of their low bits, 128 of codes.
void CodesOfIq4Xs(const std::byte* block, uint8_t* codes) {
  for (int group = 0; group < 8; ++group) ReadIq4(block + 8 + group * 16, codes + group * 32);
}
int Iq4XsScale(const std::byte* block, int group) {
  const int tops = Byte(block + 2) | Byte(block + 3) << 8;
  const int low = Byte(block + 4 + group / 2) >> (group % 2 * 4) & 0xF;
  return (low | (tops >> (2 * group) & 3) << 4) - 32;
}
void StepsOfIq4Xs(const std::byte* block, int8_t* scales, int8_t*) {
  for (int group = 0; group < 8; ++group) {
    scales[group] = static_cast<int8_t>(Iq4XsScale(block, group));
  }
}

// Q2_K: 16 bytes of scales and minima, 4 bits each; 64 of codes; d, e. Q4_K: d, e, 12 bytes of
// scales and minima, 128 of codes.
template <int kAt, int kWidth>
void CodesOfSlices(const std::byte* block, uint8_t* codes) {
  ReadSlices<kWidth>(block + kAt, codes);
}

void StepsOfQ2K(const std::byte* block, int8_t* scales, int8_t* offsets) {
  for (int group = 0; group < 16; ++group) {
    scales[group] = static_cast<int8_t>(Byte(block + group) & 0xF);
    offsets[group] = static_cast<int8_t>(Byte(block + group) >> 4);
  }
}

// 32 bytes of third bits, which stand for 4 less where they are clear; 64 of codes; 12 of scales;
// d.
void CodesOfQ3K(const std::byte* block, uint8_t* codes) {
  uint8_t third[256];
  ReadSlices<1>(block, third);
  ReadSlices<2>(block + 32, codes);
  for (int i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>((codes[i] | third[i] << 2) - 4);
}
int Q3KScale(const std::byte* block, int group) {
  const std::byte* const scales = block + 96;
  const int low = Byte(scales + group % 8) >> (group / 8 * 4) & 0xF;
  const int top = Byte(scales + 8 + group % 4) >> (group / 4 * 2) & 3;
  return (low | top << 4) - 32;
}
void StepsOfQ3K(const std::byte* block, int8_t* scales, int8_t*) {
  for (int group = 0; group < 16; ++group) {
    scales[group] = static_cast<int8_t>(Q3KScale(block, group));
  }
}

// Scales and minima of 8 groups, 6 bits each, in 12 bytes, four at a time: the first four whole in
// eight bytes, whose top bits are the top bits of the other four.
void StepsOfQ4K(const std::byte* block, int8_t* scales, int8_t* offsets) {
  constexpr uint32_t kLow = 0x0F0F0F0F, kTop = 0x30303030;
  uint32_t words[3];
  std::memcpy(words, block + 4, sizeof(words));
  const uint32_t steps[4] = {words[0] & (kLow | kTop), (words[2] & kLow) | (words[0] >> 2 & kTop),
                             words[1] & (kLow | kTop),
                             (words[2] >> 4 & kLow) | (words[1] >> 2 & kTop)};
  std::memcpy(scales, steps, 8);
  std::memcpy(offsets, steps + 2, 8);
}

// d, e, 12 bytes of scales and minima, 32 of fifth bits, 128 of codes.
void CodesOfQ5K(const std::byte* block, uint8_t* codes) {
  uint8_t fifth[256];
  ReadSlices<1>(block + 16, fifth);
  ReadSlices<4>(block + 48, codes);
  for (int i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>(codes[i] | fifth[i] << 4);
}

// 128 bytes of low bits, 64 of high ones, 16 scales, d. The low bits of 64 neighbours are in 64
// bytes, the low bits of the next 64 in the same bytes.
void CodesOfQ6K(const std::byte* block, uint8_t* codes) {
  uint8_t upper[256];
  ReadSlices<2>(block + 128, upper);
  for (int half = 0; half < 2; ++half) ReadNibbles<64>(block + half * 64, codes + half * 128);
  for (int i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>((codes[i] | upper[i] << 4) - 32);
}
void StepsOfQ6K(const std::byte* block, int8_t* scales, int8_t*) {
  std::memcpy(scales, block + 192, 16);
}

// Each part of `bytes` is the digits of kDigits runs of kCount numbers in base 3, the first run's
// digits the highest: a byte is its number as a fraction of 243, times 256, rounded up.
template <int kCount, int kDigits>
void ReadTernary(const std::byte* bytes, uint8_t* codes) {
  constexpr int kPowers[] = {1, 3, 9, 27, 81};
  for (int digit = 0; digit < kDigits; ++digit) {
    for (int i = 0; i < kCount; ++i) {
      const int left = Byte(bytes + i) * kPowers[digit] & 0xFF;
      codes[digit * kCount + i] = static_cast<uint8_t>((left * 3 >> 8) - 1);
    }
  }
}

// 32, 16 and 4 bytes of such digits; d.
void CodesOfTq1_0(const std::byte* block, uint8_t* codes) {
  ReadTernary<32, 5>(block, codes);
  ReadTernary<16, 5>(block + 32, codes + 160);
  ReadTernary<4, 4>(block + 48, codes + 240);
}

// 64 bytes of codes, which are 1 less; d.
void CodesOfTq2_0(const std::byte* block, uint8_t* codes) {
  ReadSlices<2>(block, codes);
  for (int i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>(codes[i] - 1);
}

// --- blocks of 64 --------------------------------------------------------------------------------

// Four scales, 8 bytes of codes for each.
void CodesOfNvfp4(const std::byte* block, uint8_t* codes) {
  for (int group = 0; group < 4; ++group) {
    ReadNibbles<8>(block + 4 + group * 8, codes + group * 16);
  }
}
constexpr int kE4M3Nan = 0x7F;
// The code of NaN stands for 0.
void StepsOfNvfp4(const std::byte* block, int8_t* scales, int8_t*) {
  for (int group = 0; group < 4; ++group) {
    const int code = Byte(block + group);
    scales[group] = static_cast<int8_t>(code == kE4M3Nan ? 0 : code);
  }
}
float ScaleOfNvfp4(const std::byte*) { return 1; }
// No scale has a sign.
bool IsFiniteNvfp4(const std::byte* block) {
  return std::all_of(block, block + 4,
                     [](std::byte code) { return std::to_integer<int>(code) <= kE4M3Nan; });
}

// --- the formats ---------------------------------------------------------------------------------

constexpr BlockCodes In6Bits(BlockCodes codes) {
  codes.fit_6_bits = true;
  return codes;
}

constexpr BlockCodes Of16Numbers(const float* (*numbers)(), BlockCodes codes) {
  codes.few_numbers = numbers;
  return codes;
}

constexpr BlockCodes kQ4_0 = {4, 32, NumbersOf4, CodesOf4<2>};
constexpr BlockCodes kQ4_1 = {4, 32, UnsignedNumbers, CodesOf4<4>, BlockOffset::kAdded};
constexpr BlockCodes kQ5_0 = In6Bits({8, 32, SignedNumbers, CodesOf5<2, 6, 16>});
constexpr BlockCodes kQ5_1 =
    In6Bits({8, 32, SignedNumbers, CodesOf5<4, 8, 0>, BlockOffset::kAdded});
constexpr BlockCodes kQ8_0 = {
    .bits = 8, .group_elements = 32, .numbers = SignedNumbers, .read = CodesOfQ8_0, .bytes_at = 2};
constexpr BlockCodes kMxfp4 = {4, 32, E2M1Numbers, CodesOf4<1>};
constexpr BlockCodes kIq4Nl = Of16Numbers(NumbersOfIq4, {8, 32, SignedNumbers, CodesOfIq4Nl});
constexpr BlockCodes kIq4Xs = Of16Numbers(
    NumbersOfIq4, {8, 32, SignedNumbers, CodesOfIq4Xs, BlockOffset::kNone, StepsOfIq4Xs});
constexpr BlockCodes kQ2K = {
    4, 16, UnsignedNumbers, CodesOfSlices<16, 2>, BlockOffset::kSubtracted, StepsOfQ2K};
constexpr BlockCodes kQ3K = Of16Numbers(
    NumbersOf4, In6Bits({8, 16, SignedNumbers, CodesOfQ3K, BlockOffset::kNone, StepsOfQ3K}));
constexpr BlockCodes kQ4K = {
    4, 32, UnsignedNumbers, CodesOfSlices<16, 4>, BlockOffset::kSubtracted, StepsOfQ4K};
constexpr BlockCodes kQ5K =
    In6Bits({8, 32, SignedNumbers, CodesOfQ5K, BlockOffset::kSubtracted, StepsOfQ4K});
constexpr BlockCodes kQ6K =
    In6Bits({8, 16, SignedNumbers, CodesOfQ6K, BlockOffset::kNone, StepsOfQ6K});

constexpr BlockCodes kTq1_0 = Of16Numbers(NumbersOf4, {8, 256, SignedNumbers, CodesOfTq1_0});
constexpr BlockCodes kTq2_0 = Of16Numbers(NumbersOf4, {8, 256, SignedNumbers, CodesOfTq2_0});
constexpr BlockCodes kNvfp4 = {.bits = 4,
                               .group_elements = 16,
                               .numbers = E2M1Numbers,
                               .read = CodesOfNvfp4,
                               .read_steps = StepsOfNvfp4,
                               .has_e4m3_steps = true};

// Codes of 8 bits with steps of scales.
constexpr BlockCodes OfGrid(const float* (*numbers)(), int64_t group_elements,
                            void (*read)(const std::byte*, uint8_t*),
                            void (*read_steps)(const std::byte*, int8_t*, int8_t*)) {
  return Of16Numbers(numbers,
                     {8, group_elements, SignedNumbers, read, BlockOffset::kNone, read_steps});
}
constexpr BlockCodes kIq1S =
    OfGrid(tensor::Iq1Numbers, 32, tensor::CodesOfIq1S, tensor::StepsOfIq1S);
constexpr BlockCodes kIq1M =
    OfGrid(tensor::Iq1Numbers, 16, tensor::CodesOfIq1M, tensor::StepsOfIq1M);
constexpr BlockCodes kIq2Xxs =
    OfGrid(tensor::Iq2Numbers, 32, tensor::CodesOfIq2Xxs, tensor::StepsOfIq2Xxs);
constexpr BlockCodes kIq2Xs =
    OfGrid(tensor::Iq2Numbers, 16, tensor::CodesOfIq2Xs, tensor::StepsOfIq2Xs);
constexpr BlockCodes kIq2S =
    OfGrid(tensor::Iq2Numbers, 16, tensor::CodesOfIq2S, tensor::StepsOfIq2S);
constexpr BlockCodes kIq3Xxs =
    OfGrid(tensor::Iq3XxsNumbers, 32, tensor::CodesOfIq3Xxs, tensor::StepsOfIq3Xxs);
constexpr BlockCodes kIq3S =
    OfGrid(tensor::Iq3SNumbers, 32, tensor::CodesOfIq3S, tensor::StepsOfIq3S);

constexpr BlockFormat Compact(BlockFormat format, float scale_factor = 1) {
  format.is_compact = true;
  format.scale_factor = scale_factor;
  return format;
}

// Formats whose scales are not stored as f16.
constexpr BlockFormat OfScales(BlockFormat format, float (*read_scale)(const std::byte*),
                               bool (*is_finite)(const std::byte*)) {
  format.read_scale = read_scale;
  format.is_finite = is_finite;
  return format;
}

constexpr BlockFormat kFormats[] = {
    {"Q4_0", 32, 18, {0, -1}, 255, kQ4_0},
    {"Q4_1", 32, 20, {0, 2}, 255, kQ4_1},
    {"Q5_0", 32, 22, {0, -1}, 255, kQ5_0},
    {"Q5_1", 32, 24, {0, 2}, 255, kQ5_1},
    {"Q8_0", 32, 34, {0, -1}, 255, kQ8_0},
    {"MXFP4", 32, 17, {-1, -1}, 245, kMxfp4},
    {"IQ4_NL", 32, 18, {0, -1}, 255, kIq4Nl},
    {"IQ4_XS", 256, 136, {0, -1}, 255, kIq4Xs},
    {"Q2_K", 256, 84, {80, 82}, 255, kQ2K},
    {"Q3_K", 256, 110, {108, -1}, 255, kQ3K},
    {"Q4_K", 256, 144, {0, 2}, 255, kQ4K},
    {"Q5_K", 256, 176, {0, 2}, 255, kQ5K},
    {"Q6_K", 256, 210, {208, -1}, 255, kQ6K},
    Compact({"IQ1_S", 256, 50, {0, -1}, 255, kIq1S}, 1.0f / 8),
    OfScales(Compact({"IQ1_M", 256, 56, {-1, -1}, 255, kIq1M}), tensor::ScaleOfIq1M,
             tensor::IsFiniteIq1M),
    Compact({"IQ2_XXS", 256, 66, {0, -1}, 255, kIq2Xxs}, 1.0f / 8),
    Compact({"IQ2_XS", 256, 74, {0, -1}, 255, kIq2Xs}, 1.0f / 8),
    Compact({"IQ2_S", 256, 82, {0, -1}, 255, kIq2S}, 1.0f / 8),
    Compact({"IQ3_XXS", 256, 98, {0, -1}, 255, kIq3Xxs}, 1.0f / 4),
    Compact({"IQ3_S", 256, 110, {0, -1}, 255, kIq3S}),
    Compact({"TQ1_0", 256, 54, {52, -1}, 255, kTq1_0}),
    Compact({"TQ2_0", 256, 66, {64, -1}, 255, kTq2_0}),
    OfScales({"NVFP4", 64, 36, {-1, -1}, 255, kNvfp4}, ScaleOfNvfp4, IsFiniteNvfp4),
};

}  // namespace

void BlockFormat::Unpack(const std::byte* block, float* values, float factor) const {
  uint8_t q[kBlockElementsMax];
  int8_t scales[kBlockGroupsMax] = {1}, offsets[kBlockGroupsMax] = {1};
  codes.read(block, q);
  if (codes.read_steps != nullptr) codes.read_steps(block, scales, offsets);
  const float* const numbers = codes.numbers();
  const float d = ScaleOf(block) * factor;
  // -0 changes no number that it is added to; 0 makes -0 to 0, for formats of e2m1 have no -0.
  const float no_offset = numbers == E2M1Numbers() ? 0.0f : -0.0f;
  for (int64_t group = 0; group < num_groups(); ++group) {
    const float scale = d * StepNumber(scales[group]);
    float offset = no_offset;
    if (codes.offset != BlockOffset::kNone) {
      offset = OffsetOf(block) * static_cast<float>(offsets[group]);
    }
    const int64_t first = group * codes.group_elements;
    for (int64_t i = first; i < first + codes.group_elements; ++i) {
      values[i] = numbers[q[i]] * scale + offset;
    }
  }
}

float BlockFormat::StepNumber(int8_t step) const {
  return codes.has_e4m3_steps ? E4M3ToFloat(static_cast<uint8_t>(step)) : static_cast<float>(step);
}

float BlockFormat::ScaleOf(const std::byte* block) const {
  if (read_scale != nullptr) return read_scale(block);
  return scale_at[0] >= 0 ? F16ToFloat(ScaleBits(block)) * scale_factor
                          : E8M0ToFloat(std::to_integer<uint8_t>(*block));
}

float BlockFormat::OffsetOf(const std::byte* block) const { return F16ToFloat(OffsetBits(block)); }

const BlockFormat* FindBlockFormat(std::string_view name) {
  const auto found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                  [&](const BlockFormat& format) { return name == format.name; });
  return found == std::end(kFormats) ? nullptr : found;
}

}  // namespace minisgl
