// Drafts on a GPU, or on the emulator: the answers are those without drafts, and a model that
// drafts for itself is right each time.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "engine/drafted_run.h"
#include "gpu/gpu_fixture.h"

namespace minisgl::cuda {
namespace {

class GpuDrafterTest : public GpuTest {
 protected:
  static DraftSetting OnGpu(int32_t page_size, int32_t chunk) {
    return {.page_size = page_size, .chunk = chunk, .devices = [](int32_t) {
              std::vector<std::unique_ptr<DeviceOps>> devices;
              devices.push_back(Make({.deterministic = true}));
              return devices;
            }};
  }
};

TEST_F(GpuDrafterTest, DraftsChangeNoAnswer) {
  const DraftedModel model = OpenDrafted("golden/prediction/glm4_moe");
  const int32_t count = IsSlow() ? 3 : 8;
  for (const bool greedy : {true, false}) {
    const std::vector<Request> requests =
        SomeRequests(model.config, count, IsSlow() ? 6 : 40, greedy);
    const DraftSetting setting = greedy ? OnGpu(16, 64) : OnGpu(4, 9);
    const ScheduledRun plain = RunDrafted(model, Drafts::kNone, setting, requests);
    const ScheduledRun by_layer = RunDrafted(model, Drafts::kByLayer, setting, requests);
    ExpectSame(by_layer, plain);
    EXPECT_GT(by_layer.stats.drafted_tokens, 3);
    const ScheduledRun by_itself = RunDrafted(model, Drafts::kByItself, setting, requests);
    ExpectSame(by_itself, plain);
    EXPECT_GT(by_itself.stats.drafted_tokens, 2);
    if (!greedy) continue;
    EXPECT_EQ(by_itself.stats.accepted_drafts, by_itself.stats.drafted_tokens);
  }
}

// Passes of the drafter in graphs make the drafts that they make without.
TEST_F(GpuDrafterTest, GraphsDraftTheSame) {
  const DraftedModel layered = OpenDrafted("golden/prediction/glm4_moe");
  DraftedModel blocks = OpenDrafted("golden/draft_heads/target");
  blocks.head_dir = blocks.dir.substr(0, blocks.dir.rfind('/') + 1) + "dflash";
  const std::pair<const DraftedModel*, Drafts> pairs[] = {{&layered, Drafts::kByItself},
                                                          {&blocks, Drafts::kByHead}};
  for (const auto& [model, drafts] : pairs) {
    const std::vector<Request> requests =
        SomeRequests(model->config, IsSlow() ? 2 : 8, IsSlow() ? 6 : 40, /*greedy=*/true);
    DraftSetting setting = OnGpu(16, 64);
    setting.graph_max_rows = 0;
    const ScheduledRun without = RunDrafted(*model, drafts, setting, requests);
    setting.graph_max_rows = 4;
    setting.graph_max_tokens = IsSlow() ? 16 : 64;
    setting.warms_up = !IsSlow();
    const ScheduledRun with = RunDrafted(*model, drafts, setting, requests);
    ExpectSame(with, without);
    EXPECT_GT(with.stats.drafted_tokens, 2);
    EXPECT_EQ(with.stats.drafted_tokens, without.stats.drafted_tokens);
    EXPECT_EQ(with.stats.accepted_drafts, without.stats.accepted_drafts);
  }
}

// Drafts that the host guides: within a constraint a model that drafts for itself is always right,
// and those of clusters change no answer.
TEST_F(GpuDrafterTest, GuidedDraftsKeepToTheirTokens) {
  const DraftedModel model = OpenDrafted("golden/prediction/glm4_moe");
  const auto constrained = [&] {
    std::vector<Request> requests = ConstrainedRequests(model.config, /*greedy=*/true);
    if (IsSlow()) requests.resize(2);
    for (Request& request : requests) request.max_tokens = IsSlow() ? 6 : 30;
    return requests;
  };
  const DraftSetting setting = OnGpu(4, 16);
  const ScheduledRun run = RunDrafted(model, Drafts::kByItself, setting, constrained());
  ExpectSame(run, RunDrafted(model, Drafts::kNone, setting, constrained()));
  EXPECT_GT(run.stats.drafted_tokens, 2);
  EXPECT_EQ(run.stats.accepted_drafts, run.stats.drafted_tokens);

  DraftedModel assisted = OpenDrafted("golden/assistant/target");
  assisted.head_dir = assisted.dir.substr(0, assisted.dir.rfind('/') + 1) + "ordered";
  const std::vector<Request> requests =
      SomeRequests(assisted.config, IsSlow() ? 2 : 8, IsSlow() ? 8 : 40, /*greedy=*/true);
  const ScheduledRun by_clusters = RunDrafted(assisted, Drafts::kByHead, setting, requests);
  ExpectSame(by_clusters, RunDrafted(assisted, Drafts::kNone, setting, requests));
  EXPECT_GT(by_clusters.stats.drafted_tokens, 2);
}

// A head that was trained for the demo model is right for most tokens.
TEST_F(GpuDrafterTest, ATrainedHeadIsOftenRight) {
  DraftedModel model = OpenDrafted("models/wren");
  model.head_dir = model.dir + "-eagle3";
  const std::vector<Request> requests = StoryRequests(model, IsSlow() ? 1 : 3, IsSlow() ? 12 : 60);
  const ScheduledRun plain = RunDrafted(model, Drafts::kNone, OnGpu(16, 64), requests);
  const ScheduledRun run = RunDrafted(model, Drafts::kByHead, OnGpu(16, 64), requests);
  ExpectSame(run, plain);
  EXPECT_GT(run.stats.drafted_tokens, 5);
  EXPECT_GT(2 * run.stats.accepted_drafts, run.stats.drafted_tokens) << run.stats.drafted_tokens;
}

}  // namespace
}  // namespace minisgl::cuda
