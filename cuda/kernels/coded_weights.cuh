// The weights of codes (coded_rows.h), as expansion at loading makes them: bit for bit.
#pragma once

#include "cuda_api.h"
#include "device/device.h"
#include "kernels/coded_rows.h"

namespace minisgl::cuda {

MINISGL_DEVICE float E4M3Number(uint32_t code) {
  constexpr uint32_t kNan = 0x7FC00000;
  const uint32_t magnitude = code & 0x7F;
  const uint32_t bits = magnitude == 0x7F ? kNan : magnitude << 20;
  const float number = device::BitsToFloat(bits | (code & 0x80) << 24);
  return device::MulRn(number, 0x1p120f);  // also of subnormal numbers
}

// A number of a row's array, whose elements have `type`.
MINISGL_DEVICE float ScaleNumber(const uint8_t* array, int64_t index, DType type) {
  switch (type) {
    case DType::kF32:
      return reinterpret_cast<const float*>(array)[index];
    case DType::kBF16:
      return device::ToFloat(reinterpret_cast<const device::bf16*>(array)[index]);
    case DType::kF16:
      return device::ToFloat(reinterpret_cast<const device::f16*>(array)[index]);
    default: {  // e8m0
      const uint32_t exponent = array[index];
      return device::BitsToFloat(exponent == 0      ? 0x00400000u
                                 : exponent == 0xFF ? 0x7FC00000u
                                                    : exponent << 23);
    }
  }
}

// What a group's weights are made with. Each product, quotient and sum is rounded once.
struct GroupFactors {
  float scale = 0;
  float other = 0;  // its zero point or its offset, if it has one
};

MINISGL_DEVICE float GroupFactor(const CodedRows& p, const uint8_t* steps, const uint8_t* bases,
                                 int64_t row, int group) {
  const int64_t at = row * p.num_groups + group;
  if (p.scale_kind == GroupScales::kStored) return ScaleNumber(steps, at, p.scale_type);
  if (p.scale_kind == GroupScales::kSteps) {
    const float base = ScaleNumber(bases, row * p.num_bases + group / p.base_groups, p.scale_type);
    return device::MulRn(base, static_cast<float>(static_cast<int8_t>(steps[at])));
  }
  const float base = reinterpret_cast<const float*>(bases)[row];
  const float number = E4M3Number(steps[at]);
  return p.scale_kind == GroupScales::kE4M3Steps ? device::MulRn(number, base)
                                                 : device::DivRn(number, base);
}

MINISGL_DEVICE GroupFactors LoadGroupFactors(const CodedRows& p, int64_t row, int group) {
  GroupFactors factors;
  factors.scale = GroupFactor(p, p.scales, p.bases, row, group);
  if (p.zeros != nullptr) factors.other = p.zeros[row * p.num_groups + group];
  if (p.offsets != nullptr) {
    factors.other = GroupFactor(p, p.offsets, p.offset_bases, row, group);
  }
  return factors;
}

// Groups of a line of codes of KIND.
template <RowCodes KIND>
inline constexpr int kLineGroups = LineGroupsOf(KIND);

// A lane's part of a line.
struct LaneLine {
  device::Vec<uint32_t, 4> words = {};
  device::Vec<uint32_t, 2> upper = {};  // of codes of 6 bits
};

template <RowCodes KIND>
MINISGL_DEVICE LaneLine LoadLaneLine(const CodedRows& p, int64_t row, int line, int lane) {
  const int64_t at = (row * p.num_lines + line) * kLineLanes + lane;
  LaneLine part;
  part.words = device::LoadStream<4>(reinterpret_cast<const uint32_t*>(p.codes + at * 16));
  if constexpr (KIND == RowCodes::kInt6) {
    part.upper = device::LoadStream<2>(reinterpret_cast<const uint32_t*>(p.upper + at * 8));
  }
  return part;
}

// The same of one group alone, as the group at place 0.
template <RowCodes KIND>
MINISGL_DEVICE LaneLine LoadLaneGroup(const CodedRows& p, int64_t row, int line, int lane,
                                      int place) {
  const int64_t at = (row * p.num_lines + line) * kLineLanes + lane;
  const uint32_t* const words = reinterpret_cast<const uint32_t*>(p.codes + at * 16);
  LaneLine part;
  if constexpr (kLineGroups<KIND> == 2) {
    const device::Vec<uint32_t, 2> two = device::LoadVec<2>(words + 2 * place);
    part.words[0] = two[0];
    part.words[1] = two[1];
  } else {
    part.words[0] = device::LoadVec<1>(words + place)[0];
  }
  if constexpr (KIND == RowCodes::kInt6) {
    const uint32_t* const upper = reinterpret_cast<const uint32_t*>(p.upper + at * 8);
    part.upper[0] = device::LoadVec<1>(upper + place / 2)[0] >> (8 * (place % 2));
  }
  return part;
}

// Code `i` of the lane's eight of the line's group at place `j`.
template <RowCodes KIND>
MINISGL_DEVICE uint32_t CodeAt(const LaneLine& part, int j, int i) {
  if constexpr (kLineGroups<KIND> == 2) {
    return part.words[2 * j + i / 4] >> (8 * (i % 4)) & 0xFF;
  } else {
    const uint32_t low = part.words[j] >> (4 * (i / 2) + 16 * (i % 2)) & 0xF;
    if constexpr (KIND == RowCodes::kTable4) return low;
    return low | (part.upper[j / 2] >> (8 * (j % 2) + 2 * (i / 2) + 16 * (i % 2)) & 3) << 4;
  }
}

// The number of a code. `table`: the numbers of codes of 4 bits. `first`: of those of 6 bits.
template <RowCodes KIND>
MINISGL_DEVICE float CodeNumber(uint32_t code, device::Shared<float> table, float first) {
  if constexpr (KIND == RowCodes::kTable4) {
    return table[static_cast<int>(code)];
  } else if constexpr (KIND == RowCodes::kInt6) {
    return first + static_cast<float>(code);
  } else if constexpr (KIND == RowCodes::kInt8) {
    return static_cast<float>(static_cast<int8_t>(code));
  } else {
    return E4M3Number(code);
  }
}

// The weights of the lane's eight codes of the group at place `j`, all of one group of scales.
template <RowCodes KIND>
MINISGL_DEVICE void LaneWeights(const CodedRows& p, const LaneLine& part, int j,
                                const GroupFactors& factors, device::Shared<float> table,
                                float (&weights)[kLaneCodes]) {
#pragma unroll
  for (int i = 0; i < kLaneCodes; ++i) {
    float number = CodeNumber<KIND>(CodeAt<KIND>(part, j, i), table, p.numbers[0]);
    if (p.zeros != nullptr) number -= factors.other;  // exact: both are integers
    float weight = device::MulRn(number, factors.scale);
    if (p.offsets != nullptr) weight = device::AddRn(weight, factors.other);
    if (p.adds_zero) weight = device::AddRn(weight, 0.0f);
    weights[i] = weight;
  }
}

// How products compute weights: in f32, or in pairs of their own type. Where its numbers and its
// scales are numbers of that type, a product of both has the bits of the one in f32 that is rounded
// afterwards, for that one is exact.
enum class CodeMath : uint8_t {
  kFloat,
  kCounting,  // codes of 4 bits whose numbers count up by 1, with or without zero points
  kE2M1,      // codes of 4 bits: a sign, two bits of exponent, one of mantissa
};

inline CodeMath MathOf(const CodedRows& rows, DType dtype) {
  const bool is_exact =
      rows.scale_type == dtype || (rows.scale_type == DType::kE8M0 && dtype == DType::kBF16);
  if (rows.kind != RowCodes::kTable4 || rows.scale_kind != GroupScales::kStored || !is_exact ||
      rows.offsets != nullptr) {
    return CodeMath::kFloat;
  }
  bool counts = true;
  for (int i = 1; i < kCodeNumbers; ++i) {
    counts = counts && rows.numbers[i] == rows.numbers[i - 1] + 1;
  }
  if (counts) return CodeMath::kCounting;
  return rows.numbers[1] == 0.5f && rows.zeros == nullptr ? CodeMath::kE2M1 : CodeMath::kFloat;
}

// The weights of the lane's eight codes in `word`, as the tensor cores take them. Zeros may have
// the other sign, which changes no sum.
template <typename T, CodeMath MATH>
MINISGL_DEVICE device::Vec<uint32_t, 4> PairWeights(const CodedRows& p, uint32_t word,
                                                    const GroupFactors& factors) {
  constexpr bool kBf16 = sizeof(T) == 2 && !__is_same(T, device::f16);
  const uint32_t scale = device::Pack2<T>(factors.scale, factors.scale);
  device::Vec<uint32_t, 4> weights;
  if constexpr (MATH == CodeMath::kCounting) {
    // Bits of a number n above `kUnits`, where neighbours differ by 1: n + kUnits.
    constexpr uint32_t kBits = kBf16 ? 0x43004300 : 0x64006400;
    constexpr float kUnits = kBf16 ? 128 : 1024;
    const float first = p.numbers[0] - factors.other - kUnits;  // an integer
    const uint32_t firsts = device::Pack2<T>(first, first);
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint32_t codes = (word >> (4 * s) & 0x000F000F) | kBits;
      weights[s] = device::MulPairs<T>(device::AddPairs<T>(codes, firsts), scale);
    }
  } else {
    // The code's bits at the border of exponent and mantissa: its number times a power of two.
    constexpr int kShift = kBf16 ? 6 : 9;
    constexpr uint32_t kMask = 0x00070007u << kShift, kPower = kBf16 ? 0x7E807E80 : 0x74007400;
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const int up = kShift - 4 * s;
      const uint32_t moved = up >= 0 ? word << (up & 31) : word >> (-up & 31);
      const uint32_t bits = (moved & kMask) | (word << (12 - 4 * s) & 0x80008000);
      weights[s] = device::MulPairs<T>(device::MulPairs<T>(bits, kPower), scale);
    }
  }
  return weights;
}

