// See gpu_models.h.
#include "gpu/gpu_models.h"

#include <cstdlib>
#include <string>
#include <utility>

#include "engine/decode_graphs.h"
#include "minisgl/base/check.h"

namespace minisgl {

std::unique_ptr<TestModel> MakeGpuTinyModel(int32_t max_seq_len) {
  auto model = std::make_unique<TestModel>();
  model->config = TinyConfig();
  model->config.hidden_size = 64;
  model->config.num_heads = 6;
  model->config.num_kv_heads = 2;
  model->config.head_dim = 64;
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

std::vector<int32_t> CapturedSizes(int32_t max_rows) { return GraphBatchSizes(max_rows); }

}  // namespace minisgl
