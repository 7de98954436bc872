// The host side of the CUDA engine on the emulated device: operations whose calls to CUDA can be
// made to fail, and helpers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda_ops.h"
#include "emulator/emulated_cuda_api.h"
#include "emulator/emulated_matmul.h"
#include "kernels/kernels.h"

namespace minisgl::cuda {

using emulator::EmulatedCudaApi;
using emulator::EmulatedCudaConfig;
using emulator::EmulatedMatmul;

// More than the own kernel takes.
inline constexpr int64_t kLibraryTokens = kGemvTokensMax + 1;

inline std::shared_ptr<EmulatedCudaApi> MakeEmulatedApi(EmulatedCudaConfig config = {}) {
  return std::make_shared<EmulatedCudaApi>(std::move(config));
}

inline DeviceLimits SmallLimits() {
  return {.max_rows = 4,
          .max_tokens = 64,
          .max_seq_len = 128,
          .num_heads = 2,
          .num_kv_heads = 1,
          .head_dim = 64,
          .num_experts = 4,
          .num_chosen = 2};
}

class CudaOpsFixture : public ::testing::Test {
 protected:
  // Emulated operations; the last library of products made is matmul_.
  Result<std::unique_ptr<DeviceOps>> Make(const CudaOpsConfig& config = {}) {
    return MakeCudaOpsOver(
        api_,
        [this](const MatmulSetup& setup) -> Result<std::unique_ptr<MatmulLibrary>> {
          EXPECT_NE(setup.workspace, nullptr);
          EXPECT_EQ(setup.workspace_bytes, kMatmulWorkspaceBytes);
          matmul_setup_ = setup;
          if (!matmul_error_.ok()) return matmul_error_;
          auto made = std::make_unique<EmulatedMatmul>(api_.get());
          matmul_ = made.get();
          return std::unique_ptr<MatmulLibrary>(std::move(made));
        },
        config, debug_);
  }

  std::unique_ptr<DeviceOps> MakeUnreserved(const CudaOpsConfig& config = {}) {
    auto ops = Make(config);
    EXPECT_TRUE(ops.ok()) << ops.status().message();
    return std::move(ops).value();
  }

  // The same, reserved for small steps.
  std::unique_ptr<DeviceOps> MakeReserved(const CudaOpsConfig& config = {}) {
    auto ops = MakeUnreserved(config);
    EXPECT_TRUE(ops->Reserve(SmallLimits()).ok());
    return ops;
  }

  template <typename T>
  static std::shared_ptr<void> Put(DeviceOps* ops, const std::vector<T>& values) {
    auto memory = ops->Allocate(values.size() * sizeof(T));
    EXPECT_TRUE(memory.ok());
    EXPECT_TRUE(ops->Upload(memory->get(), values.data(), values.size() * sizeof(T)).ok());
    return *memory;
  }

  // Waits for everything and reads `count` elements of device memory.
  template <typename T>
  std::vector<T> Get(DeviceOps* ops, const void* device, size_t count) {
    const auto host = ops->AllocateHost(count * sizeof(T));
    EXPECT_TRUE(host.ok()) << host.status().message();
    ops->CopyToHost(host->get(), device, count * sizeof(T));
    EXPECT_TRUE(ops->Synchronize().ok()) << ops->status().message();
    const T* const values = static_cast<const T*>(host->get());
    return std::vector<T>(values, values + count);
  }

  std::shared_ptr<EmulatedCudaApi> api_ = MakeEmulatedApi();
  EmulatedMatmul* matmul_ = nullptr;
  Status matmul_error_;
  MatmulSetup matmul_setup_;  // of the last library
  DebugSwitches debug_;
};

// Operations with some device memory and a matrix, and calls that use them.
class QueuedOpsFixture : public CudaOpsFixture {
 protected:
  void OpenReserved(const CudaOpsConfig& config) {
    Close();
    ops_ = MakeReserved(config);
    memory_ = *ops_->Allocate(32768);
    const TensorView view = {.data = bytes_.data(), .dtype = DType::kBF16, .shape = {8, 40}};
    matrix_ = *ops_->PackMatrix({&view, 1}, DType::kBF16);
  }
  void Close() {
    matrix_ = Matrix();
    memory_ = nullptr;
    ops_ = nullptr;
  }

  std::byte* At(size_t offset) { return static_cast<std::byte*>(memory_.get()) + offset; }
  void Gather() {
    ops_->GatherRows({.x = {At(0), DType::kBF16},
                      .rows = reinterpret_cast<const int32_t*>(At(512)),
                      .out = {At(768), DType::kBF16},
                      .num_rows = 1,
                      .width = 8});
  }
  void Multiply(int64_t num_tokens) {
    ops_->Linear({.x = {At(0), DType::kBF16},
                  .weight = &matrix_,
                  .bias = nullptr,
                  .out = {At(16384), DType::kF32},
                  .num_tokens = num_tokens});
  }

  const std::vector<std::byte> bytes_ = std::vector<std::byte>(8 * 40 * 2);
  std::unique_ptr<DeviceOps> ops_;
  std::shared_ptr<void> memory_;
  Matrix matrix_;
};

}  // namespace minisgl::cuda
