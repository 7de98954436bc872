// Towers of families without a model beside the project (tests/golden/towers): embeddings of values
// that a formula gives are those of the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "minisgl/vision/image_layout.h"
#include "minisgl/vision/image_rules.h"
#include "tower_test_util.h"
#include "weights/gguf_projector.h"

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

// Projector files that llama.cpp's converter made of the same towers (golden/convert_projectors.py)
// give the same embeddings, bit for bit.
class ProjectorGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(ProjectorGoldenTest, EmbeddingsAreThoseOfTheDirectory) {
  const std::string folder = GoldenFolder(GetParam());
  const std::string path =
      std::string(MINISGL_SOURCE_DIR "/tests/golden/gguf/projectors/tower-") + GetParam() + ".gguf";
  const auto rules = LoadImageRules(folder).value();
  const LoadedTower in_folder = LoadTower(folder, 2);
  ASSERT_NE(in_folder.rank_model, nullptr);
  const GgufFile file = GgufFile::Open(path).value();
  auto projector = weights::ReadProjector(file.header());
  ASSERT_TRUE(projector.ok()) << projector.status().message();
  // It is the text's, whose file a tower alone does not have.
  const auto config = ReadTowerConfig(ReadJsonFile(folder + "/config.json")).value().value();
  if (config.name == "mistral3") projector->tower.steps.front().eps = config.steps.front().eps;
  const LoadedTower in_file = LoadTower(projector->tower, path, 2);
  ASSERT_NE(in_file.rank_model, nullptr);
  const Json expected = ReadJsonFile(folder + "/expected.json");
  for (const Json& picture : expected.Find("pictures")->as_array()) {
    const Json::Array& sides = picture.Find("size")->as_array();
    PreparedImage image;
    image.layout = LayOutImage(rules, {static_cast<int32_t>(sides[0].as_int()),
                                       static_cast<int32_t>(sides[1].as_int())})
                       .value();
    image.values =
        FormulaValues(image.layout.num_values, rules.size_rule == SizeRule::kPatchBudget);
    EXPECT_EQ(in_file.Encode(image), in_folder.Encode(image));
  }
}

INSTANTIATE_TEST_SUITE_P(Towers, ProjectorGoldenTest,
                         testing::Values("gemma4_clipped", "internvl", "mistral3", "qwen3_5",
                                         "qwen3_vl"),
                         [](const auto& test) { return std::string(test.param); });

// A tower whose layers' matrices are FP8 with a scale for each output, and the same with their
// values in f32.
struct CodedTower {
  explicit CodedTower(const Checkpoint& original) {
    std::map<std::string, TensorView> coded, plain;
    for (const std::string& name : original.Names()) {
      const TensorView view = original.Get(name).value();
      coded[name] = plain[name] = view;
      constexpr std::string_view kWeight = ".weight";
      const bool is_matrix = view.shape.size() == 2 && name.find("blocks.") != std::string::npos;
      if (!is_matrix || !name.ends_with(kWeight)) continue;
      const int64_t rows = view.shape[0], columns = view.shape[1];
      std::vector<uint8_t>& codes = bytes.emplace_back();
      std::vector<float>& scales = numbers.emplace_back();
      std::vector<float>& values = numbers.emplace_back();
      for (int64_t row = 0; row < rows; ++row) {
        scales.push_back(0.01f * static_cast<float>(row % 5 + 1));
        for (int64_t i = 0; i < columns; ++i) {
          codes.push_back(NearestCode(view.At(row * columns + i) / scales.back()));
          values.push_back(E4M3Numbers()[codes.back()] * scales.back());
        }
      }
      const auto view_of = [](const auto& elements, DType dtype, std::vector<int64_t> shape) {
        return TensorView{reinterpret_cast<const std::byte*>(elements.data()), dtype, shape};
      };
      coded[name] = view_of(codes, DType::kE4M3, view.shape);
      coded[name + "_scale"] = view_of(scales, DType::kF32, {rows, 1});
      plain[name] = view_of(values, DType::kF32, view.shape);
      ++num_matrices;
    }
    in_codes = Checkpoint::FromViews(std::move(coded), nullptr, "codes");
    in_values = Checkpoint::FromViews(std::move(plain), nullptr, "values");
  }
  static uint8_t NearestCode(float value) {
    uint8_t best = 0;
    for (int code = 1; code < 256; ++code) {
      const float number = E4M3Numbers()[code];
      if (std::abs(number - value) < std::abs(E4M3Numbers()[best] - value)) {
        best = static_cast<uint8_t>(code);
      }
    }
    return best;
  }

  std::list<std::vector<uint8_t>> bytes;
  std::list<std::vector<float>> numbers;
  std::unique_ptr<Checkpoint> in_codes, in_values;
  int num_matrices = 0;
};

