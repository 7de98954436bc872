// MINISGL_CUDA_DEBUG: each switch does what it says, and only that.
#include "debug_switches.h"

#include <cstdlib>
#include <map>

#include "cuda_ops_fixture.h"
#include "emulator/emulator.h"
#include "launch_watch.h"

namespace minisgl::cuda {
namespace {

struct Word {
  const char* text;
  bool DebugSwitches::*flag;
};
constexpr Word kAllWords[] = {{"no-dependent-launch", &DebugSwitches::no_dependent_launch},
                              {"no-gemv", &DebugSwitches::no_gemv},
                              {"ring", &DebugSwitches::ring},
                              {"no-fused-norm", &DebugSwitches::no_fused_norm},
                              {"no-fused-activation", &DebugSwitches::no_fused_activation},
                              {"no-fused-add", &DebugSwitches::no_fused_add},
                              {"no-graphs", &DebugSwitches::no_graphs},
                              {"no-timed-plans", &DebugSwitches::no_timed_plans},
                              {"no-prefetch", &DebugSwitches::no_prefetch},
                              {"no-carveout", &DebugSwitches::no_carveout},
                              {"decode-by-extend", &DebugSwitches::decode_by_extend},
                              {"short-splits", &DebugSwitches::short_splits},
                              {"keep-codes", &DebugSwitches::keep_codes},
                              {"expand-codes", &DebugSwitches::expand_codes},
                              {"small-pieces", &DebugSwitches::small_pieces},
                              {"product-ends", &DebugSwitches::product_ends},
                              {"l2-hint", &DebugSwitches::l2_hint},
                              {"whole-lines", &DebugSwitches::whole_lines},
                              {"fetch-far", &DebugSwitches::fetch_far},
                              {"chain", &DebugSwitches::chain},
                              {"code-tiles", &DebugSwitches::code_tiles},
                              {"w8a8", &DebugSwitches::w8a8},
                              {"sync", &DebugSwitches::sync}};

TEST(DebugSwitchesTest, EachWordSetsItsSwitch) {
  const auto none = ParseDebugSwitches("");
  ASSERT_TRUE(none.ok());
  std::string all;
  for (const Word& word : kAllWords) {
    EXPECT_FALSE((*none).*word.flag) << word.text;
    const auto one = ParseDebugSwitches(word.text);
    ASSERT_TRUE(one.ok()) << one.status().message();
    for (const Word& other : kAllWords) {
      EXPECT_EQ((*one).*other.flag, word.flag == other.flag) << word.text << " " << other.text;
    }
    all += std::string(all.empty() ? "" : ",") + word.text;
  }
  const auto every = ParseDebugSwitches(all), two = ParseDebugSwitches(",sync,,no-gemv,");
  for (const Word& word : kAllWords) {
    EXPECT_TRUE((*every).*word.flag) << word.text;
    const bool named = word.flag == &DebugSwitches::sync || word.flag == &DebugSwitches::no_gemv;
    EXPECT_EQ((*two).*word.flag, named) << word.text;
  }
}

TEST(DebugSwitchesTest, AnUnknownWordIsAnErrorThatListsAll) {
  for (const char* const words : {"sink", "sync,no-gem", "Sync", "sync no-gemv"}) {
    const auto parsed = ParseDebugSwitches(words);
    ASSERT_FALSE(parsed.ok()) << words;
    EXPECT_EQ(parsed.status().code(), StatusCode::kUsage);
    EXPECT_NE(parsed.status().message().find("MINISGL_CUDA_DEBUG"), std::string::npos);
    for (const Word& word : kAllWords) {
      EXPECT_NE(parsed.status().message().find(word.text), std::string::npos)
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

TEST_F(CudaDebugTest, FusedPartsAreKernelsOfTheirOwnWithoutTheirSwitch) {
  // Launches of a product with a large matrix (`ring`), whose kernel computes the norm before it.
  const auto launches = [this](DebugSwitches debug, const CudaOpsConfig& config = {},
                               bool ring = true) {
    debug.ring = ring;
    Open(debug, config);
    const NormParams norm = {.x = nullptr,
                             .residual = reinterpret_cast<float*>(At(0)),
                             .weight = reinterpret_cast<const float*>(At(256)),
                             .out = {At(512), DType::kBF16},
                             .num_tokens = 1,
                             .width = 40,
                             .eps = 1e-5f};
    const ActivateParams activation = {.gate_up = {At(768), DType::kBF16},
                                       .out = {At(1024), DType::kBF16},
                                       .num_tokens = 1,
                                       .width = 4,
                                       .activation = Activation::kSilu};
    const size_t before = recorder_->launches.size();
    ops_->FusedLinear({.norm = &norm,
                       .linear = {.x = {At(512), DType::kBF16},
                                  .weight = &matrix_,
                                  .bias = nullptr,
                                  .out = {At(768), DType::kBF16},
                                  .num_tokens = 1},
                       .activation = &activation});
    EXPECT_TRUE(ops_->Synchronize().ok()) << ops_->status().message();
    return recorder_->launches.size() - before;
  };
  EXPECT_EQ(launches({}), 1u);
  EXPECT_TRUE(ops_->AddsInLinear(kLibraryTokens - 1));
  EXPECT_FALSE(ops_->AddsInLinear(kLibraryTokens));
  EXPECT_EQ(launches({.no_fused_norm = true}), 2u);
  EXPECT_EQ(launches({.no_fused_activation = true}), 2u);
  EXPECT_EQ(launches({.no_fused_norm = true, .no_fused_activation = true}), 3u);
  EXPECT_EQ(launches({}, {}, /*ring=*/false), 2u) << "a small matrix after its norm";
  EXPECT_TRUE(ops_->AddsInLinear(1));
  EXPECT_EQ(launches({.no_fused_add = true}), 1u);
  EXPECT_FALSE(ops_->AddsInLinear(1));
  // Where the library computes the product, nothing is fused.
  EXPECT_EQ(launches({}, {.deterministic = true}), 2u);
  EXPECT_EQ(matmul_->num_products(), 1);
  EXPECT_FALSE(ops_->AddsInLinear(1));
  EXPECT_EQ(launches({.no_gemv = true}), 2u);
  EXPECT_FALSE(ops_->AddsInLinear(1));
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
    const std::vector<std::byte> bytes(size_t{4096} * 3072 * 2);
    const TensorView view = {.data = bytes.data(), .dtype = DType::kBF16, .shape = {4096, 3072}};
    const Matrix large = *ops_->PackMatrix({&view, 1}, DType::kBF16);
    emulator::SetOptions({.records_prefetches = true});
    ops_->Linear({.x = {At(0), DType::kBF16},
                  .weight = &matrix_,
                  .bias = nullptr,
                  .out = {At(2048), DType::kF32},
                  .num_tokens = 1,
                  .next = &large});
    EXPECT_TRUE(ops_->Synchronize().ok());
    emulator::SetOptions({});
    size_t num_bytes = 0;
    for (const emulator::Prefetch& part : emulator::TakePrefetches()) num_bytes += part.num_bytes;
    return num_bytes;
  };
  EXPECT_GT(fetched({.ring = true}), 0u);
  EXPECT_EQ(fetched({.ring = true, .no_prefetch = true}), 0u);
  EXPECT_EQ(fetched({}), 0u) << "of a small matrix";
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
                                              [&] { Multiply(kLibraryTokens); },
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
  Multiply(kLibraryTokens);
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
