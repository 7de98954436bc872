// See gpu_models.h.
#include "gpu/gpu_models.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "engine/decode_graphs.h"
#include "engine/layer_graphs.h"
#include "minisgl/base/check.h"
#include "minisgl/base/random.h"
#include "weights/architectures.h"

namespace minisgl::cuda {
namespace {

constexpr int32_t kHeadDim = 64;  // one that the attention kernels support

// Norms near 1, matrices so that products keep the size of their inputs, biases of a fifth.
FileTensor RandomTensor(const weights::RequiredTensor& tensor, bool norm_plus_one,
                        uint64_t number) {
  int64_t count = 1;
  for (const int64_t size : tensor.shape) count *= size;
  const bool is_matrix = tensor.shape.size() > 1;
  const double center = tensor.is_norm && !norm_plus_one ? 1 : 0;
  const double spread = is_matrix ? 2 / std::sqrt(static_cast<double>(tensor.shape.back())) : 0.2;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const double u = UniformDouble(1, static_cast<uint64_t>(i), number);
    values.push_back(static_cast<float>(center + spread * (2 * u - 1)));
  }
  return FileTensor::F32(tensor.name, tensor.shape, values);
}

}  // namespace

std::unique_ptr<TestModel> MakeGpuTinyModel(int32_t max_seq_len) {
  auto model = std::make_unique<TestModel>();
  model->config = TinyConfig();
  model->config.hidden_size = 64;
  model->config.num_heads = 6;
  model->config.num_kv_heads = 2;
  model->config.head_dim = kHeadDim;
  model->config.ropes[0].dim = kHeadDim;
  model->config.max_seq_len = max_seq_len;
  model->checkpoint = WriteCheckpoint(model->dir, TinyTensors(model->config));
  return model;
}

std::unique_ptr<TestModel> OpenWren() {
  const char* const models = std::getenv("MINISGL_MODELS");
  const std::string dir =
      (models == nullptr ? std::string(MINISGL_SOURCE_DIR) + "/tests/models" : models) + "/wren";
  auto config = LoadModelConfig(dir);
  MINISGL_CHECK(config.ok(), "{}", config.status().message());
  auto checkpoint = Checkpoint::Open(dir);
  MINISGL_CHECK(checkpoint.ok(), "{}", checkpoint.status().message());
  auto model = std::make_unique<TestModel>();
  model->config = std::move(config).value();
  model->checkpoint = std::move(checkpoint).value();
  return model;
}

std::unique_ptr<TestModel> MakeGpuArchitecture(const std::string& name) {
  const char* const carried = std::getenv("MINISGL_GOLDEN_MODELS");
  const std::string goldens = std::string(MINISGL_SOURCE_DIR) + "/tests/golden/";
  const bool has_folder = name.find('/') != std::string::npos;
  const std::string dir =
      (carried != nullptr ? std::string(carried) + "/" : goldens + (has_folder ? "" : "models/")) +
      name;
  if (!std::filesystem::exists(dir)) return nullptr;
  auto config = LoadModelConfig(dir);
  MINISGL_CHECK(config.ok(), "{}", config.status().message());
  auto model = std::make_unique<TestModel>();
  model->config = std::move(config).value();
  // Latent heads stay as small as they are, and heads of sizes that differ from layer to layer.
  const bool keeps_heads =
      model->config.latent.rank > 0 ||
      std::any_of(model->config.layers.begin(), model->config.layers.end(),
                  [](const LayerConfig& layer) { return layer.head_dim != 0; });
  if (!keeps_heads) {
    for (RopeConfig& rope : model->config.ropes) {
      rope.dim = rope.dim == model->config.head_dim ? kHeadDim : kHeadDim / 4;
    }
    model->config.head_dim = kHeadDim;
  }
  const auto required = weights::RequiredTensors(model->config);
  MINISGL_CHECK(required.ok(), "{}", required.status().message());
  std::vector<FileTensor> tensors;
  for (const weights::RequiredTensor& tensor : *required) {
    tensors.push_back(RandomTensor(tensor, model->config.norm_plus_one, tensors.size()));
  }
  model->checkpoint = WriteCheckpoint(model->dir, tensors);
  return model;
}

std::vector<int32_t> CapturedSizes(int32_t max_rows) { return engine::GraphBatchSizes(max_rows); }
std::vector<int32_t> CapturedTokens(int32_t max_tokens) {
  return engine::LayerGraphSizes(max_tokens);
}

}  // namespace minisgl::cuda
