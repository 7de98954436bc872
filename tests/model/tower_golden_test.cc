// Towers of families without a model beside the project (tests/golden/towers): embeddings of values
// that a formula gives are those of the reference.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "minisgl/vision/image_layout.h"
#include "minisgl/vision/image_rules.h"
#include "tower_test_util.h"

namespace minisgl {
namespace {

std::string GoldenFolder(const std::string& name) {
  return MINISGL_SOURCE_DIR "/tests/golden/towers/" + name;
}

// As make_towers.py makes them.
std::vector<float> FormulaValues(int64_t count, bool is_from_zero) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const auto mixed = static_cast<uint32_t>(static_cast<uint64_t>(i) * 2654435761u);
    const auto level = static_cast<float>(mixed >> 16 & 255);
    values.push_back(is_from_zero ? level / 255.0f : level / 127.5f - 1.0f);
  }
  return values;
}

class TowerGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(TowerGoldenTest, EmbeddingsAreTheReferences) {
  const std::string folder = GoldenFolder(GetParam());
  const auto rules = LoadImageRules(folder);
  ASSERT_TRUE(rules.ok()) << rules.status().message();
  const LoadedTower loaded = LoadTower(folder, 2);
  ASSERT_NE(loaded.rank_model, nullptr);
  const int64_t width = loaded.tower().embedding_width();
  const Json expected = ReadJsonFile(folder + "/expected.json");
  for (const Json& picture : expected.Find("pictures")->as_array()) {
    const Json::Array& sides = picture.Find("size")->as_array();
    const PictureSize size = {static_cast<int32_t>(sides[0].as_int()),
                              static_cast<int32_t>(sides[1].as_int())};
    SCOPED_TRACE(testing::Message() << size.width << " x " << size.height);
    auto layout = LayOutImage(*rules, size);
    ASSERT_TRUE(layout.ok()) << layout.status().message();
    std::vector<int64_t> shape;
    for (const Json& extent : picture.Find("values")->as_array()) shape.push_back(extent.as_int());
    ASSERT_EQ(layout->shape, shape);
    PreparedImage image;
    image.layout = *layout;
    image.values = FormulaValues(layout->num_values, rules->size_rule == SizeRule::kPatchBudget);
    const auto embeddings = loaded.Encode(image);
    const Json& embeds = *picture.Find("image_embeds");
    const int64_t count = embeds.Find("shape")->as_array()[1].as_int();
    ExpectEmbeddings(Json(Json::Array{embeds}), embeddings, width, 0, count);
    const Json::Array& deepstack = picture.Find("deepstack")->as_array();
    ASSERT_EQ(std::ssize(deepstack), width / count - 1);
    for (size_t j = 0; j < deepstack.size(); ++j) {
      ExpectEmbeddings(Json(Json::Array{deepstack[j]}), embeddings, width,
                       static_cast<int64_t>(j + 1) * count, count);
    }
  }
}

// A file that lacks a tensor, or has one in another shape, is refused with the tensor's name.
TEST_P(TowerGoldenTest, TensorsOfOtherShapesAreRefused) {
  const std::string folder = GoldenFolder(GetParam());
  auto config = ReadTowerConfig(ReadJsonFile(folder + "/config.json")).value().value();
  const auto checkpoint = Checkpoint::Open(folder).value();
  const auto ops = MakeCpuOps({}).value();
  const auto load = [&](const TowerConfig& other) {
    const auto model = MakeTowerModel(other);
    return model->Load(*checkpoint, OptionsFor(*model, {}), nullptr, ops.get()).status();
  };
  EXPECT_TRUE(load(config).ok());
  TowerConfig other = config;
  other.intermediate_size += 2;
  EXPECT_EQ(load(other).code(), StatusCode::kBadInput);
  EXPECT_NE(load(other).message().find("its shape does not fit"), std::string::npos);
  other = config;
  ++other.num_layers;
  EXPECT_EQ(load(other).code(), StatusCode::kBadInput);
  other = config;
  other.steps.back().name += "x";
  EXPECT_NE(load(other).message().find(other.steps.back().name.substr(1)), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Families, TowerGoldenTest,
                         testing::Values("gemma4_clipped", "glm4v", "internvl", "internvl_rms",
                                         "llama4", "mistral3", "qwen3_5", "qwen3_vl"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace minisgl
