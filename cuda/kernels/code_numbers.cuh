// Makes the weights of a product's codes with few instructions, for the kinds of scales that
// checkpoints have. The weights have the bits that coded_weights.cuh gives them. The host chooses
// the kind; kernels are compiled for each.
#pragma once

#include "kernels/coded_weights.cuh"

namespace minisgl::cuda {

// Where a group's scale comes from.
enum class ScaleForm : uint8_t {
  kBF16,       // stored
  kF16,        // stored
  kF32,        // stored
  kE8M0,       // stored
  kSteps,      // an integer of 8 bits times a base of type f16
  kE4M3Times,  // a step of type e4m3 times a base, or divided by it
};

// What stands beside it. Zero points may lack where they are named.
enum class GroupOther : uint8_t { kNone, kZeros, kOffsets };

// How the numbers of codes become weights.
enum class NumberMath : uint8_t {
  kPairsCounting,  // CodeMath::kCounting
  kPairsE2M1,      // CodeMath::kE2M1
  kCounting,       // in f32, of codes of 4 bits whose numbers count up by 1
  kE2M1,           // in f32
  kOthers,         // in f32: a table of 16 numbers, or codes of 6 and 8 bits
};

inline NumberMath NumberMathOf(const CodedRows& rows, DType dtype) {
  if (rows.kind != RowCodes::kTable4) return NumberMath::kOthers;
  const CodeMath pairs = MathOf(rows, dtype);
  if (pairs == CodeMath::kCounting) return NumberMath::kPairsCounting;
  if (pairs == CodeMath::kE2M1) return NumberMath::kPairsE2M1;
  bool counts = rows.numbers[0] == static_cast<float>(static_cast<int>(rows.numbers[0]));
  for (int i = 1; i < kCodeNumbers; ++i) {
    counts = counts && rows.numbers[i] == rows.numbers[i - 1] + 1;
  }
  if (counts) return NumberMath::kCounting;
  return rows.numbers[1] == 0.5f ? NumberMath::kE2M1 : NumberMath::kOthers;
}

// --- scales --------------------------------------------------------------------------------------

template <ScaleForm SCALES>
inline constexpr DType kStoredType = SCALES == ScaleForm::kBF16  ? DType::kBF16
                                     : SCALES == ScaleForm::kF16 ? DType::kF16
                                     : SCALES == ScaleForm::kF32 ? DType::kF32
                                                                 : DType::kE8M0;

// A group's scale: `at` is its index in `steps`. Also an offset, if the group has one.
template <ScaleForm SCALES>
MINISGL_DEVICE float FormFactor(const CodedRows& p, const uint8_t* steps, const uint8_t* bases,
                                int row, int group, int at) {
  if constexpr (SCALES == ScaleForm::kSteps) {
    // There are a power of two of groups to a base: a shift, which FormOfScales has checked.
    const int base = row * p.num_bases + (group >> p.base_shift);
    return device::MulRn(ScaleNumber(bases, base, DType::kF16),
                         static_cast<float>(static_cast<int8_t>(steps[at])));
  } else if constexpr (SCALES == ScaleForm::kE4M3Times) {
    const float base = reinterpret_cast<const float*>(bases)[row];
    const float number = E4M3Number(steps[at]);
    return p.scale_kind == GroupScales::kE4M3Steps ? device::MulRn(number, base)
                                                   : device::DivRn(number, base);
  } else {
    return ScaleNumber(steps, at, kStoredType<SCALES>);
  }
}

template <ScaleForm SCALES, GroupOther OTHER>
MINISGL_DEVICE GroupFactors LoadFormFactors(const CodedRows& p, int row, int group) {
  const int at = row * p.num_groups + group;
  GroupFactors factors;
  factors.scale = FormFactor<SCALES>(p, p.scales, p.bases, row, group, at);
  if constexpr (OTHER == GroupOther::kZeros) {
    if (p.zeros != nullptr) factors.other = p.zeros[at];
  } else if constexpr (OTHER == GroupOther::kOffsets) {
    factors.other = FormFactor<SCALES>(p, p.offsets, p.offset_bases, row, group, at);
  }
  return factors;
}

// --- numbers -------------------------------------------------------------------------------------

// 2^23 + n, of a small integer n, is n in the lowest bits of a float.
inline constexpr uint32_t kUnitBits = 0x4B000000;
inline constexpr float kUnitFloat = 0x1p23f;

// Two bf16 in a word as floats.
MINISGL_DEVICE void WidenPair(uint32_t pair, float* numbers) {
  numbers[0] = device::BitsToFloat(pair << 16);
  numbers[1] = device::BitsToFloat(pair & 0xFFFF0000u);
}

// Codes of type e2m1 in f32, by way of bf16, which has all of their numbers.
MINISGL_DEVICE void NumbersOfE2M1(uint32_t word, float (&numbers)[kLaneCodes]) {
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    const int up = 6 - 4 * s;
    const uint32_t moved = up >= 0 ? word << (up & 31) : word >> (-up & 31);
    const uint32_t bits = (moved & 0x01C001C0u) | (word << (12 - 4 * s) & 0x80008000u);
    WidenPair(device::MulPairs<device::bf16>(bits, 0x7E807E80u), numbers + 2 * s);  // * 2^126
  }
}

