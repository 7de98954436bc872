// Drafts on a device: the answers are those without drafts, and a model that drafts for itself is
// right each time, as in drafter_schedules_test.cc.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/drafted_run.h"
#include "engine/host_device_ops.h"

namespace minisgl {
namespace {

std::vector<std::unique_ptr<DeviceOps>> HostDevices(int32_t num_ranks) {
  MINISGL_CHECK(num_ranks == 1, "{} host devices", num_ranks);
  std::vector<std::unique_ptr<DeviceOps>> devices;
  devices.push_back(MakeHostDeviceOps());
  return devices;
}

std::vector<DraftSetting> SchedulesOnDevice() {
  std::vector<DraftSetting> settings;
  for (DraftSetting setting : Schedules()) {
    if (setting.num_ranks > 1) continue;
    setting.devices = HostDevices;
    settings.push_back(std::move(setting));
  }
  return settings;
}

TEST(HostDeviceDrafterTest, AModelThatDraftsForItselfIsAlwaysRight) {
  ExpectItselfIsAlwaysRight({.devices = HostDevices}, SchedulesOnDevice());
}

// The CPU's engine drafts the same: as many drafts are accepted.
TEST(HostDeviceDrafterTest, ALayerDraftsAsOnTheCpu) {
  for (const char* name : {"golden/prediction/glm4_moe", "golden/prediction/deepseek_v3",
                           "golden/prediction/glm4_moe_lite"}) {
    const DraftedModel model = OpenDrafted(name);
    const std::vector<Request> requests = SomeRequests(model.config, 8, 24, /*greedy=*/false);
    for (DraftSetting setting : SchedulesOnDevice()) {
      const ScheduledRun run = RunDrafted(model, Drafts::kByLayer, setting, requests);
      setting.devices = nullptr;
      const ScheduledRun on_cpu = RunDrafted(model, Drafts::kByLayer, setting, requests);
      ExpectSame(run, on_cpu);
      EXPECT_GT(run.stats.drafted_tokens, 10);
      EXPECT_EQ(run.stats.drafted_tokens, on_cpu.stats.drafted_tokens) << name;
      EXPECT_EQ(run.stats.accepted_drafts, on_cpu.stats.accepted_drafts) << name;
    }
  }
}

// A layer that drafts keeps its experts on the device where those of the model's layers are on the
// host.
TEST(HostDeviceDrafterTest, ALayerDraftsBesideExpertsOnTheHost) {
  for (const char* name : {"golden/prediction/glm4_moe", "golden/prediction/deepseek_v3"}) {
    const DraftedModel model = OpenDrafted(name);
    const std::vector<Request> requests = SomeRequests(model.config, 4, 16, /*greedy=*/true);
    for (DraftSetting setting : SchedulesOnDevice()) {
      setting.num_host_layers = model.config.num_layers;
      const ScheduledRun run = RunDrafted(model, Drafts::kByLayer, setting, requests);
      ExpectSame(run, RunDrafted(model, Drafts::kNone, setting, requests));
      EXPECT_GT(run.stats.drafted_tokens, 10) << name;
    }
  }
}

TEST(HostDeviceDrafterTest, AHeadDraftsAsOnTheCpu) {
  DraftedModel model = OpenDrafted("golden/draft_heads/target");
  const std::vector<Request> requests = SomeRequests(model.config, 8, 24, /*greedy=*/false);
  const std::string folder = model.dir.substr(0, model.dir.rfind('/') + 1);
  for (const char* name : {"eagle3", "eagle3_ids", "eagle3_speculators", "dflash", "glimmer"}) {
    model.head_dir = folder + name;
    for (DraftSetting setting : SchedulesOnDevice()) {
      const ScheduledRun run = RunDrafted(model, Drafts::kByHead, setting, requests);
      setting.devices = nullptr;
      const ScheduledRun on_cpu = RunDrafted(model, Drafts::kByHead, setting, requests);
      ExpectSame(run, on_cpu);
      EXPECT_GT(run.stats.drafted_tokens, 10) << name;
      EXPECT_EQ(run.stats.drafted_tokens, on_cpu.stats.drafted_tokens) << name;
      EXPECT_EQ(run.stats.accepted_drafts, on_cpu.stats.accepted_drafts) << name;
    }
  }
}

TEST(HostDeviceDrafterTest, AnAssistantDraftsAsOnTheCpu) {
  DraftedModel model = OpenDrafted("golden/assistant/target");
  const std::vector<Request> requests = SomeRequests(model.config, 8, 40, /*greedy=*/false);
  model.head_dir = model.dir.substr(0, model.dir.rfind('/') + 1) + "plain";
  int64_t drafted = 0;
  for (DraftSetting setting : SchedulesOnDevice()) {
    const ScheduledRun run = RunDrafted(model, Drafts::kByHead, setting, requests);
    setting.devices = nullptr;
    const ScheduledRun on_cpu = RunDrafted(model, Drafts::kByHead, setting, requests);
    ExpectSame(run, on_cpu);
    EXPECT_EQ(run.stats.drafted_tokens, on_cpu.stats.drafted_tokens);
    EXPECT_EQ(run.stats.accepted_drafts, on_cpu.stats.accepted_drafts);
    drafted += run.stats.drafted_tokens;
  }
  EXPECT_GT(drafted, 50);
}

// The device does not ask the constraint for each draft, but no answer breaks it.
TEST(HostDeviceDrafterTest, ConstrainedRowsHaveTheirAnswers) {
  const DraftedModel model = OpenDrafted("golden/models/qwen3");
  DraftedModel blocks = OpenDrafted("golden/draft_heads/target");
  blocks.head_dir = blocks.dir.substr(0, blocks.dir.rfind('/') + 1) + "dflash";
  const std::pair<const DraftedModel*, Drafts> pairs[] = {{&model, Drafts::kByItself},
                                                          {&blocks, Drafts::kByHead}};
  for (const auto& [pair, drafts] : pairs) {
    for (const bool greedy : {true, false}) {
      const ScheduledRun plain = RunDrafted(*pair, Drafts::kNone, {.devices = HostDevices},
                                            ConstrainedRequests(pair->config, greedy));
      for (const DraftSetting& setting : SchedulesOnDevice()) {
        const ScheduledRun run =
            RunDrafted(*pair, drafts, setting, ConstrainedRequests(pair->config, greedy));
        ExpectSame(run, plain);
        EXPECT_GT(run.stats.drafted_tokens, 20);
      }
    }
  }
}

// Steps of many rows leave the drafter out, and are graphs.
TEST(HostDeviceDrafterTest, ManyRowsLeaveTheDrafterOut) {
  const DraftedModel model = OpenDrafted("golden/models/qwen3");
  std::vector<Request> requests = SomeRequests(model.config, kDraftRowsMax + 8, 12, true);
  for (size_t i = 0; i < 4; ++i) requests[i].max_tokens = 60;
  const DraftSetting setting = {
      .chunk = 256, .max_running_requests = kDraftRowsMax + 8, .devices = HostDevices};
  const ScheduledRun plain = RunDrafted(model, Drafts::kNone, setting, requests);
  ExpectSame(RunDrafted(model, Drafts::kByItself, setting, requests), plain);
}

}  // namespace
}  // namespace minisgl
