// Pictures on the CUDA engine without a GPU: answers agree with the CPU's engine over the oracle,
// and have the same bits in every schedule and on every rank.
#include <gtest/gtest.h>

#include "engine/device_picture_scene.h"
#include "engine/emulated_cuda.h"
#include "gpu/gpu_models.h"
#include "slow.h"

namespace minisgl {
namespace {

struct EmulatedPictureCase {
  const char* model;
  PictureAttention attention = PictureAttention::kCausal;
  int32_t num_deepstack = 0;
};

void PrintTo(const EmulatedPictureCase& c, std::ostream* out) { *out << c.model; }

class EmulatedPicturesTest : public testing::TestWithParam<EmulatedPictureCase> {
 protected:
  void SetUp() override {
    MarkSlow("models on the emulator");
    model_ = cuda::MakeGpuArchitecture(GetParam().model);
    if (model_ == nullptr) GTEST_SKIP() << "no tests/golden/models beside the sources";
    scene_ = std::make_unique<PictureScene>(model_->config, model_->checkpoint.get(),
                                            GetParam().attention, GetParam().num_deepstack);
  }
  // Two share a picture, one has two.
  std::vector<Request> Requests() const {
    return {scene_->MakeRequest(1, 24, 3, {{4, 1, 12}}), scene_->MakeRequest(2, 9, 3, {}),
            scene_->MakeRequest(3, 34, 3, {{4, 1, 12}, {20, 2, 9}})};
  }
  static SceneSettings Settings() { return {.max_prefill_tokens = 64, .encoder_cache = 24}; }

  std::unique_ptr<TestModel> model_;
  std::unique_ptr<PictureScene> scene_;
};

TEST_P(EmulatedPicturesTest, AnswersAgreeWithTheOracle) {
  const std::vector<Request> requests = Requests();
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const double tolerance = dtype == DType::kF16 ? 0.03 : 0.2;
    const ScheduledRun expected = scene_->OnCpu(Settings(), MakeNaiveOps(dtype), requests);
    const ScheduledRun run =
        scene_->OnDevice(Settings(), EmulatedCuda({.activation_dtype = dtype}), requests);
    for (const auto& [id, results] : expected.answers) {
      ExpectAgree(run.answers.at(id), results, tolerance,
                  std::string(DTypeName(dtype)) + " request " + std::to_string(id));
    }
  }
}

// Chunks, pages, graphs, drafts, and each request alone.
TEST_P(EmulatedPicturesTest, EveryScheduleGivesTheSameBits) {
  const std::vector<Request> requests = Requests();
  const CudaOpsConfig deterministic = {.deterministic = true};
  const ScheduledRun expected = scene_->OnDevice(Settings(), EmulatedCuda(deterministic), requests);
  for (const Request& request : requests) {
    const ScheduledRun alone =
        scene_->OnDevice({.page_size = 4, .max_prefill_tokens = 23, .encoder_cache = 1, .depth = 0},
                         EmulatedCuda(deterministic), {request});
    EXPECT_TRUE(SameResults(alone.answers.at(request.id), expected.answers.at(request.id)))
        << request.id;
  }
  SceneSettings graphs = Settings();
  graphs.page_size = 1;
  graphs.num_pages = 500;
  graphs.max_prefill_tokens = 26;
  graphs.graph_max_rows = 4;
  graphs.graph_max_tokens = 16;
  graphs.drafts = true;
  ExpectSame(scene_->OnDevice(graphs, EmulatedCuda(deterministic), requests), expected);
}

TEST_P(EmulatedPicturesTest, TwoRanksAgreeWithOne) {
  if (model_->config.num_kv_heads % 2 != 0) GTEST_SKIP() << "an odd number of heads";
  const std::vector<Request> requests = Requests();
  const CudaOpsConfig f16 = {.activation_dtype = DType::kF16};
  const ScheduledRun one = scene_->OnDevice(Settings(), EmulatedCuda(f16), requests);
  const ScheduledRun two = scene_->OnDevices(Settings(), EmulatedRanks(2, f16), requests);
  for (const auto& [id, results] : one.answers) {
    ExpectAgree(two.answers.at(id), results, 0.03, "request " + std::to_string(id));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, EmulatedPicturesTest,
    testing::Values(EmulatedPictureCase{"llava"},
                    EmulatedPictureCase{"qwen3_vl", PictureAttention::kCausal, 2},
                    EmulatedPictureCase{"qwen3_5"},
                    EmulatedPictureCase{"gemma3", PictureAttention::kAllLayers},
                    EmulatedPictureCase{"gemma4_text", PictureAttention::kWindowLayers}),
    [](const auto& test) { return std::string(test.param.model); });

// A picture that the first rank cannot encode fails its step on all ranks, and no later one.
TEST(EmulatedPictureFaultTest, AFaultOfTheTowerEndsOneStepOfAllRanks) {
  const auto model = MakeEmulatedModel();
  PictureScene scene(model->config, model->checkpoint.get(), PictureAttention::kCausal, 0);
  scene.tower().fail_at = 1;
  const SceneSettings settings = {.max_prefill_tokens = 64, .encoder_cache = 24, .depth = 0};
  const auto engine = scene.DeviceEngineOf(settings, EmulatedRanks(2));
  Scheduler scheduler(engine->limits(), PictureScene::Policy(settings));
  std::vector<std::string> errors;
  size_t num_tokens = 0;
  for (RequestId id = 1; id <= 2; ++id) {
    scheduler.Submit(scene.MakeRequest(id, 20, 2, {{4, 1, 12}}));
    while (!scheduler.Idle()) {
      const auto step = scheduler.Next();
      ASSERT_NE(step, nullptr);
      engine->Launch(step);
      scheduler.Collect(engine->Collect());
      for (const SchedEvent& event : scheduler.TakeEvents()) {
        num_tokens += event.kind == SchedEvent::Kind::kToken ? 1 : 0;
        if (event.reason == EndReason::kFailed) errors.push_back(event.error_message);
      }
    }
  }
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_NE(errors[0].find("no memory for a picture"), std::string::npos) << errors[0];
  EXPECT_EQ(num_tokens, 2u);
}

}  // namespace
}  // namespace minisgl