TEST(QuantizedTowerTest, CodesAreTheirValues) {
  const std::string folder = GoldenFolder("qwen3_vl");
  const auto original = Checkpoint::Open(folder).value();
  const CodedTower coded(*original);
  ASSERT_EQ(coded.num_matrices, 12) << "four in each of three layers";
  Json json = ReadJsonFile(folder + "/config.json");
  const auto plain = ReadTowerConfig(json).value().value();
  json.Set("quantization_config", ParseJson(R"({"quant_method": "compressed-tensors",
      "format": "float-quantized", "config_groups": {"group_0": {"targets": ["Linear"],
      "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": true}}}})")
                                      .value());
  const auto quantized = ReadTowerConfig(json);
  ASSERT_TRUE(quantized.ok()) << quantized.status().message();
  PreparedImage image;
  image.layout = LayOutImage(LoadImageRules(folder).value(), {48, 80}).value();
  image.values = FormulaValues(image.layout.num_values, false);
  const LoadedTower in_values = LoadTower(plain, *coded.in_values, 2);
  const LoadedTower in_codes = LoadTower(**quantized, *coded.in_codes, 2);
  ASSERT_NE(in_values.rank_model, nullptr);
  ASSERT_NE(in_codes.rank_model, nullptr);
  EXPECT_EQ(in_codes.Encode(image), in_values.Encode(image));
  // Without the configuration nothing says how codes are read.
  const Status status = CheckTowerTensors(plain, *coded.in_codes);
  EXPECT_EQ(status.code(), StatusCode::kBadInput);
  EXPECT_NE(status.message().find("has dtype F8_E4M3"), std::string::npos) << status.message();
}

// A file that lacks a tensor, or has one in another shape, is refused with the tensor's name.
TEST_P(TowerGoldenTest, TensorsOfOtherShapesAreRefused) {
  const std::string folder = GoldenFolder(GetParam());
  auto config = ReadTowerConfig(ReadJsonFile(folder + "/config.json")).value().value();
  const auto checkpoint = Checkpoint::Open(folder).value();
  const auto ops = MakeCpuOps({}).value();
  const auto load = [&](const TowerConfig& other) {
    const auto model = MakeTowerModel(other);
    const Status status =
        model->Load(*checkpoint, OptionsFor(*model, {}), nullptr, ops.get()).status();
    const Status checked = CheckTowerTensors(other, *checkpoint);
    EXPECT_EQ(checked.code(), status.code()) << "without loading";
    EXPECT_EQ(checked.message(), status.message());
    return status;
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

// More patches than the workspace has room for, which takes memory for a while.
TEST(LargePictureTest, ItsEmbeddingsDependOnNoThreadsAndLeaveNothing) {
  const std::string folder = GoldenFolder("qwen3_vl");
  ImageRules rules = LoadImageRules(folder).value();
  rules.pixels_max = int64_t{1} << 20;
  const auto image_of = [&](PictureSize size) {
    PreparedImage image;
    image.layout = LayOutImage(rules, size).value();
    image.values = FormulaValues(image.layout.num_values, false);
    return image;
  };
  const PreparedImage large = image_of({8 * 66, 8 * 64}), small = image_of({48, 80});
  ASSERT_GT(large.layout.shape[0], 4096);
  const LoadedTower one = LoadTower(folder, 1), two = LoadTower(folder, 2);
  ASSERT_NE(one.rank_model, nullptr);
  const uint64_t bytes = one.rank_model->workspace_bytes();
  const auto before = one.Encode(small);
  const auto embeddings = one.Encode(large);
  EXPECT_EQ(embeddings, two.Encode(large));
  for (const float value : embeddings) ASSERT_TRUE(std::isfinite(value));
  EXPECT_EQ(one.Encode(small), before);
  EXPECT_EQ(one.rank_model->workspace_bytes(), bytes);
}

// More tiles than are encoded together; all hold the same values.
TEST(LargePictureTest, TilesOfAllGroupsAreAlike) {
  const std::string folder = GoldenFolder("internvl");
  ImageRules rules = LoadImageRules(folder).value();
  rules.tiles_max = 300;
  PreparedImage image;
  image.layout = LayOutImage(rules, {32 * 20, 32 * 15}).value();
  ASSERT_GT(image.layout.num_tiles * 17, 4096);
  const auto tile = FormulaValues(image.layout.num_values / image.layout.num_tiles, false);
  for (int32_t i = 0; i < image.layout.num_tiles; ++i) {
    image.values.insert(image.values.end(), tile.begin(), tile.end());
  }
  const LoadedTower loaded = LoadTower(folder, 2);
  ASSERT_NE(loaded.rank_model, nullptr);
  const auto embeddings = loaded.Encode(image);
  const auto of_tile = std::ssize(embeddings) / image.layout.num_tiles;
  for (int32_t i = 1; i < image.layout.num_tiles; ++i) {
    ASSERT_TRUE(std::equal(embeddings.begin(), embeddings.begin() + of_tile,
                           embeddings.begin() + i * of_tile))
        << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TowerGoldenTest,
                         testing::Values("gemma4_clipped", "glm4v", "internvl", "internvl_rms",
                                         "llama4", "mistral3", "qwen3_5", "qwen3_vl"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace minisgl
