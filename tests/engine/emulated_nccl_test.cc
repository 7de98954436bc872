// The CUDA engine on several emulated devices whose sums are NCCL's (tests/cuda/fake_nccl.cc): the
// bits equal those of its own kernels for every schedule, and a rank that fails ends the step of
// all.
#include <gtest/gtest.h>

#include <algorithm>

#include "emulator/emulator.h"
#include "engine/emulated_cuda.h"
#include "fake_nccl_fixture.h"

namespace minisgl {
namespace {

using cuda::emulator::EmulatedCudaApi;

struct NcclSetup {
  int32_t num_ranks = 2;
  CudaOpsConfig ops = {};
  int64_t nccl_bytes_min = 0;
  int64_t wait_ms = 1'000'000;
  bool no_peers = false;
  bool lazy = false;  // a device works when the host waits for it
};

// Named Emulated, so that they run for one target of the CPU.
class EmulatedNcclTest : public cuda::FakeNcclTest {
 protected:
  static DriverOptions TwoRows() { return {.max_running_requests = 2}; }
  std::unique_ptr<EngineDriver> OnNccl(const NcclSetup& setup, DriverOptions options) {
    apis_.clear();
    auto ops = EmulatedRanksOf<EmulatedCudaApi>(setup.num_ranks,
                                                {.ops = setup.ops,
                                                 .wait_ms = setup.wait_ms,
                                                 .nccl = true,
                                                 .nccl_bytes_min = setup.nccl_bytes_min},
                                                {.no_peers = setup.no_peers}, &apis_,
                                                cuda::LoadFakeNccl, setup.lazy);
    text_ = ops[0]->SumsText();
    nccl_->enqueue = [this](int rank, void* handle, void* x, size_t num_bytes,
                            std::function<void()> work) {
      auto* const stream = static_cast<cuda::CudaStream>(handle);
      apis_[static_cast<size_t>(rank)]->Enqueue(stream, [stream, x, num_bytes,
                                                         work = std::move(work)] {
        cuda::emulator::RecordKernel("(sum by NCCL)", stream, {{x, num_bytes}}, {{x, num_bytes}});
        work();
      });
    };
    nccl_->has_graphs = [this] {
      return std::any_of(apis_.begin(), apis_.end(),
                         [](const auto& api) { return api->live().graph_execs > 0; });
    };
    options.num_ranks = setup.num_ranks;
    return std::make_unique<EngineDriver>(*model_, options, std::move(ops));
  }
  std::vector<RowResult> OnOwnKernels(int32_t num_ranks, DriverOptions options,
                                      const CudaOpsConfig& config = {}) {
    options.num_ranks = num_ranks;
    EngineDriver driver(*model_, options, EmulatedRanks(num_ranks, config));
    return driver.Generate(driver.AddRow(prompt_), kAll, kAnswer);
  }

  // The error of a step in which rank `faulty` fails as planted; the engine is then destroyed.
  Status FailingStep(EngineDriver* driver) {
    driver->ExtendAll(driver->AddRow({4, 5, 6}));
    return driver->Step();
  }

