// A list of several models: what the plan, the ranks, the pages and loading make of each, and that
// the target's answers stay the same.
#include "minisgl/model/model_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_driver.h"
#include "engine/fake_models.h"
#include "engine/host_device_ops.h"
#include "engine/kv_block.h"
#include "engine/kv_copies.h"
#include "engine/kv_storage.h"
#include "engine/model_state.h"
#include "engine/step_places.h"
#include "minisgl/engine/device_engine.h"

namespace minisgl {
namespace {

constexpr uint64_t kListMiB = uint64_t{1} << 20;
constexpr uint64_t kListGiB = uint64_t{1} << 30;

// 16 layers of 8 KV heads of 64: 32 KiB of keys and values a token in bf16.
ModelConfig LargeConfig() { return WideConfig(16); }

// Two of its layers, as wide: 4 KiB of keys and values a token. Stored as f32.
ModelConfig DrafterConfig() {
  ModelConfig config = LargeConfig();
  config.architecture = "MistralForCausalLM";
  config.dtype = DType::kF32;
  config.num_layers = 2;
  config.layers.resize(2);
  return config;
}

constexpr int64_t kTowerOut = 8192, kTowerIn = 4096, kTowerFloats = 4 << 20;
constexpr uint64_t kTowerBytes = uint64_t{kTowerOut} * kTowerIn * 2;

ModelList MustList(ModelConfig target, std::vector<std::shared_ptr<const ListedModel>> beside) {
  ModelList models(std::move(target));
  for (auto& model : beside) {
    const Status added = models.Add(std::move(model));
    MINISGL_CHECK(added.ok(), "{}", added.message());
  }
  return models;
}

ModelList LargeList() {
  return MustList(
      LargeConfig(),
      {MakeDecoderModel(ModelRole::kDrafter, DrafterConfig()),
       MakeFakeModel({.num_out = kTowerOut, .num_in = kTowerIn, .num_floats = kTowerFloats})});
}

MemoryPlan MustPlanList(const ModelList& models, const ModelEngineOptions& options,
                        uint64_t available, DeviceOps* device = nullptr) {
  const auto plan = PlanMemory(models, options, available, device);
  MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
  return *plan;
}

TEST(ModelListTest, ATargetAloneHasAllOfThePlan) {
  const MemoryPlan plan = MustPlanList(LargeConfig(), {}, 64 * kListGiB);
  ASSERT_EQ(plan.models.size(), 1u);
  const PlannedModel& target = plan.models[0];
  EXPECT_EQ(target.role, ModelRole::kTarget);
  EXPECT_EQ(target.name, "LlamaForCausalLM");
  EXPECT_EQ(target.weight_format, plan.weight_format);
  EXPECT_EQ(target.weight_bytes, plan.weight_bytes);
  EXPECT_EQ(target.kv_bytes_per_token, plan.kv_bytes_per_token);
  EXPECT_LT(target.workspace_bytes, plan.workspace_bytes) << "tables are no model's";
}

TEST(ModelListTest, ThePlanIsTheSumOfItsModels) {
  const ModelEngineOptions options = {.max_seq_len = 4096};
  const MemoryPlan alone = MustPlanList(LargeConfig(), options, 8 * kListGiB);
  const MemoryPlan plan = MustPlanList(LargeList(), options, 8 * kListGiB);
  ASSERT_EQ(plan.models.size(), 3u);
  EXPECT_EQ(plan.models[0].weight_bytes, alone.weight_bytes);
  EXPECT_EQ(plan.models[0].workspace_bytes, alone.models[0].workspace_bytes);
  const MemoryPlan drafter = MustPlanList(DrafterConfig(), options, 8 * kListGiB);
  EXPECT_EQ(plan.models[1].role, ModelRole::kDrafter);
  EXPECT_EQ(plan.models[1].weight_format, DType::kF32) << "a format of its own";
  EXPECT_EQ(plan.models[1].weight_bytes, drafter.weight_bytes);
  // It has logits of the rows that may draft alone.
  const int64_t rows_less = engine::MaxPlaces(plan.limits) -
                            engine::DrafterRows(DrafterConfig(), plan.limits.max_running_requests,
                                                plan.limits.max_step_drafts);
  const ModelConfig config = DrafterConfig();
  const int64_t floats_less = rows_less * (config.vocab_size + 2 * config.hidden_size);
  EXPECT_EQ(plan.models[1].workspace_bytes,
            drafter.models[0].workspace_bytes - static_cast<uint64_t>(floats_less) * sizeof(float));
  EXPECT_EQ(plan.models[1].kv_bytes_per_token, 4u * 1024) << "of the target's type";
  EXPECT_EQ(plan.models[2].role, ModelRole::kTower);
  EXPECT_EQ(plan.models[2].weight_bytes, kTowerBytes);
  EXPECT_EQ(plan.models[2].workspace_bytes, uint64_t{kTowerFloats} * sizeof(float));
  EXPECT_EQ(plan.models[2].kv_bytes_per_token, 0u);

  EXPECT_EQ(plan.weight_format, alone.weight_format);
  EXPECT_EQ(plan.weight_bytes, alone.weight_bytes + drafter.weight_bytes + kTowerBytes);
  EXPECT_EQ(plan.workspace_bytes, alone.workspace_bytes + plan.models[1].workspace_bytes +
                                      plan.models[2].workspace_bytes);
  EXPECT_EQ(plan.kv_bytes_per_token, 36u * 1024);
  EXPECT_EQ(plan.kv_bytes, (static_cast<uint64_t>(plan.limits.num_pages) + 1) * 16 * 36 * 1024);
  EXPECT_LT(plan.limits.num_pages, alone.limits.num_pages) << "a page has more bytes";
}

TEST(ModelListTest, WindowPagesAreTheTargetsAlone) {
  ModelConfig target = LargeConfig(), drafter = DrafterConfig();
  for (size_t i = 0; i < 12; ++i) target.layers[i].sliding_window = 1024;
  drafter.layers[0].sliding_window = 4096;
  const ModelEngineOptions options = {.max_seq_len = 32768};
  const MemoryPlan plan = MustPlanList(
      MustList(target, {MakeDecoderModel(ModelRole::kDrafter, drafter)}), options, 64 * kListGiB);
  EXPECT_EQ(plan.limits.sliding_window, 1024);
  EXPECT_EQ(plan.window_bytes_per_token, 12u * 2048);
  EXPECT_EQ(plan.kv_bytes_per_token, 36u * 1024);
}

TEST(ModelListTest, OnADeviceEverythingTogetherGetsTheRatio) {
  const auto device = MakeHostDeviceOps(80 * kListGiB, {}, nullptr, DType::kF16);
  const MemoryPlan alone = MustPlanList(LargeConfig(), {.memory_ratio = 0.5}, 0, device.get());
  const MemoryPlan plan = MustPlanList(LargeList(), {.memory_ratio = 0.5}, 0, device.get());
  for (const PlannedModel& model : plan.models) EXPECT_EQ(model.weight_format, DType::kF16);
  EXPECT_EQ(plan.weight_bytes,
            alone.weight_bytes + plan.models[1].weight_bytes + plan.models[2].weight_bytes);
  EXPECT_LE(plan.weight_bytes + plan.workspace_bytes + plan.kv_bytes, 40 * kListGiB);
  EXPECT_GT(plan.weight_bytes + plan.workspace_bytes + plan.kv_bytes, 40 * kListGiB - kListMiB);
  EXPECT_LT(plan.limits.num_pages, alone.limits.num_pages);
}

// Weights of a decoder are cut; the norms of all layers are on both ranks, and the whole tower.
TEST(ModelListTest, RanksCutADecoderAndHaveAllOfATower) {
  const ModelEngineOptions one = {.max_seq_len = 4096};
  ModelEngineOptions two = one;
  two.num_ranks = 2;
  two.num_threads = 2;
  const MemoryPlan plan = MustPlanList(LargeList(), two, 16 * kListGiB);
  const MemoryPlan whole = MustPlanList(LargeList(), one, 16 * kListGiB);
  EXPECT_TRUE(plan.models[1].is_cut);
  EXPECT_LT(plan.models[1].weight_bytes, whole.models[1].weight_bytes * 101 / 100);
  EXPECT_EQ(plan.models[1].kv_bytes_per_token, whole.models[1].kv_bytes_per_token);
  EXPECT_FALSE(plan.models[2].is_cut);
  EXPECT_EQ(plan.models[2].weight_bytes, 2 * kTowerBytes);
  EXPECT_EQ(plan.kv_bytes_per_token, whole.kv_bytes_per_token);

  const auto ranks = CountRankBytes(LargeList(), two);
  ASSERT_TRUE(ranks.ok());
  ASSERT_EQ(ranks->size(), 2u);
  EXPECT_EQ((*ranks)[0].weights + (*ranks)[1].weights, plan.weight_bytes);
  EXPECT_EQ((*ranks)[0].kv_per_token * 2, plan.kv_bytes_per_token);

  const auto device = MakeHostDeviceOps(80 * kListGiB, {}, nullptr, DType::kBF16);
  EXPECT_EQ(MustPlanList(LargeList(), two, 0, device.get()).models[2].weight_bytes, kTowerBytes)
      << "what one device has";
}

TEST(ModelListTest, AModelThatRanksDoNotDivideIsNamed) {
  ModelConfig drafter = DrafterConfig();
  drafter.num_heads = drafter.num_kv_heads = 3;
  const ModelList models =
      MustList(LargeConfig(), {MakeDecoderModel(ModelRole::kDrafter, drafter)});
  const ModelEngineOptions options = {.num_ranks = 2};
  const std::string why =
      "the drafter MistralForCausalLM: tensor_parallel 2: 3 query heads do not divide; 3 would do";
  EXPECT_EQ(PlanMemory(models, options, 64 * kListGiB).status().message(), why);
  EXPECT_EQ(PlanMemory(models, options, 64 * kListGiB).status().code(), StatusCode::kUsage);
  EXPECT_EQ(CountRankBytes(models, options).status().message(), why);
}

TEST(ModelListTest, WhatDoesNotFitIsNamedWithWhatItTakes) {
  const auto fails = [](const ModelEngineOptions& options, uint64_t available) {
    const Status status = PlanMemory(LargeList(), options, available).status();
    EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
    return status.message();
  };
  const ModelEngineOptions options = {
      .max_running_requests = 4, .max_prefill_tokens = 64, .max_seq_len = 1024};
  const uint64_t fits =
      MustPlanList(LargeConfig(), options, 64 * kListGiB).weight_bytes + 512 * kListMiB;
  ASSERT_TRUE(PlanMemory(LargeConfig(), options, fits).ok());
  const std::string message = fails(options, fits);
  EXPECT_NE(message.find("the models take "), std::string::npos) << message;
  EXPECT_NE(message.find("; the drafter MistralForCausalLM takes 844 MiB of weights and "),
            std::string::npos)
      << message;
  EXPECT_NE(message.find(" of workspace, and 4.0 KiB a token of keys and values; the tower"),
            std::string::npos)
      << message;
  EXPECT_NE(
      message.find("; the tower FakeTower takes 64.0 MiB of weights and 16.0 MiB of workspace; "
                   "the target alone fits"),
      std::string::npos)
      << message;
  EXPECT_EQ(fails(options, 64 * kListMiB).find("the target alone fits"), std::string::npos);
  const Status alone = PlanMemory(LargeConfig(), options, 64 * kListMiB).status();
  EXPECT_EQ(alone.message().find("the target"), std::string::npos) << alone.message();
}

TEST(ModelListTest, AListHasOneDrafterAndOneTower) {
  ModelList models = LargeList();
  EXPECT_EQ(models.Add(MakeFakeModel({.name = "Other"})).message(),
            "tower Other: there is a tower already, FakeTower");
  EXPECT_EQ(models.size(), 3u);
  EXPECT_EQ(models.Alone().size(), 1u);
  EXPECT_FALSE(models.Add(MakeDecoderModel(ModelRole::kTarget, LargeConfig())).ok());
}

TEST(ModelListTest, StatesAreTheTargetsAlone) {
  ModelConfig drafter = DrafterConfig();
  drafter.states.conv_length = 3;
  drafter.states.conv_width = drafter.hidden_size;
  drafter.layers[1].mixer = Mixer::kShortConv;
  ModelList models(LargeConfig());
  const Status added = models.Add(MakeDecoderModel(ModelRole::kDrafter, drafter));
  EXPECT_EQ(added.code(), StatusCode::kBadInput);
  EXPECT_NE(added.message().find("layers with states"), std::string::npos) << added.message();
}

// A target with layers for drafts and a tower's matrix beside it, and a small model that drafts.
class LoadedListTest : public testing::Test {
 protected:
  LoadedListTest() {
    std::vector<FileTensor> tensors = TinyTensors(config_);
    tensors.push_back(
        FileTensor::F32("mtp.fc.weight", {32, 64}, std::vector<float>(32 * 64, 0.5f)));
    checkpoint_ = WriteCheckpoint(dir_, tensors);
    static_cast<void>(WriteCheckpoint(drafter_dir_, TinyTensors(SmallConfig(), 7)));
  }

