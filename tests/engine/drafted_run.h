// Runs requests with drafts by a model beside the target, on the CPU or on a device.
#pragma once

#include <fmt/core.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_driver.h"
#include "engine/scheduled_run.h"
#include "golden_models.h"
#include "minisgl/engine/device_engine.h"
#include "minisgl/text/tokenizer.h"
#include "minisgl/weights/draft_head.h"
#include "minisgl/weights/prediction_layer.h"
#include "sim/sim_constraint.h"

namespace minisgl {

enum class Drafts : uint8_t { kNone, kByItself, kByLayer, kByHead };

struct DraftSetting {
  int32_t page_size = 16;
  int32_t chunk = 64;
  int32_t num_pages = 0;  // 0: enough
  int32_t max_running_requests = 4;
  int32_t num_ranks = 1;
  int32_t max_drafts = 3;
  int depth = 1;
  bool copies_head = false;
  CacheKind cache = CacheKind::kRadix;
  AdmissionPolicy admission = AdmissionPolicy::kReserve;
  std::shared_ptr<const ListedModel> tower = nullptr;
  // Makes the operations of a device's engine; null: the CPU's.
  std::function<std::vector<std::unique_ptr<DeviceOps>>(int32_t num_ranks)> devices = nullptr;
  int32_t num_host_layers = 0;  // beside a device, whose experts the oracle computes
  // The graphs of a device, and its start.
  int32_t graph_max_rows = 256;
  int32_t graph_max_tokens = 0;
  bool warms_up = false;
};

struct DraftedModel {
  std::string dir;
  ModelConfig config;
  std::unique_ptr<Checkpoint> checkpoint;
  std::string head_dir;  // of kByHead
};

// `folder`: in tests.
inline DraftedModel OpenDrafted(const std::string& folder) {
  const std::string dir = std::string(MINISGL_SOURCE_DIR) + "/tests/" + folder;
  auto config = LoadModelConfig(dir);
  auto checkpoint = Checkpoint::Open(dir);
  MINISGL_CHECK(config.ok() && checkpoint.ok(), "{}", dir);
  return {dir, std::move(config).value(), std::move(checkpoint).value(), ""};
}

inline std::unique_ptr<Engine> MakeDraftedEngine(const DraftedModel& model, Drafts drafts,
                                                 const DraftSetting& setting) {
  ModelList models(model.config);
  if (drafts != Drafts::kNone) {
    ModelConfig drafter = model.config;
    if (drafts == Drafts::kByLayer) {
      drafter = PredictionLayerOf(model.config, *model.checkpoint).value();
      if (setting.copies_head) drafter.copied_head = "lm_head.weight";
    }
    if (drafts == Drafts::kByHead) drafter = LoadDraftHead(model.head_dir, model.config).value();
    const auto listed = MakeDecoderModel(ModelRole::kDrafter, drafter, model.head_dir);
    MINISGL_CHECK(models.Add(listed).ok(), "added");
  }
  MINISGL_CHECK(setting.tower == nullptr || models.Add(setting.tower).ok(), "added");
  const auto files = ModelFiles::Open(models, model.dir);
  MINISGL_CHECK(files.ok(), "{}", files.status().message());
  std::vector<std::unique_ptr<DeviceOps>> devices;
  if (setting.devices != nullptr) devices = setting.devices(setting.num_ranks);
  auto plan = PlanMemory(models,
                         {.num_threads = setting.num_ranks,
                          .num_ranks = setting.num_ranks,
                          .max_running_requests = setting.max_running_requests,
                          .max_prefill_tokens = setting.chunk,
                          .max_step_drafts = 64,
                          .page_size = setting.page_size,
                          .num_pages = setting.num_pages,
                          .num_host_layers = setting.num_host_layers},
                         devices.empty() ? uint64_t{1} << 32 : uint64_t{1} << 28,
                         devices.empty() ? nullptr : devices[0].get());
  MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
  std::vector<std::shared_ptr<Ops>> host_ops;
  for (int32_t i = 0; i < setting.num_ranks; ++i) host_ops.push_back(MakeNaiveOps());
  auto engine = devices.empty() ? MakeModelEngine(models, *files, *plan,
                                                  RanksOfF32Activations(setting.num_ranks))
                                : MakeDeviceEngine(models, *files, *plan, std::move(devices),
                                                   {.graph_max_rows = setting.graph_max_rows,
                                                    .graph_max_tokens = setting.graph_max_tokens,
                                                    .warms_up = setting.warms_up,
                                                    .host_ops = std::move(host_ops)});
  MINISGL_CHECK(engine.ok(), "{}", engine.status().message());
  // Files of kept prefixes have blocks of this size.
  if (plan->limits.num_window_pages == 0) {
    const int32_t num_parts = setting.devices == nullptr ? 1 : setting.num_ranks;
    EXPECT_EQ(static_cast<uint64_t>((*engine)->KvBlockBytes(64) / num_parts),
              64 * plan->kv_bytes_per_token);
  }
  return std::move(engine).value();
}

inline ScheduledRun RunDrafted(Engine* engine, Drafts drafts, const DraftSetting& setting,
                               const std::vector<Request>& requests) {
  SchedulerOptions options;
  options.max_prefill_tokens = setting.chunk;
  options.cache = setting.cache;
  options.admission = setting.admission;
  options.step = StepPolicy::kMixed;
  if (drafts != Drafts::kNone) options.max_drafts = setting.max_drafts;
  return RunScheduled(engine, options, requests, setting.depth);
}

inline ScheduledRun RunDrafted(const DraftedModel& model, Drafts drafts,
                               const DraftSetting& setting, const std::vector<Request>& requests) {
  const auto engine = MakeDraftedEngine(model, drafts, setting);
  return RunDrafted(engine.get(), drafts, setting, requests);
}

// Half of them greedy, some with a common beginning, one of a single token.
inline std::vector<Request> SomeRequests(const ModelConfig& config, int count, int64_t max_tokens,
                                         bool greedy) {
  std::vector<Request> requests;
  const auto vocab_size = static_cast<int32_t>(config.vocab_size);
  const std::vector<TokenId> common = RandomPrompt(33, 1, vocab_size);
  for (int i = 0; i < count; ++i) {
    Request request;
    request.id = static_cast<RequestId>(i) + 1;
    request.prompt =
        RandomPrompt(i == 1 ? 1 : 5 + 7 * (i % 5), static_cast<uint64_t>(i) + 2, vocab_size);
    if (i % 3 == 2) request.prompt.insert(request.prompt.begin(), common.begin(), common.end());
    request.max_tokens = max_tokens;
    request.sampling.temperature = greedy || i % 2 == 0 ? 0 : 0.8f;
    request.sampling.seed = static_cast<uint64_t>(i);
    requests.push_back(std::move(request));
  }
  return requests;
}

// Most of them have a constraint.
inline std::vector<Request> ConstrainedRequests(const ModelConfig& config, bool greedy) {
  std::vector<Request> requests = SomeRequests(config, 8, 30, greedy);
  for (size_t i = 0; i + 1 < requests.size(); ++i) {
    requests[i].stop_ids = {0};
    requests[i].constraint = std::make_shared<sim::SimConstraint>(
        sim::SimGrammar{.seed = i * 1000, .vocab_size = config.vocab_size, .has_end = true});
  }
  return requests;
}

// Stories that the demo model tells.
inline std::vector<Request> StoryRequests(const DraftedModel& model, size_t count,
                                          int64_t max_tokens) {
  auto tokenizer = Tokenizer::Load(model.dir);
  MINISGL_CHECK(tokenizer.ok(), "{}", tokenizer.status().message());
  std::vector<Request> requests;
  for (const char* subject : {"a hen and a coat", "a beaver and a boat", "a pony and a jar"}) {
    if (requests.size() == count) break;
    const std::string said =
        fmt::format("<s><|user|>\nWrite a short story about {}.</s>\n<|assistant|>\n", subject);
    const TextPiece piece = {said, /*trusted=*/true};
    Request& request = requests.emplace_back();
    request.id = static_cast<RequestId>(requests.size());
    request.prompt = (*tokenizer)->Encode({&piece, 1}).value();
    request.max_tokens = max_tokens;
    request.stop_ids = {2};
    request.sampling.temperature = 0;
  }
  return requests;
}

inline std::vector<DraftSetting> Schedules() {
  return {{},
          {.page_size = 1, .chunk = 9, .depth = 0},
          {.page_size = 4, .chunk = 16, .max_drafts = 1},
          {.page_size = 4, .chunk = 64, .cache = CacheKind::kNaive},
          {.num_ranks = 2},
          // Requests are preempted, and go on from what the cache keeps of them.
          {.page_size = 4,
           .chunk = 32,
           .num_pages = 33,
           .max_drafts = 2,
           .admission = AdmissionPolicy::kOptimistic}};
}

// A model that drafts for itself is right each time, also after preemption. `plain_setting` and
// `settings` are alike in what decides tokens.
inline void ExpectItselfIsAlwaysRight(const DraftSetting& plain_setting,
                                      const std::vector<DraftSetting>& settings) {
  const DraftedModel model = OpenDrafted("golden/models/qwen3");
  for (const bool greedy : {true, false}) {
    const std::vector<Request> requests = SomeRequests(model.config, 8, 24, greedy);
    const ScheduledRun plain = RunDrafted(model, Drafts::kNone, plain_setting, requests);
    int64_t preemptions = 0;
    for (const DraftSetting& setting : settings) {
      const ScheduledRun run = RunDrafted(model, Drafts::kByItself, setting, requests);
      ExpectSame(run, plain);
      EXPECT_GT(run.stats.drafted_tokens, 40);
      if (greedy) {
        EXPECT_EQ(run.stats.accepted_drafts, run.stats.drafted_tokens);
      }
      preemptions += run.stats.preemptions;
    }
    EXPECT_GT(preemptions, 0);
  }
}

}  // namespace minisgl
