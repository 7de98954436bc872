// Requests with pictures of a made-up tower, and engines of the CPU and of devices that answer
// them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_driver.h"
#include "engine/made_up_tower.h"
#include "engine/scheduled_run.h"
#include "minisgl/engine/device_engine.h"
#include "minisgl/model/tower.h"
#include "ops/op_check.h"

namespace minisgl {

struct ScenePicture final : EncoderContent {
  uint64_t seed = 0;
  int32_t count = 0;
};

// What a scene's tower does, and has done.
struct SceneTowerState {
  int64_t num_encoded = 0;
  int64_t fail_at = 0;  // the n-th picture, counted from 1, cannot be encoded; 0: all can
};

// All is done when a picture is begun.
class DoneAtOnce final : public TowerEncoding {
 public:
  Status Advance(int64_t, int64_t) override { return Status(); }
};

// Random embeddings, of which a picture's seed decides.
class SceneTower final : public Tower {
 public:
  SceneTower(int64_t width, std::shared_ptr<SceneTowerState> state, Ops* ops)
      : width_(width), state_(std::move(state)), ops_(ops) {}
  uint64_t weight_bytes() const override { return 0; }
  uint64_t workspace_bytes() const override { return 0; }
  int64_t embedding_width() const override { return width_; }
  Result<std::unique_ptr<TowerEncoding>> Begin(const EncoderContent& content, float* out) override {
    if (++state_->num_encoded == state_->fail_at) {
      return Status(StatusCode::kOutOfMemory, "no memory for a picture");
    }
    const auto& picture = dynamic_cast<const ScenePicture&>(content);
    const auto values = cpu::RandomFloats(picture.count * width_, picture.seed);
    MINISGL_RETURN_IF_ERROR(ops_->Upload(out, values.data(), values.size() * sizeof(float)));
    return std::unique_ptr<TowerEncoding>(std::make_unique<DoneAtOnce>());
  }

 private:
  const int64_t width_;
  const std::shared_ptr<SceneTowerState> state_;
  Ops* const ops_;
};

class SceneTowerModel final : public TowerWithoutWeights {
 public:
  SceneTowerModel(int64_t width, std::shared_ptr<SceneTowerState> state)
      : TowerWithoutWeights(width), width_(width), state_(std::move(state)) {}
  Result<std::unique_ptr<RankModel>> Load(const Checkpoint&, const DecoderOptions&, const Decoder*,
                                          Ops* ops) const override {
    return std::unique_ptr<RankModel>(std::make_unique<SceneTower>(width_, state_, ops));
  }

 private:
  const int64_t width_;
  const std::shared_ptr<SceneTowerState> state_;
};

struct SceneSettings {
  int32_t page_size = 16;
  int32_t num_pages = 100;
  int32_t max_prefill_tokens = 128;
  int64_t encoder_budget = 4096, encoder_cache = 100;
  int32_t graph_max_rows = 0, graph_max_tokens = 0;
  int depth = 1;
  bool drafts = false;
  int32_t num_host_layers = 0;  // whose experts are on the host, over the oracle's operations
  CacheKind cache = CacheKind::kRadix;
};

class PictureScene {
 public:
  // `config` is that of the files. `num_deepstack`: further vectors of an embedding.
  PictureScene(ModelConfig config, const Checkpoint* checkpoint, PictureAttention attention,
               int32_t num_deepstack)
      : config_(std::move(config)), checkpoint_(checkpoint), num_deepstack_(num_deepstack) {
    config_.picture_attention = attention;
    for (const RopeConfig& rope : config_.ropes) has_sections_ |= rope.has_sections();
  }

  SceneTowerState& tower() { return *tower_; }
  const ModelConfig& config() const { return config_; }

  ScheduledRun OnCpu(const SceneSettings& settings, std::unique_ptr<Ops> ops,
                     const std::vector<Request>& requests) const {
    ModelEngineOptions options = Options(settings, 1);
    options.weight_dtype = ops->activation_dtype();
    const auto plan = PlanMemory(Models(), options, uint64_t{4} << 30);
    MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
    auto engine = MakeModelEngine(Models(), *checkpoint_, *plan, std::move(ops));
    MINISGL_CHECK(engine.ok(), "{}", engine.status().message());
    return RunScheduled(engine->get(), Policy(settings), requests, settings.depth);
  }

