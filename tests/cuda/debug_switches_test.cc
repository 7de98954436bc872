// MINISGL_CUDA_DEBUG: each switch does what it says, and only that.
#include "debug_switches.h"

#include <cstdlib>
#include <map>

#include "cuda_ops_fixture.h"
#include "emulator/emulator.h"
#include "launch_watch.h"

namespace minisgl::cuda {
namespace {

constexpr const char* kAllWords[] = {"no-dependent-launch", "no-gemv",      "no-graphs",
                                     "no-timed-plans",      "no-prefetch",  "no-carveout",
                                     "decode-by-extend",    "short-splits", "sync"};

TEST(DebugSwitchesTest, EachWordSetsItsSwitch) {
  const auto none = ParseDebugSwitches("");
  ASSERT_TRUE(none.ok());
  const auto as_text = [](const DebugSwitches& s) {
    return std::string{
        s.no_dependent_launch ? '1' : '0', s.no_gemv ? '1' : '0',      s.no_graphs ? '1' : '0',
        s.no_timed_plans ? '1' : '0',      s.no_prefetch ? '1' : '0',  s.no_carveout ? '1' : '0',
        s.decode_by_extend ? '1' : '0',    s.short_splits ? '1' : '0', s.sync ? '1' : '0'};
  };
  EXPECT_EQ(as_text(*none), "000000000");
  std::string all;
  for (size_t i = 0; i < std::size(kAllWords); ++i) {
    const auto one = ParseDebugSwitches(kAllWords[i]);
    ASSERT_TRUE(one.ok()) << one.status().message();
    std::string wanted = "000000000";
    wanted[i] = '1';
    EXPECT_EQ(as_text(*one), wanted) << kAllWords[i];
    all += std::string(all.empty() ? "" : ",") + kAllWords[i];
  }
  EXPECT_EQ(as_text(*ParseDebugSwitches(all)), "111111111");
  EXPECT_EQ(as_text(*ParseDebugSwitches(",sync,,no-gemv,")), "010000001");
}

TEST(DebugSwitchesTest, AnUnknownWordIsAnErrorThatListsAll) {
  for (const char* const words : {"sink", "sync,no-gem", "Sync", "sync no-gemv"}) {
    const auto parsed = ParseDebugSwitches(words);
    ASSERT_FALSE(parsed.ok()) << words;
    EXPECT_EQ(parsed.status().code(), StatusCode::kUsage);
    EXPECT_NE(parsed.status().message().find("MINISGL_CUDA_DEBUG"), std::string::npos);
    for (const char* const word : kAllWords) {
      EXPECT_NE(parsed.status().message().find(word), std::string::npos)
          << parsed.status().message();
    }
  }
}

TEST(DebugSwitchesTest, TheyAreReadFromTheEnvironment) {
  ::unsetenv(kDebugVariable);
  ASSERT_TRUE(ReadDebugSwitches().ok());
  EXPECT_FALSE(ReadDebugSwitches()->sync);
  ::setenv(kDebugVariable, "sync", 1);
  EXPECT_TRUE(ReadDebugSwitches()->sync);
  ::setenv(kDebugVariable, "sunk", 1);
  EXPECT_FALSE(ReadDebugSwitches().ok());
  ::unsetenv(kDebugVariable);
}

TEST(ShortKernelNameTest, IsTheNameWithoutItsSurroundings) {
  EXPECT_EQ(
      ShortKernelName("_ZN7minisgl4cuda39_GLOBAL__N__dbca09e9_7_step_cu_b5f0603e11PauseKernelEj"),
      "PauseKernel");
  EXPECT_EQ(ShortKernelName("_ZN7minisgl4cuda12ExtendKernelI13__nv_bfloat16Li128ELb1EEEvNS0_"
                            "18AttentionArgumentsIT_EEib"),
            "ExtendKernel");
  EXPECT_EQ(ShortKernelName("kernel (int*, int)"), "kernel (int*, int)");
  EXPECT_EQ(ShortKernelName(""), "");
}

// Remembers launches and hints, and runs kernels only if `runs`.
class RecordingApi : public EmulatedCudaApi {
 public:
  CudaError LaunchKernel(const void* kernel, const CudaLaunch& launch, void** arguments) override {
    launches.push_back(launch);
    kernels.push_back(kernel);
    return runs ? EmulatedCudaApi::LaunchKernel(kernel, launch, arguments) : kCudaSuccess;
  }
  CudaError SetSharedCarveout(const void* kernel, int percent) override {
    carveouts[kernel] = percent;
    return EmulatedCudaApi::SetSharedCarveout(kernel, percent);
  }

