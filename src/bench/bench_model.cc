#include "bench/bench_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "minisgl/base/random.h"
#include "minisgl/base/utf8.h"
#include "minisgl/weights/prediction_layer.h"
#include "weights/architectures.h"
#include "weights/random_checkpoint.h"

namespace minisgl::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Upper bound on token ids in the published benchmark.
constexpr int64_t kTokenIdMax = 10000;

double Since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// True if the tensor's product is added to the residual stream.
bool AddsToStream(weights::TensorRole role) {
  using Role = weights::TensorRole;
  switch (role) {
    case Role::kAttentionOutput:
    case Role::kStateOutput:
    case Role::kDown:
    case Role::kExpertDown:
    case Role::kSharedDown:
      return true;
    default:
      return false;
  }
}

// The values of a tensor of a model whose layers add nothing: the token that follows is a function
// of the last one, for its layer for multi-token prediction as for itself.
weights::RandomValues EchoingValues(const weights::RequiredTensor& tensor) {
  if (tensor.role == weights::TensorRole::kPredictionInput) {
    return weights::RandomValues::kFirstInputs;
  }
  if (tensor.is_norm) return weights::RandomValues::kOnes;
  return AddsToStream(tensor.role) ? weights::RandomValues::kZeros
                                   : weights::RandomValues::kNearZero;
}

// `layer`: of `config`, for multi-token prediction; its drafts are all right. Null: there is none.
Result<std::unique_ptr<Checkpoint>> MakeDummyWeights(const ModelConfig& config,
                                                     const ModelConfig* layer, uint64_t seed) {
  MINISGL_ASSIGN_OR_RETURN(auto required, weights::RequiredTensors(config));
  if (layer != nullptr) {
    MINISGL_ASSIGN_OR_RETURN(const auto more, weights::RequiredTensors(*layer));
    required.insert(required.end(), more.begin(), more.end());
  }
  std::vector<weights::RandomTensor> tensors;
  for (const weights::RequiredTensor& tensor : required) {
    const auto plain =
        tensor.is_norm ? weights::RandomValues::kNearOne : weights::RandomValues::kNearZero;
    tensors.push_back(
        {tensor.name, tensor.shape, layer != nullptr ? EchoingValues(tensor) : plain});
  }
  return weights::MakeRandomCheckpoint(tensors, config.dtype, seed);
}

// Makes up the weights of the model, or opens its files, and finds its layer if it is to draft.
Status OpenWeights(const BenchOptions& options, BenchModel* model) {
  const bool drafts = options.engine.drafts.kind == load::DraftKind::kMtp;
  if (options.dummy_weights) {
    std::optional<ModelConfig> layer;
    if (drafts) layer = weights::PredictionConfigOf(model->config);
    MINISGL_ASSIGN_OR_RETURN(
        model->checkpoint,
        MakeDummyWeights(model->config, layer ? &*layer : nullptr, options.seed));
  } else {
    MINISGL_ASSIGN_OR_RETURN(const std::string dir, load::ResolveModelDir(options.model));
    MINISGL_ASSIGN_OR_RETURN(model->checkpoint, Checkpoint::Open(dir));
  }
  if (!drafts) return Status();
  auto layer = PredictionLayerOf(model->config, *model->checkpoint);
  if (!layer.ok()) return layer.status().WithPrefix("--speculate mtp");
  if (model->on_gpu) layer->copied_head.clear();
  model->drafter = MakeDecoderModel(ModelRole::kDrafter, std::move(layer).value());
  return Status();
}