  std::unique_ptr<Engine> DeviceEngineOf(const SceneSettings& settings,
                                         std::vector<std::unique_ptr<DeviceOps>> devices) const {
    auto options = Options(settings, static_cast<int32_t>(devices.size()));
    options.num_host_layers = settings.num_host_layers;
    const auto plan = PlanMemory(Models(), options, 0, devices[0].get());
    MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
    std::vector<std::shared_ptr<Ops>> host_ops;
    for (size_t i = 0; i < devices.size(); ++i) host_ops.push_back(MakeNaiveOps());
    auto engine = MakeDeviceEngine(Models(), *checkpoint_, *plan, std::move(devices),
                                   {.graph_max_rows = settings.graph_max_rows,
                                    .graph_max_tokens = settings.graph_max_tokens,
                                    .host_ops = std::move(host_ops)});
    MINISGL_CHECK(engine.ok(), "{}", engine.status().message());
    return std::move(engine).value();
  }
  ScheduledRun OnDevices(const SceneSettings& settings,
                         std::vector<std::unique_ptr<DeviceOps>> devices,
                         const std::vector<Request>& requests) const {
    const auto engine = DeviceEngineOf(settings, std::move(devices));
    return RunScheduled(engine.get(), Policy(settings), requests, settings.depth);
  }
  ScheduledRun OnDevice(const SceneSettings& settings, std::unique_ptr<DeviceOps> device,
                        const std::vector<Request>& requests) const {
    std::vector<std::unique_ptr<DeviceOps>> devices;
    devices.push_back(std::move(device));
    return OnDevices(settings, std::move(devices), requests);
  }

  static SchedulerOptions Policy(const SceneSettings& settings) {
    SchedulerOptions policy;
    policy.max_prefill_tokens = settings.max_prefill_tokens;
    policy.encoder_budget = settings.encoder_budget;
    policy.encoder_cache = settings.encoder_cache;
    policy.admission = AdmissionPolicy::kOptimistic;
    policy.cache = settings.cache;
    if (settings.drafts) {
      policy.drafter = MakeNgramDrafter();
      policy.max_drafts = 4;
    }
    return policy;
  }

  struct Place {
    int32_t token;
    uint64_t seed;
    int32_t count;
  };
  // A prompt of random ids with pictures in some places.
  Request MakeRequest(RequestId id, int32_t length, int32_t max_tokens,
                      const std::vector<Place>& pictures) const {
    Request request;
    request.id = id;
    request.prompt = RandomPrompt(length, 7, static_cast<int32_t>(config_.vocab_size));
    request.sampling.temperature = 0;
    request.sampling.num_logprobs = 5;
    request.max_tokens = max_tokens;
    auto extras = std::make_shared<RowExtras>();
    for (const Place& place : pictures) {
      auto content = std::make_shared<ScenePicture>();
      content->seed = place.seed;
      content->count = place.count;
      const ContentHash hash = {place.seed + 1, static_cast<uint64_t>(place.count)};
      request.marks.push_back({place.token, hash});
      extras->embeddings.push_back({place.token, place.count, 0, extras->inputs.size()});
      extras->inputs.push_back(
          {.token = place.token,
           .length = place.count,
           .num_embeddings = place.count,
           .hash = hash,
           .attends_both_ways = config_.picture_attention != PictureAttention::kCausal,
           .content = content});
      std::fill_n(request.prompt.begin() + place.token, place.count, 5);
    }
    if (has_sections_ && !pictures.empty()) SetPositions(length, pictures, extras.get());
    request.extras = extras;
    return request;
  }

 private:
  ModelList Models() const {
    ModelList models(config_);
    const Status added = models.Add(
        std::make_shared<SceneTowerModel>(config_.hidden_size * (1 + num_deepstack_), tower_));
    MINISGL_CHECK(added.ok(), "{}", added.message());
    return models;
  }
  static ModelEngineOptions Options(const SceneSettings& settings, int32_t num_ranks) {
    ModelEngineOptions options;
    options.num_ranks = num_ranks;
    options.max_running_requests = 4;
    options.max_prefill_tokens = settings.max_prefill_tokens;
    options.page_size = settings.page_size;
    options.num_pages = settings.num_pages;
    options.max_step_drafts = settings.drafts ? 32 : 0;
    options.memory_ratio = 0.9;
    options.max_seq_len = 160;
    options.encoder_cache = settings.encoder_cache;
    options.graph_max_rows = settings.graph_max_rows;
    options.graph_max_tokens = settings.graph_max_tokens;
    return options;
  }

  // Positions of pictures as of grids of three columns.
  static void SetPositions(int32_t length, const std::vector<Place>& pictures, RowExtras* extras) {
    GivenPositions& positions = extras->positions;
    int32_t next = 0;
    for (int32_t token = 0; token < length;) {
      const auto at = std::find_if(pictures.begin(), pictures.end(),
                                   [&](const Place& place) { return place.token == token; });
      if (at == pictures.end()) {
        positions.of_prompt.push_back({next, next, next});
        ++next;
        ++token;
        continue;
      }
      for (int32_t i = 0; i < at->count; ++i) {
        positions.of_prompt.push_back({next, next + i / 3, next + i % 3});
      }
      next += std::max((at->count + 2) / 3, 3);
      token += at->count;
    }
    positions.shift = next - length;
  }

  ModelConfig config_;
  const Checkpoint* const checkpoint_;
  const int32_t num_deepstack_;
  bool has_sections_ = false;
  const std::shared_ptr<SceneTowerState> tower_ = std::make_shared<SceneTowerState>();
};

}  // namespace minisgl