  bool runs = true;
  std::vector<CudaLaunch> launches;
  std::vector<const void*> kernels;
  std::map<const void*, int> carveouts;
};

class CudaDebugTest : public QueuedOpsFixture {
 protected:
  void Open(const DebugSwitches& debug, const CudaOpsConfig& config = {}) {
    recorder_ = std::make_shared<RecordingApi>();
    api_ = recorder_;
    debug_ = debug;
    OpenReserved(config);
  }

  // The kernel that rows of one token use.
  const void* DecodeKernel(const DebugSwitches& debug, bool deterministic = false) {
    Open(debug, {.deterministic = deterministic});
    recorder_->runs = false;
    AttentionParams params = {};
    params.qkv = {At(0), DType::kBF16};
    params.out = {At(2048), DType::kBF16};
    params.kv.base = {At(0), DType::kBF16};
    params.kv.page_size = 16;
    params.num_rows = params.num_decode_rows = 2;
    params.num_tokens = 2;
    params.num_heads = 2;
    params.num_kv_heads = 1;
    params.head_dim = 64;
    params.scale = 1;
    ops_->Attention(params);
    EXPECT_TRUE(ops_->status().ok()) << ops_->status().message();
    return recorder_->kernels.back();
  }

  std::shared_ptr<RecordingApi> recorder_;
};

TEST_F(CudaDebugTest, NoDependentLaunchTakesTheAttributeAway) {
  for (const bool without : {false, true}) {
    Open({.no_dependent_launch = without});
    Gather();
    Multiply(1);
    ASSERT_GE(recorder_->launches.size(), 2u);
    for (const CudaLaunch& launch : recorder_->launches) {
      EXPECT_EQ(launch.programmatic, !without);
    }
  }
}

TEST_F(CudaDebugTest, NoGemvSendsEveryProductToTheLibrary) {
  for (const bool without : {false, true}) {
    Open({.no_gemv = without});
    const size_t launches = recorder_->launches.size();
    Multiply(1);
    EXPECT_EQ(matmul_->num_products(), without ? 1 : 0);
    EXPECT_EQ(recorder_->launches.size() - launches, without ? 0u : 1u);
  }
}

TEST_F(CudaDebugTest, NoGraphsRefusesCapturesAndNothingElse) {
  Open({});
  EXPECT_TRUE(ops_->RunsGraphs());
  for (const DebugSwitches& debug :
       {DebugSwitches{.no_graphs = true}, DebugSwitches{.sync = true}}) {
    Open(debug);
    EXPECT_FALSE(ops_->RunsGraphs());
    EXPECT_FALSE(ops_->BeginCapture().ok());
    EXPECT_EQ(api_->num_calls("BeginCapture"), 0);
    Gather();
    EXPECT_TRUE(ops_->Synchronize().ok());
    EXPECT_FALSE(recorder_->launches.empty());
  }
}

TEST_F(CudaDebugTest, EveryKernelHasTheSameCarveout) {
  Open({});
  Gather();
  Multiply(1);
  ASSERT_GE(recorder_->kernels.size(), 2u);
  for (const void* kernel : recorder_->kernels) {
    ASSERT_TRUE(recorder_->carveouts.contains(kernel));
    EXPECT_EQ(recorder_->carveouts[kernel], 100);
  }
  Open({.no_carveout = true});
  Gather();
  Multiply(1);
  EXPECT_TRUE(recorder_->carveouts.empty());
}

TEST_F(CudaDebugTest, NoTimedPlansTimesNoAlgorithm) {
  Open({}, {.cache_folder = "/folder"});
  EXPECT_TRUE(matmul_setup_.times_algorithms);
  EXPECT_EQ(matmul_setup_.cache_folder, "/folder");
  EXPECT_NE(matmul_setup_.device.find("Emulated GPU, sm_90, 4 multi"), std::string::npos)
      << matmul_setup_.device;
  Open({.no_timed_plans = true});
  EXPECT_FALSE(matmul_setup_.times_algorithms);
}

TEST_F(CudaDebugTest, NoPrefetchFetchesNothingAhead) {
  const auto fetched = [this](const DebugSwitches& debug) {
    Open(debug);
    emulator::SetOptions({.records_prefetches = true});
    ops_->Linear({.x = {At(0), DType::kBF16},
                  .weight = &matrix_,
                  .bias = nullptr,
                  .out = {At(2048), DType::kF32},
                  .num_tokens = 1,
                  .next = &matrix_});
    EXPECT_TRUE(ops_->Synchronize().ok());
    emulator::SetOptions({});
    size_t num_bytes = 0;
    for (const emulator::Prefetch& part : emulator::TakePrefetches()) num_bytes += part.num_bytes;
    return num_bytes;
  };
  EXPECT_EQ(fetched({}), size_t{8 * 40 * 2});
  EXPECT_EQ(fetched({.no_prefetch = true}), 0u);
}

TEST_F(CudaDebugTest, DecodeByExtendUsesTheDeterministicKernel) {
  const void* const own = DecodeKernel({});
  const void* const deterministic = DecodeKernel({}, /*deterministic=*/true);
  EXPECT_NE(own, deterministic);
  EXPECT_EQ(DecodeKernel({.decode_by_extend = true}), deterministic);
}

TEST_F(CudaDebugTest, SyncWaitsAfterEachKernelProductAndCopy) {
  Open({.sync = true});
  const auto host = ops_->AllocateHost(64);
  ASSERT_TRUE(host.ok());
  const std::function<void()> operations[] = {[&] { Gather(); },
                                              [&] { Multiply(1); },
                                              [&] { Multiply(17); },
                                              [&] { ops_->CopyToDevice(At(0), host->get(), 64); },
                                              [&] { ops_->CopyOnDevice(At(0), At(64), 64); },
                                              [&] { ops_->CopyToHost(host->get(), At(0), 64); }};
  for (const auto& operation : operations) {
    const int before = api_->num_calls("StreamSynchronize");
    operation();
    EXPECT_EQ(api_->num_calls("StreamSynchronize"), before + 1);
  }
  EXPECT_TRUE(ops_->status().ok());
}

// The device's error names what caused it.
TEST_F(CudaDebugTest, SyncNamesTheOperationOfAFault) {
  Open({.sync = true});
  Gather();
  api_->FailAt("StreamSynchronize", 1, kCudaIllegalAddress);
  Gather();
  EXPECT_EQ(ops_->status().code(), StatusCode::kInternal);
  EXPECT_NE(ops_->status().message().find("the kernel of GatherRows ("), std::string::npos)
      << ops_->status().message();
  EXPECT_NE(ops_->status().message().find("GatherKernelParams"), std::string::npos);
  EXPECT_NE(ops_->status().message().find("launch 2) on cuda:0 (Emulated GPU"), std::string::npos)
      << ops_->status().message();
  EXPECT_NE(ops_->status().message().find("cudaErrorIllegalAddress"), std::string::npos);

  Open({.sync = true});
  api_->FailAt("StreamSynchronize", 1, kCudaIllegalAddress);
  Multiply(17);
  EXPECT_NE(ops_->status().message().find("Linear [8, 40] (launch 1) on cuda:0"), std::string::npos)
      << ops_->status().message();

  Open({.sync = true});
  api_->FailAt("StreamSynchronize", 1, kCudaIllegalAddress);
  ops_->CopyOnDevice(At(0), At(64), 64);
  EXPECT_NE(ops_->status().message().find("cudaMemcpyAsync on the device"), std::string::npos)
      << ops_->status().message();
}

}  // namespace
}  // namespace minisgl::cuda
