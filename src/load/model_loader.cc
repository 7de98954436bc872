#include "load/model_loader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "load/adapter_choice.h"
#include "load/chat_share.h"
#include "load/codes_text.h"
#include "load/config_file.h"
#include "load/prefix_cache.h"
#include "load/tower_choice.h"
#include "minisgl/base/byte_order_mark.h"
#include "minisgl/base/folder.h"
#include "minisgl/base/log.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/system_info.h"
#include "minisgl/base/utf8.h"
#include "minisgl/engine/device_engine.h"
#include "minisgl/gguf/gguf_file.h"
#include "minisgl/model/pack_source.h"
#include "minisgl/ops.h"
#include "minisgl/text/reasoning.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/end_tokens.h"
#include "minisgl/weights/find_model_dir.h"
#include "minisgl/weights/projector.h"
#include "term/messages.h"
#include "weights/stored_names.h"

namespace minisgl::load {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSmallFileBytesMax = uint64_t{64} << 20;

MissingModelHandler g_missing_model_handler;

bool IsDirectory(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

Result<Json> ParseTemplateArgs(const std::vector<std::string>& args) {
  if (args.empty()) return Json();
  Json object = Json(Json::Object());
  for (const std::string& arg : args) {
    const size_t equals = arg.find('=');
    const std::string key = arg.substr(0, equals), text = arg.substr(equals + 1);
    if (ChatTemplate::Sets(key)) {
      return UsageError("--template-arg: {} is set by the program; leave it out", key);
    }
    Result<Json> value = ParseJson(text);
    object.Set(key, value.ok() ? std::move(value).value() : Json(text));
  }
  return object;
}

Result<std::unique_ptr<ChatTemplate>> LoadChatTemplate(const std::string& dir,
                                                       const std::string& chosen) {
  if (chosen.empty()) return ChatTemplate::Load(dir);
  if (IsListed(chosen) && !IsDirectory(chosen)) {
    MINISGL_ASSIGN_OR_RETURN(std::string source, ReadFile(chosen, kTemplateBytesMax));
    DropByteOrderMark(&source);
    return ChatTemplate::Parse(source, chosen);
  }
  Result<std::unique_ptr<ChatTemplate>> named = ChatTemplate::LoadNamed(dir, chosen);
  if (!named.ok() && named.status().code() == StatusCode::kNoInput) {
    return MakeStatus(StatusCode::kNoInput, "--chat-template: no file has this name, and {}",
                      named.status().message());
  }
  return named;
}

// Sets the template's reasoning switches in `args` to `think`, except those that --template-arg has
// set.
Status AddThinking(const ChatTemplate* chat, Thinking think, Json* args) {
  if (think == Thinking::kAuto) return {};
  bool is_known = false;
  for (const char* name : kReasoningSwitches) {
    if (chat == nullptr || !chat->Reads(name)) continue;
    is_known = true;
    if (args->is_null()) *args = Json(Json::Object());
    if (args->Find(name) == nullptr) args->Set(name, think == Thinking::kOn);
  }
  if (is_known) return {};
  return UsageError("--think: the chat template has no switch for it (it reads none of {}){}",
                    fmt::join(kReasoningSwitches, ", "),
                    think == Thinking::kOff ? "; --think-budget 0 closes reasoning at once" : "");
}

// Defaults of EngineOptions::chat_share.
constexpr double kHostChatShare = 0.5;
constexpr double kDeviceChatShare = 0.9;

// REQUIRES that the engine is not started: `setup` has its device.
RuntimeOptions ToRuntimeOptions(const EngineSetup& setup, const ModelConfig& config) {
  const EngineOptions& options = setup.options;
  RuntimeOptions runtime;
  SchedulerOptions& scheduler = runtime.scheduler;
  scheduler.max_prefill_tokens = options.max_prefill_length;
  scheduler.max_step_tokens = options.max_step_tokens;
  scheduler.long_prefill_threshold = options.long_prefill_threshold;
  scheduler.encoder_budget = options.encoder_budget;
  scheduler.encoder_cache = options.encoder_cache;
  scheduler.cache = options.cache;
  scheduler.step = options.schedule;
  scheduler.admission = options.admission;
  scheduler.queue = options.policy;
  scheduler.max_drafts = options.drafts.max_drafts;
  scheduler.kv_failure = options.prefix_cache.on_error;
  if (options.drafts.kind == DraftKind::kNgram) {
    scheduler.drafter = MakeNgramDrafter();
  } else {
    scheduler.max_draft_rows = kModelDraftRowsMax;
  }
  const bool is_device = setup.device.cuda != nullptr;
  const double share = options.chat_share >= 0 ? options.chat_share
                       : is_device             ? kDeviceChatShare
                                               : kHostChatShare;
  const RoomBesideChat beside = RoomForShare(share, config, setup.plan, is_device);
  scheduler.room_beside_chat = beside.room;
  scheduler.keys_per_token = beside.keys_per_token;
  scheduler.long_step_tokens = beside.long_step_tokens;
  runtime.overlap = !options.disable_overlap;
  return runtime;
}

void LogDevice(const Device& device, const std::string& name) {
  const bool fallback = !device.fallback.empty();
  Log(fallback && device.fallback_is_news ? LogLevel::kInfo : LogLevel::kVerbose,
      fmt::format("running on {}{}", name,
                  fallback ? fmt::format("; not on CUDA: {}", device.fallback) : ""));
}

void LogMemoryPlan(const EngineSetup& engine) {
  const MemoryPlan& plan = engine.plan;
  constexpr double kMiB = 1 << 20;
  std::string states;
  if (plan.limits.num_state_slots > 0) {
    states = fmt::format(", states {:.1f} MiB ({} slots)",
                         static_cast<double>(plan.state_bytes) / kMiB, plan.limits.num_state_slots);
  }
  Log(LogLevel::kVerbose,
      fmt::format(
          "memory: weights {:.1f} MiB ({}), workspace {:.1f} MiB, KV {:.1f} MiB ({} pages of "
          "{} tokens){}; up to {} tokens a request ({})",
          static_cast<double>(plan.weight_bytes) / kMiB, plan.weight_format.Name(),
          static_cast<double>(plan.workspace_bytes) / kMiB,
          static_cast<double>(plan.kv_bytes) / kMiB, plan.limits.num_pages, plan.limits.page_size,
          states, plan.limits.max_seq_len, plan.max_seq_len_reason));
  for (const ModelLine& line : ModelLines(engine)) {
    Log(LogLevel::kVerbose, fmt::format("{} {}", line.role, line.text));
  }
}

// Returns the CPU's operations for each GPU's experts in the machine's memory, with its share of
// the threads.
Result<std::vector<std::shared_ptr<Ops>>> MakeHostExpertOps(const EngineOptions& options,
                                                            const RankPlaces& places) {
  const int32_t count = options.tensor_parallel;
  EngineOptions own = options;
  own.pin_threads = options.pin_threads && count == 1;  // else several would have the same cores
  std::vector<std::shared_ptr<Ops>> all;
  for (int32_t index = 0; index < count; ++index) {
    own.threads = ThreadsOfRank(NumThreads(options), {index, count});
    const auto at = static_cast<size_t>(index);
    MINISGL_ASSIGN_OR_RETURN(
        std::shared_ptr<Ops> ops,
        MakeOps(own, std::nullopt, {}, places.cpus.empty() ? std::vector<int>() : places.cpus[at]));
    all.push_back(std::move(ops));
  }
  return all;
}

// Loads the weights. Moves the device out of `setup` and sets *name to the device's name.
Result<std::unique_ptr<Engine>> StartEngine(const ModelList& models, const ModelFiles& files,
                                            EngineSetup* setup, std::string* name) {
  const EngineOptions& options = setup->options;
  Device& device = setup->device;
  const std::string ranks_text = RanksText(*setup);
  if (!ranks_text.empty()) Log(LogLevel::kVerbose, ranks_text);
  if (device.cuda != nullptr) {
    *name = DeviceName(device);
    LogDevice(device, *name);
    if (models.target().dtype == DType::kF32) {
      Log(LogLevel::kInfo, fmt::format("the weights are f32 and CUDA computes in {}; --device cpu "
                                       "computes in f32",
                                       setup->plan.weight_format.Name()));
    }
    const std::string codes_text = CodesText(setup->plan);
    if (!codes_text.empty()) Log(LogLevel::kInfo, codes_text);
    LogMemoryPlan(*setup);
    if (!options.pack_cache.empty()) {
      Log(LogLevel::kInfo,
          "--pack-cache: on CUDA weights are not packed; only timings of products are kept");
    }
    std::vector<std::shared_ptr<Ops>> host_ops;
    const std::string on_cpu = CpuExpertsText(*setup);
    if (options.cpu_experts == kAutoHostLayers) {
      Log(LogLevel::kInfo, "--cpu-experts auto: " +
                               (on_cpu.empty() ? "the GPU has all experts" : "experts " + on_cpu));
    }
    if (!on_cpu.empty()) {
      if (const std::string text = PlacesText(setup->places); !text.empty()) {
        Log(LogLevel::kVerbose, "--cpu-experts: " + text);
      }
      MINISGL_ASSIGN_OR_RETURN(host_ops, MakeHostExpertOps(options, setup->places));
    }
    std::vector<std::unique_ptr<DeviceOps>> ranks;
    ranks.push_back(std::move(device.cuda));
    for (auto& rank : device.other_ranks) ranks.push_back(std::move(rank));
    auto engine = MakeDeviceEngine(models, files, setup->plan, std::move(ranks),
                                   {.graph_max_rows = options.cuda_graph_max_rows,
                                    .graph_max_tokens = options.cuda_graph_max_tokens,
                                    .warms_up = true,
                                    .host_ops = std::move(host_ops)});
    if (device.profile != nullptr) device.profile->Clear();  // of what the start ran
    return engine;
  }
  if (options.profile_kernels) {
    Log(LogLevel::kWarning, "--profile-kernels: the CPU has no kernels to time; no table follows");
  }
  std::vector<WeightFormat> formats;
  for (const PlannedModel& model : setup->plan.models) formats.push_back(model.weight_format);
  MINISGL_ASSIGN_OR_RETURN(
      EngineRanks ranks,
      MakeRanks(options, setup->places,
                MakePackSource(models, files, formats, options.pack_cache, NumThreads(options))));
  *name = ranks.ops[0]->Name();
  if (ranks.ops.size() > 1) *name = fmt::format("{} x {}", ranks.ops.size(), *name);
  LogDevice(device, *name);
  LogMemoryPlan(*setup);
  return MakeModelEngine(models, files, setup->plan, std::move(ranks));
}

Status CheckVocabulary(const TextModel& text, const ModelConfig& config) {
  if (text.tokenizer->vocab_size() <= config.vocab_size) return Status();
  return BadInput(
      "{}: the tokenizer has {} tokens and {} {}; the files are not of one model",
      Visible(text.dir, 400), text.tokenizer->vocab_size(),
      IsGgufFile(text.dir) ? "the rows of token_embd.weight are" : "config.json's vocab_size is",
      config.vocab_size);
}

}  // namespace

KernelReport::~KernelReport() { term::PrintStderr(FormatKernelProfile(*profile_)); }

Result<std::string> ResolveModelDir(const std::string& model) {
  if (model.empty()) {
    const std::string config = ConfigPath();
    return UsageError(
        "no model given; use --model DIR{} set MINISGL_MODEL{} (minisgl models lists what the hub "
        "cache has, and minisgl pull OWNER/NAME downloads one)",
        config.empty() ? " or" : ",",
        config.empty() ? "" : ", or write \"model = DIR\" into " + Visible(config, 400));
  }
  const Result<std::string> found = FindModelDir(model);
  const bool is_missing = !found.ok() && found.status().code() == StatusCode::kNoInput;
  if (!is_missing || !IsHubModel(model) || g_missing_model_handler == nullptr) return found;
  MINISGL_ASSIGN_OR_RETURN(const bool is_there, g_missing_model_handler(model));
  return is_there ? FindModelDir(model) : found;
}

void SetMissingModelHandler(MissingModelHandler handler) {
  g_missing_model_handler = std::move(handler);
}

Result<TextModel> LoadTextModel(const ModelOptions& options) {
  if (options.parse_special && options.no_parse_special) {
    return UsageError("--parse-special and --no-parse-special exclude each other");
  }
  TextModel text;
  MINISGL_ASSIGN_OR_RETURN(text.dir, ResolveModelDir(options.model));
  MINISGL_RETURN_IF_ERROR(CheckHasModelFiles(text.dir));
  MINISGL_RETURN_IF_ERROR(CheckIsNoProjector(text.dir));
  text.projector = options.projector;
  MINISGL_ASSIGN_OR_RETURN(text.tokenizer, Tokenizer::Load(text.dir));
  MINISGL_ASSIGN_OR_RETURN(text.chat_template, LoadChatTemplate(text.dir, options.chat_template));
  if (options.template_content && text.chat_template != nullptr) {
    text.chat_template->SetContentForm(*options.template_content);
  }
  MINISGL_RETURN_IF_ERROR(SetTemplateArgs(options, &text));
  text.tool_dialect = options.tool_dialect;
  MINISGL_ASSIGN_OR_RETURN(text.adapters, LoadAdapterNames(options, text.dir));
  MINISGL_ASSIGN_OR_RETURN(text.merged_adapter, LoadMergedAdapter(options));
  text.parse_special = options.parse_special;
  text.no_parse_special = options.no_parse_special;
  if (!text.projector.empty()) {
    MINISGL_RETURN_IF_ERROR(LoadProjectorImages(&text));
    return text;
  }
  LoadImages(&text);
  CheckTower(&text);
  return text;
}

Status SetTemplateArgs(const ModelOptions& options, TextModel* text) {
  MINISGL_ASSIGN_OR_RETURN(Json args, ParseTemplateArgs(options.template_args));
  MINISGL_RETURN_IF_ERROR(AddThinking(text->chat_template.get(), options.think, &args));
  text->template_args = std::move(args);
  return Status();
}

Result<ModelFacts> LoadModelFacts(const TextModel& text, const EngineOptions& options) {
  ModelFacts facts;
  MINISGL_ASSIGN_OR_RETURN(facts.config, LoadModelConfig(text.dir));
  MINISGL_ASSIGN_OR_RETURN(facts.generation,
                           LoadGenerationConfig(text.dir, facts.config.vocab_size));
  MINISGL_RETURN_IF_ERROR(SetMergedConfig(text, &facts.config));
  MINISGL_ASSIGN_OR_RETURN(facts.models, ModelsOf(facts.config, text, options, &facts.no_images));
  MINISGL_RETURN_IF_ERROR(AddAdapters(text, options.max_adapters, &facts.models));
  MINISGL_ASSIGN_OR_RETURN(facts.engine, ResolveEngine(options, facts.models, text.dir));
  facts.models = ModelsThatRun(facts.engine, facts.models);
  if (facts.no_images.ok()) facts.no_images = ImagesStatus(facts.engine);
  return facts;
}

WeightFormat WantedFormat(const EngineOptions& options, DType stored) {
  return {options.dtype.value_or(stored), options.quantize};
}

// "naive" is the double-precision oracle of the tests. --cpu-target accepts it so that a wrong
// answer can be traced to a kernel or to the model.
Result<std::unique_ptr<Ops>> MakeOps(const EngineOptions& options,
                                     std::optional<PackSource> pack_source, const HostRank& rank,
                                     const std::vector<int>& cpus) {
  if (options.cpu_target == "naive") return MakeNaiveOps(DType::kF32, rank);
  CpuOpsConfig config;
  config.num_threads = ThreadsOfRank(NumThreads(options), {rank.index, rank.count()});
  config.rank = rank;
  config.target = options.cpu_target;
  config.pin_threads = options.pin_threads;
  config.cpus = cpus;
  if (pack_source) {
    config.pack_source = std::move(*pack_source);
    config.pack_cache = options.pack_cache;
  }
  return MakeCpuOps(config);
}

Result<EngineRanks> MakeRanks(const EngineOptions& options, const RankPlaces& places,
                              const std::optional<PackSource>& pack_source) {
  const int32_t count = options.tensor_parallel;
  EngineRanks ranks;
  ranks.cpus = places.cpus;
  if (count > 1) {
    const int num_threads = std::max<int>(count, NumThreads(options));
    ranks.rendezvous = std::make_shared<Rendezvous>(count, num_threads <= UsableCores());
  }
  for (int32_t index = 0; index < count; ++index) {
    std::optional<PackSource> source = pack_source;
    if (source && count > 1) source->key += fmt::format("\nrank {} of {}", index, count);
    const std::vector<int> cpus =
        places.cpus.empty() ? std::vector<int>() : places.cpus[static_cast<size_t>(index)];
    MINISGL_ASSIGN_OR_RETURN(auto ops,
                             MakeOps(options, std::move(source), {index, ranks.rendezvous}, cpus));
    ranks.ops.push_back(std::move(ops));
  }
  return ranks;
}

Status CheckGivesAnswers(const TextModel& text) {
  MINISGL_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(text.dir));
  if (!config.is_encoder) return Status();
  return BadInput("{}: {} is an encoder: it gives vectors of texts (minisgl embed), and no answers",
                  Visible(text.dir, 400), config.architecture);
}

