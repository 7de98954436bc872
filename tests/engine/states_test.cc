// Models with states under the scheduler: whatever is shared through snapshots, preempted, drafted
// and rejected, or cut into chunks, every answer has the bits of the request alone.
#include "engine/device_kv_copies.h"
#include "engine/host_device_ops.h"
#include "engine/state_storage.h"
#include "engine/states_fixture.h"
#include "minisgl/base/random.h"
#include "minisgl/store/kv_block_memory.h"

namespace minisgl {
namespace {

class StatesEngineTest : public GoldenStatesFixture {
 protected:
  std::unique_ptr<Engine> MakeEngine(const StatesSettings& settings) override {
    auto plan = PlanMemory(config_, OptionsOf(settings), uint64_t{1} << 30);
    EXPECT_TRUE(plan.ok());
    SetSlots(settings, &*plan);
    auto engine =
        MakeModelEngine(config_, *checkpoint_, *plan, MakeCpuOps({1, TestedCpuTarget()}).value());
    EXPECT_TRUE(engine.ok());
    return std::move(engine).value();
  }
};

TEST_P(StatesEngineTest, SharedPrefixesChangeNothing) {
  const std::vector<Request> requests = SharingRequests();
  const ScheduledRun alone = RunAlone(requests);
  for (const int32_t page_size : {1, 4, 16}) {
    for (const int32_t chunk : {7, 64}) {
      const ScheduledRun shared =
          Run({.page_size = page_size, .max_prefill_tokens = chunk, .depth = chunk == 7 ? 0 : 1},
              requests);
      ExpectSame(alone, shared);
      EXPECT_GT(shared.stats.cached_tokens, 100) << page_size << " " << chunk;
    }
  }
}

TEST_P(StatesEngineTest, RequestsThatArePreemptedAnswerTheSame) {
  const std::vector<Request> requests = SharingRequests();
  const ScheduledRun alone = RunAlone(requests);
  int64_t preemptions = 0;
  for (const int32_t num_slots : {3 * 3, 20}) {
    const ScheduledRun few =
        Run({.num_pages = 32, .num_slots = num_slots, .is_optimistic = true}, requests);
    ExpectSame(alone, few);
    preemptions += few.stats.preemptions;
  }
  EXPECT_GT(preemptions, 0);
}

// With slots to spare the state after the last accepted token is at hand; without, tokens are
// computed again.
TEST_P(StatesEngineTest, DraftsChangeNothing) {
  const std::vector<Request> requests = SharingRequests();
  const ScheduledRun alone = RunAlone(requests);
  for (const int32_t num_slots : {4 * 3, 60}) {
    const ScheduledRun drafted = Run(
        {.num_slots = num_slots, .drafter = std::make_shared<HalfRightDrafter>(requests, alone)},
        requests);
    ExpectSame(alone, drafted);
    EXPECT_GT(drafted.stats.accepted_drafts, 20);
    EXPECT_GT(drafted.stats.drafted_tokens, drafted.stats.accepted_drafts + 20);
  }
}

// A prefix that an earlier run kept, with all of its states or some, and any page size.
TEST_P(StatesEngineTest, PrefixesFromAStoreChangeNothing) {
  std::vector<Request> requests;
  const std::vector<TokenId> stem = Prompt(200, 9);
  for (RequestId id = 1; id <= 6; ++id) {
    std::vector<TokenId> prompt(stem.begin(), stem.begin() + 80 + static_cast<int64_t>(id) * 20);
    prompt.push_back(static_cast<TokenId>(3 + id));
    requests.push_back(MakeRequest(id, prompt, 8));
  }
  const ScheduledRun alone = RunAlone(requests);
  const auto bytes = static_cast<int64_t>(engine::StateBytesPerSlot(config_).value());
  const auto plan = PlanMemory(config_, {.page_size = 16, .num_pages = 10}, uint64_t{1} << 30);
  const auto store = MakeKvBlockMemory(
      {.max_bytes = 1 << 30,
       .identity = "states",
       .block_bytes = static_cast<int64_t>(plan->kv_bytes_per_token) * kKvBlockTokens,
       .state_bytes = bytes});
  const ScheduledRun cold = Run({.page_size = 16, .store = store.get()}, requests);
  ExpectSame(alone, cold);
  EXPECT_GT(cold.stats.saved_states, 1);
  for (const int32_t page_size : {4, 16, 64}) {
    for (const int depth : {0, 1}) {
      // Each request runs alone, so that others' work does not change what is loaded.
      for (const Request& request : requests) {
        const ScheduledRun warm =
            Run({.page_size = page_size, .depth = depth, .store = store.get()}, {request});
        EXPECT_EQ(warm.stats.failed_loads, 0);
        EXPECT_EQ(warm.stats.loaded_states, 1);
        EXPECT_GE(warm.cached_tokens.at(request.id), kKvBlockTokens);
        EXPECT_EQ(warm.answers.at(request.id).back().token,
                  alone.answers.at(request.id).back().token);
        ScheduledRun one;
        one.answers[request.id] = alone.answers.at(request.id);
        one.scored[request.id] = alone.scored.at(request.id);
        ExpectSame(one, warm);
      }
      ExpectSame(alone,
                 Run({.page_size = page_size, .num_slots = 4 * 3, .store = store.get()}, requests));
    }
  }
}

// A state that is written while a step that reads it is in flight reaches the slot after the step.
TEST_P(StatesEngineTest, AStateIsWrittenInTheOrderOfTheSteps) {
  const DriverOptions options = {.page_size = 16, .max_running_requests = 4};
  EngineDriver driver(config_, *checkpoint_, options);
  Engine* const engine = driver.engine();
  ASSERT_EQ(static_cast<uint64_t>(engine->StateBytes()),
            engine::StateBytesPerSlot(config_).value());
  const std::vector<TokenId> prompt = Prompt(40, 3);
  const auto make_row = [&](uint64_t seed) {
    std::vector<TokenId> tokens = seed == 0 ? prompt : Prompt(40, seed);
    TestRow* row = driver.AddRow(std::move(tokens));
    driver.Extend(row, 16);
    EXPECT_TRUE(driver.Step().ok());
    return row;
  };
  const auto read = [&](StateSlot slot) {
    const auto copy = engine->ReadState(slot);
    EXPECT_TRUE(copy->IsReady());
    std::vector<std::byte> state(static_cast<size_t>(engine->StateBytes()));
    EXPECT_TRUE(copy->TakeBlock(state).ok());
    return state;
  };
  TestRow* const right = make_row(0);
  TestRow* const same = make_row(0);
  TestRow* const other = make_row(5);
  const StateSlot slot = same->states.at(16);
  const auto kept = read(slot), others = read(other->states.at(16));
  EXPECT_TRUE(kept == read(right->states.at(16)));
  EXPECT_FALSE(kept == others);
  driver.ExtendAll(right);
  ASSERT_TRUE(driver.Step().ok());
  driver.ExtendAll(same);
  auto write = engine->BeginStateWrite(slot);
  write->PutBlock(others);
  driver.Launch();
  engine->WriteState(std::move(write));
  const auto behind = engine->ReadState(slot);  // not before the write
  ASSERT_TRUE(driver.Collect().ok());
  EXPECT_TRUE(SameResults(same->results, right->results));
  ASSERT_TRUE(behind->IsReady());
  std::vector<std::byte> state(others.size());
  ASSERT_TRUE(behind->TakeBlock(state).ok());
  EXPECT_TRUE(state == others);
  // With nothing in flight, at once.
  write = engine->BeginStateWrite(slot);
  write->PutBlock(kept);
  engine->WriteState(std::move(write));
  EXPECT_TRUE(read(slot) == kept);
}

// Slots of a device, which runs no step here.
TEST_P(StatesEngineTest, ADeviceCopiesStatesThroughItsBuffers) {
  TestModel model;
  model.config = config_;
  model.checkpoint = std::move(checkpoint_);
  EngineDriver driver(model, {.page_size = 16, .max_running_requests = 4},
                      MakeHostDeviceOps(uint64_t{1} << 30, {}));
  Engine* const engine = driver.engine();
  const auto bytes = static_cast<size_t>(engine->StateBytes());
  ASSERT_EQ(bytes, engine::StateBytesPerSlot(config_).value());
  std::vector<std::vector<std::byte>> states;
  for (StateSlot slot = 0; slot < 6; ++slot) {
    auto& state = states.emplace_back(bytes);
    for (size_t i = 0; i < bytes; ++i) {
      state[i] = static_cast<std::byte>(PhiloxBits(static_cast<uint64_t>(slot), i).word[0]);
    }
    auto write = engine->BeginStateWrite(slot);
    ASSERT_NE(write, nullptr);
    write->PutBlock(state);
    engine->WriteState(std::move(write));
  }
  for (StateSlot slot = 5; slot >= 0; --slot) {
    const auto copy = engine->ReadState(slot);
    ASSERT_NE(copy, nullptr);
    ASSERT_TRUE(copy->IsReady());
    std::vector<std::byte> state(bytes);
    ASSERT_TRUE(copy->TakeBlock(state).ok());
    EXPECT_TRUE(state == states[static_cast<size_t>(slot)]) << slot;
  }
  std::vector<std::unique_ptr<KvBlockCopy>> copies;
  while (auto copy = engine->ReadState(1)) copies.push_back(std::move(copy));
  EXPECT_EQ(std::ssize(copies), engine::DeviceKvCopies::kStateBuffers);
  EXPECT_EQ(engine->BeginStateWrite(2), nullptr);
  const std::vector<PageId> pages(kKvBlockTokens / 16, 1);
  EXPECT_NE(engine->BeginWrite(pages), nullptr) << "blocks have buffers of their own";
}

INSTANTIATE_TEST_SUITE_P(All, StatesEngineTest,
                         testing::Values("lfm2", "lfm2_moe", "qwen3_next", "falcon_h1",
                                         "nemotron_h_moe"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace minisgl
