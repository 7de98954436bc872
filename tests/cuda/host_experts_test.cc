// Experts on the host of the CUDA engine: the hand-over in pinned memory, its order between the
// streams, in graphs too, with every wait left out in turn, and its faults.
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>

#include "cuda_ops_fixture.h"
#include "emulator/emulator.h"
#include "minisgl/host_experts.h"

namespace minisgl::cuda {
namespace {

constexpr int64_t kRowWidth = 64, kRowTokens = 6;
constexpr int32_t kTwoChosen = 2, kHostLayers = 3;

// Can leave out one wait of a stream for an event: the n-th from now on.
class PlantedApi final : public EmulatedCudaApi {
 public:
  using EmulatedCudaApi::EmulatedCudaApi;
  void LeaveOut(int n) { waits_left_ = n; }
  CudaError StreamWaitEvent(CudaStream stream, CudaEvent event) override {
    if (waits_left_ > 0 && --waits_left_ == 0) return kCudaSuccess;
    return EmulatedCudaApi::StreamWaitEvent(stream, event);
  }

 private:
  int waits_left_ = 0;
};

// Expert e of layer l multiplies by e + l + 1.
class Multiplying final : public HostExpertLayer {
 public:
  explicit Multiplying(int layer) : layer_(layer) {}
  void Run(const HostExpertRows& rows) override {
    if (fails_) throw std::runtime_error("a thread broke");
    num_rows_ += rows.num_tokens;
    for (int64_t t = 0; t < rows.num_tokens; ++t) {
      float factor = 0;
      for (int64_t k = t * kTwoChosen; k < (t + 1) * kTwoChosen; ++k) {
        factor += rows.shares[k] * static_cast<float>(rows.experts[k] + layer_ + 1);
      }
      for (int64_t i = t * kRowWidth; i < (t + 1) * kRowWidth; ++i) {
        rows.out.as<uint16_t>()[i] = FloatToBf16(factor * Bf16ToFloat(rows.x.as<uint16_t>()[i]));
      }
    }
  }
  void Fail() { fails_ = true; }
  int64_t num_rows() const { return num_rows_; }

 private:
  const int layer_;
  bool fails_ = false;
  int64_t num_rows_ = 0;
};

// Layers as a decoder runs them: the device overwrites the input while the host computes.
class HostScene {
 public:
  explicit HostScene(const EmulatedCudaConfig& config = {}, const DebugSwitches& debug = {})
      : api_(std::make_shared<PlantedApi>(config)), debug_(debug) {}

  PlantedApi& api() { return *api_; }
  DeviceOps& ops() { return *ops_; }
  Multiplying& layer(int index) { return layers_[static_cast<size_t>(index)]; }

