// Drafts of the CUDA engine on emulated kernels: the answers are those without drafts, and a model
// that drafts for itself is right each time.
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/drafted_pictures.h"
#include "engine/drafted_run.h"
#include "engine/emulated_cuda.h"
#include "slow.h"

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
  return {{.devices = EmulatedDevices, .graph_max_rows = 4, .graph_max_tokens = 16},
          {.page_size = 1, .chunk = 9, .depth = 0, .devices = EmulatedDevices, .graph_max_rows = 0},
          {.page_size = 4,
           .chunk = 16,
           .num_ranks = 2,
           .devices = EmulatedDevices,
           .graph_max_rows = 2,
           .graph_max_tokens = 8}};
}

TEST(EmulatedDrafterTest, AModelThatDraftsForItselfIsAlwaysRight) {
  MarkSlow("models on the emulator");
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
  MarkSlow("models on the emulator");
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
  MarkSlow("models on the emulator");
  DraftedModel model = OpenDrafted("golden/draft_heads/target");
  const std::vector<Request> requests = SomeRequests(model.config, 3, 9, /*greedy=*/false);
  const std::string folder = model.dir.substr(0, model.dir.rfind('/') + 1);
  const std::vector<DraftSetting> settings = EmulatedSchedules();
  const ScheduledRun plain = RunDrafted(model, Drafts::kNone, settings[0], requests);
  for (const char* name : {"eagle3", "eagle3_speculators", "dflash", "dspark"}) {
    model.head_dir = folder + name;
    for (const DraftSetting& setting : settings) {
      const bool has_ranks = setting.num_ranks > 1;
      if (has_ranks != (std::string(name) == "dspark")) continue;
      const ScheduledRun run = RunDrafted(model, Drafts::kByHead, setting, requests);
      ExpectSame(run, has_ranks ? RunDrafted(model, Drafts::kNone, setting, requests) : plain);
      EXPECT_GT(run.stats.drafted_tokens, 3) << name;
    }
  }
}

TEST(EmulatedDrafterTest, AnAssistantsDraftsChangeNoAnswer) {
  MarkSlow("models on the emulator");
  DraftedModel model = OpenDrafted("golden/assistant/target");
  const std::vector<Request> requests = SomeRequests(model.config, 3, 12, /*greedy=*/false);
  const DraftSetting setting = EmulatedSchedules()[0];
  const ScheduledRun plain = RunDrafted(model, Drafts::kNone, setting, requests);
  for (const char* name : {"plain", "ordered"}) {
    model.head_dir = model.dir.substr(0, model.dir.rfind('/') + 1) + name;
    const ScheduledRun run = RunDrafted(model, Drafts::kByHead, setting, requests);
    ExpectSame(run, plain);
    EXPECT_GT(run.stats.drafted_tokens, 3) << name;
  }
}

// A model that drafts for itself within the constraint is right each time: on two ranks, and with
// masks that reach the device as early and as late as can be.
TEST(EmulatedDrafterTest, DraftsOfConstrainedRowsKeepToTheConstraint) {
  MarkSlow("models on the emulator");
  const DraftedModel model = OpenDrafted("golden/prediction/glm4_moe");
  DraftedModel blocks = OpenDrafted("golden/draft_heads/target");
  blocks.head_dir = blocks.dir.substr(0, blocks.dir.rfind('/') + 1) + "dflash";
  const auto requests = [](const DraftedModel& of) {
    std::vector<Request> some = ConstrainedRequests(of.config, /*greedy=*/true);
    some.resize(3);
    for (Request& request : some) request.max_tokens = 9;
    return some;
  };
  std::vector<DraftSetting> settings = {EmulatedSchedules()[2]};
  for (const bool lazy : {true, false}) {
    DraftSetting setting = {.page_size = 4, .chunk = 16, .max_drafts = 2, .depth = lazy ? 1 : 0};
    setting.devices = [lazy](int32_t) {
      std::vector<std::unique_ptr<DeviceOps>> devices;
      devices.push_back(EmulatedCuda(
          {.deterministic = true},
          std::make_shared<cuda::emulator::EmulatedCudaApi>(
              cuda::emulator::EmulatedCudaConfig{.lazy = lazy, .lazy_compute = !lazy})));
      return devices;
    };
    settings.push_back(std::move(setting));
  }
  for (const DraftSetting& setting : settings) {
    const ScheduledRun plain = RunDrafted(model, Drafts::kNone, setting, requests(model));
    const ScheduledRun run = RunDrafted(model, Drafts::kByItself, setting, requests(model));
    ExpectSame(run, plain);
    EXPECT_GT(run.stats.drafted_tokens, 5);
    EXPECT_EQ(run.stats.accepted_drafts, run.stats.drafted_tokens)
        << "chunks of " << setting.chunk << ", " << setting.num_ranks << " ranks";
    if (setting.depth == 1) continue;
    ExpectSame(RunDrafted(blocks, Drafts::kByHead, setting, requests(blocks)),
               RunDrafted(blocks, Drafts::kNone, setting, requests(blocks)));
  }
}

