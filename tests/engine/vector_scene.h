// Prompts that become vectors, and engines of the CPU and of devices that give them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_driver.h"
#include "engine/scheduled_run.h"
#include "minisgl/engine/device_engine.h"

namespace minisgl {

struct VectorSettings {
  int32_t page_size = 16;
  int32_t max_running_requests = 4;
  int32_t max_prefill_tokens = 128;
  int32_t graph_max_rows = 0, graph_max_tokens = 0;
  bool warms_up = false;
  int depth = 1;
};

class VectorScene {
 public:
  VectorScene(const ModelConfig& config, const Checkpoint* checkpoint)
      : config_(config), checkpoint_(checkpoint) {}

  // A prompt of random ids for each pooling. Some leave out the first two tokens, and those of
  // models with types are of two texts.
  std::vector<Request> Requests(const std::vector<int32_t>& lengths) const {
    constexpr Pooling kAllKinds[] = {Pooling::kMean,     Pooling::kLast, Pooling::kFirst,
                                     Pooling::kMeanSqrt, Pooling::kMax,  Pooling::kWeightedMean};
    std::vector<Request> requests;
    for (const int32_t length : lengths) {
      const size_t i = requests.size();
      auto extras = std::make_shared<RowExtras>();
      extras->pooling = kAllKinds[i % std::size(kAllKinds)];
      if (i % 4 == 2 && length > 2) extras->pooled_from = 2;
      if (config_.num_token_types > 1 && extras->pooling != Pooling::kLast) {
        extras->second_text = length / 2;
      }
      Request request;
      request.id = static_cast<RequestId>(i) + 1;
      request.prompt = RandomPrompt(length, i + 1, static_cast<int32_t>(config_.vocab_size));
      request.max_tokens = 0;
      request.extras = std::move(extras);
      requests.push_back(std::move(request));
    }
    return requests;
  }

  ScheduledRun OnCpu(const VectorSettings& settings, std::unique_ptr<Ops> ops,
                     const std::vector<Request>& requests) const {
    ModelEngineOptions options = Options(settings, 1);
    options.weight_dtype = ops->activation_dtype();
    const auto plan = PlanMemory(config_, options, uint64_t{4} << 30);
    MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
    auto engine = MakeModelEngine(config_, *checkpoint_, *plan, std::move(ops));
    MINISGL_CHECK(engine.ok(), "{}", engine.status().message());
    return RunScheduled(engine->get(), Policy(settings), requests, settings.depth);
  }

  ScheduledRun OnDevices(const VectorSettings& settings,
                         std::vector<std::unique_ptr<DeviceOps>> devices,
                         const std::vector<Request>& requests) const {
    const auto options = Options(settings, static_cast<int32_t>(devices.size()));
    const auto plan = PlanMemory(config_, options, 0, devices[0].get());
    MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
    auto engine = MakeDeviceEngine(config_, *checkpoint_, *plan, std::move(devices),
                                   {.graph_max_rows = settings.graph_max_rows,
                                    .graph_max_tokens = settings.graph_max_tokens,
                                    .warms_up = settings.warms_up});
    MINISGL_CHECK(engine.ok(), "{}", engine.status().message());
    return RunScheduled(engine->get(), Policy(settings), requests, settings.depth);
  }
  ScheduledRun OnDevice(const VectorSettings& settings, std::unique_ptr<DeviceOps> device,
                        const std::vector<Request>& requests) const {
    std::vector<std::unique_ptr<DeviceOps>> devices;
    devices.push_back(std::move(device));
    return OnDevices(settings, std::move(devices), requests);
  }

 private:
  ModelEngineOptions Options(const VectorSettings& settings, int32_t num_ranks) const {
    ModelEngineOptions options;
    options.num_ranks = num_ranks;
    options.max_running_requests = settings.max_running_requests;
    options.max_prefill_tokens = settings.max_prefill_tokens;
    options.page_size = settings.page_size;
    options.num_pages = 1024 / settings.page_size;
    options.memory_ratio = 0.9;
    options.max_seq_len = std::min<int64_t>(config_.max_seq_len, 120);
    options.graph_max_rows = settings.graph_max_rows;
    options.graph_max_tokens = settings.graph_max_tokens;
    return options;
  }
  static SchedulerOptions Policy(const VectorSettings& settings) {
    SchedulerOptions policy;
    policy.max_prefill_tokens = settings.max_prefill_tokens;
    policy.admission = AdmissionPolicy::kOptimistic;
    return policy;
  }

  const ModelConfig& config_;
  const Checkpoint* const checkpoint_;
};

// The difference of each vector from the one wanted is at most `tolerance` of that one's length.
inline void ExpectVectorsAgree(const ScheduledRun& actual, const ScheduledRun& wanted,
                               double tolerance, const std::string& what) {
  ASSERT_EQ(actual.vectors.size(), wanted.vectors.size()) << what;
  for (const auto& [id, vector] : wanted.vectors) {
    const std::vector<float>& own = actual.vectors.at(id);
    ASSERT_EQ(own.size(), vector.size()) << what << " prompt " << id;
    double difference = 0, length = 0;
    for (size_t i = 0; i < vector.size(); ++i) {
      difference += std::pow(own[i] - vector[i], 2);
      length += std::pow(vector[i], 2);
    }
    EXPECT_GT(length, 0) << what << " prompt " << id;
    EXPECT_LE(std::sqrt(difference), tolerance * std::sqrt(length)) << what << " prompt " << id;
  }
}

}  // namespace minisgl