  Status Open() {
    MINISGL_ASSIGN_OR_RETURN(
        ops_, MakeCudaOpsOver(
                  api_,
                  [this](const MatmulSetup&) -> Result<std::unique_ptr<MatmulLibrary>> {
                    return std::unique_ptr<MatmulLibrary>(new EmulatedMatmul(api_.get()));
                  },
                  {.profile = debug_.sync ? std::make_shared<KernelProfile>(1) : nullptr}, debug_));
    DeviceLimits limits = SmallLimits();
    limits.host_expert_width = kRowWidth;
    return ops_->Reserve(limits);
  }
  Status Take() {
    constexpr size_t kRowsBytes = kRowTokens * kRowWidth * sizeof(uint16_t);
    for (std::shared_ptr<void>* const array : {&input_, &hidden_, &other_, &sum_}) {
      MINISGL_ASSIGN_OR_RETURN(*array, ops_->Allocate(kRowsBytes));
    }
    const size_t choices = kRowTokens * kTwoChosen * sizeof(float);
    MINISGL_ASSIGN_OR_RETURN(experts_, ops_->Allocate(choices));
    MINISGL_ASSIGN_OR_RETURN(shares_, ops_->Allocate(choices));
    MINISGL_ASSIGN_OR_RETURN(num_real_, ops_->Allocate(sizeof(int32_t)));
    MINISGL_ASSIGN_OR_RETURN(result_, ops_->AllocateHost(kRowsBytes));
    std::vector<uint16_t> x(kRowTokens * kRowWidth);
    for (size_t i = 0; i < x.size(); ++i) x[i] = FloatToBf16(static_cast<float>(i % 7));
    std::vector<int32_t> experts;
    std::vector<float> shares;
    for (int32_t i = 0; i < kRowTokens * kTwoChosen; ++i) {
      experts.push_back(i % 3);
      shares.push_back(i % 2 == 0 ? 1.0f : 2.0f);
    }
    const std::vector<uint16_t> noise(x.size(), FloatToBf16(100));
    const int32_t num_real = kRowTokens - 2;
    MINISGL_RETURN_IF_ERROR(ops_->Upload(input_.get(), x.data(), kRowsBytes));
    MINISGL_RETURN_IF_ERROR(ops_->Upload(other_.get(), noise.data(), kRowsBytes));
    MINISGL_RETURN_IF_ERROR(ops_->Upload(experts_.get(), experts.data(), choices));
    MINISGL_RETURN_IF_ERROR(ops_->Upload(shares_.get(), shares.data(), choices));
    return ops_->Upload(num_real_.get(), &num_real, sizeof(num_real));
  }

  void RunLayers(bool padded = false) {
    constexpr size_t kRowsBytes = kRowTokens * kRowWidth * sizeof(uint16_t);
    ops_->CopyOnDevice(hidden_.get(), input_.get(), kRowsBytes);
    for (Multiplying& layer : layers_) {
      ops_->BeginHostExperts(
          {.layer = &layer,
           .x = {hidden_.get(), DType::kBF16},
           .experts = static_cast<const int32_t*>(experts_.get()),
           .shares = static_cast<const float*>(shares_.get()),
           .out = {sum_.get(), DType::kBF16},
           .num_tokens = kRowTokens,
           .width = kRowWidth,
           .num_chosen = kTwoChosen,
           .num_real = padded ? static_cast<int32_t*>(num_real_.get()) : nullptr});
      ops_->CopyOnDevice(hidden_.get(), other_.get(), kRowsBytes);
      ops_->EndHostExperts();
      ops_->CopyOnDevice(hidden_.get(), sum_.get(), kRowsBytes);
      ops_->CopyOnDevice(sum_.get(), other_.get(), kRowsBytes);
    }
  }
  // Waits for the end of what is queued.
  Result<std::vector<float>> Read() {
    ops_->CopyToHost(result_.get(), hidden_.get(), kRowTokens * kRowWidth * sizeof(uint16_t));
    MINISGL_ASSIGN_OR_RETURN(const auto event, ops_->MakeEvent());
    ops_->Record(event.get());
    MINISGL_RETURN_IF_ERROR(ops_->Wait(event.get()));
    std::vector<float> values;
    for (int64_t i = 0; i < kRowTokens * kRowWidth; ++i) {
      values.push_back(Bf16ToFloat(static_cast<const uint16_t*>(result_.get())[i]));
    }
    return values;
  }
  static std::vector<float> Wanted(bool padded = false) {
    std::vector<float> values;
    for (int64_t i = 0; i < kRowTokens * kRowWidth; ++i) {
      const auto token = static_cast<int32_t>(i / kRowWidth);
      float value = static_cast<float>(i % 7);
      for (int32_t layer = 0; layer < kHostLayers; ++layer) {
        float factor = 0;
        for (int32_t k = token * kTwoChosen; k < (token + 1) * kTwoChosen; ++k) {
          factor += (k % 2 == 0 ? 1.0f : 2.0f) * static_cast<float>(k % 3 + layer + 1);
        }
        value = Bf16ToFloat(FloatToBf16(factor * value));
      }
      values.push_back(padded && token >= kRowTokens - 2 ? 0 : value);
    }
    return values;
  }

