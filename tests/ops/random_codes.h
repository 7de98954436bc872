// Random matrices of codes, and products with them, for the tests of products with coded matrices.
#pragma once

#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "cpu/coded_product.h"
#include "minisgl/base/checked_math.h"
#include "op_check.h"

namespace minisgl::cpu {

// A kind of codes, with or without zero points, and scales that are or are not exact in bf16, or of
// type e4m3 under a global one.
struct Coding {
  enum class Global { kNone, kMultiplies, kDivides };
  const char* name;
  int32_t bits;
  const float* numbers;
  bool has_zeros, bf16_scales;
  Global global = Global::kNone;
};
inline const Coding kNvfp4 = {"nvfp4", 4, E2M1Numbers(), false, false, Coding::Global::kDivides};
inline const Coding kNvfp4Multiplied = {"nvfp4 multiplied",         4, E2M1Numbers(), false, false,
                                        Coding::Global::kMultiplies};
inline const Coding kCodings[] = {
    {"int4", 4, OffsetNumbers(4), false, true},
    {"int4 zeros", 4, UnsignedNumbers(), true, false},
    {"e2m1", 4, E2M1Numbers(), false, false},
    {"int8", 8, SignedNumbers(), false, true},
    {"int8 zeros", 8, SignedNumbers(), true, true},
    {"offset int8", 8, OffsetNumbers(8), false, false},
    {"unsigned int8", 8, UnsignedNumbers(), true, false},
    {"unsigned int8 without zeros", 8, UnsignedNumbers(), false, true},
    {"e4m3", 8, E4M3Numbers(), false, true},
    kNvfp4,
    kNvfp4Multiplied,
};

// A random matrix of `coding` in memory of its own.
class RandomCodes {
 public:
  RandomCodes(const Coding& coding, int64_t num_out, int64_t num_in, int64_t group_inputs,
              uint64_t seed)
      : num_out_(num_out), num_in_(num_in) {
    std::mt19937_64 random(seed);
    const int64_t row_bytes = CeilDiv<int64_t>(num_in * coding.bits, 32) * 4;
    const int64_t groups = CeilDiv(num_in, group_inputs);
    codes_.resize(static_cast<size_t>(num_out * row_bytes));
    for (uint8_t& code : codes_) {
      code = static_cast<uint8_t>(random());
      if (coding.numbers == E4M3Numbers() && (code & 0x7F) == 0x7F) code = 0;
    }
    for (int64_t i = 0; i < num_out * groups; ++i) {
      const float scale = 0.01f + static_cast<float>(random() % 1000) / 3000;
      scales_.push_back(coding.bf16_scales ? Bf16ToFloat(FloatToBf16(scale)) : scale);
      zeros_.push_back(static_cast<uint8_t>(random()));
    }
    weights_.codes = {.data = Bytes(codes_), .bits = coding.bits, .other_step = row_bytes};
    weights_.numbers = coding.numbers;
    weights_.scales = {Bytes(scales_), DType::kF32, 1, groups * 4, 4};
    if (coding.global != Coding::Global::kNone) UseE4M3Scales(coding, groups, &random);
    weights_.num_groups = groups;
    weights_.group_inputs = group_inputs;
    if (coding.has_zeros) weights_.zeros = {.data = Bytes(zeros_), .other_step = groups};
    if (coding.bits == 4) weights_.zeros.bits = 4;
    if (coding.bits == 4) weights_.zeros.other_step = CeilDiv<int64_t>(groups, 8) * 4;
    if (coding.has_zeros && coding.bits == 4) {
      zeros_.resize(static_cast<size_t>(num_out * weights_.zeros.other_step), 0x5A);
      weights_.zeros.data = Bytes(zeros_);
    }
  }
  RandomCodes(const RandomCodes&) = delete;

  // Scales become numbers of `dtype`: f16, bf16, or exponents.
  void StoreScales(DType dtype) {
    short_scales_.resize(scales_.size() * DTypeBytes(dtype));
    const auto groups = weights_.num_groups, width = static_cast<int64_t>(DTypeBytes(dtype));
    for (size_t i = 0; i < scales_.size(); ++i) {
      const uint16_t bits = dtype == DType::kF16    ? FloatToF16(scales_[i])
                            : dtype == DType::kBF16 ? FloatToBf16(scales_[i])
                                                    : FloatToBf16(std::abs(scales_[i])) >> 7;
      std::memcpy(short_scales_.data() + i * DTypeBytes(dtype), &bits, DTypeBytes(dtype));
    }
    weights_.scales = {Bytes(short_scales_), dtype, 1, groups * width, width};
  }
  // Scales that are no numbers or have no bounds, the largest and the least, in turn, and all codes
  // of type e4m3. Before StoreScales.
  void PutExtremes() {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    const float extremes[] = {std::nanf(""), kInf,      -kInf, 0.0f,     -0.0f, 0x1.fep127f,
                              -0x1.ffp15f,   0x1p-126f, 0.75f, 0x1p-24f, 0.5f,  0x1p-127f};
    for (size_t i = 0; i < scales_.size(); ++i) scales_[i] = extremes[i % std::size(extremes)];
    for (size_t i = 0; i < e4m3_scales_.size(); ++i)
      e4m3_scales_[i] = static_cast<uint8_t>(127 + 37 * i);
    if (weights_.numbers != E4M3Numbers()) return;
    for (size_t i = 0; i < codes_.size(); ++i)
      codes_[i] = static_cast<uint8_t>(127 + 128 * i + i / 3);
  }

