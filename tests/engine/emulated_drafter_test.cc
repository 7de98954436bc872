// Drafts of the CUDA engine on emulated kernels: the answers are those without drafts, and a model
// that drafts for itself is right each time.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/drafted_run.h"
#include "engine/emulated_cuda.h"

namespace minisgl {
namespace {

// The order of sums depends on no other row, so that answers can be compared bit for bit.
std::vector<std::unique_ptr<DeviceOps>> EmulatedDevices(int32_t num_ranks) {
  if (num_ranks > 1) return EmulatedRanks(num_ranks, {.deterministic = true});
  std::vector<std::unique_ptr<DeviceOps>> devices;
  devices.push_back(EmulatedCuda({.deterministic = true}));
  return devices;
}

std::vector<DraftSetting> EmulatedSchedules() {
  return {{.devices = EmulatedDevices},
          {.page_size = 1, .chunk = 9, .depth = 0, .devices = EmulatedDevices},
          {.page_size = 4, .chunk = 16, .num_ranks = 2, .devices = EmulatedDevices}};
}

TEST(EmulatedDrafterTest, AModelThatDraftsForItselfIsAlwaysRight) {
  const DraftedModel model = OpenDrafted("golden/prediction/glm4_moe");
  const std::vector<Request> requests = SomeRequests(model.config, 3, 9, /*greedy=*/true);
  for (const DraftSetting& setting : EmulatedSchedules()) {
    const ScheduledRun plain = RunDrafted(model, Drafts::kNone, setting, requests);
    const ScheduledRun run = RunDrafted(model, Drafts::kByItself, setting, requests);
    ExpectSame(run, plain);
    EXPECT_GT(run.stats.drafted_tokens, 5);
    EXPECT_EQ(run.stats.accepted_drafts, run.stats.drafted_tokens)
        << "chunks of " << setting.chunk << ", " << setting.num_ranks << " ranks";
  }
}

TEST(EmulatedDrafterTest, ALayersDraftsChangeNoAnswer) {
  const DraftedModel model = OpenDrafted("golden/prediction/glm4_moe");
  const std::vector<Request> requests = SomeRequests(model.config, 3, 9, /*greedy=*/false);
  for (const DraftSetting& setting : EmulatedSchedules()) {
    const ScheduledRun plain = RunDrafted(model, Drafts::kNone, setting, requests);
    const ScheduledRun run = RunDrafted(model, Drafts::kByLayer, setting, requests);
    ExpectSame(run, plain);
    EXPECT_GT(run.stats.drafted_tokens, 5);
  }
}

TEST(EmulatedDrafterTest, AHeadsDraftsChangeNoAnswer) {
  DraftedModel model = OpenDrafted("golden/draft_heads/target");
  const std::vector<Request> requests = SomeRequests(model.config, 3, 9, /*greedy=*/false);
  const std::string folder = model.dir.substr(0, model.dir.rfind('/') + 1);
  const std::vector<DraftSetting> settings = EmulatedSchedules();
  const ScheduledRun plain = RunDrafted(model, Drafts::kNone, settings[0], requests);
  for (const char* name : {"eagle3", "eagle3_speculators", "dflash"}) {
    model.head_dir = folder + name;
    for (const DraftSetting& setting : settings) {
      if (setting.num_ranks > 1) continue;
      const ScheduledRun run = RunDrafted(model, Drafts::kByHead, setting, requests);
      ExpectSame(run, plain);
      EXPECT_GT(run.stats.drafted_tokens, 3) << name;
    }
  }
}

TEST(EmulatedDrafterTest, AnAssistantsDraftsChangeNoAnswer) {
  DraftedModel model = OpenDrafted("golden/assistant/target");
  const std::vector<Request> requests = SomeRequests(model.config, 3, 12, /*greedy=*/false);
  model.head_dir = model.dir.substr(0, model.dir.rfind('/') + 1) + "plain";
  const DraftSetting setting = EmulatedSchedules()[0];
  const ScheduledRun plain = RunDrafted(model, Drafts::kNone, setting, requests);
  const ScheduledRun run = RunDrafted(model, Drafts::kByHead, setting, requests);
  ExpectSame(run, plain);
  EXPECT_GT(run.stats.drafted_tokens, 3);
}

}  // namespace
}  // namespace minisgl