  static ModelConfig SmallConfig() {
    ModelConfig config = TinyConfig();
    config.architecture = "MistralForCausalLM";
    config.hidden_size = 16;
    config.intermediate_size = 24;
    config.num_layers = 1;
    config.layers.resize(1);
    return config;
  }
  // One layer like the target's, and the target's embedding and head.
  FakeModelParts PredictionLayer() const {
    FakeModelParts parts = {.role = ModelRole::kDrafter,
                            .name = "Prediction",
                            .tensor = "mtp.fc.weight",
                            .num_out = 32,
                            .num_in = 64,
                            .num_floats = 100,
                            .layers = config_};
    parts.layers->num_layers = 1;
    parts.layers->layers.resize(1);
    return parts;
  }
  FakeModelParts Tower() const {
    return {.dir = dir_.path(),
            .tensor = "mtp.fc.weight",
            .num_out = 32,
            .num_in = 64,
            .num_floats = 1000};
  }
  ModelList WithSmallModel() const {
    return MustList(config_,
                    {MakeDecoderModel(ModelRole::kDrafter, SmallConfig(), drafter_dir_.path()),
                     MakeFakeModel(Tower())});
  }
  ModelList WithPredictionLayer() const {
    return MustList(config_, {MakeFakeModel(PredictionLayer()), MakeFakeModel(Tower())});
  }
  ModelFiles Open(const ModelList& models) const {
    auto files = ModelFiles::Open(models, dir_.path());
    MINISGL_CHECK(files.ok(), "{}", files.status().message());
    return std::move(files).value();
  }
  std::vector<RowResult> Answer(const ModelList& models, const DriverOptions& options) const {
    EngineDriver driver(models, Open(models), options);
    return driver.Generate(driver.AddRow(RandomPrompt(50, 3)), 20, 12);
  }