// Beside pictures and given positions a layer drafts the same in graphs and without.
TEST(EmulatedDrafterTest, ALayersDraftsBesidePicturesChangeNoAnswer) {
  MarkSlow("models on the emulator");
  DraftedModel model = OpenDrafted("golden/prediction/glm4_moe");
  for (RopeConfig& rope : model.config.ropes) rope.sections = {1, 1, 0};
  const std::vector<Request> rows = WithPictures(SomeRequests(model.config, 3, 9, /*greedy=*/true));
  int64_t num_pieces = 0;
  std::vector<DraftSetting> settings = EmulatedSchedules();
  settings.pop_back();
  for (DraftSetting& setting : settings) setting.tower = DraftedTower(model.config, &num_pieces);
  const ScheduledRun plain = RunDrafted(model, Drafts::kNone, settings[0], rows);
  for (const DraftSetting& setting : settings) {
    const ScheduledRun run = RunDrafted(model, Drafts::kByLayer, setting, rows);
    ExpectSame(run, plain);
    EXPECT_GT(run.stats.drafted_tokens, 5);
  }
  EXPECT_GT(num_pieces, 0);
}

// What a step's passes read reaches the device while the step before it runs, as early and as late
// as can be, and graphs read a copy of it: the drafts are the same.
TEST(EmulatedDrafterTest, GraphsDraftTheSameBesideCopies) {
  MarkSlow("models on the emulator");
  DraftedModel layered = OpenDrafted("golden/prediction/glm4_moe");
  DraftedModel blocks = OpenDrafted("golden/draft_heads/target");
  blocks.head_dir = blocks.dir.substr(0, blocks.dir.rfind('/') + 1) + "dflash";
  DraftedModel clusters = OpenDrafted("golden/assistant/target");
  clusters.head_dir = clusters.dir.substr(0, clusters.dir.rfind('/') + 1) + "ordered";
  const std::pair<const DraftedModel*, Drafts> pairs[] = {
      {&layered, Drafts::kByLayer}, {&blocks, Drafts::kByHead}, {&clusters, Drafts::kByHead}};
  for (const auto& [model, drafts] : pairs) {
    const std::vector<Request> requests = SomeRequests(model->config, 2, 8, /*greedy=*/true);
    const auto run = [&](const cuda::emulator::EmulatedCudaConfig& config, int32_t graph_max_rows,
                         int32_t graph_max_tokens, int* graphs) {
      const auto api = std::make_shared<cuda::emulator::EmulatedCudaApi>(config);
      DraftSetting setting = {.page_size = 4, .chunk = 16, .max_drafts = 2};
      setting.devices = [&](int32_t) {
        std::vector<std::unique_ptr<DeviceOps>> devices;
        devices.push_back(EmulatedCuda({.deterministic = true}, api));
        return devices;
      };
      setting.graph_max_rows = graph_max_rows;
      setting.graph_max_tokens = graph_max_tokens;
      ScheduledRun scheduled = RunDrafted(*model, drafts, setting, requests);
      *graphs = api->num_calls("GraphLaunch");
      return scheduled;
    };
    int graphs = 0;
    const ScheduledRun wanted = run({}, 0, 0, &graphs);
    EXPECT_EQ(graphs, 0);
    EXPECT_GT(wanted.stats.drafted_tokens, 3);
    for (const auto& config : {cuda::emulator::EmulatedCudaConfig{.lazy = true},
                               cuda::emulator::EmulatedCudaConfig{.lazy_compute = true}}) {
      const ScheduledRun actual = run(config, 2, 16, &graphs);
      ExpectSame(actual, wanted);
      EXPECT_GT(graphs, 2 * static_cast<int>(wanted.stats.drafted_tokens) / 3);
      EXPECT_EQ(actual.stats.drafted_tokens, wanted.stats.drafted_tokens);
      EXPECT_EQ(actual.stats.accepted_drafts, wanted.stats.accepted_drafts);
    }
  }
}