void ReportModel(const BenchOptions& options, const ModelConfig& config, BenchReport* report) {
  Json json;
  json.Set("source", options.shape.empty() ? options.model : options.shape);
  json.Set("dummy_weights", options.dummy_weights);
  json.Set("architecture", config.architecture);
  json.Set("num_layers", config.num_layers);
  json.Set("hidden_size", config.hidden_size);
  json.Set("num_heads", config.num_heads);
  json.Set("num_kv_heads", config.num_kv_heads);
  json.Set("head_dim", config.head_dim);
  json.Set("vocab_size", config.vocab_size);
  report->json().Set("model", std::move(json));
  report->Line("model",
               fmt::format("{}, {} layers of {}, {} on {} heads of {}, vocabulary {}{}",
                           config.architecture, config.num_layers, config.hidden_size,
                           config.num_heads, config.num_kv_heads, config.head_dim,
                           config.vocab_size, options.dummy_weights ? "; made-up weights" : ""));
}

Status CheckDone(const Event& event, const Prompt& prompt) {
  if (event.error_code == "length_exceeded") {
    return UsageError("prompts of {} and answers of {} tokens do not fit ({}); see --max-seq-len",
                      prompt.ids.size(), prompt.max_tokens, event.error_message);
  }
  if (event.finish_reason == FinishReason::kLength && !event.max_tokens_lowered) return Status();
  if (event.max_tokens_lowered) {
    return UsageError("prompts of {} and answers of {} tokens do not fit; see --max-seq-len",
                      prompt.ids.size(), prompt.max_tokens);
  }
  const StatusCode code = event.error_code == "device_unavailable" ? StatusCode::kUnavailable
                          : event.error_code == "out_of_memory"    ? StatusCode::kOutOfMemory
                                                                   : StatusCode::kInternal;
  return MakeStatus(code, "a request of the benchmark ended with {} ({}{}{})",
                    FinishReasonName(event.finish_reason), event.error_code,
                    event.error_code.empty() ? "" : ": ", Visible(event.error_message, 400));
}

// Adds the scheduler's work between two snapshots of its statistics.
void AddStats(const RuntimeStats& before, const RuntimeStats& after, BatchRun* run) {
  run->steps = after.scheduler.steps - before.scheduler.steps;
  run->preemptions = after.scheduler.preemptions - before.scheduler.preemptions;
  run->drafted_tokens = after.scheduler.drafted_tokens - before.scheduler.drafted_tokens;
  run->accepted_drafts = after.scheduler.accepted_drafts - before.scheduler.accepted_drafts;
  const int64_t count = after.host_step_s.count() - before.host_step_s.count();
  if (count > 0) {
    run->host_step_s =
        (after.host_step_s.sum() - before.host_step_s.sum()) / static_cast<double>(count);
  }
}

}  // namespace

Result<ModelConfig> LoadBenchConfig(const BenchOptions& options) {
  if (options.shape.empty()) {
    if (options.model.empty()) {
      return UsageError("no model given; use --model DIR, or --shape FILE with --dummy-weights");
    }
    MINISGL_ASSIGN_OR_RETURN(const std::string dir, load::ResolveModelDir(options.model));
    return LoadModelConfig(dir);
  }
  return LoadModelConfigFile(options.shape);
}

Result<BenchModel> OpenBenchModel(const BenchOptions& options, BenchReport* report) {
  if (!options.shape.empty() && !options.dummy_weights) {
    return UsageError("--shape names no weights; add --dummy-weights to make them up");
  }
  BenchModel model;
  MINISGL_ASSIGN_OR_RETURN(model.config, LoadBenchConfig(options));
  if (model.config.is_encoder) {
    return UsageError("bench measures models that give answers; {} is an encoder",
                      model.config.architecture);
  }
  ReportModel(options, model.config, report);
  {
    // Release it before the model is loaded: its memory is then free, and nothing disturbs the
    // measurement.
    MINISGL_ASSIGN_OR_RETURN(BenchDevice device, BenchDevice::Open(options.engine, model.config));
    MINISGL_RETURN_IF_ERROR(device.Reserve(kCeilingLimits));
    model.on_gpu = device.on_gpu();
    MINISGL_ASSIGN_OR_RETURN(
        model.ceilings,
        MeasureCeilings(options.ceilings, load::WantedFormat(options.engine, model.config.dtype),
                        &device));
    ReportCeilings(device, model.ceilings, report);
  }
  MINISGL_RETURN_IF_ERROR(OpenWeights(options, &model));
  return model;
}