  const ModelConfig config_ = TinyConfig();
  const TinyModelDir dir_, drafter_dir_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

TEST_F(LoadedListTest, AnswersAreTheTargets) {
  for (const int32_t num_ranks : {1, 2}) {
    const DriverOptions options = {.num_threads = 2, .num_ranks = num_ranks};
    const std::vector<RowResult> alone = Answer(config_, options);
    EXPECT_TRUE(SameResults(Answer(WithSmallModel(), options), alone));
    EXPECT_TRUE(SameResults(Answer(WithPredictionLayer(), options), alone));
  }
}

TEST_F(LoadedListTest, EachModelIsLoadedFromItsFilesAsItIsPlanned) {
  const ModelList models = WithSmallModel();
  const MemoryPlan plan = MustPlanList(models, {.max_seq_len = 128, .num_pages = 8}, kListGiB);
  const auto ops = MakeNaiveOps();
  auto state = engine::ModelState::Make(models, Open(models), plan, Rank(), ops.get());
  ASSERT_TRUE(state.ok()) << state.status().message();
  EXPECT_EQ((*state)->target().weight_bytes(), plan.models[0].weight_bytes);
  for (const size_t i : {1, 2}) {
    EXPECT_EQ((*state)->beside(i).weight_bytes(), plan.models[i].weight_bytes) << i;
  }
  EXPECT_EQ(
      (*state)->beside(1).workspace_bytes() + (*state)->beside(2).workspace_bytes(),
      plan.workspace_bytes -
          MustPlanList(config_, {.max_seq_len = 128, .num_pages = 8}, kListGiB).workspace_bytes -
          (plan.models[1].workspace_bytes - (*state)->beside(1).workspace_bytes()))
      << "not counting what operations take";
  const auto* const drafter = dynamic_cast<const Decoder*>(&(*state)->beside(1));
  ASSERT_NE(drafter, nullptr);
  EXPECT_EQ(drafter->config().hidden_size, 16);
  EXPECT_EQ(drafter->tables().embedding.num_in, 16);
}

TEST_F(LoadedListTest, ADrafterMayReadTheTargetsTables) {
  const ModelList models = WithPredictionLayer();
  const MemoryPlan plan = MustPlanList(models, {.max_seq_len = 128, .num_pages = 8}, kListGiB);
  const auto ops = MakeNaiveOps();
  auto state = engine::ModelState::Make(models, Open(models), plan, Rank(), ops.get());
  ASSERT_TRUE(state.ok()) << state.status().message();
  const auto& drafter = dynamic_cast<const LoadedFake&>((*state)->beside(1));
  const DecoderTables tables = (*state)->target().tables();
  EXPECT_EQ(drafter.matrix().num_in, 64);
  EXPECT_EQ(drafter.shared().embedding.storage, tables.embedding.storage);
  EXPECT_EQ(drafter.shared().head.storage, tables.head.storage);
  EXPECT_EQ(plan.models[1].weight_bytes, 32u * 64 * 2) << "the tables are the target's";
}

// What copies a page copies the layers of all models, the target's first.
TEST_F(LoadedListTest, APageHasTheLayersOfAllModels) {
  const auto ops = MakeNaiveOps();
  const ModelConfig small = SmallConfig();
  auto kv = engine::KvStorage::Make(config_, DType::kF32, 3, 16, ops.get(), 0, {&small, 1});
  ASSERT_TRUE(kv.ok());
  ASSERT_EQ(kv->layers().size(), 2u);
  ASSERT_EQ(kv->beside(0).size(), 1u);
  ASSERT_EQ(kv->own_layers().size(), 3u);
  EXPECT_EQ(kv->own_layers()[2].base.data, kv->beside(0)[0].base.data);
  EXPECT_NE(kv->own_layers()[1].base.data, kv->beside(0)[0].base.data);
  const engine::KvBlockLayout layout(*kv, *ops, 16);
  const auto small_page = static_cast<int64_t>(2 * 2 * 8 * 16 * sizeof(float));
  EXPECT_EQ(layout.PageBytes(2), small_page);
  EXPECT_EQ(layout.BlockBytes(1), 3 * small_page);
  for (const int32_t num_ranks : {1, 2}) {
    const DriverOptions options = {.num_ranks = num_ranks};
    const ModelList models = WithSmallModel();
    EngineDriver alone(config_, *checkpoint_, options), driver(models, Open(models), options);
    EXPECT_EQ(driver.engine()->KvBlockBytes(kBlock), alone.engine()->KvBlockBytes(kBlock) / 2 * 3);
  }
}

TEST_F(LoadedListTest, APageHasThePlannedBytesOnAllRanks) {
  for (const int32_t num_ranks : {1, 2}) {
    const auto planned = [&](const ModelList& models) {
      return MustPlanList(models, {.num_ranks = num_ranks}, kListGiB).kv_bytes_per_token;
    };
    for (const ModelList& models : {WithSmallModel(), WithPredictionLayer()}) {
      EngineDriver driver(models, Open(models), {.num_ranks = num_ranks});
      EXPECT_EQ(static_cast<uint64_t>(driver.engine()->KvBlockBytes(kBlock)),
                kBlock * planned(models))
          << models[1].name() << " on " << num_ranks;
    }
    const uint64_t layer = planned(config_) / 2;
    EXPECT_EQ(planned(WithSmallModel()), 3 * layer) << "cut";
    EXPECT_EQ(planned(WithPredictionLayer()), (2 + static_cast<uint64_t>(num_ranks)) * layer)
        << "whole on each rank";
  }
}

TEST_F(LoadedListTest, KeptPagesBringTheSameAnswersBack) {
  const ModelList models = WithSmallModel();
  const std::vector<TokenId> prompt = RandomPrompt(2 * kBlock + 9, 5);
  EngineDriver alone(config_, *checkpoint_, {});
  const std::vector<RowResult> wanted = alone.Generate(alone.AddRow(prompt), kAll, 8);
  EngineDriver from(models, Open(models), {.page_size = 4}), to(models, Open(models), {});
  EXPECT_TRUE(SameResults(AnswerFromBlocks(&from, 4, &to, 16, prompt, 8), wanted));
}

TEST_F(LoadedListTest, ADeviceLoadsAllModels) {
  auto device = MakeHostDeviceOps();
  const ModelList models = WithSmallModel();
  const auto plan = PlanMemory(models, {.max_seq_len = 128, .num_pages = 8, .memory_ratio = 0.9}, 0,
                               device.get());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const auto engine = MakeDeviceEngine(models, Open(models), *plan, std::move(device), {});
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  // Keys and values of 2 heads of 8 floats, in 3 layers.
  EXPECT_EQ((*engine)->KvBlockBytes(kBlock), int64_t{kBlock} * 3 * 2 * 2 * 8 * 4);
}

TEST_F(LoadedListTest, ErrorsNameTheModel) {
  FakeModelParts tower = Tower();
  tower.tensor = "missing.weight";
  const ModelList models = MustList(config_, {MakeFakeModel(tower)});
  const MemoryPlan plan = MustPlanList(models, {}, kListGiB);
  const Status status = MakeModelEngine(models, Open(models), plan, MakeNaiveOps()).status();
  EXPECT_EQ(status.code(), StatusCode::kBadInput);
  EXPECT_TRUE(status.message().starts_with("the tower FakeTower: ")) << status.message();
  tower.dir = dir_.path() + "/none";
  const Status opened =
      ModelFiles::Open(MustList(config_, {MakeFakeModel(tower)}), dir_.path()).status();
  EXPECT_TRUE(opened.message().starts_with("the tower FakeTower: ")) << opened.message();
  EXPECT_FALSE(
      ModelFiles::Open(config_, dir_.path() + "/none").status().message().starts_with("the"));
}

}  // namespace
}  // namespace minisgl