 private:
  const std::shared_ptr<PlantedApi> api_;
  const DebugSwitches debug_;
  std::vector<Multiplying> layers_ = {Multiplying(0), Multiplying(1), Multiplying(2)};
  std::unique_ptr<DeviceOps> ops_;
  std::shared_ptr<void> input_, hidden_, other_, sum_, experts_, shares_, num_real_, result_;
};

// Work begins at once, or as late as it may, or only the compute stream is late.
const EmulatedCudaConfig kOrders[] = {
    {}, {.lazy = true, .lazy_compute = false}, {.lazy = false, .lazy_compute = true}};

TEST(HostExpertsTest, GiveTheSumsOfTheHost) {
  for (const EmulatedCudaConfig& order : kOrders) {
    HostScene scene(order);
    ASSERT_TRUE(scene.Open().ok() && scene.Take().ok());
    for (int run = 0; run < 2; ++run) {
      scene.RunLayers();
      const auto found = scene.Read();
      ASSERT_TRUE(found.ok()) << found.status().message();
      EXPECT_EQ(*found, HostScene::Wanted());
    }
  }
}

// Also where each launch is waited for and timed.
TEST(HostExpertsTest, EachWaitForTheHostMayBeTimed) {
  HostScene scene({}, {.sync = true});
  ASSERT_TRUE(scene.Open().ok() && scene.Take().ok());
  scene.RunLayers();
  const auto found = scene.Read();
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(*found, HostScene::Wanted());
}

// The host computes while the device goes on: nothing waits before EndHostExperts.
TEST(HostExpertsTest, TheDeviceGoesOnBesideTheHost) {
  HostScene scene({.lazy = true});
  ASSERT_TRUE(scene.Open().ok() && scene.Take().ok());
  scene.RunLayers();
  for (int layer = 0; layer < kHostLayers; ++layer) EXPECT_EQ(scene.layer(layer).num_rows(), 0);
  ASSERT_TRUE(scene.Read().ok());
  for (int layer = 0; layer < kHostLayers; ++layer)
    EXPECT_EQ(scene.layer(layer).num_rows(), kRowTokens);
}

// Each wait is needed: without it the host reads what has not arrived or what the next layer has
// written, or the device reads the sum too early.
TEST(HostExpertsTest, EveryWaitLeftOutIsSeen) {
  for (int wait = 1; wait <= 2 * kHostLayers; ++wait) {
    bool is_seen = false;
    for (const EmulatedCudaConfig& order : kOrders) {
      HostScene scene(order);
      ASSERT_TRUE(scene.Open().ok() && scene.Take().ok());
      ASSERT_TRUE(scene.ops().Synchronize().ok());
      scene.api().LeaveOut(wait);
      scene.RunLayers();
      const auto found = scene.Read();
      is_seen = is_seen || !found.ok() || *found != HostScene::Wanted();
    }
    EXPECT_TRUE(is_seen) << "wait " << wait;
  }
}

// A graph has the host's part, and reads the number of real tokens when it runs.
TEST(HostExpertsTest, GraphsHaveTheHostsPart) {
  for (const EmulatedCudaConfig& order : kOrders) {
    HostScene scene(order);
    ASSERT_TRUE(scene.Open().ok() && scene.Take().ok());
    ASSERT_TRUE(scene.ops().BeginCapture().ok());
    scene.RunLayers(/*padded=*/true);
    auto graph = scene.ops().EndCapture();
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    EXPECT_EQ(scene.layer(0).num_rows(), 0);
    for (int run = 1; run <= 2; ++run) {
      scene.ops().Replay(graph->get());
      const auto found = scene.Read();
      ASSERT_TRUE(found.ok()) << found.status().message();
      EXPECT_EQ(*found, HostScene::Wanted(/*padded=*/true));
      EXPECT_EQ(scene.layer(0).num_rows(), run * (kRowTokens - 2));
    }
    scene.RunLayers();
    EXPECT_EQ(*scene.Read(), HostScene::Wanted());
  }
}

// CUDA refuses a capture of which the host's part is no whole part, and later steps run without the
// graph. Where it does not, the host reads too early, or the device does.
TEST(HostExpertsTest, EveryWaitLeftOutOfACaptureIsSeen) {
  int num_refused = 0;
  for (int wait = 1; wait <= 2 * kHostLayers; ++wait) {
    bool is_seen = false;
    for (const EmulatedCudaConfig& order : kOrders) {
      HostScene scene(order);
      ASSERT_TRUE(scene.Open().ok() && scene.Take().ok());
      ASSERT_TRUE(scene.ops().Synchronize().ok());
      ASSERT_TRUE(scene.ops().BeginCapture().ok());
      scene.api().LeaveOut(wait);
      scene.RunLayers(/*padded=*/true);
      const auto graph = scene.ops().EndCapture();
      if (graph.ok()) {
        scene.ops().Replay(graph->get());
        const auto found = scene.Read();
        is_seen = is_seen || !found.ok() || *found != HostScene::Wanted(/*padded=*/true);
        continue;
      }
      is_seen = true;
      ++num_refused;
      scene.RunLayers();
      const auto found = scene.Read();
      ASSERT_TRUE(found.ok()) << found.status().message();
      EXPECT_EQ(*found, HostScene::Wanted()) << "wait " << wait;
    }
    EXPECT_TRUE(is_seen) << "wait " << wait;
  }
  EXPECT_GT(num_refused, 0);
}

TEST(HostExpertsTest, AFailureOfTheHostIsTheDevicesError) {
  for (const EmulatedCudaConfig& order : kOrders) {
    HostScene scene(order);
    ASSERT_TRUE(scene.Open().ok() && scene.Take().ok());
    scene.RunLayers();
    ASSERT_TRUE(scene.Read().ok());
    scene.layer(1).Fail();
    scene.RunLayers();
    const Status failed = scene.Read().status();
    EXPECT_EQ(failed.code(), StatusCode::kInternal);
    EXPECT_NE(failed.message().find("experts on the CPU failed (a thread broke)"),
              std::string::npos)
        << failed.message();
    EXPECT_EQ(scene.ops().status().message(), failed.message());
    EXPECT_EQ(scene.layer(2).num_rows(), kRowTokens);  // none after the fault
  }
}

TEST(HostExpertsTest, NoPinnedMemoryIsOneLine) {
  HostScene scene;
  scene.api().FailAt("MallocHost", 1, kCudaMemoryAllocation);
  const Status failed = scene.Open();
  EXPECT_EQ(failed.code(), StatusCode::kUnavailable);
  EXPECT_NE(failed.message().find("pinned memory for experts on the CPU"), std::string::npos)
      << failed.message();
  EXPECT_EQ(failed.message().find('\n'), std::string::npos);
}

// Every call of the hand-over fails in turn: one error, and nothing is left behind.
TEST(HostExpertsTest, EveryCallMayFail) {
  for (const char* const call : {"StreamCreate", "EventCreate", "MallocHost", "CopyAsync",
                                 "EventRecord", "StreamWaitEvent", "LaunchHostFunction"}) {
    for (int n = 1;; ++n) {
      HostScene scene({.lazy = n % 2 == 0});
      int before = 0;
      Status status;
      scene.api().FailAt(call, n, kCudaInvalidValue);
      status = scene.Open();
      if (status.ok()) status = scene.Take();
      if (status.ok()) {
        scene.RunLayers();
        status = scene.Read().status();
      }
      before = scene.api().num_calls(call);
      if (before < n) break;
      EXPECT_FALSE(status.ok()) << call << " " << n;
      EXPECT_NE(status.message().find("cuda"), std::string::npos) << status.message();
    }
  }
}

}  // namespace
}  // namespace minisgl::cuda