  static constexpr int32_t kAnswer = 3;
  const std::unique_ptr<TestModel> model_ = MakeEmulatedModel();
  const std::vector<TokenId> prompt_ = RandomPrompt(13, 3);
  std::vector<std::shared_ptr<EmulatedCudaApi>> apis_;
  std::string text_;
};

TEST_F(EmulatedNcclTest, SumsHaveTheBitsOfTheRanksOwn) {
  const auto wanted = OnOwnKernels(2, TwoRows());
  for (const bool graphs : {false, true}) {
    DriverOptions options = TwoRows();
    if (graphs) options.graph_max_rows = options.graph_max_tokens = 4;
    const auto driver = OnNccl({.lazy = graphs}, options);
    EXPECT_EQ(text_, "sums over ranks by NCCL 2.27.3");
    EXPECT_TRUE(SameResults(driver->Generate(driver->AddRow(prompt_), kAll, kAnswer), wanted))
        << graphs;
  }
  EXPECT_EQ(nccl_->num_aborted, 0);
}

// Long sums are NCCL's, short ones, with the norms behind them, the program's own.
TEST_F(EmulatedNcclTest, ShortSumsStayTheRanksOwn) {
  const auto wanted = OnOwnKernels(2, TwoRows());
  // The limit is 4 tokens of 64 features. A decode step has one token, the prompt 13.
  const auto driver = OnNccl({.nccl_bytes_min = 4 * 64 * 2}, TwoRows());
  EXPECT_EQ(text_, "sums over ranks of more than 0 KiB by NCCL 2.27.3");
  TestRow* const row = driver->AddRow(prompt_);
  const int before = nccl_->num_sums;
  EXPECT_TRUE(SameResults(driver->Generate(row, kAll, 1), {wanted[0]}));
  // On two ranks, of the embedding and two of each of two layers.
  EXPECT_EQ(nccl_->num_sums - before, 2 * (1 + 2 * 2));
  const int of_prompt = nccl_->num_sums;
  EXPECT_TRUE(SameResults(driver->Generate(row, kAll, kAnswer), wanted));
  EXPECT_EQ(nccl_->num_sums, of_prompt);
}

// Without peers all sums are NCCL's, whatever their length.
TEST_F(EmulatedNcclTest, WithoutPeersAllSumsAreNccls) {
  const auto wanted = OnOwnKernels(2, TwoRows());
  const auto driver = OnNccl({.nccl_bytes_min = 1 << 20, .no_peers = true}, TwoRows());
  EXPECT_EQ(text_, "sums over ranks by NCCL 2.27.3");
  const int before = nccl_->num_sums;
  EXPECT_TRUE(SameResults(driver->Generate(driver->AddRow(prompt_), kAll, kAnswer), wanted));
  EXPECT_EQ(nccl_->num_sums - before, kAnswer * 2 * (1 + 2 * 2));
}

// Pages, chunks, graphs, other rows, and steps in flight.
TEST_F(EmulatedNcclTest, EveryScheduleGivesTheSameBits) {
  const CudaOpsConfig deterministic{.deterministic = true};
  for (const int32_t num_ranks : {2, 4}) {
    if (num_ranks == 4) {
      model_->config.num_heads = 8;
      model_->config.num_kv_heads = 4;
      model_->checkpoint = WriteCheckpoint(model_->dir, TinyTensors(model_->config));
    }
    const auto wanted = OnOwnKernels(num_ranks, TwoRows(), deterministic);
    const auto driver = OnNccl(
        {.num_ranks = num_ranks, .ops = deterministic},
        {.page_size = 4, .max_running_requests = 2, .graph_max_rows = 2, .graph_max_tokens = 8});
    TestRow* const mate = driver->AddRow(RandomPrompt(3, 4));
    driver->ExtendAll(mate);
    ASSERT_TRUE(driver->Step().ok());
    TestRow* const row = driver->AddRow(prompt_);
    while (row->results.size() < kAnswer) {
      driver->ExtendAll(mate);
      driver->Extend(row, std::min(5, row->known_len - row->computed_len));
      driver->Launch();
      driver->ExtendAll(mate);
      driver->Launch();
      ASSERT_TRUE(driver->Collect().ok());
      ASSERT_TRUE(driver->Collect().ok());
    }
    EXPECT_TRUE(SameResults(row->results, wanted)) << num_ranks;
  }
}

// The setup that NCCL does at the first sum of a length happens before the first step.
TEST_F(EmulatedNcclTest, TheLongestSumRunsAtTheStart) {
  DriverOptions options = TwoRows();
  options.max_prefill_tokens = 14;
  const auto driver = OnNccl({}, options);
  const size_t most = static_cast<size_t>(driver->engine()->limits().max_step_tokens) * 64;
  EXPECT_EQ(nccl_->longest, most);
  EXPECT_GT(nccl_->num_sums, 2 * 10);
}

// An error of a call, and one that NCCL finds later: the message is NCCL's, with the device.
TEST_F(EmulatedNcclTest, AnErrorOfOneRankEndsTheStepOfAll) {
  for (const bool graphs : {false, true}) {
    for (const int faulty : {0, 1}) {
      for (const bool is_late : {false, true}) {
        if (graphs && !is_late) continue;  // a graph calls NCCL when it is captured
        SCOPED_TRACE(testing::Message() << "rank " << faulty << (is_late ? ", late" : ""));
        DriverOptions options = TwoRows();
        if (graphs) options.graph_max_rows = options.graph_max_tokens = 4;
        const auto driver = OnNccl({.lazy = graphs}, options);
        nccl_->num_aborted = 0;
        nccl_->is_absent = is_late;
        (is_late ? nccl_->async_error : nccl_->sum_error) = 2;
        nccl_->faulty_rank = faulty;
        const std::string message = FailingStep(driver.get()).message();
        EXPECT_NE(message.find("unhandled system error (what went wrong)"), std::string::npos)
            << message;
        const std::string number = std::to_string(faulty);
        EXPECT_TRUE(message.find("cuda:" + number) != std::string::npos ||
                    message.find("rank " + number + " has failed") != std::string::npos)
            << message;
        EXPECT_FALSE(FailingStep(driver.get()).ok());
        Heal();
      }
    }
  }
}

// A rank that never comes to a sum is given up after the wait, by a clock that goes on only here:
// a step that takes long on a busy machine is not given up.
TEST_F(EmulatedNcclTest, ARankThatNeverComesIsGivenUp) {
  for (const bool graphs : {false, true}) {
    DriverOptions options = TwoRows();
    if (graphs) options.graph_max_rows = options.graph_max_tokens = 4;
    const auto driver = OnNccl({.wait_ms = 1000, .lazy = graphs}, options);
    nccl_->num_aborted = 0;
    nccl_->is_absent = true;
    nccl_->faulty_rank = 1;
    const int64_t begin_ms = nccl_->now_ms;
    nccl_->look_ms = 100;
    const std::string message = FailingStep(driver.get()).message();
    EXPECT_GE(nccl_->now_ms - begin_ms, 1000);
    EXPECT_NE(message.find("waited 1 s in NCCL for another device"), std::string::npos) << message;
    EXPECT_GE(nccl_->num_aborted, 1);
    Heal();
  }
}

// A fault of CUDA on one rank, while the other waits in NCCL.
TEST_F(EmulatedNcclTest, AFaultOfOneDeviceEndsTheStepOfAll) {
  for (const size_t faulty : {size_t{0}, size_t{1}}) {
    for (const char* const call : {"LaunchKernel", "EventSynchronize", "CopyAsync"}) {
      SCOPED_TRACE(testing::Message() << call << " of rank " << faulty);
      const auto driver = OnNccl({}, TwoRows());
      driver->ExtendAll(driver->AddRow({1, 2, 3}));
      ASSERT_TRUE(driver->Step().ok());
      apis_[faulty]->FailAt(call, 1, cuda::kCudaLaunchFailure, /*forever=*/true);
      const std::string message = FailingStep(driver.get()).message();
      EXPECT_NE(message.find("cuda:" + std::to_string(faulty)), std::string::npos) << message;
      EXPECT_EQ(message.find("another device"), std::string::npos) << message;
    }
  }
}

TEST_F(EmulatedNcclTest, AGpuThatIsNamedTwiceIsRefused) {
  const CudaRanksConfig config = {.devices = {0, 1, 0}, .nccl = true};
  const auto ops = cuda::MakeCudaRanksOver(nullptr, nullptr, config, {}, cuda::LoadFakeNccl);
  EXPECT_EQ(ops.status().code(), StatusCode::kUsage);
  EXPECT_EQ(ops.status().message(),
            "all_reduce nccl: cuda:0 is named more than once, and NCCL has one rank on a GPU");
}

}  // namespace
}  // namespace minisgl
