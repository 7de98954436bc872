// Helpers of the operations' tests: seeded random inputs, fenced outputs, comparison with a bound
// for each element, and the list of CPU implementations that this machine can run.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cpu/targets.h"
#include "minisgl/ops.h"

namespace minisgl::cpu {

inline constexpr double kEpsilon = 0x1.0p-24;  // unit roundoff of f32

// n floats that an operation writes, between guards. Holds NaN until written, so that missing
// outputs are detected.
class OpOutput {
 public:
  explicit OpOutput(int64_t count) : count_(count), storage_(count + 2 * kGuard, kGuardValue) {
    std::fill_n(data(), count, std::numeric_limits<float>::quiet_NaN());
  }
  float* data() { return storage_.data() + kGuard; }
  const float* data() const { return storage_.data() + kGuard; }
  int64_t size() const { return count_; }
  std::vector<float> values() const { return {data(), data() + count_}; }
  bool GuardsIntact() const {
    for (int64_t i = 0; i < kGuard; ++i) {
      if (storage_[i] != kGuardValue || storage_[kGuard + count_ + i] != kGuardValue) return false;
    }
    return true;
  }

 private:
  static constexpr int64_t kGuard = 64;
  static constexpr float kGuardValue = -1234.5f;
  int64_t count_;
  std::vector<float> storage_;
};

inline std::vector<float> RandomFloats(int64_t count, uint64_t seed, double deviation = 1.0) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(normal(random));
  return values;
}

// Instruction sets with different float kernels. Sets with tiles or dot products differ from the
// others only in matrix products, and in attention over bf16 keys and values (AttentionTargets).
inline std::vector<CpuTarget> FloatCpuTargets() {
  std::vector<CpuTarget> targets = AvailableCpuTargets();
  std::erase_if(targets, [](CpuTarget target) {
    return HasTiles(target) || target == CpuTarget::kAvx512Bf16 || target == CpuTarget::kAvx512Vnni;
  });
  return targets;
}

// Every variant of attention: the float kernels with f32 and with bf16 keys and values, and the
// bf16 dot product and tiles (without AMX: their stand-in) with bf16 ones.
struct AttentionTarget {
  CpuTarget target;
  bool keeps_bf16;
};
inline std::vector<AttentionTarget> AttentionTargets() {
  std::vector<AttentionTarget> targets;
  for (const CpuTarget target : FloatCpuTargets()) {
    targets.push_back({target, false});
    targets.push_back({target, true});
  }
  for (const CpuTarget target : AvailableCpuTargets()) {
    // kAmxVnni has the attention of kAmx.
    if (RoundsToBf16(target) && target != CpuTarget::kAmxVnni) targets.push_back({target, true});
  }
  if (AvailableCpuTargets().front() != CpuTarget::kAmx) {
    targets.push_back({CpuTarget::kAmxStandIn, true});
  }
  return targets;
}

// ExpertLinear without a bias, whose choices of a token share its row of x.
inline std::vector<float> MultiplyChosen(Ops* ops, const ExpertMatrices& weights,
                                         const std::vector<float>& x,
                                         const std::vector<int32_t>& chosen, int32_t num_chosen) {
  OpOutput out(std::ssize(chosen) * weights.num_out);
  ops->ExpertLinear({.x = x.data(),
                     .weights = &weights,
                     .bias = nullptr,
                     .experts = chosen.data(),
                     .out = out.data(),
                     .num_tokens = std::ssize(chosen) / num_chosen,
                     .num_chosen = num_chosen,
                     .x_per_choice = false});
  EXPECT_TRUE(out.GuardsIntact());
  return out.values();
}

// Memory for keys and values: NaN as f32 and as bf16 until it is written.
inline std::vector<float> KvMemory(int64_t count) {
  std::vector<float> memory(static_cast<size_t>(count));
  std::fill(memory.begin(), memory.end(), std::bit_cast<float>(0x7FC07FC0u));
  return memory;
}
inline ActivationPtr KvBase(std::vector<float>* memory, bool keeps_bf16) {
  return {memory->data(), keeps_bf16 ? DType::kBF16 : DType::kF32};
}

