// Adapters in slots of a device: every answer is the one that transformers and peft give, in one
// batch with other adapters and the base, with graphs and without, and with fewer slots than
// adapters. The device is the host with the oracle's operations, in f32.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/adapted_model.h"
#include "engine/host_device_ops.h"
#include "engine/scheduled_run.h"
#include "minisgl/engine/device_engine.h"
#include "minisgl/model/adapters.h"

namespace minisgl {
namespace {

struct SlotSetting {
  int32_t page_size = 16, chunk = 256, num_pages = 64, max_drafts = 0, depth = 1;
  int32_t graph_max_rows = 0, graph_max_tokens = 0;
  int32_t max_adapters = INT32_MAX;
  bool drafts_by_itself = false;  // the model without adapters drafts
};

ScheduledRun RunInSlots(const AdaptedModel& model, const std::vector<AdaptedCase>& cases,
                        const SlotSetting& setting,
                        std::shared_ptr<HostDeviceCounters> counters = nullptr,
                        HostDeviceFaults faults = {}) {
  ModelList models(model.config);
  models.SetAdapters(model.adapters, setting.max_adapters);
  if (setting.drafts_by_itself) {
    const auto drafter = MakeDecoderModel(ModelRole::kDrafter, model.config, "");
    MINISGL_CHECK(models.Add(drafter).ok(), "added");
  }
  auto ops = MakeHostDeviceOps(uint64_t{1} << 30, faults, std::move(counters));
  auto plan = PlanMemory(models,
                         {.max_running_requests = 8,
                          .max_prefill_tokens = setting.chunk,
                          .max_step_drafts = 8,
                          .max_seq_len = 64,
                          .page_size = setting.page_size,
                          .num_pages = setting.num_pages,
                          .graph_max_rows = setting.graph_max_rows,
                          .graph_max_tokens = setting.graph_max_tokens},
                         0, ops.get());
  MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
  auto engine = MakeDeviceEngine(
      models, *model.checkpoint, *plan, std::move(ops),
      {.graph_max_rows = setting.graph_max_rows, .graph_max_tokens = setting.graph_max_tokens});
  MINISGL_CHECK(engine.ok(), "{}", engine.status().message());
  SchedulerOptions options;
  options.max_prefill_tokens = setting.chunk;
  options.adapter_source = (*engine)->adapter_source();
  EXPECT_EQ(options.adapter_source == nullptr, std::ssize(model.adapters) <= setting.max_adapters);
  if (setting.max_drafts > 0) {
    options.max_drafts = setting.max_drafts;
    if (!setting.drafts_by_itself) options.drafter = MakeNgramDrafter();
  }
  return RunScheduled(engine->get(), options, RequestsOf(model, cases), setting.depth);
}

class HostDeviceAdaptersTest : public testing::TestWithParam<const char*> {};

TEST_P(HostDeviceAdaptersTest, AnswersAreTheReferencesInOneBatch) {
  const AdaptedModel model = LoadAdapted(GetParam());
  const ScheduledRun all = RunInSlots(model, model.cases, {});
  ExpectAnswers(model, model.cases, all);
  for (const SlotSetting& setting :
       {SlotSetting{.page_size = 4, .chunk = 7, .depth = 2},
        SlotSetting{.depth = 0, .graph_max_rows = 8, .graph_max_tokens = 32},
        SlotSetting{.chunk = 24, .max_drafts = 3, .graph_max_tokens = 64}}) {
    ExpectSame(all, RunInSlots(model, model.cases, setting));
  }
}

// Fewer slots than adapters: one is filled while steps run that read the others.
TEST_P(HostDeviceAdaptersTest, AFewSlotsGiveTheSameBits) {
  const AdaptedModel model = LoadAdapted(GetParam());
  if (model.adapters.size() < 2) return;
  const ScheduledRun all = RunInSlots(model, model.cases, {});
  ExpectSame(all, RunInSlots(model, model.cases, {.max_adapters = 1}));
  ExpectSame(all,
             RunInSlots(model, model.cases, {.depth = 2, .graph_max_rows = 8, .max_adapters = 1}));
}

// The model without adapters drafts: it is right for rows of the model, and often for the others.
TEST(HostDeviceDraftedAdaptersTest, TheModelDraftsForRowsOfAdapters) {
  const AdaptedModel model = LoadAdapted("qwen3");
  const ScheduledRun plain = RunInSlots(model, model.cases, {});
  for (const SlotSetting& setting :
       {SlotSetting{.max_drafts = 3, .drafts_by_itself = true},
        SlotSetting{
            .page_size = 1, .chunk = 7, .max_drafts = 2, .depth = 0, .drafts_by_itself = true},
        SlotSetting{.max_drafts = 3,
        .graph_max_rows = 8,
        .graph_max_tokens = 64,
        .max_adapters = 1,
        .drafts_by_itself = true}}) {
    const ScheduledRun run = RunInSlots(model, model.cases, setting);
    ExpectSame(plain, run);
    ExpectAnswers(model, model.cases, run);
    EXPECT_GT(run.stats.accepted_drafts, 10);
    EXPECT_LT(run.stats.accepted_drafts, run.stats.drafted_tokens);
  }
}

// An adapter that is folded into the weights needs no slot.
TEST_P(HostDeviceAdaptersTest, MergedWeightsGiveTheSameAnswers) {
  const AdaptedModel model = LoadAdapted(GetParam());
  for (size_t slot = 0; slot < model.adapters.size(); ++slot) {
    const auto config = MergedConfig(model.config, *model.adapters[slot]);
    ASSERT_TRUE(config.ok()) << config.status().message();
    auto merged = MergeAdapter(*config, *model.checkpoint, model.adapters[slot]);
    if (!merged.ok() && model.names[slot] == "lora_bias") continue;  // the head has no bias
    ASSERT_TRUE(merged.ok()) << merged.status().message();
    AdaptedModel alone;
    alone.config = merged->config;
    alone.checkpoint = std::move(merged->checkpoint);
    std::vector<AdaptedCase> cases;
    for (const AdaptedCase& one : model.cases) {
      if (one.slot != static_cast<AdapterSlot>(slot)) continue;
      cases.push_back({kNoAdapter, one.prompt, one.answer});
    }
    SCOPED_TRACE(model.names[slot]);
    ExpectAnswers(alone, cases, RunInSlots(alone, cases, {.graph_max_rows = 8}));
  }
}

// Steps without rows of adapters run the operations of a model that has none.
TEST_P(HostDeviceAdaptersTest, StepsWithoutAdaptersAreThoseOfTheModelAlone) {
  AdaptedModel model = LoadAdapted(GetParam());
  std::vector<AdaptedCase> cases;
  for (const AdaptedCase& one : model.cases) {
    if (one.slot == kNoAdapter) cases.push_back(one);
  }
  const auto run = [&](const AdaptedModel& of) {
    auto counters = std::make_shared<HostDeviceCounters>();
    RunInSlots(of, cases, {.graph_max_rows = 8}, counters);
    return std::pair(counters->replays, counters->operations - counters->at_start);
  };
  const auto with = run(model);
  model.adapters.clear();
  EXPECT_EQ(with, run(model));
}

// The memory plan counts at least what adapters take.
TEST_P(HostDeviceAdaptersTest, ThePlanCountsTheSlots) {
  AdaptedModel model = LoadAdapted(GetParam());
  const auto measure = [&] {
    ModelList models(model.config);
    models.SetAdapters(model.adapters);
    auto counters = std::make_shared<HostDeviceCounters>();
    auto ops = MakeHostDeviceOps(uint64_t{1} << 30, {}, counters);
    const ModelEngineOptions options = {
        .max_running_requests = 8, .max_seq_len = 64, .num_pages = 8};
    auto plan = PlanMemory(models, options, 0, ops.get());
    MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
    auto engine = MakeDeviceEngine(models, *model.checkpoint, *plan, std::move(ops), {});
    MINISGL_CHECK(engine.ok(), "{}", engine.status().message());
    return std::pair(static_cast<int64_t>(plan->workspace_bytes), counters->live_bytes);
  };
  const auto with = measure();
  model.adapters.clear();
  const auto without = measure();
  EXPECT_GT(with.second, without.second);
  EXPECT_LE(with.second - without.second, with.first - without.first);
  // It counts no more than four times as much.
  EXPECT_LE(with.first - without.first, 4 * (with.second - without.second));
}

INSTANTIATE_TEST_SUITE_P(Bases, HostDeviceAdaptersTest,
                         testing::Values("phi3", "qwen3_moe", "mixtral", "gpt_oss", "llama_biases",
                                         "llama_yarn", "qwen3", "gemma2", "glm4", "deepseek_v2",
                                         "qwen3_next", "lfm2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace minisgl
