// Models with random adapters on a CUDA engine, and on the CPU's engine over the oracle.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/adapted_model.h"
#include "engine/scheduled_run.h"
#include "gpu/gpu_models.h"
#include "minisgl/device_ops.h"
#include "minisgl/engine/device_engine.h"
#include "minisgl/engine/model_engine.h"

namespace minisgl {

// A model of heads that the kernels support, with two adapters of random numbers, one with DoRA.
struct DeviceAdapted {
  explicit DeviceAdapted(const std::string& name) : model(cuda::MakeGpuArchitecture(name)) {
    adapted.config = model->config;
    for (const bool is_dora : {false, true}) {
      adapted.adapters.push_back(RandomAdapter(model->config, is_dora));
      adapted.names.push_back(is_dora ? "dora" : "plain");
    }
    for (int32_t i = 0; i < 4; ++i) {
      const AdapterSlot slot = i % 3 == 2 ? kNoAdapter : i % 3;
      adapted.cases.push_back(
          {slot, RandomPrompt(5 + 3 * i, 40 + static_cast<uint64_t>(i)), std::vector<TokenId>(3)});
    }
  }
  std::unique_ptr<TestModel> model;
  AdaptedModel adapted;
};

struct DeviceAdapterSetting {
  int32_t chunk = 32, depth = 1, graph_max_rows = 0, graph_max_tokens = 0;
  int32_t max_adapters = INT32_MAX;
};

inline ScheduledRun RunAdapted(const DeviceAdapted& of, const std::vector<AdaptedCase>& cases,
                               const DeviceAdapterSetting& setting,
                               std::vector<std::unique_ptr<DeviceOps>> ranks) {
  ModelList models(of.adapted.config);
  models.SetAdapters(of.adapted.adapters, setting.max_adapters);
  const ModelEngineOptions options = {.num_ranks = static_cast<int32_t>(ranks.size()),
                                      .max_running_requests = 4,
                                      .max_prefill_tokens = setting.chunk,
                                      .max_seq_len = 48,
                                      .page_size = 4,
                                      .num_pages = 60,
                                      .memory_ratio = 0.9,
                                      .graph_max_rows = setting.graph_max_rows,
                                      .graph_max_tokens = setting.graph_max_tokens};
  auto plan = PlanMemory(models, options, 0, ranks[0].get());
  MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
  auto engine = MakeDeviceEngine(
      models, *of.model->checkpoint, *plan, std::move(ranks),
      {.graph_max_rows = setting.graph_max_rows, .graph_max_tokens = setting.graph_max_tokens});
  MINISGL_CHECK(engine.ok(), "{}", engine.status().message());
  SchedulerOptions scheduler;
  scheduler.max_prefill_tokens = setting.chunk;
  scheduler.adapter_source = (*engine)->adapter_source();
  return RunScheduled(engine->get(), scheduler, RequestsOf(of.adapted, cases), setting.depth);
}

inline ScheduledRun RunOnOracle(const DeviceAdapted& of, const std::vector<AdaptedCase>& cases) {
  ModelList models(of.adapted.config);
  models.SetAdapters(of.adapted.adapters);
  auto plan = PlanMemory(models,
                         {.max_running_requests = 4,
                          .max_prefill_tokens = 32,
                          .max_seq_len = 48,
                          .page_size = 4,
                          .num_pages = 60,
                          .weight_dtype = DType::kF16},
                         uint64_t{1} << 32);
  MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
  auto engine = MakeModelEngine(models, *of.model->checkpoint, *plan, MakeNaiveOps(DType::kF16));
  MINISGL_CHECK(engine.ok(), "{}", engine.status().message());
  return RunScheduled(engine->get(), {.max_prefill_tokens = 32}, RequestsOf(of.adapted, cases), 1);
}

}  // namespace minisgl
