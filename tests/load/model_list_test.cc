// A list of models from files to a runtime: planned, loaded, and kept with its prefixes.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "engine/fake_models.h"
#include "load/model_loader.h"
#include "load/prefix_cache.h"
#include "model/tiny_model.h"
#include "temporary_folder.h"

namespace minisgl::load {
namespace {

class ModelListLoadTest : public testing::Test {
 protected:
  ModelListLoadTest() {
    engine_.device = {.kind = DeviceKind::kCpu, .name = "cpu"};
    engine_.threads = 1;
    engine_.num_pages = 16;
    drafter_.architecture = "MistralForCausalLM";
    drafter_.num_layers = 1;
    drafter_.layers.resize(1);
    static_cast<void>(WriteCheckpoint(dir_, TinyTensors(TinyConfig())));
    static_cast<void>(WriteCheckpoint(drafter_dir_, TinyTensors(drafter_, 2)));
    const Status added =
        models_.Add(MakeDecoderModel(ModelRole::kDrafter, drafter_, drafter_dir_.path()));
    EXPECT_TRUE(added.ok()) << added.message();
  }

  const TinyModelDir dir_, drafter_dir_;
  const TemporaryFolder folder_;
  EngineOptions engine_;
  ModelConfig drafter_ = TinyConfig();
  ModelList models_ = ModelList(TinyConfig());
};

TEST_F(ModelListLoadTest, ARuntimeStartsWithAllModelsOfTheList) {
  engine_.prefix_cache.folder =
      folder_.Path("prefixes");  // its blocks are as large as the engine's
  const auto files = ModelFiles::Open(models_, dir_.path());
  ASSERT_TRUE(files.ok()) << files.status().message();
  const auto model = LoadBareModel(models_, *files, engine_);
  ASSERT_TRUE(model.ok()) << model.status().message();
  ASSERT_EQ(model->plan.models.size(), 2u);
  EXPECT_EQ(model->plan.models[1].role, ModelRole::kDrafter);
  EXPECT_EQ(model->plan.models[1].name, "MistralForCausalLM");
  // Two layers and one.
  EXPECT_EQ(model->plan.kv_bytes_per_token, 3 * model->plan.models[1].kv_bytes_per_token);
}

TEST_F(ModelListLoadTest, LinesAreOfSeveralModels) {
  const auto one = ResolveEngine(engine_, TinyConfig());
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_TRUE(ModelLines(*one).empty());
  const auto two = ResolveEngine(engine_, models_);
  ASSERT_TRUE(two.ok()) << two.status().message();
  const auto lines = ModelLines(*two);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].role, "target");
  EXPECT_TRUE(lines[0].text.starts_with("LlamaForCausalLM: ")) << lines[0].text;
  EXPECT_EQ(lines[1].role, "drafter");
  EXPECT_TRUE(lines[1].text.starts_with("MistralForCausalLM: ")) << lines[1].text;
}

TEST_F(ModelListLoadTest, RanksCountAllModels) {
  engine_.tensor_parallel = 2;
  const auto one = BytesOfRanks(engine_, TinyConfig()), two = BytesOfRanks(engine_, models_),
             small = BytesOfRanks(engine_, drafter_);
  ASSERT_TRUE(one.ok() && two.ok() && small.ok());
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ((*two)[rank].weights, (*one)[rank].weights + (*small)[rank].weights);
    EXPECT_EQ((*two)[rank].kv_per_token, (*one)[rank].kv_per_token * 3 / 2);
  }
}

// The identity that blocks are found by names every model whose layers they hold.
TEST_F(ModelListLoadTest, KeptPrefixesAreThoseOfTheWholeList) {
  const auto name_of = [&](const ModelList& models, const std::string& name) {
    EngineOptions options = engine_;
    options.prefix_cache.folder = folder_.Path(name);
    auto setup = ResolveEngine(options, models);
    MINISGL_CHECK(setup.ok(), "{}", setup.status().message());
    const auto files = ModelFiles::Open(models, dir_.path());
    MINISGL_CHECK(files.ok(), "{}", files.status().message());
    const auto hash = HashOfModels(*setup, models, *files);
    MINISGL_CHECK(hash.ok(), "{}", hash.status().message());
    return *hash;
  };
  const std::string alone = name_of(TinyConfig(), "a"), both = name_of(models_, "a");
  EXPECT_EQ(alone.find('\n'), std::string::npos);
  EXPECT_TRUE(both.starts_with(alone + "\ndrafter MistralForCausalLM ")) << both;
  const TinyModelDir other_dir;
  static_cast<void>(WriteCheckpoint(other_dir, TinyTensors(drafter_, 3)));
  ModelList other = ModelList(TinyConfig());
  ASSERT_TRUE(other.Add(MakeDecoderModel(ModelRole::kDrafter, drafter_, other_dir.path())).ok());
  EXPECT_NE(name_of(other, "a"), both);
  // Chats with a tower and runs of text without it share prefixes.
  ModelList with_tower = ModelList(TinyConfig());
  ASSERT_TRUE(with_tower.Add(MakeFakeModel({.num_out = 2, .num_in = 2})).ok());
  EXPECT_EQ(name_of(with_tower, "a"), alone);
}

}  // namespace
}  // namespace minisgl::load
