// Helpers of the suite `gpu`: device operations, and arrays in device memory between guards.
//
// Guards and unwritten elements are bytes of 0xFF: NaN in every float type and an index of -1, so
// that a stray read shows in a result and a stray write in a guard.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/gpu_device.h"
#include "kernels/kernel_check.h"

namespace minisgl::cuda {

// Waits for all queued work, and reads device memory.
inline std::vector<unsigned char> ReadDevice(DeviceOps* ops, const void* device, size_t num_bytes) {
  const auto host = ops->AllocateHost(num_bytes);
  MINISGL_CHECK(host.ok(), "{}", host.status().message());
  ops->CopyToHost(host->get(), device, num_bytes);
  const Status status = ops->Synchronize();
  MINISGL_CHECK(status.ok(), "{}", status.message());
  const auto* const bytes = static_cast<const unsigned char*>(host->get());
  return {bytes, bytes + num_bytes};
}

class GpuArray {
 public:
  GpuArray(DeviceOps* ops, size_t num_bytes) : ops_(ops), num_bytes_(num_bytes) {
    auto memory = ops->Allocate(num_bytes + 2 * kGuardBytes);
    MINISGL_CHECK(memory.ok(), "{}", memory.status().message());
    memory_ = std::move(memory).value();
    Upload(0, std::vector<unsigned char>(num_bytes + 2 * kGuardBytes, kPoison));
  }
  template <typename T>
  GpuArray(DeviceOps* ops, const std::vector<T>& values)
      : GpuArray(ops, values.size() * sizeof(T)) {
    Set(values);
  }
  // `values` as `dtype` rounds them.
  GpuArray(DeviceOps* ops, DType dtype, const std::vector<float>& values)
      : GpuArray(ops, values.size() * DTypeBytes(dtype)) {
    Set(dtype, values);
  }

  template <typename T>
  void Set(const std::vector<T>& values) {
    MINISGL_CHECK(values.size() * sizeof(T) == num_bytes_, "an array of another size");
    std::vector<unsigned char> bytes(num_bytes_);
    if (num_bytes_ > 0) std::memcpy(bytes.data(), values.data(), num_bytes_);
    Upload(kGuardBytes, bytes);
  }
  void Set(DType dtype, const std::vector<float>& values) {
    std::vector<unsigned char> bytes(values.size() * DTypeBytes(dtype));
    StoreElements(bytes.data(), dtype, values);
    Set(bytes);
  }
  void Poison() { Set(std::vector<unsigned char>(num_bytes_, kPoison)); }

  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(static_cast<unsigned char*>(memory_.get()) + kGuardBytes);
  }
  float* f32() const { return as<float>(); }
  int32_t* i32() const { return as<int32_t>(); }
  ActivationPtr ptr(DType dtype) const { return {as<void*>(), dtype}; }

  // Waits; the test fails if a guard was written to.
  std::vector<unsigned char> Bytes() const {
    const auto all = ReadDevice(ops_, memory_.get(), num_bytes_ + 2 * kGuardBytes);
    for (size_t i = 0; i < kGuardBytes; ++i) {
      EXPECT_EQ(all[i], kPoison) << kGuardBytes - i << " bytes before the array";
      EXPECT_EQ(all[kGuardBytes + num_bytes_ + i], kPoison) << i << " bytes past the array";
    }
    return {all.begin() + kGuardBytes, all.end() - kGuardBytes};
  }
  template <typename T>
  std::vector<T> Read() const {
    const std::vector<unsigned char> bytes = Bytes();
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

 private:
  static constexpr size_t kGuardBytes = 256;  // as memory of the device is aligned
  static constexpr unsigned char kPoison = 0xFF;

  void Upload(size_t offset, const std::vector<unsigned char>& bytes) {
    const Status status = ops_->Upload(static_cast<unsigned char*>(memory_.get()) + offset,
                                       bytes.data(), bytes.size());
    MINISGL_CHECK(status.ok(), "{}", status.message());
  }

  DeviceOps* ops_;
  size_t num_bytes_;
  std::shared_ptr<void> memory_;
};

inline std::vector<float> FloatsOf(DType dtype, const std::vector<unsigned char>& bytes) {
  return LoadElements(bytes.data(), dtype, static_cast<int64_t>(bytes.size() / DTypeBytes(dtype)));
}

// Returns the contents of `out` after `run`, which is poisoned before. Runs twice and compares, to
// detect races.
template <typename Run>
std::vector<unsigned char> RunTwice(GpuArray* out, const std::string& what, const Run& run) {
  std::vector<unsigned char> first;
  for (int i = 0; i < 2; ++i) {
    out->Poison();
    run();
    const std::vector<unsigned char> bytes = out->Bytes();
    if (i == 0) {
      first = bytes;
    } else {
      EXPECT_TRUE(bytes == first) << what << ": a second run gives something else";
    }
  }
  return first;
}

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!GpuStatus().ok()) GTEST_SKIP() << GpuStatus().message();
  }

  static std::unique_ptr<DeviceOps> Make(const CudaOpsConfig& config = {}) {
    auto ops = MakeGpu(config);
    MINISGL_CHECK(ops.ok(), "{}", ops.status().message());
    return std::move(ops).value();
  }
  static std::unique_ptr<DeviceOps> MakeReserved(const DeviceLimits& limits,
                                                 const CudaOpsConfig& config = {}) {
    auto ops = Make(config);
    const Status status = ops->Reserve(limits);
    MINISGL_CHECK(status.ok(), "{}", status.message());
    return ops;
  }
  static TensorView View(const std::vector<float>& values, int64_t rows, int64_t columns) {
    return {reinterpret_cast<const std::byte*>(values.data()), DType::kF32, {rows, columns}};
  }
};

}  // namespace minisgl::cuda
