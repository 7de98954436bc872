// Drafts on a device: the answers are those without drafts, and a model that drafts for itself is
// right each time, as in drafter_schedules_test.cc.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/drafted_run.h"
#include "engine/host_device_ops.h"
#include "engine/recorded_drafts.h"
#include "long_form.h"

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
    setting.graph_max_rows = settings.size() % 2 == 0 ? 256 : 0;
    setting.graph_max_tokens = settings.size() % 3 == 0 ? 64 : 0;
    setting.warms_up = settings.empty();
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
  for (const char* name : {"eagle3", "eagle3_ids", "eagle3_speculators", "dflash", "glimmer",
                           "dspark", "dspark_plain"}) {
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
  const std::vector<Request> free = SomeRequests(model.config, 8, 40, /*greedy=*/false);
  for (const char* name : {"plain", "ordered"}) {
    model.head_dir = model.dir.substr(0, model.dir.rfind('/') + 1) + name;
    int64_t drafted = 0;
    for (DraftSetting setting : SchedulesOnDevice()) {
      for (const bool is_constrained : {false, true}) {
        const auto requests = [&] {
          return is_constrained ? ConstrainedRequests(model.config, /*greedy=*/true) : free;
        };
        setting.devices = HostDevices;
        const ScheduledRun run = RunDrafted(model, Drafts::kByHead, setting, requests());
        setting.devices = nullptr;
        const ScheduledRun on_cpu = RunDrafted(model, Drafts::kByHead, setting, requests());
        ExpectSame(run, on_cpu);
        EXPECT_EQ(run.stats.drafted_tokens, on_cpu.stats.drafted_tokens) << name;
        EXPECT_EQ(run.stats.accepted_drafts, on_cpu.stats.accepted_drafts) << name;
        drafted += run.stats.drafted_tokens;
      }
    }
    EXPECT_GT(drafted, 100) << name;
  }
}

// The device asks the constraint for each draft, as the CPU does.
TEST(HostDeviceDrafterTest, DraftsOfConstrainedRowsKeepToTheConstraint) {
  const DraftedModel model = OpenDrafted("golden/models/qwen3");
  const DraftedModel layered = OpenDrafted("golden/prediction/glm4_moe");
  DraftedModel headed = OpenDrafted("golden/draft_heads/target");
  const std::string folder = headed.dir.substr(0, headed.dir.rfind('/') + 1);
  headed.head_dir = folder + "eagle3_ids";
  DraftedModel blocks = OpenDrafted("golden/draft_heads/target");
  blocks.head_dir = folder + "dflash";
  DraftedModel sparks = OpenDrafted("golden/draft_heads/target");
  sparks.head_dir = folder + "dspark";
  const std::pair<const DraftedModel*, Drafts> pairs[] = {{&model, Drafts::kByItself},
                                                          {&layered, Drafts::kByLayer},
                                                          {&headed, Drafts::kByHead},
                                                          {&blocks, Drafts::kByHead},
                                                          {&sparks, Drafts::kByHead}};
  for (const auto& [pair, drafts] : pairs) {
    for (const bool greedy : {true, false}) {
      const ScheduledRun plain = RunDrafted(*pair, Drafts::kNone, {.devices = HostDevices},
                                            ConstrainedRequests(pair->config, greedy));
      for (DraftSetting setting : SchedulesOnDevice()) {
        const ScheduledRun run =
            RunDrafted(*pair, drafts, setting, ConstrainedRequests(pair->config, greedy));
        ExpectSame(run, plain);
        EXPECT_GT(run.stats.drafted_tokens, 20);
        // Sums of weights within a mask are rounded otherwise there, so samples may differ.
        if (!greedy) continue;
        setting.devices = nullptr;
        const ScheduledRun on_cpu =
            RunDrafted(*pair, drafts, setting, ConstrainedRequests(pair->config, greedy));
        EXPECT_EQ(run.stats.drafted_tokens, on_cpu.stats.drafted_tokens) << pair->dir;
        EXPECT_EQ(run.stats.accepted_drafts, on_cpu.stats.accepted_drafts) << pair->dir;
        if (drafts == Drafts::kByItself) {
          EXPECT_EQ(run.stats.accepted_drafts, run.stats.drafted_tokens);
        }
      }
    }
  }
}

// The drafts that the host sees, those of rows with a constraint, are those of the CPU's engine.
TEST(HostDeviceDrafterTest, DraftsAreThoseOfTheCpu) {
  struct Pair {
    const char* target;
    const char* head;
    Drafts drafts;
  };
  for (const Pair& pair : {Pair{"golden/prediction/glm4_moe", "", Drafts::kByLayer},
                           Pair{"golden/draft_heads/target", "eagle3_ids", Drafts::kByHead},
                           Pair{"golden/draft_heads/target", "eagle3_speculators", Drafts::kByHead},
                           Pair{"golden/draft_heads/target", "dflash", Drafts::kByHead},
                           Pair{"golden/draft_heads/target", "glimmer", Drafts::kByHead},
                           Pair{"golden/draft_heads/target", "dspark", Drafts::kByHead},
                           Pair{"golden/draft_heads/target", "dspark_plain", Drafts::kByHead},
                           Pair{"golden/assistant/target", "plain", Drafts::kByHead},
                           Pair{"golden/assistant/target", "ordered", Drafts::kByHead}}) {
    DraftedModel model = OpenDrafted(pair.target);
    if (pair.drafts == Drafts::kByHead) {
      model.head_dir = model.dir.substr(0, model.dir.rfind('/') + 1) + pair.head;
    }
    const auto drafts_of = [&](const DraftSetting& setting) {
      const auto engine = MakeDraftedEngine(model, pair.drafts, setting);
      RecordedDrafts recorded(engine.get());
      RunDrafted(&recorded, pair.drafts, setting, ConstrainedRequests(model.config, true));
      return recorded.drafts;
    };
    DraftSetting setting = {.page_size = 4, .chunk = 16};
    const auto on_cpu = drafts_of(setting);
    EXPECT_GT(on_cpu.size(), 20u) << pair.head;
    setting.devices = HostDevices;
    EXPECT_EQ(drafts_of(setting), on_cpu) << pair.target << pair.head;
    setting.graph_max_tokens = 64;
    EXPECT_EQ(drafts_of(setting), on_cpu) << pair.target << pair.head;
  }
}

