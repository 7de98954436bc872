// Models with states on a device's engine: slots and segments reach it with the step, also where
// graphs run and steps overlap. Over the oracle's operations every answer has the bits of the CPU's
// engine; on emulated kernels, with --deterministic, the bits of the request run alone.
#include <functional>
#include <utility>

#include "engine/emulated_cuda.h"
#include "engine/host_device_ops.h"
#include "engine/states_fixture.h"
#include "gpu/gpu_models.h"
#include "minisgl/engine/device_engine.h"
#include "slow.h"

namespace minisgl {
namespace {

// `graphs`: of the settings of MakeDevice.
std::unique_ptr<Engine> OnDevice(const ModelConfig& config, const Checkpoint& checkpoint,
                                 std::unique_ptr<DeviceOps> device, ModelEngineOptions options,
                                 const std::function<void(MemoryPlan*)>& set_slots) {
  options.memory_ratio = 0.9;
  options.graph_max_rows = 4;
  options.graph_max_tokens = 16;
  auto plan = PlanMemory(config, options, 0, device.get());
  MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
  set_slots(&*plan);
  auto engine = MakeDeviceEngine(config, checkpoint, *plan, std::move(device),
                                 {.graph_max_rows = 4, .graph_max_tokens = 16, .warms_up = true});
  MINISGL_CHECK(engine.ok(), "{}", engine.status().message());
  return std::move(engine).value();
}

class HostDeviceStatesTest : public GoldenStatesFixture {
 protected:
  std::unique_ptr<Engine> MakeEngine(const StatesSettings& settings) override {
    const auto set_slots = [&](MemoryPlan* plan) { SetSlots(settings, plan); };
    if (on_device_) {
      return OnDevice(config_, *checkpoint_, MakeHostDeviceOps(uint64_t{1} << 30, {}, counters_),
                      OptionsOf(settings), set_slots);
    }
    ModelEngineOptions options = OptionsOf(settings);
    options.weight_dtype = DType::kF32;
    auto plan = PlanMemory(config_, options, uint64_t{1} << 30);
    MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
    set_slots(&*plan);
    auto engine = MakeModelEngine(config_, *checkpoint_, *plan, MakeNaiveOps());
    MINISGL_CHECK(engine.ok(), "{}", engine.status().message());
    return std::move(engine).value();
  }

  const std::shared_ptr<HostDeviceCounters> counters_ = std::make_shared<HostDeviceCounters>();
  bool on_device_ = false;
};

TEST_P(HostDeviceStatesTest, EveryScheduleGivesTheBitsOfTheCpu) {
  const std::vector<Request> requests = SharingRequests(5, 2);
  const ScheduledRun wanted = Run({}, requests);
  on_device_ = true;
  for (const int32_t chunk : {7, 64}) {
    const ScheduledRun shared = Run({.max_prefill_tokens = chunk}, requests);
    ExpectSame(wanted, shared);
    EXPECT_GT(shared.stats.cached_tokens, 20) << chunk;
  }
  EXPECT_GT(counters_->replays, 20);
  ExpectSame(wanted, Run({.num_pages = 22, .num_slots = 3 * 3, .is_optimistic = true}, requests));
  const ScheduledRun drafted =
      Run({.drafter = std::make_shared<HalfRightDrafter>(requests, wanted)}, requests);
  ExpectSame(wanted, drafted);
  EXPECT_GT(drafted.stats.accepted_drafts, 5);
}

INSTANTIATE_TEST_SUITE_P(All, HostDeviceStatesTest, testing::Values("lfm2", "qwen3_next", "bamba"),
                         [](const auto& test) { return std::string(test.param); });

class EmulatedStatesTest : public StatesFixture {
 protected:
  void SetUp() override {
    model_ = cuda::MakeGpuArchitecture(GetParam());
    ASSERT_NE(model_, nullptr);
  }
  const ModelConfig& config() const override { return model_->config; }
  std::unique_ptr<Engine> MakeEngine(const StatesSettings& settings) override {
    return OnDevice(model_->config, *model_->checkpoint, EmulatedCuda({.deterministic = true}),
                    OptionsOf(settings), [&](MemoryPlan* plan) { SetSlots(settings, plan); });
  }

  std::unique_ptr<TestModel> model_;
};

TEST_P(EmulatedStatesTest, EveryScheduleGivesTheSameBits) {
  MarkSlow("a model on the emulator");
  const std::vector<Request> requests = SharingRequests(3, 1);
  const ScheduledRun alone = RunAlone(requests);
  ExpectSame(alone, Run({.page_size = 16, .max_prefill_tokens = 7}, requests));
  ExpectSame(alone, Run({.num_pages = 12, .num_slots = 2 * 3, .is_optimistic = true}, requests));
  const ScheduledRun drafted =
      Run({.drafter = std::make_shared<HalfRightDrafter>(requests, alone)}, requests);
  ExpectSame(alone, drafted);
  EXPECT_GT(drafted.stats.accepted_drafts, 0);
}

INSTANTIATE_TEST_SUITE_P(All, EmulatedStatesTest,
                         testing::Values("lfm2", "qwen3_next", "falcon_h1"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace minisgl
