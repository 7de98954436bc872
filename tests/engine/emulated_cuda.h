// The whole CUDA engine without a GPU, for tests: its host code, and its kernels on the
// thread-block emulator.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda_ops.h"
#include "emulator/emulated_cuda_api.h"
#include "emulator/emulated_matmul.h"
#include "engine/engine_driver.h"

namespace minisgl {

// A model with a head_dim that the kernels support: 3 query heads on each of 2 KV heads of 64.
inline std::unique_ptr<TestModel> MakeEmulatedModel() {
  auto model = std::make_unique<TestModel>();
  model->config = TinyConfig();
  model->config.hidden_size = 64;
  model->config.num_heads = 6;
  model->config.num_kv_heads = 2;
  model->config.head_dim = 64;
  model->config.max_seq_len = 512;
  model->checkpoint = WriteCheckpoint(model->dir, TinyTensors(model->config));
  return model;
}

inline std::unique_ptr<DeviceOps> EmulatedCuda(
    const CudaOpsConfig& config, std::shared_ptr<cuda::emulator::EmulatedCudaApi> api = nullptr,
    const cuda::DebugSwitches& debug = {}) {
  if (api == nullptr) api = std::make_shared<cuda::emulator::EmulatedCudaApi>();
  auto ops = cuda::MakeCudaOpsOver(
      api,
      [api](const cuda::MatmulSetup&) -> Result<std::unique_ptr<cuda::MatmulLibrary>> {
        return std::unique_ptr<cuda::MatmulLibrary>(new cuda::emulator::EmulatedMatmul(api.get()));
      },
      config, debug);
  MINISGL_CHECK(ops.ok(), "{}", ops.status().message());
  return std::move(ops).value();
}

// Each of `num_ranks` ranks has a device of its own, an `Api` of its own over them.
template <typename Api = cuda::emulator::EmulatedCudaApi>
std::vector<std::unique_ptr<DeviceOps>> EmulatedRanksOf(
    int32_t num_ranks, CudaRanksConfig ranks, const cuda::DebugSwitches& debug = {},
    std::vector<std::shared_ptr<Api>>* apis = nullptr,
    const cuda::NcclLoader& load_nccl = cuda::LoadNccl, bool lazy = false) {
  for (int32_t rank = 0; rank < num_ranks; ++rank) ranks.devices.push_back(rank);
  const auto make_api = [&] {
    cuda::emulator::EmulatedCudaConfig emulated;
    emulated.devices.resize(static_cast<size_t>(num_ranks));
    emulated.lazy = lazy;
    auto api = std::make_shared<Api>(std::move(emulated));
    if (apis != nullptr) apis->push_back(api);
    return std::shared_ptr<cuda::CudaApi>(std::move(api));
  };
  auto ops = cuda::MakeCudaRanksOver(
      make_api,
      [](const cuda::MatmulSetup& setup) -> Result<std::unique_ptr<cuda::MatmulLibrary>> {
        auto* const api = static_cast<Api*>(setup.api);
        return std::unique_ptr<cuda::MatmulLibrary>(new cuda::emulator::EmulatedMatmul(api));
      },
      ranks, debug, load_nccl);
  MINISGL_CHECK(ops.ok(), "{}", ops.status().message());
  return std::move(ops).value();
}

template <typename Api = cuda::emulator::EmulatedCudaApi>
std::vector<std::unique_ptr<DeviceOps>> EmulatedRanks(
    int32_t num_ranks, const CudaOpsConfig& config = {}, const cuda::DebugSwitches& debug = {},
    std::vector<std::shared_ptr<Api>>* apis = nullptr) {
  return EmulatedRanksOf<Api>(num_ranks, {.ops = config, .wait_ms = 1'000'000}, debug, apis);
}

// Compares token by token. Stops at the first token whose two most likely candidates are too close.
inline void ExpectAgree(const std::vector<RowResult>& actual, const std::vector<RowResult>& wanted,
                        double tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), wanted.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].outcome, wanted[i].outcome) << what << " token " << i;
    const auto& ranks = wanted[i].top_logprobs;
    ASSERT_EQ(actual[i].top_logprobs.size(), ranks.size()) << what;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      ASSERT_NEAR(actual[i].top_logprobs[rank].logprob, ranks[rank].logprob, tolerance)
          << what << " token " << i << " rank " << rank;
    }
    if (ranks[0].logprob - ranks[1].logprob < 2 * tolerance) return;
    ASSERT_EQ(actual[i].token, wanted[i].token) << what << " token " << i;
  }
}

class EmulatedCudaTest : public testing::Test {
 protected:
  std::unique_ptr<EngineDriver> OnCuda(const DriverOptions& options,
                                       const CudaOpsConfig& config = {}) {
    return std::make_unique<EngineDriver>(*model_, options, EmulatedCuda(config));
  }
  std::unique_ptr<EngineDriver> OnCpu(DriverOptions options, DType dtype) {
    options.weight_dtype = dtype;
    return std::make_unique<EngineDriver>(model_->config, *model_->checkpoint, options,
                                          MakeNaiveOps(dtype));
  }
  const std::unique_ptr<TestModel> model_ = MakeEmulatedModel();
};

}  // namespace minisgl