// Graphs, which are padded, make the drafts that passes without them make.
TEST(HostDeviceDrafterTest, GraphsDraftTheSame) {
  struct Pair {
    const char* target;
    const char* head;
    Drafts drafts;
  };
  for (const Pair& pair :
       {Pair{"golden/models/qwen3", "", Drafts::kByItself},
        Pair{"golden/prediction/glm4_moe", "", Drafts::kByLayer},
        Pair{"golden/prediction/glm4_moe_lite", "", Drafts::kByLayer},
        Pair{"golden/draft_heads/target", "golden/draft_heads/eagle3_ids", Drafts::kByHead},
        Pair{"golden/draft_heads/target", "golden/draft_heads/dflash", Drafts::kByHead},
        Pair{"golden/draft_heads/target", "golden/draft_heads/dspark", Drafts::kByHead},
        Pair{"golden/draft_heads/target", "golden/draft_heads/dspark_plain", Drafts::kByHead},
        Pair{"golden/assistant/target", "golden/assistant/plain", Drafts::kByHead},
        Pair{"golden/assistant/target", "golden/assistant/ordered", Drafts::kByHead}}) {
    DraftedModel model = OpenDrafted(pair.target);
    if (pair.drafts == Drafts::kByHead) {
      model.head_dir = std::string(MINISGL_SOURCE_DIR) + "/tests/" + pair.head;
    }
    const std::vector<Request> requests = SomeRequests(model.config, 7, 24, /*greedy=*/false);
    for (const int32_t chunk : IsLongForm() ? std::vector{64, 9} : std::vector{9}) {
      int replays = 0, runs = 0;
      const auto run = [&](int32_t graph_max_rows, int32_t graph_max_tokens, Drafts drafts) {
        const auto counters = std::make_shared<HostDeviceCounters>();
        DraftSetting setting = {.page_size = 4, .chunk = chunk, .max_running_requests = 5};
        setting.devices = [&](int32_t) {
          std::vector<std::unique_ptr<DeviceOps>> devices;
          devices.push_back(MakeHostDeviceOps(uint64_t{1} << 30, {}, counters));
          return devices;
        };
        setting.graph_max_rows = graph_max_rows;
        setting.graph_max_tokens = graph_max_tokens;
        ScheduledRun scheduled = RunDrafted(model, drafts, setting, requests);
        replays = counters->replays;
        runs = counters->runs;
        return scheduled;
      };
      const ScheduledRun plain = run(0, 0, Drafts::kNone), without = run(0, 0, pair.drafts);
      ExpectSame(without, plain);
      EXPECT_EQ(replays, 0);
      const int passes = runs;
      for (const auto& [rows, tokens] : {std::pair(4, 0), {0, 32}, {256, 256}}) {
        const ScheduledRun with = run(rows, tokens, pair.drafts);
        ExpectSame(with, plain);
        EXPECT_EQ(with.stats.drafted_tokens, without.stats.drafted_tokens) << pair.head;
        EXPECT_EQ(with.stats.accepted_drafts, without.stats.accepted_drafts) << pair.head;
      }
      EXPECT_GT(without.stats.drafted_tokens, 20);
      // Steps of short chunks are graphs from end to end, except the choice of drafts that depend
      // on each other. A step of a model with window pages prepares its tokens twice.
      if (chunk > 9 || std::string(pair.head).ends_with("dspark")) continue;
      const bool has_windows = std::string(pair.target) == "golden/assistant/target";
      EXPECT_EQ(replays + (has_windows ? without.stats.steps : 0), passes) << pair.target;
    }
  }
}

// A step's results do not wait for what the drafter reads of it.
TEST(HostDeviceDrafterTest, ResultsComeBeforeTheDrafterReadsTheStep) {
  const DraftedModel model = OpenDrafted("golden/prediction/glm4_moe");
  const std::vector<Request> requests = SomeRequests(model.config, 3, 12, /*greedy=*/true);
  const auto counters = std::make_shared<HostDeviceCounters>();
  DraftSetting setting = {.depth = 0};
  setting.devices = [&](int32_t) {
    std::vector<std::unique_ptr<DeviceOps>> devices;
    devices.push_back(MakeHostDeviceOps(uint64_t{1} << 30, {}, counters));
    return devices;
  };
  const ScheduledRun run = RunDrafted(model, Drafts::kByLayer, setting, requests);
  EXPECT_GT(run.stats.drafted_tokens, 5);
  EXPECT_GE(counters->waits_before_others, run.stats.steps);
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
