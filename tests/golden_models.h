// The models that transformers computed the logits and greedy answers of: tests/golden/NAME.json
// and NAME_greedy.json, described in tests/golden/README.md. Tests of the model and of the engine
// run over the same list.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cpu/targets.h"
#include "cpu_target.h"
#include "minisgl/base/ids.h"
#include "minisgl/base/json.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/engine/model_engine.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"

namespace minisgl {

struct GoldenModel {
  const char* name;
  bool has_greedy;
  // Largest error of a logit, relative to the largest logit of its position.
  double tolerance;
};

inline constexpr GoldenModel kGoldenModels[] = {
    {"wren", true, 1e-5},         {"separate_head", false, 1e-5}, {"odd_heads", false, 1e-5},
    {"f16_sharded", false, 1e-5}, {"qwen2", true, 1e-5},          {"qwen3", true, 1e-5},
};

// The tolerance for models of make_architectures.py. The CPU stays within 5e-6; leaving a part out
// of a model moves logits by 1e-2.
inline constexpr double kArchitectureTolerance = 1e-4;
inline constexpr const char* kGoldenArchitectures[] = {
    "llama_biases",
    "llama_yarn",
    "llama_dynamic",
    "mistral",
    "ministral3",
    "qwen2_window",
    "qwen3_window",
    "gemma",
    "gemma2",
    "gemma3_text",
    "gemma3_text_nested",
    "phi3",
    "phi3_short",
    "phi3_long",
    "olmo2",
    "olmo3",
    "olmo3_old",
    "smollm3",
    "granite",
    "cohere2",
    "glm4",
    "exaone4",
    "exaone4_full",
    "starcoder2",
    "stablelm",
    "stablelm_parallel",
    "seed_oss",
    "seed_oss_hub",
    "ernie4_5",
    "hunyuan",
    "hunyuan_alpha",
    "nemotron",
    "mixtral",
    "qwen2_moe",
    "qwen2_moe_norm",
    "qwen3_moe",
    "qwen3_moe_plain",
    "olmoe",
    "granitemoe",
    "glm4_moe",
    "glm4_moe_plain",
    "ernie4_5_moe",
    "minimax_m2",
    "gpt_oss",
    "gemma3",
    "gemma3_renamed",
    "mistral3",
    "mistral3_renamed",
    "llava",
    "llava_next",
    "llava_onevision",
    "internvl",
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "qwen3_vl_moe",
    "qwen3_vl_moe_renewed",
    "exaone4_5",
    "glm4v",
    "llama4",
    "arcee",
    "exaone_moe",
    "hunyuan_moe",
    "apertus",
    "cohere2_moe",
    "cohere2_moe_rms",
    "gemma4_text",
    "gemma4",
    "gemma4_moe",
    "gemma4_unified_text",
    "muse_glimmer",
    "lfm2",
    "lfm2_moe",
    "deepseek_v2",
    "deepseek_v2_lite",
    "deepseek_v3",
    "deepseek_v3_halves",
    "glm4_moe_lite",
    "qwen3_next",
    "qwen3_5",
    "qwen3_5_text",
    "qwen3_5_moe",
    "qwen3_5_moe_text",
    "granitemoehybrid",
    "granitemoehybrid_dense",
    "bamba",
    "nemotron_h",
    "nemotron_h_moe",
    "nemotron_h_latent",
    "olmo_hybrid",
    "olmo_hybrid_nope",
    "falcon_h1",
    "falcon_h1_plain",
};

// The models of make_quantized.py: one for each format of quantized checkpoints, and the
// architectures that are published quantized.
inline constexpr const char* kGoldenQuantized[] = {
    "quant_awq",
    "quant_awq_qwen3_5",
    "quant_ct_fp8_block",
    "quant_ct_fp8_channel",
    "quant_ct_fp8_gemma4_moe",
    "quant_ct_fp8_granite",
    "quant_ct_fp8_tensor",
    "quant_ct_int4",
    "quant_ct_int4_gemma4",
    "quant_ct_int4_latent",
    "quant_ct_int4_moe",
    "quant_ct_int4_qwen3_5_moe",
    "quant_ct_int4_order",
    "quant_ct_int4_zero",
    "quant_ct_int8_channel",
    "quant_ct_mixed",
    "quant_ct_w8a8",
    "quant_fp8_block",
    "quant_fp8_block_latent",
    "quant_fp8_block_moe",
    "quant_fp8_qwen3_5_moe",
    "quant_fp8_tensor",
    "quant_fp8_ue8m0",
    "quant_gptq",
    "quant_gptq_int8",
    "quant_gptq_order",
    "quant_gptq_qwen3_5",
    "quant_gptq_v2",
    "quant_mixed_nemotron_h",
    "quant_modelopt_fp8",
    "quant_mxfp4_ct",
    "quant_mxfp4_gpt_oss",
    "quant_mxfp8_ct",
    "quant_nvfp4_ct",
    "quant_nvfp4_gpt_oss",
    "quant_nvfp4_modelopt",
    "quant_nvfp4_moe",
    "quant_nvfp4_nemotron_h",
};

// The CPU target under test, or the best one, that multiplies activations in f32, as the reference
// does. Products of bf16 round activations, which moves logits by 1 % and sends tokens to other
// experts, also on processors where they are the best.
inline std::string TargetOfF32Activations() {
  const std::string tested = TestedCpuTarget();
  for (const cpu::CpuTarget target : cpu::AvailableCpuTargets()) {
    const std::string name = cpu::CpuTargetName(target);
    if (!cpu::RoundsToBf16(target) && (tested.empty() || tested == name)) return name;
  }
  for (const cpu::CpuTarget target : cpu::AvailableCpuTargets()) {
    if (!cpu::RoundsToBf16(target)) return cpu::CpuTargetName(target);
  }
  ADD_FAILURE() << "every CPU target rounds x to bf16";
  return "";
}

// The CPU's operations of `count` ranks for that target, each with a thread.
inline EngineRanks RanksOfF32Activations(int32_t count) {
  EngineRanks ranks;
  ranks.rendezvous = std::make_shared<Rendezvous>(count, /*spins=*/false);
  for (int32_t index = 0; index < count; ++index) {
    auto ops = MakeCpuOps(
        {.num_threads = 1, .target = TargetOfF32Activations(), .rank = {index, ranks.rendezvous}});
    EXPECT_TRUE(ops.ok()) << ops.status().message();
    ranks.ops.push_back(std::move(ops).value());
  }
  return ranks;
}

// The dtype in which a model agrees with a reference that computes in f32: f32 for bf16 files,
// because keys and values of a model in bf16 are kept as bf16. A weight of code and scale is
// rounded in both narrow types.
inline DType DTypeOfF32KeysAndValues(const ModelConfig& config) {
  const bool is_exact = config.dtype != DType::kBF16 && config.quantization.empty();
  return is_exact ? config.dtype : DType::kF32;
}

// Upper bound on the change of logits by keys and values in bf16, relative to the position's
// largest logit (found: wren 0.03, whose prompts are the longest; the others 0.006).
inline constexpr double kBf16KvTolerance = 0.04;
// And what rounding the weights of codes and scales to bf16 does as well (found: 0.07).
inline constexpr double kBf16QuantizedTolerance = 0.1;

inline std::vector<GoldenModel> AllGoldenModels() {
  std::vector<GoldenModel> models(std::begin(kGoldenModels), std::end(kGoldenModels));
  for (const char* name : kGoldenArchitectures) {
    models.push_back({name, true, kArchitectureTolerance});
  }
  for (const char* name : kGoldenQuantized) {
    models.push_back({name, true, kArchitectureTolerance});
  }
  return models;
}

// The golden file of `stem`, an empty object with a failure where it cannot be read.
inline Json ReadGolden(const std::string& stem) {
  const std::string path = std::string(MINISGL_SOURCE_DIR) + "/tests/golden/" + stem + ".json";
  const auto text = ReadFile(path, uint64_t{64} << 20);
  EXPECT_TRUE(text.ok()) << text.status().message();
  if (!text.ok()) return Json();
  auto golden = ParseJson(*text);
  EXPECT_TRUE(golden.ok()) << golden.status().message();
  return golden.ok() ? std::move(golden).value() : Json();
}

// The folder of the model that a golden file is of; some name it from the project, some from
// tests/golden.
inline std::string GoldenModelDir(const Json& golden) {
  const std::string& model = golden.Find("model")->as_string();
  return std::string(MINISGL_SOURCE_DIR) + (model.starts_with("tests/") ? "/" : "/tests/golden/") +
         model;
}

// The model of ReadGolden(name). The test fails if it cannot be opened.
struct OpenedGolden {
  ModelConfig config;
  std::unique_ptr<Checkpoint> checkpoint;  // null after a failure
};
inline OpenedGolden OpenGolden(const char* name) {
  const Json golden = ReadGolden(name);
  if (!golden.is_object()) return {};
  auto config = LoadModelConfig(GoldenModelDir(golden));
  auto checkpoint = Checkpoint::Open(GoldenModelDir(golden));
  EXPECT_TRUE(config.ok() && checkpoint.ok()) << name;
  if (!config.ok() || !checkpoint.ok()) return {};
  return {std::move(config).value(), std::move(checkpoint).value()};
}

inline std::vector<TokenId> ToIds(const Json& array) {
  std::vector<TokenId> ids;
  for (const Json& id : array.as_array()) ids.push_back(static_cast<TokenId>(id.as_int()));
  return ids;
}

}  // namespace minisgl