// True if the target of `ops` rounds both factors of products to bf16 (RoundsToBf16).
inline bool RoundsToBf16(const Ops& ops) {
  const std::string name = ops.Name();
  return name.starts_with("cpu (amx") || name.starts_with("cpu (avx512_bf16");
}

inline void RoundToBf16(std::vector<float>* values) {
  for (float& value : *values) value = Bf16ToFloat(FloatToBf16(value));
}

// Upper bound on the error of a weighted mean from rounding softmax weights to bf16, relative to
// the largest value.
inline constexpr double kBf16WeightError = 1.0 / 512;

// Every format of a matrix on the CPU.
inline const WeightFormat kWeightFormats[] = {DType::kF32,
                                              DType::kBF16,
                                              DType::kF16,
                                              {DType::kF32, Quantization::kInt8},
                                              {DType::kF32, Quantization::kInt4}};

// x as a product with weights of `format` reads it.
inline std::vector<float> AsRead(const Ops& ops, const WeightFormat& format, std::vector<float> x) {
  if (RoundsToBf16(ops) && format == DType::kBF16) RoundToBf16(&x);
  return x;
}

// Number of roundings from a product to the output: those within a block of inputs, then one for
// each block. Quantized weights and x are rounded too.
inline double RoundingsOf(const WeightFormat& format, int64_t num_in) {
  if (format.quantization == Quantization::kInt8) return num_in / kQuantBlock + 8;
  constexpr int64_t kBlock = 256;  // of the bf16 dot product: pairs
  return std::min<double>(num_in, kBlock) + num_in / kBlock + 3;
}

inline TensorView View(const std::vector<float>& values, int64_t rows, int64_t columns) {
  return {reinterpret_cast<const std::byte*>(values.data()), DType::kF32, {rows, columns}};
}

// NaN first, then |actual - expected| <= bound (of this element).
template <typename Bound>
void ExpectClose(const std::vector<float>& actual, const std::vector<float>& expected,
                 const Bound& bound, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(std::isnan(actual[i]), std::isnan(expected[i])) << what << " element " << i;
    if (std::isnan(expected[i])) continue;
    ASSERT_LE(std::abs(static_cast<double>(actual[i]) - expected[i]), bound(i))
        << what << " element " << i << ": " << actual[i] << " instead of " << expected[i];
  }
}

inline void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b,
                           const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::memcmp(&a[i], &b[i], sizeof(float)), 0)
        << what << " element " << i << ": " << a[i] << " and " << b[i];
  }
}

inline std::unique_ptr<Ops> MakeOps(const std::string& target, int num_threads) {
  auto ops = MakeCpuOps({.num_threads = num_threads, .target = target});
  MINISGL_CHECK(ops.ok(), "{}", ops.status().message());
  return std::move(ops).value();
}

inline std::vector<float> Absolute(std::vector<float> values) {
  for (float& value : values) value = std::abs(value);
  return values;
}

// Every instruction set of this machine, with one thread and with two.
inline std::vector<std::unique_ptr<Ops>> AllCpuOps() {
  std::vector<std::unique_ptr<Ops>> all;
  for (CpuTarget target : AvailableCpuTargets()) {
    for (int num_threads : {1, 2}) all.push_back(MakeOps(CpuTargetName(target), num_threads));
  }
  return all;
}

inline std::vector<std::unique_ptr<Ops>> OracleAndAllCpuOps() {
  auto all = AllCpuOps();
  all.push_back(MakeNaiveOps());
  return all;
}

// Shorter than a vector, whole vectors, and with a remainder.
inline constexpr int64_t kWidths[] = {1, 7, 16, 33, 64, 257, 704};

inline const int64_t kTokenCounts[] = {1, 2, 3, 5, 8, 17, 33, 64};

}  // namespace minisgl::cpu