// Four codes of type e4m3, none of which is NaN, the same way.
MINISGL_DEVICE void NumbersOfE4M3(uint32_t word, float* numbers) {
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    const uint32_t two = word >> (16 * s), spread = (two & 0xFF) | (two & 0xFF00) << 8;
    const uint32_t bits = (spread << 4 & 0x07F007F0u) | (spread << 8 & 0x80008000u);
    WidenPair(device::MulPairs<device::bf16>(bits, 0x7B807B80u), numbers + 2 * s);  // * 2^120
  }
}

template <RowCodes KIND, NumberMath MATH>
MINISGL_DEVICE void NumbersOf(const CodedRows& p, const LaneLine& part, int j,
                              device::Shared<float> table, float (&numbers)[kLaneCodes]) {
  if constexpr (MATH == NumberMath::kE2M1) {
    NumbersOfE2M1(part.words[j], numbers);
  } else if constexpr (KIND == RowCodes::kE4M3) {
    bool has_nan = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t word = part.words[2 * j + half];
      has_nan = has_nan || (((word & 0x7F7F7F7Fu) + 0x01010101u) & 0x80808080u) != 0;
      NumbersOfE4M3(word, numbers + 4 * half);
    }
    if (has_nan) {
#pragma unroll
      for (int i = 0; i < kLaneCodes; ++i) numbers[i] = E4M3Number(CodeAt<KIND>(part, j, i));
    }
  } else if constexpr (KIND == RowCodes::kInt8 || KIND == RowCodes::kInt6 ||
                       MATH == NumberMath::kCounting) {
    constexpr uint32_t kFlip = KIND == RowCodes::kInt8 ? 0x80 : 0;  // to codes that count from 0
    const float first = KIND == RowCodes::kInt8 ? -128.0f : p.numbers[0];
#pragma unroll
    for (int i = 0; i < kLaneCodes; ++i) {
      const uint32_t code = CodeAt<KIND>(part, j, i) ^ kFlip;
      numbers[i] = device::BitsToFloat(code | kUnitBits) - (kUnitFloat - first);  // exact
    }
  } else {
#pragma unroll
    for (int i = 0; i < kLaneCodes; ++i) {
      numbers[i] = table[static_cast<int>(CodeAt<KIND>(part, j, i))];
    }
  }
}

// The weights of the lane's eight codes of the group at place `j`, as the tensor cores take them.
// Zeros may have the other sign, which changes no sum.
template <typename T, RowCodes KIND, NumberMath MATH, GroupOther OTHER>
MINISGL_DEVICE device::Vec<uint32_t, 4> FormWords(const CodedRows& p, const LaneLine& part, int j,
                                                  const GroupFactors& factors,
                                                  device::Shared<float> table) {
  if constexpr (MATH == NumberMath::kPairsCounting) {
    return PairWeights<T, CodeMath::kCounting>(p, part.words[j], factors);
  } else if constexpr (MATH == NumberMath::kPairsE2M1) {
    return PairWeights<T, CodeMath::kE2M1>(p, part.words[j], factors);
  } else {
    float weights[kLaneCodes];
    NumbersOf<KIND, MATH>(p, part, j, table, weights);
    device::Vec<uint32_t, 4> words;
#pragma unroll
    for (int i = 0; i < kLaneCodes; ++i) {
      if constexpr (OTHER == GroupOther::kZeros) weights[i] -= factors.other;  // exact
      weights[i] = device::MulRn(weights[i], factors.scale);
      if constexpr (OTHER == GroupOther::kOffsets) {
        weights[i] = device::AddRn(weights[i], factors.other);
      }
      if (i % 2 == 1) words[i / 2] = device::Pack2<T>(weights[i - 1], weights[i]);
    }
    return words;
  }
}

}  // namespace minisgl::cuda