// The weights of the lane's eight codes of the group at place `j`, as the tensor cores take them.
template <typename T, RowCodes KIND, CodeMath MATH>
MINISGL_DEVICE device::Vec<uint32_t, 4> WordsOf(const CodedRows& p, const LaneLine& part, int j,
                                                const GroupFactors& factors,
                                                device::Shared<float> table) {
  if constexpr (MATH != CodeMath::kFloat) {
    return PairWeights<T, MATH>(p, part.words[j], factors);
  } else {
    float weights[kLaneCodes];
    LaneWeights<KIND>(p, part, j, factors, table, weights);
    device::Vec<uint32_t, 4> words;
#pragma unroll
    for (int i = 0; i < kLaneCodes / 2; ++i) {
      words[i] = device::Pack2<T>(weights[2 * i], weights[2 * i + 1]);
    }
    return words;
  }
}

// The numbers of codes of 4 bits in shared memory, readable after a barrier.
MINISGL_DEVICE device::Shared<float> TakeCodeTable(const CodedRows& p, device::SharedArena& arena) {
  const device::Shared<float> table = arena.Take<float>(kCodeNumbers);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kCodeNumbers) table[thread] = p.numbers[thread];
  return table;
}

// Calls f with the kind of `rows` as a template argument.
template <typename F>
CudaError DispatchCodes(const CodedRows& rows, const F& f) {
  switch (rows.kind) {
    case RowCodes::kTable4:
      return f.template operator()<RowCodes::kTable4>();
    case RowCodes::kInt6:
      return f.template operator()<RowCodes::kInt6>();
    case RowCodes::kInt8:
      return f.template operator()<RowCodes::kInt8>();
    default:
      return f.template operator()<RowCodes::kE4M3>();
  }
}

}  // namespace minisgl::cuda
