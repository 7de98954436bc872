// Loads what a command needs, in one place and one order: the text side alone, or the model with
// its runtime.
//
// Reports its findings as notes through base/log.h. Failures are Status values;
// ExitCode of base/status.h gives their exit statuses.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "load/device_choice.h"
#include "load/options.h"
#include "minisgl/base/status.h"
#include "minisgl/engine/model_engine.h"
#include "minisgl/ops.h"
#include "minisgl/runtime/runtime.h"
#include "minisgl/text/text_model.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::load {

// The directory that `model` names: a directory, or owner/name in the hub cache. GGUF files are
// refused by name.
Result<std::string> ResolveModelDir(const std::string& model);

// Loads the tokenizer and the chat template. Reads no weights and no config.json.
Result<TextModel> LoadTextModel(const ModelOptions& options);

// The configuration of a model and how it would run, without its weights.
struct ModelFacts {
  ModelConfig config;
  GenerationConfig generation;
  EngineSetup engine;  // without its device once a model is loaded
};
Result<ModelFacts> LoadModelFacts(const std::string& model_dir, const EngineOptions& options);

struct LoadedModel {
  TextModel text;
  ModelFacts facts;
  std::vector<TokenId>
      eos_ids;         // union of config.json, generation_config.json and the tokenizer; sorted
  std::string device;  // "cpu (avx512, 2 threads)"
  std::unique_ptr<Runtime> runtime;  // declared last: stops before what it uses goes
};
// `trace_sink` as RuntimeOptions has it.
Result<LoadedModel> LoadModel(TextModel text, const EngineOptions& engine_options,
                              std::function<void(std::string_view)> trace_sink = {});

// A model without text: token ids in, token ids out.
struct BareModel {
  MemoryPlan plan;
  std::string device;
  std::unique_ptr<Runtime> runtime;
};
Result<BareModel> LoadBareModel(const ModelConfig& config, const Checkpoint& checkpoint,
                                const EngineOptions& engine_options);

// How --dtype and --quantize have the weights of a model that stores `stored`.
WeightFormat WantedFormat(const EngineOptions& options, DType stored);

// The operations of the CPU as `options` say, with nothing loaded. Without a `pack_source` packed
// weights are not kept.
Result<std::unique_ptr<Ops>> MakeOps(const EngineOptions& options,
                                     std::optional<PackSource> pack_source = std::nullopt);

// kBadInput naming --chat-template for a model without a template.
Status CheckHasTemplate(const TextModel& text);

// Adds the end tokens to prompt->stop_token_ids, unless prompt->ignore_eos.
void SetEndTokens(const std::vector<TokenId>& eos_ids, Prompt* prompt);

}  // namespace minisgl::load
