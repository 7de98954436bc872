// Helpers of the kernels' tests: arrays of the emulated device, seeded random inputs, fenced
// outputs, and comparison with a bound for each element.
//
// Expected values come from the oracle (naive_ops) run in f32 on the inputs as the device's type
// rounds them, so that the bound of an element is the rounding of its result and the error of its
// f32 sums, and nothing else.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "emulator/emulated_cuda_api.h"
#include "emulator/emulator.h"
#include "kernels/kernel_data.h"
#include "kernels/kernels.h"
#include "minisgl/base/check.h"
#include "minisgl/ops.h"

namespace minisgl::cuda {

using emulator::DeviceArray;

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A device of the emulator, and a context to launch on it.
struct KernelDevice {
  emulator::EmulatedCudaApi api;
  LaunchContext context = {
      .api = &api, .num_multiprocessors = 4, .shared_bytes_max = 227 * 1024, .programmatic = true};
};

// The relative error of rounding a normal number to nearest.
inline double UnitRoundoff(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return 0x1.0p-8;
    case DType::kF16:
      return 0x1.0p-11;
    default:
      break;
  }
  return 0x1.0p-24;
}

// The largest error of rounding `value`: f16 has subnormals within reach of a test.
inline double RoundingError(DType dtype, double value) {
  const double relative = std::abs(value) * UnitRoundoff(dtype);
  return dtype == DType::kF16 ? std::max(relative, 0x1.0p-25) : relative;
}

inline void StoreElement(void* array, DType dtype, int64_t index, float value) {
  if (dtype == DType::kF32) {
    static_cast<float*>(array)[index] = value;
  } else {
    static_cast<uint16_t*>(array)[index] =
        dtype == DType::kBF16 ? FloatToBf16(value) : FloatToF16(value);
  }
}

inline float LoadElement(const void* array, DType dtype, int64_t index) {
  if (dtype == DType::kF32) return static_cast<const float*>(array)[index];
  const uint16_t bits = static_cast<const uint16_t*>(array)[index];
  return dtype == DType::kBF16 ? Bf16ToFloat(bits) : F16ToFloat(bits);
}

// An input of a kernel: a device array of exactly these elements, so that the emulator (vectors)
// and the address sanitizer (single elements) detect reads outside of it.
class DeviceInput {
 public:
  DeviceInput(DType dtype, const std::vector<float>& values)
      : dtype_(dtype), bytes_(values.size() * DTypeBytes(dtype)) {
    StoreElements(bytes_.data(), dtype_, values);
    values_ = LoadElements(bytes_.data(), dtype_, std::ssize(values));
  }
  ConstActivationPtr ptr() const { return {bytes_.data(), dtype_}; }
  const void* data() const { return bytes_.data(); }
  const float* f32() const { return ptr().f32(); }  // REQUIRES dtype kF32
  // The values as rounded by the type: the oracle's input.
  const std::vector<float>& values() const { return values_; }

 private:
  DType dtype_;
  DeviceArray<unsigned char> bytes_;
  std::vector<float> values_;
};

// An output of a kernel, between guards. Holds NaN until written, so that missing outputs are
// detected; or given values, for a kernel that works in place.
class DeviceOutput {
 public:
  DeviceOutput(DType dtype, int64_t count)
      : DeviceOutput(dtype, std::vector<float>(static_cast<size_t>(count),
                                               std::numeric_limits<float>::quiet_NaN())) {}
  DeviceOutput(DType dtype, const std::vector<float>& values)
      : dtype_(dtype),
        count_(static_cast<int64_t>(values.size())),
        storage_((values.size() + 2 * kGuard) * DTypeBytes(dtype)) {
    for (size_t i = 0; i < storage_.size(); ++i) storage_[i] = kGuardByte;
    Set(values);
  }
  ActivationPtr ptr() { return {data(), dtype_}; }
  void* data() { return storage_.data() + kGuard * DTypeBytes(dtype_); }
  const void* data() const { return storage_.data() + kGuard * DTypeBytes(dtype_); }
  float* f32() { return ptr().f32(); }  // REQUIRES dtype kF32
  DType dtype() const { return dtype_; }
  int64_t size() const { return count_; }
  size_t num_bytes() const { return static_cast<size_t>(count_) * DTypeBytes(dtype_); }
  std::vector<float> values() const { return LoadElements(data(), dtype_, count_); }
  void Set(const std::vector<float>& values) {
    StoreElements(data(), dtype_, std::span(values).first(static_cast<size_t>(count_)));
  }
  bool GuardsIntact() const {
    const size_t guard = kGuard * DTypeBytes(dtype_);
    for (size_t i = 0; i < guard; ++i) {
      if (storage_.data()[i] != kGuardByte) return false;
      if (storage_.data()[guard + num_bytes() + i] != kGuardByte) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 64;  // elements: whole vectors of 16 bytes
  static constexpr unsigned char kGuardByte = 0xA5;
  DType dtype_;
  int64_t count_;
  DeviceArray<unsigned char> storage_;
};

// The same for arrays of integers or structs, which have no NaN: 0xCD bytes until written.
template <typename T>
class GuardedArray {
 public:
  explicit GuardedArray(size_t count) : storage_(count + 2 * kGuard), count_(count) {}
  explicit GuardedArray(const std::vector<T>& values) : GuardedArray(values.size()) {
    std::copy(values.begin(), values.end(), data());
  }
  T* data() { return storage_.data() + kGuard; }
  const T* data() const { return storage_.data() + kGuard; }
  std::vector<T> values() const { return std::vector<T>(data(), data() + count_); }
  bool GuardsIntact() const {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(storage_.data());
    const auto is_intact = [](unsigned char byte) { return byte == 0xCD; };
    return std::all_of(bytes, bytes + kGuard * sizeof(T), is_intact) &&
           std::all_of(bytes + (kGuard + count_) * sizeof(T),
                       bytes + (2 * kGuard + count_) * sizeof(T), is_intact);
  }

 private:
  static constexpr size_t kGuard = 16;
  DeviceArray<T> storage_;
  size_t count_;
};

// NaN first, then |actual - expected| <= bound(i).
template <typename Bound>
void ExpectWithin(const std::vector<float>& actual, const std::vector<float>& expected,
                  const Bound& bound, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(std::isnan(actual[i]), std::isnan(expected[i])) << what << " element " << i;
    if (std::isnan(expected[i]) || actual[i] == expected[i]) continue;
    ASSERT_LE(std::abs(static_cast<double>(actual[i]) - expected[i]), bound(i))
        << what << " element " << i << ": " << actual[i] << " instead of " << expected[i];
  }
}

inline void ExpectSameBytes(const void* a, const void* b, size_t num_bytes,
                            const std::string& what) {
  const auto* const x = static_cast<const unsigned char*>(a);
  const auto* const y = static_cast<const unsigned char*>(b);
  for (size_t i = 0; i < num_bytes; ++i) ASSERT_EQ(x[i], y[i]) << what << " byte " << i;
}

inline const DType kHalfTypes[] = {DType::kBF16, DType::kF16};
inline const DType kAllTypes[] = {DType::kBF16, DType::kF16, DType::kF32};

}  // namespace minisgl::cuda