  WeightTensor Tensor() const { return WeightTensor(num_out_, num_in_, weights_); }
  WeightTensor WithInt8Inputs() const {
    QuantizedWeights weights = weights_;
    weights.int8_inputs = true;
    return WeightTensor(num_out_, num_in_, weights);
  }

 private:
  template <typename T>
  static const std::byte* Bytes(const std::vector<T>& values) {
    return reinterpret_cast<const std::byte*>(values.data());
  }

  // Scales of every size and sign, and a global one of many digits.
  void UseE4M3Scales(const Coding& coding, int64_t groups, std::mt19937_64* random) {
    for (size_t i = 0; i < scales_.size(); ++i) {
      const auto code = static_cast<uint8_t>((*random)());
      e4m3_scales_.push_back((code & 0x7F) == 0x7F ? 0 : code);
    }
    weights_.scales = {Bytes(e4m3_scales_), DType::kE4M3, 1, groups, 1};
    weights_.divides_by_global = coding.global == Coding::Global::kDivides;
    const float global = 1000 + static_cast<float>((*random)() % 100000) / 7;
    weights_.global_scale = weights_.divides_by_global ? global : 1 / global;
  }

  int64_t num_out_, num_in_;
  std::vector<uint8_t> codes_, zeros_, e4m3_scales_, short_scales_;
  std::vector<float> scales_;
  QuantizedWeights weights_;
};

inline constexpr const char* kBlockFormats[] = {
    "Q4_0",    "Q4_1",   "Q5_0",  "Q5_1",    "Q8_0",   "Q2_K",  "Q3_K",  "Q4_K",
    "Q5_K",    "Q6_K",   "MXFP4", "IQ4_NL",  "IQ4_XS", "NVFP4", "IQ1_S", "IQ1_M",
    "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S",  "TQ1_0", "TQ2_0"};

// A random matrix of rows of blocks in memory of its own. The numbers of type f16 are of either
// sign, between 0.002 and 0.008; scales of type e4m3 are between 0 and 2, and those of IQ1_M too.
class RandomBlocks {
 public:
  RandomBlocks(const char* name, int64_t num_out, int64_t num_in, uint64_t seed)
      : format_(FindBlockFormat(name)), num_out_(num_out), num_in_(num_in) {
    std::mt19937_64 random(seed);
    const int64_t num_blocks = num_out * num_in / format_->block_elements;
    bytes_.resize(static_cast<size_t>(num_blocks * format_->block_bytes));
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
    for (int64_t block = 0; block < num_blocks; ++block) {
      std::byte* const at = bytes_.data() + block * format_->block_bytes;
      for (const int32_t place : format_->scale_at) {
        const float size = 0.002f + static_cast<float>(random() % 1000) / 166667;
        const uint16_t bits = FloatToF16(random() % 2 == 0 ? size : -size);
        if (place >= 0) std::memcpy(at + place, &bits, sizeof(bits));
      }
      if (format_->codes.has_e4m3_steps) {
        for (int i = 0; i < 4; ++i) at[i] &= std::byte{0x3F};
      } else if (format_->read_scale != nullptr) {
        at[format_->block_bytes - 1] &= std::byte{0xBF};  // of the exponent's bits the uppermost
      }
      if (format_->first_byte_max < 255) at[0] = static_cast<std::byte>(118 + random() % 4);
    }
  }
  RandomBlocks(const RandomBlocks&) = delete;

  // The first `count` bytes of each block.
  void Fill(uint8_t byte, int64_t count) {
    for (size_t at = 0; at < bytes_.size(); at += static_cast<size_t>(format_->block_bytes)) {
      std::memset(bytes_.data() + at, byte, static_cast<size_t>(count));
    }
  }

  // Numbers of type f16 that are no numbers or have no bounds, the largest and the least, in turn.
  void PutExtremes() {
    const uint16_t extremes[] = {0x7E00, 0x7C00, 0xFC00, 0x0000, 0x8000, 0x7BFF, 0x0001, 0x3C00};
    const auto step = static_cast<size_t>(format_->block_bytes);
    for (size_t i = 0; i < bytes_.size() / step; ++i) {
      for (const int32_t place : format_->scale_at) {
        const uint16_t bits = extremes[(i + static_cast<size_t>(place)) % std::size(extremes)];
        if (place >= 0) std::memcpy(bytes_.data() + i * step + place, &bits, sizeof(bits));
      }
    }
  }

  WeightTensor Tensor() const {
    return WeightTensor(num_out_, num_in_, format_, bytes_.data()).WithCodes();
  }

 private:
  const BlockFormat* const format_;
  int64_t num_out_, num_in_;
  std::vector<std::byte> bytes_;
};

inline std::vector<float> Multiply(Ops* ops, const Matrix& weight, const std::vector<float>& x,
                                   const float* bias) {
  const int64_t num_tokens = static_cast<int64_t>(x.size()) / weight.num_in;
  OpOutput out(num_tokens * weight.num_out);
  ops->Linear({x.data(), &weight, bias, out.data(), num_tokens});
  EXPECT_TRUE(out.GuardsIntact());
  return out.values();
}

inline const PackedMatrix& PackedOf(const Matrix& matrix) {
  return *static_cast<const PackedMatrix*>(matrix.storage.get());
}
inline bool IsCoded(const Matrix& matrix) { return PackedOf(matrix).coded != nullptr; }

// The targets of AllCpuOps, and the tiles' stand-in where there are none.
inline std::vector<CpuTarget> Targets() {
  std::vector<CpuTarget> targets = AvailableCpuTargets();
  if (targets.front() != CpuTarget::kAmx) targets.push_back(CpuTarget::kAmxStandIn);
  return targets;
}

}  // namespace minisgl::cpu