Result<RunningModel> StartBenchModel(const BenchModel& model, const load::EngineOptions& engine,
                                     BenchReport* report) {
  RunningModel running;
  ModelList models(model.config);
  if (model.drafter != nullptr && engine.drafts.kind == load::DraftKind::kMtp) {
    MINISGL_RETURN_IF_ERROR(models.Add(model.drafter));
  }
  MINISGL_ASSIGN_OR_RETURN(running.bare, load::LoadBareModel(models, *model.checkpoint, engine));
  const MemoryPlan& plan = running.bare.plan;
  running.cost =
      CostOf(model.config, plan.weight_format, static_cast<double>(plan.kv_bytes_per_token));
  Json json;
  json.Set("weight_dtype", plan.weight_format.Name());
  json.Set("weight_bytes", plan.weight_bytes);
  json.Set("step_bytes", running.cost.step_bytes);
  json.Set("kv_bytes_per_token", plan.kv_bytes_per_token);
  const EngineLimits& limits = running.bare.runtime->limits();
  json.Set("num_pages", limits.num_pages);
  json.Set("page_size", limits.page_size);
  json.Set("max_seq_len", limits.max_seq_len);
  json.Set("max_step_tokens", limits.max_step_tokens);
  json.Set("max_running_requests", limits.max_running_requests);
  json.Set("overlap", !engine.disable_overlap);
  report->json().Set("engine", std::move(json));
  return running;
}

Prompt RandomPrompt(int64_t count, int64_t output, int64_t vocab_size, uint64_t seed,
                    uint64_t stream) {
  Prompt prompt;
  const auto choices = static_cast<double>(std::min(vocab_size, kTokenIdMax + 1));
  for (int64_t i = 0; i < count; ++i) {
    const double u = UniformDouble(seed, static_cast<uint64_t>(i), stream);
    prompt.ids.push_back(static_cast<TokenId>(u * choices));
  }
  prompt.max_tokens = output;
  prompt.ignore_eos = true;
  prompt.sampling.seed = DeriveSeed(seed, stream);
  return prompt;
}

Result<BatchRun> RunPrompts(std::vector<Prompt> prompts, Runtime* runtime) {
  std::vector<uint64_t> tags;
  for (size_t i = 0; i < prompts.size(); ++i) tags.push_back(i);
  BatchRun run;
  run.token_ids.resize(prompts.size());
  run.first_token_s.resize(prompts.size());
  const RuntimeStats before = runtime->Stats();
  size_t not_started = prompts.size();
  EventQueue queue;  // outlives the requests, because all are waited for
  const auto begin = Clock::now();
  const std::vector<RequestId> requests = runtime->SubmitAll(prompts, &queue, tags);
  Status status;
  for (size_t left = prompts.size(); left > 0;) {
    const std::optional<Event> event = queue.Pop(std::chrono::seconds(1));
    if (!event) continue;
    const double now = Since(begin);
    std::vector<TokenId>& ids = run.token_ids[event->tag];
    if (not_started == 0) run.decode_tokens += std::ssize(event->token_ids);
    if (ids.empty() && !event->token_ids.empty()) {
      run.first_token_s[event->tag] = now;
      if (--not_started == 0) run.all_started_s = now;
    }
    ids.insert(ids.end(), event->token_ids.begin(), event->token_ids.end());
    if (event->kind != Event::Kind::kDone) continue;
    --left;
    run.seconds = now;
    run.prompt_tokens += event->usage.prompt_tokens;
    run.cached_tokens += event->usage.cached_tokens;
    run.output_tokens += event->usage.completion_tokens;
    const Status done = CheckDone(*event, prompts[event->tag]);
    if (done.ok() || !status.ok()) continue;
    status = done;
    for (const RequestId request : requests) runtime->Abort(request);
  }
  MINISGL_RETURN_IF_ERROR(status);
  AddStats(before, runtime->Stats(), &run);
  return run;
}

}  // namespace minisgl::bench
