// The logits of GGUF files and of the model directories that they were made from.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "golden_models.h"
#include "minisgl/engine/model_engine.h"
#include "minisgl/ops.h"

namespace minisgl {

inline const std::string kGolden = MINISGL_SOURCE_DIR "/tests/golden";

inline std::unique_ptr<Ops> F32Ops() {
  auto ops = MakeCpuOps({.num_threads = 2, .target = TargetOfF32Activations()});
  EXPECT_TRUE(ops.ok()) << ops.status().message();
  return std::move(ops).value();
}

inline std::vector<TokenId> SomeIds(const ModelConfig& config) {
  std::vector<TokenId> ids;
  for (int64_t i = 0; i < 33; ++i) {
    ids.push_back(static_cast<TokenId>((i * i * 7 + 3 * i + 1) % config.vocab_size));
  }
  return ids;
}

inline std::vector<float> LogitsOf(const ModelConfig& config, const Checkpoint& checkpoint,
                                   const WeightFormat& format = DType::kF32) {
  const auto logits = ComputeLogits(config, checkpoint, format, F32Ops().get(), SomeIds(config));
  EXPECT_TRUE(logits.ok()) << logits.status().message();
  return logits.ok() ? *logits : std::vector<float>();
}

inline std::vector<float> LogitsOfFile(const std::string& path, ModelConfig* config) {
  const auto loaded = LoadModelConfig(path);
  const auto opened = Checkpoint::Open(path);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_TRUE(opened.ok()) << opened.status().message();
  if (!loaded.ok() || !opened.ok()) return {};
  *config = *loaded;
  return LogitsOf(*config, **opened);
}

}  // namespace minisgl