// A block that is written into pages of an ended row stays, though the drafter may still read the
// row's last step.
TEST(EmulatedDrafterTest, PagesAreWrittenAfterTheDrafterHasReadTheLastStep) {
  MarkSlow("models on the emulator");
  const DraftedModel model = OpenDrafted("golden/prediction/glm4_moe");
  const std::vector<Request> requests = SomeRequests(model.config, 1, 8, /*greedy=*/true);
  DraftSetting setting = {.chunk = 16, .num_pages = 8, .max_drafts = 2};
  setting.graph_max_rows = 0;
  setting.devices = [](int32_t) {
    std::vector<std::unique_ptr<DeviceOps>> devices;
    devices.push_back(EmulatedCuda({.deterministic = true},
                                   std::make_shared<cuda::emulator::EmulatedCudaApi>(
                                       cuda::emulator::EmulatedCudaConfig{.lazy_compute = true})));
    return devices;
  };
  const auto engine = MakeDraftedEngine(model, Drafts::kByLayer, setting);
  const int32_t num_pages = engine->limits().num_pages;
  std::vector<PageId> pages(static_cast<size_t>(num_pages));
  std::iota(pages.begin(), pages.end(), 0);
  EXPECT_GT(RunDrafted(engine.get(), Drafts::kByLayer, setting, requests).stats.drafted_tokens, 3);
  std::vector<std::byte> block(
      static_cast<size_t>(engine->KvBlockBytes(num_pages * setting.page_size)), std::byte{0x42});
  auto write = engine->BeginWrite(pages);
  ASSERT_NE(write, nullptr);
  write->PutBlock(block);
  engine->WritePages(std::move(write));
  auto read = engine->ReadPages(pages);
  ASSERT_NE(read, nullptr);
  while (!read->IsReady()) continue;
  std::vector<std::byte> actual(block.size());
  EXPECT_TRUE(read->TakeBlock(actual).ok());
  EXPECT_EQ(actual, block);
}

// After a warm start no request waits until a kernel of a drafter is loaded.
TEST(EmulatedDrafterTest, AWarmEngineLoadsNoKernelForADraft) {
  MarkSlow("models on the emulator");
  class KernelCounter : public cuda::emulator::EmulatedCudaApi {
   public:
    cuda::CudaError LaunchKernel(const void* kernel, const cuda::CudaLaunch& launch,
                                 void** arguments) override {
      kernels.insert(kernel);
      return EmulatedCudaApi::LaunchKernel(kernel, launch, arguments);
    }
    std::set<const void*> kernels;
  };
  DraftedModel model = OpenDrafted("golden/draft_heads/target");
  model.head_dir = model.dir.substr(0, model.dir.rfind('/') + 1) + "eagle3_ids";
  const std::vector<Request> requests = SomeRequests(model.config, 1, 8, /*greedy=*/true);
  std::vector<size_t> num_kernels;
  for (const bool serves : {false, true}) {
    const auto api = std::make_shared<KernelCounter>();
    DraftSetting setting = {.page_size = 4, .chunk = 16, .max_drafts = 2};
    setting.devices = [&](int32_t) {
      std::vector<std::unique_ptr<DeviceOps>> devices;
      devices.push_back(EmulatedCuda({.deterministic = true}, api));
      return devices;
    };
    setting.warms_up = true;
    setting.graph_max_rows = 0;
    const ScheduledRun run =
        RunDrafted(model, Drafts::kByHead, setting, serves ? requests : std::vector<Request>());
    EXPECT_EQ(run.stats.drafted_tokens > 3, serves);
    num_kernels.push_back(api->kernels.size());
  }
  EXPECT_EQ(num_kernels[0], num_kernels[1]);
}

}  // namespace
}  // namespace minisgl
