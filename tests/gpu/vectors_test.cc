// Vectors of prompts on the device: a causal model, one whose tokens attend to later ones within
// windows, and encoders with learned positions, with rotary ones and with numbers of distances.
#include <string>
#include <vector>

#include "engine/vector_scene.h"
#include "gpu/gpu_fixture.h"
#include "gpu/gpu_models.h"
#include "slow.h"

namespace minisgl::cuda {
namespace {

using GpuVectorsTest = GpuTest;

TEST_F(GpuVectorsTest, VectorsAgreeWithTheOracle) {
  MarkSlow("models on the emulator");
  for (const char* const name :
       {"qwen3", "pooling/gemma3", "pooling/bert", "pooling/nomic_bert", "pooling/mpnet"}) {
    SCOPED_TRACE(name);
    const auto model = MakeGpuArchitecture(name);
    if (model == nullptr) GTEST_SKIP() << "no models beside the sources";
    const VectorScene scene(model->config, model->checkpoint.get());
    std::vector<int32_t> lengths = {19, 1, 40, 7};
    if (!IsSlow()) lengths.insert(lengths.end(), {60, 59, 33, 2, 50, 60, 12});
    const std::vector<Request> requests = scene.Requests(lengths);
    for (const DType dtype : kHalfTypes) {
      if (IsSlow() && dtype == DType::kBF16) continue;
      const ScheduledRun expected = scene.OnCpu({}, MakeNaiveOps(), requests);
      for (const bool deterministic : {false, true}) {
        const ScheduledRun run = scene.OnDevice(
            {}, Make({.activation_dtype = dtype, .deterministic = deterministic}), requests);
        ExpectVectorsAgree(run, expected, dtype == DType::kF16 ? 0.01 : 0.08, DTypeName(dtype));
      }
    }
  }
}

}  // namespace
}  // namespace minisgl::cuda