Status CheckHasTemplate(const TextModel& text) {
  if (text.chat_template != nullptr) return Status();
  return BadInput("{}: the model has no chat template; give one with --chat-template FILE",
                  Visible(text.dir, 400));
}

Status CheckModelFiles(const TextModel& text) {
  MINISGL_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(text.dir));
  MINISGL_RETURN_IF_ERROR(LoadGenerationConfig(text.dir, config.vocab_size).status());
  MINISGL_RETURN_IF_ERROR(CheckVocabulary(text, config));
  MINISGL_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(text.dir));
  return weights::CheckNothingAbsent(config, *checkpoint);
}

Result<LoadedModel> LoadModel(TextModel text, const EngineOptions& engine_options,
                              ReportSinks sinks) {
  LoadedModel model;
  model.text = std::move(text);
  MINISGL_ASSIGN_OR_RETURN(model.facts, LoadModelFacts(model.text, engine_options));
  MINISGL_RETURN_IF_ERROR(CheckVocabulary(model.text, model.facts.config));
  MINISGL_RETURN_IF_ERROR(CheckPrefixCache(model.facts.engine));
  if (const std::string& folder = engine_options.prefix_cache.folder; !folder.empty()) {
    MINISGL_RETURN_IF_ERROR(PrepareKvBlockFolder(folder));  // before the weights take their time
  }
  const ModelList& models = model.facts.models;
  CheckTowerIsLoaded(models, model.facts.no_images, &model.text);
  MINISGL_ASSIGN_OR_RETURN(const ModelFiles files, ModelFiles::Open(models, model.text.dir));
  model.eos_ids =
      EndTokens(model.facts.config, model.facts.generation, model.text.tokenizer->eos_id());
  RuntimeOptions options = ToRuntimeOptions(model.facts.engine, model.facts.config);
  options.trace_sink = std::move(sinks.trace);
  options.cache_event_sink = std::move(sinks.cache_events);
  const bool is_cuda = model.facts.engine.device.cuda != nullptr;
  MINISGL_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine,
                           StartEngine(models, files, &model.facts.engine, &model.device));
  MINISGL_ASSIGN_OR_RETURN(options.kv_store, OpenPrefixStore(model.facts.engine, is_cuda, models,
                                                             files, model.text.dir, model.device));
  if (const auto& profile = model.facts.engine.device.profile; profile != nullptr) {
    if (options.trace_sink) profile->KeepSpans();
    options.kernel_profile = profile;
    model.kernel_report = std::make_unique<KernelReport>(profile);
  }
  MINISGL_ASSIGN_OR_RETURN(model.runtime,
                           Runtime::Create(std::move(engine), model.text.tokenizer.get(), options));
  return model;
}

Result<BareModel> LoadBareModel(const ModelList& models, const ModelFiles& files,
                                const EngineOptions& engine_options) {
  BareModel model;
  MINISGL_ASSIGN_OR_RETURN(EngineSetup setup, ResolveEngine(engine_options, models));
  RuntimeOptions options = ToRuntimeOptions(setup, models.target());
  MINISGL_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine,
                           StartEngine(models, files, &setup, &model.device));
  model.plan = std::move(setup.plan);
  if (setup.device.profile != nullptr) {
    model.kernel_report = std::make_unique<KernelReport>(setup.device.profile);
  }
  MINISGL_ASSIGN_OR_RETURN(options.kv_store, OpenPrivatePrefixStore(setup));
  MINISGL_ASSIGN_OR_RETURN(model.runtime, Runtime::Create(std::move(engine), nullptr, options));
  return model;
}

void SetEndTokens(const std::vector<TokenId>& eos_ids, Prompt* prompt) {
  std::vector<TokenId>& ids = prompt->stop_token_ids;
  if (!prompt->ignore_eos) ids.insert(ids.end(), eos_ids.begin(), eos_ids.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

}  // namespace minisgl::load
