// Loads the model of a command: its tokenizer and chat template alone, or with its weights, engine
// and runtime.
//
// Logs the device and the memory plan through base/log.h. Errors are Status values; ExitCode of
// base/status.h gives the exit status of each.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "load/device_choice.h"
#include "load/options.h"
#include "minisgl/base/kernel_profile.h"
#include "minisgl/base/status.h"
#include "minisgl/engine/model_engine.h"
#include "minisgl/model/model_list.h"
#include "minisgl/ops.h"
#include "minisgl/runtime/runtime.h"
#include "minisgl/text/text_model.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::load {

// Returns the directory of `model`, which is a directory or OWNER/NAME in the hub cache. kUsage if
// `model` is empty; other errors are those of FindModelDir.
Result<std::string> ResolveModelDir(const std::string& model);

// Called by ResolveModelDir for OWNER/NAME that is not in the hub cache; returns whether it is
// there now. A failed attempt is the error of ResolveModelDir. Set it while one thread runs; null:
// none.
using MissingModelHandler = std::function<Result<bool>(const std::string& model)>;
void SetMissingModelHandler(MissingModelHandler handler);

// Loads the tokenizer and the chat template. Reads no weights and no config.json.
Result<TextModel> LoadTextModel(const ModelOptions& options);

// Sets text->template_args from `options`: --template-arg and --think. kUsage, without a
// change, if the template has no switch for the latter.
Status SetTemplateArgs(const ModelOptions& options, TextModel* text);

// The configuration of a model, and the device, options and memory plan to run it with.
struct ModelFacts {
  ModelConfig config;  // of the target
  GenerationConfig generation;
  ModelList models;    // that run: the target, and its tower
  Status no_images;    // why ModelsOf found no tower
  EngineSetup engine;  // LoadModel moves the device out of it
};
// Reads config.json and generation_config.json and plans the memory; reads no weights.
Result<ModelFacts> LoadModelFacts(const TextModel& text, const EngineOptions& options);

// Prints the table of --profile-kernels to standard error when it is destroyed.
class KernelReport {
 public:
  explicit KernelReport(std::shared_ptr<const KernelProfile> profile)
      : profile_(std::move(profile)) {}
  KernelReport(const KernelReport&) = delete;
  KernelReport& operator=(const KernelReport&) = delete;
  ~KernelReport();

 private:
  const std::shared_ptr<const KernelProfile> profile_;
};

struct LoadedModel {
  TextModel text;
  ModelFacts facts;
  std::vector<TokenId> eos_ids;                 // EndTokens of weights/end_tokens.h
  std::string device;                           // "cpu (avx512, 2 threads)"
  std::unique_ptr<KernelReport> kernel_report;  // null without --profile-kernels
  std::unique_ptr<Runtime> runtime;  // last member: destroyed before the tokenizer that it uses
};
// Where reports of the runtime go; see RuntimeOptions.
struct ReportSinks {
  std::function<void(std::string_view)> trace, cache_events;
};

// Checks what can be checked of the model of `text` without memory for it: its configuration, that
// the tokenizer is of the same model, and that files of weights can be opened.
Status CheckModelFiles(const TextModel& text);
// Loads the weights and starts the runtime.
Result<LoadedModel> LoadModel(TextModel text, const EngineOptions& engine_options,
                              ReportSinks sinks = {});

// A model without a tokenizer: its input and output are token ids.
struct BareModel {
  MemoryPlan plan;
  std::string device;
  std::unique_ptr<KernelReport> kernel_report;  // as in LoadedModel
  std::unique_ptr<Runtime> runtime;
};
Result<BareModel> LoadBareModel(const ModelList& models, const ModelFiles& files,
                                const EngineOptions& engine_options);

// Returns the format of weights in memory for --dtype and --quantize; `stored` is their type in the
// model's files.
WeightFormat WantedFormat(const EngineOptions& options, DType stored);

// Returns the CPU's operations for --threads, --cpu-target and --pin-threads. Packed weights go to
// --pack-cache if `pack_source` is given; without it no file is written. Of several ranks: those of
// `rank`, with its share of the threads, on the logical CPUs `cpus` (empty: all).
Result<std::unique_ptr<Ops>> MakeOps(const EngineOptions& options,
                                     std::optional<PackSource> pack_source = std::nullopt,
                                     const HostRank& rank = {}, const std::vector<int>& cpus = {});
// Returns those of all ranks of --tensor-parallel.
Result<EngineRanks> MakeRanks(const EngineOptions& options, const RankPlaces& places,
                              const std::optional<PackSource>& pack_source);

// Returns kBadInput, with the command that takes it, if the model is an encoder.
Status CheckGivesAnswers(const TextModel& text);
// Returns kBadInput, with the advice to use --chat-template, if the model has no chat template.
Status CheckHasTemplate(const TextModel& text);

// Adds the end tokens to prompt->stop_token_ids, unless prompt->ignore_eos.
void SetEndTokens(const std::vector<TokenId>& eos_ids, Prompt* prompt);

}  // namespace minisgl::load
