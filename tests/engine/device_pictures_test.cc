// Pictures on a device's engine, over a device with the oracle's operations: the bits of the CPU's
// engine over the same operations, in every schedule, and faults of single pictures.
#include <gtest/gtest.h>

#include "engine/device_picture_scene.h"
#include "engine/embedding_pool.h"
#include "engine/host_device_ops.h"
#include "golden_models.h"
#include "minisgl/model/decoder.h"

namespace minisgl {
namespace {

struct HostPictureCase {
  const char* golden;
  PictureAttention attention = PictureAttention::kCausal;
  int32_t num_deepstack = 0;
};

void PrintTo(const HostPictureCase& c, std::ostream* out) { *out << c.golden; }

class HostDevicePicturesTest : public testing::TestWithParam<HostPictureCase> {
 protected:
  void SetUp() override {
    OpenedGolden golden = OpenGolden(GetParam().golden);
    ASSERT_NE(golden.checkpoint, nullptr);
    checkpoint_ = std::move(golden.checkpoint);
    scene_ = std::make_unique<PictureScene>(std::move(golden.config), checkpoint_.get(),
                                            GetParam().attention, GetParam().num_deepstack);
  }
  // Two share a picture, one has two, one has none, one ends in a picture's last tokens.
  std::vector<Request> Requests() const {
    return {scene_->MakeRequest(1, 60, 8, {{4, 1, 20}}),
            scene_->MakeRequest(2, 75, 8, {{4, 1, 20}, {40, 2, 9}}),
            scene_->MakeRequest(3, 60, 8, {{4, 3, 20}}),
            scene_->MakeRequest(4, 33, 8, {}),
            scene_->MakeRequest(5, 48, 8, {{1, 4, 30}, {31, 2, 9}}),
            scene_->MakeRequest(6, 60, 8, {{4, 1, 20}})};
  }

  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<PictureScene> scene_;
};

TEST_P(HostDevicePicturesTest, EveryScheduleGivesTheBitsOfTheCpu) {
  const std::vector<Request> requests = Requests();
  const ScheduledRun expected =
      scene_->OnCpu({.cache = CacheKind::kNaive}, MakeNaiveOps(), requests);
  const auto same = [&](const SceneSettings& settings) {
    SCOPED_TRACE(testing::Message()
                 << "pages of " << settings.page_size << ", steps of "
                 << settings.max_prefill_tokens << ", graphs of " << settings.graph_max_rows);
    scene_->tower().num_encoded = 0;
    ExpectSame(scene_->OnDevice(settings, MakeHostDeviceOps(), requests), expected);
    return scene_->tower().num_encoded;
  };
  EXPECT_EQ(same({}), 4);
  same({.page_size = 4, .max_prefill_tokens = 40, .graph_max_rows = 4, .graph_max_tokens = 16});
  // The cache is smaller than each picture: all have memory of their own.
  EXPECT_GE(same({.page_size = 1,
                  .num_pages = 600,
                  .max_prefill_tokens = 31,
                  .encoder_budget = 1,
                  .encoder_cache = 1}),
            4);
  same({.max_prefill_tokens = 40, .encoder_budget = 20, .encoder_cache = 30, .depth = 0});
  same({.page_size = 4, .max_prefill_tokens = 64, .graph_max_rows = 4, .drafts = true});
  same({.page_size = 4, .num_pages = 44, .max_prefill_tokens = 64, .graph_max_rows = 2});
}

// Experts in the host's memory see the pictures' states as those of tokens.
class HostDeviceMixturePicturesTest : public HostDevicePicturesTest {};

TEST_P(HostDeviceMixturePicturesTest, ExpertsOnTheHostGiveTheTokensOfTheDeviceAlone) {
  const int32_t layers = CountExpertLayers(scene_->config());
  ASSERT_GT(layers, 0);
  const std::vector<Request> requests = Requests();
  const auto run = [&](const SceneSettings& settings) {
    return scene_->OnDevice(settings, MakeHostDeviceOps(), requests);
  };
  const ScheduledRun alone = run({}), wanted = run({.num_host_layers = layers});
  for (const auto& [id, answer] : alone.answers) {
    const std::vector<RowResult>& on_host = wanted.answers.at(id);
    ASSERT_EQ(on_host.size(), answer.size()) << id;
    for (size_t i = 0; i < answer.size(); ++i) EXPECT_EQ(on_host[i].token, answer[i].token) << id;
  }
  ExpectSame(run({.page_size = 4,
                  .max_prefill_tokens = 40,
                  .graph_max_rows = 4,
                  .graph_max_tokens = 16,
                  .drafts = true,
                  .num_host_layers = layers}),
             wanted);
  ExpectSame(run({.max_prefill_tokens = 31,
                  .encoder_budget = 1,
                  .encoder_cache = 1,
                  .num_host_layers = layers}),
             wanted);
}

INSTANTIATE_TEST_SUITE_P(All, HostDeviceMixturePicturesTest,
                         testing::Values(HostPictureCase{"qwen3_vl_moe"},
                                         HostPictureCase{"qwen3_5_moe"}),
                         [](const auto& test) { return std::string(test.param.golden); });

// A picture that cannot be encoded fails the requests of its step. The engine goes on, and encodes
// the picture for the next request that has it.
TEST_P(HostDevicePicturesTest, AFaultIsTheResultOfItsStep) {
  scene_->tower().fail_at = 1;
  std::vector<std::unique_ptr<DeviceOps>> devices;
  devices.push_back(MakeHostDeviceOps());
  const SceneSettings settings = {.graph_max_rows = 2, .depth = 0};
  const auto engine = scene_->DeviceEngineOf(settings, std::move(devices));
  Scheduler scheduler(engine->limits(), PictureScene::Policy(settings));
  const auto answer = [&](const Request& request) {
    scheduler.Submit(request);
    std::vector<RowResult> tokens;
    std::string error;
    while (!scheduler.Idle()) {
      const auto step = scheduler.Next();
      if (step == nullptr) break;
      engine->Launch(step);
      scheduler.Collect(engine->Collect());
      for (SchedEvent& event : scheduler.TakeEvents()) {
        if (event.kind == SchedEvent::Kind::kToken) tokens.push_back(event.token);
        if (event.reason == EndReason::kFailed) error = event.error_message;
      }
    }
    return std::pair(tokens, error);
  };
  const auto [none, error] = answer(scene_->MakeRequest(1, 60, 3, {{4, 1, 20}}));
  EXPECT_TRUE(none.empty());
  EXPECT_NE(error.find("no memory for a picture"), std::string::npos) << error;
  const Request again = scene_->MakeRequest(2, 60, 3, {{4, 1, 20}});
  const auto [tokens, no_error] = answer(again);
  EXPECT_EQ(no_error, "");
  const auto expected = scene_->OnCpu({}, MakeNaiveOps(), {again});
  EXPECT_TRUE(SameResults(tokens, expected.answers.at(2)));
}

INSTANTIATE_TEST_SUITE_P(
    All, HostDevicePicturesTest,
    testing::Values(HostPictureCase{"llava"}, HostPictureCase{"qwen2_vl"},
                    HostPictureCase{"qwen3_vl", PictureAttention::kCausal, 2},
                    HostPictureCase{"qwen3_vl_moe"}, HostPictureCase{"qwen3_5"},
                    HostPictureCase{"gemma3", PictureAttention::kAllLayers},
                    HostPictureCase{"gemma4", PictureAttention::kWindowLayers}),
    [](const auto& test) { return std::string(test.param.golden); });

// A plan counts what a device keeps for pictures.
TEST(HostDevicePicturesPlanTest, TheEncoderCacheIsCounted) {
  const OpenedGolden golden = OpenGolden("qwen3_vl");
  ASSERT_NE(golden.checkpoint, nullptr);
  ModelList models(golden.config);
  ASSERT_TRUE(models
                  .Add(std::make_shared<SceneTowerModel>(golden.config.hidden_size,
                                                         std::make_shared<SceneTowerState>()))
                  .ok());
  const auto device = MakeHostDeviceOps();
  ModelEngineOptions options = {.max_running_requests = 2, .max_seq_len = 64, .num_pages = 8};
  options.encoder_cache = 1000;
  const auto plan = PlanMemory(models, options, 0, device.get());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  options.encoder_cache = 3000;
  const auto larger = PlanMemory(models, options, 0, device.get());
  ASSERT_TRUE(larger.ok()) << larger.status().message();
  EXPECT_EQ(larger->workspace_bytes - plan->workspace_bytes,
            uint64_t{2000} * static_cast<uint64_t>(golden.config.hidden_size) * sizeof(float));
  EXPECT_EQ(larger->kept_embeddings, 3000);
  EXPECT_NE(plan->limits.extras & kReplacesEmbeddings, 0);
}

TEST(EmbeddingPoolTest, TakesTheFirstGapThatIsLongEnough) {
  engine::EmbeddingPool pool(10);
  EXPECT_EQ(pool.Take(11), -1);
  EXPECT_EQ(pool.Take(4), 0);
  EXPECT_EQ(pool.Take(3), 4);
  EXPECT_EQ(pool.Take(4), -1);
  EXPECT_EQ(pool.Take(3), 7);
  EXPECT_EQ(pool.Take(1), -1);
  pool.Return(0);
  EXPECT_EQ(pool.Take(5), -1);
  EXPECT_EQ(pool.Take(2), 0);
  pool.Return(4);
  EXPECT_EQ(pool.Take(5), 2);
  EXPECT_EQ(pool.Take(1), -1);
}

}  // namespace
}  // namespace minisgl
