// Answers with drafts by a model beside the target are those without, bit for bit, under every
// schedule. A model that drafts for itself is right each time: a key that the drafter lacks, or
// that a rejected draft left behind, would show.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/drafted_run.h"

namespace minisgl {
namespace {

TEST(DrafterSchedulesTest, AModelThatDraftsForItselfIsAlwaysRight) {
  ExpectItselfIsAlwaysRight({}, Schedules());
}

TEST(DrafterSchedulesTest, ALayersDraftsChangeNoAnswer) {
  for (const char* name : {"golden/prediction/glm4_moe", "golden/prediction/deepseek_v3",
                           "golden/prediction/glm4_moe_lite"}) {
    const DraftedModel model = OpenDrafted(name);
    const std::vector<Request> requests = SomeRequests(model.config, 8, 24, /*greedy=*/false);
    const ScheduledRun plain = RunDrafted(model, Drafts::kNone, {}, requests);
    std::vector<DraftSetting> settings = Schedules();
    settings.push_back({.num_ranks = 2, .copies_head = true});
    for (const DraftSetting& setting : settings) {
      const ScheduledRun run = RunDrafted(model, Drafts::kByLayer, setting, requests);
      ExpectSame(run, plain);
      EXPECT_GT(run.stats.drafted_tokens, 10);
    }
  }
}

TEST(DrafterSchedulesTest, AHeadsDraftsChangeNoAnswer) {
  DraftedModel model = OpenDrafted("golden/draft_heads/target");
  const std::vector<Request> requests = SomeRequests(model.config, 8, 24, /*greedy=*/false);
  const ScheduledRun plain = RunDrafted(model, Drafts::kNone, {}, requests);
  const std::string folder = model.dir.substr(0, model.dir.rfind('/') + 1);
  for (const char* name : {"eagle3", "eagle3_ids", "eagle3_speculators", "dflash", "glimmer",
                           "dspark", "dspark_plain"}) {
    model.head_dir = folder + name;
    for (const DraftSetting& setting : Schedules()) {
      const ScheduledRun run = RunDrafted(model, Drafts::kByHead, setting, requests);
      ExpectSame(run, plain);
      EXPECT_GT(run.stats.drafted_tokens, 10) << name;
    }
  }
}

TEST(DrafterSchedulesTest, AnAssistantsDraftsChangeNoAnswer) {
  DraftedModel model = OpenDrafted("golden/assistant/target");
  const std::vector<Request> requests = SomeRequests(model.config, 8, 40, /*greedy=*/false);
  const ScheduledRun plain = RunDrafted(model, Drafts::kNone, {}, requests);
  const std::string folder = model.dir.substr(0, model.dir.rfind('/') + 1);
  for (const char* name : {"plain", "ordered"}) {
    model.head_dir = folder + name;
    int64_t drafted = 0;
    for (const DraftSetting& setting : Schedules()) {
      if (setting.num_ranks > 1) continue;
      const ScheduledRun run = RunDrafted(model, Drafts::kByHead, setting, requests);
      ExpectSame(run, plain);
      drafted += run.stats.drafted_tokens;
    }
    EXPECT_GT(drafted, 100) << name;
  }
}

// Drafts by what was trained for `model` are right as often under every schedule: a state or a key
// of another token would make it worse. Returns the share of right drafts.
double ExpectRightAsOften(const DraftedModel& model, Drafts drafts) {
  const std::vector<Request> requests = StoryRequests(model, 3, 60);
  const ScheduledRun plain = RunDrafted(model, Drafts::kNone, {}, requests);
  int64_t drafted = 0, accepted = 0;
  for (const DraftSetting& setting :
       std::vector<DraftSetting>{{},
                                 {.page_size = 1, .chunk = 24, .depth = 0},
                                 {.page_size = 4, .chunk = 32, .cache = CacheKind::kNaive},
                                 {.num_ranks = 2}}) {
    const ScheduledRun run = RunDrafted(model, drafts, setting, requests);
    ExpectSame(run, plain);
    if (drafted == 0) drafted = run.stats.drafted_tokens, accepted = run.stats.accepted_drafts;
    EXPECT_EQ(run.stats.drafted_tokens, drafted);
    EXPECT_EQ(run.stats.accepted_drafts, accepted);
  }
  EXPECT_GT(drafted, 50);
  return static_cast<double>(accepted) / static_cast<double>(std::max<int64_t>(1, drafted));
}

TEST(DrafterSchedulesTest, ATrainedHeadIsRightAsOftenUnderEverySchedule) {
  DraftedModel model = OpenDrafted("models/wren");
  model.head_dir = model.dir + "-eagle3";
  EXPECT_GT(ExpectRightAsOften(model, Drafts::kByHead), 0.5);
}

TEST(DrafterSchedulesTest, ATrainedLayerIsRightAsOftenUnderEverySchedule) {
  EXPECT_GT(ExpectRightAsOften(OpenDrafted("models/wren-mtp"), Drafts::kByLayer), 0.7);
}

// Most rows have a constraint: the drafts are guided by it.
TEST(DrafterSchedulesTest, DraftsOfConstrainedRowsKeepToTheConstraint) {
  const DraftedModel model = OpenDrafted("golden/models/qwen3");
  DraftedModel headed = OpenDrafted("golden/draft_heads/target");
  headed.head_dir = headed.dir.substr(0, headed.dir.rfind('/') + 1) + "eagle3";
  DraftedModel blocks = OpenDrafted("golden/draft_heads/target");
  blocks.head_dir = blocks.dir.substr(0, blocks.dir.rfind('/') + 1) + "dflash";
  DraftedModel sparks = OpenDrafted("golden/draft_heads/target");
  sparks.head_dir = sparks.dir.substr(0, sparks.dir.rfind('/') + 1) + "dspark";
  const std::pair<const DraftedModel*, Drafts> pairs[] = {{&model, Drafts::kByItself},
                                                          {&headed, Drafts::kByHead},
                                                          {&blocks, Drafts::kByHead},
                                                          {&sparks, Drafts::kByHead}};
  for (const auto& [pair, drafts] : pairs) {
    for (const bool greedy : {true, false}) {
      const ScheduledRun plain =
          RunDrafted(*pair, Drafts::kNone, {}, ConstrainedRequests(pair->config, greedy));
      for (const DraftSetting& setting : Schedules()) {
        const ScheduledRun run =
            RunDrafted(*pair, drafts, setting, ConstrainedRequests(pair->config, greedy));
        ExpectSame(run, plain);
        EXPECT_GT(run.stats.drafted_tokens, 20);
        // Without the guide most drafts of a model that drafts for itself would be refused.
        if (greedy && drafts == Drafts::kByItself) {
          EXPECT_EQ(run.stats.accepted_drafts, run.stats.drafted_tokens);
        }
      }
    }
  }
}

// With many rows the drafter is left out, and rows that it has not read have no drafts later.
TEST(DrafterSchedulesTest, ManyRowsLeaveTheDrafterOut) {
  const DraftedModel model = OpenDrafted("golden/models/qwen3");
  std::vector<Request> requests = SomeRequests(model.config, kDraftRowsMax + 8, 12, true);
  for (size_t i = 0; i < 4; ++i) requests[i].max_tokens = 60;
  const DraftSetting setting = {.chunk = 256, .max_running_requests = kDraftRowsMax + 8};
  const ScheduledRun plain = RunDrafted(model, Drafts::kNone, setting, requests);
  const ScheduledRun run = RunDrafted(model, Drafts::kByItself, setting, requests);
  ExpectSame(run, plain);
  EXPECT_EQ(run.stats.accepted_drafts, run.stats.drafted_tokens);
}

}  // namespace
}  // namespace minisgl
