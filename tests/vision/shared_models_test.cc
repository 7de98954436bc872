// Pixel values of the tiny multimodal models beside the project: each prompt's values have the hash
// that the reference's have, and its placeholders are as many as the layouts say.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "minisgl/vision/prepare_image.h"
#include "vision/shared_pictures.h"
#include "vision/vision_test_util.h"

namespace minisgl {
namespace {

// [planes, height, width] filled up with zeros to [planes, rows, columns].
std::vector<float> Pad(const PreparedImage& image, int64_t rows, int64_t columns) {
  const int64_t height = image.layout.shape[2], width = image.layout.shape[3];
  const int64_t planes = image.layout.shape[0] * image.layout.shape[1];
  std::vector<float> padded(static_cast<size_t>(planes * rows * columns));
  for (int64_t row = 0; row < planes * height; ++row) {
    const int64_t to = row / height * rows + row % height;
    std::copy_n(image.values.begin() + row * width, width, padded.begin() + to * columns);
  }
  return padded;
}

// The reference's pixel_values: all pictures of a prompt, filled up with zeros to one size.
std::vector<float> JoinValues(const ImageRules& rules, const std::vector<PreparedImage>& images) {
  int64_t height = 0, width = 0, tiles = 0;
  for (const PreparedImage& image : images) {
    height = std::max<int64_t>(height, image.layout.tile.height);
    width = std::max<int64_t>(width, image.layout.tile.width);
    tiles = std::max<int64_t>(tiles, image.layout.num_tiles);
  }
  std::vector<float> joined;
  for (const PreparedImage& image : images) {
    const bool is_tiled = rules.patch_order == PatchOrder::kTiles;
    std::vector<float> values = is_tiled ? Pad(image, height, width) : image.values;
    size_t filled = values.size();
    if (rules.size_rule == SizeRule::kPinpoints) {
      filled = static_cast<size_t>(tiles * 3 * height * width);
    } else if (rules.size_rule == SizeRule::kPatchBudget) {
      filled = static_cast<size_t>(rules.tokens_max * rules.merge_size * rules.merge_size *
                                   image.layout.shape[1]);
    }
    values.resize(filled);
    joined.insert(joined.end(), values.begin(), values.end());
  }
  return joined;
}

class SharedVisionModelTest : public testing::TestWithParam<const char*> {};

void CheckRow(const ImageRules& rules, const Json& prompt, const Json& answer,
              const std::string& folder) {
  const auto pictures = PicturesOf(prompt, folder);
  std::vector<PreparedImage> images;
  int64_t num_tokens = 0;
  for (size_t i = 0; i < pictures.size(); ++i) {
    const int num_images = static_cast<int>(pictures.size());
    auto image = PrepareImageFile(rules, pictures[i], {}, Background::kDrop, num_images);
    ASSERT_TRUE(image.ok()) << image.status().message();
    const auto planned = LayOutImageFile(rules, pictures[i], {}, num_images);
    ASSERT_TRUE(planned.ok()) << planned.status().message();
    EXPECT_EQ(planned->num_tokens, image->layout.num_tokens);
    EXPECT_EQ(planned->shape, image->layout.shape);
    num_tokens += image->layout.num_tokens;
    if (const Json* const grids = answer.Find("image_grid_thw")) {
      const Json::Array& grid = grids->as_array()[i].as_array();
      EXPECT_EQ(image->layout.patch_rows, grid[1].as_int());
      EXPECT_EQ(image->layout.patch_columns, grid[2].as_int());
    }
    images.push_back(*std::move(image));
  }
  const Json* const runs = answer.Find("image_token_runs");
  ASSERT_EQ(runs == nullptr, pictures.empty());
  if (runs == nullptr) return;
  int64_t num_placeholders = 0;
  for (const Json& run : runs->as_array()) num_placeholders += run.as_int();
  EXPECT_EQ(num_tokens, num_placeholders);
  const Json& expected = *answer.Find("pixel_values");
  const std::vector<float> values = JoinValues(rules, images);
  const Json::Array& first = expected.Find("first")->as_array();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(values[i], first[i].as_double(), 1e-6);
  EXPECT_EQ(HashOfFloats(values), expected.Find("sha256_f32")->as_string());
}

TEST_P(SharedVisionModelTest, PixelValuesAreTheReferences) {
  const std::string folder = SharedFolder(std::string("models/vision/") + GetParam());
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "there is no " << folder;
  for (const PictureKind kind : {PictureKind::kPng, PictureKind::kJpeg}) {
    if (!CanDecodePicture(kind))
      GTEST_SKIP() << "this build does not read " << PictureKindName(kind);
  }
  const auto rules = LoadImageRules(folder);
  ASSERT_TRUE(rules.ok()) << rules.status().message();
  const auto prompts = ReadJsonLines(folder + "/prompts.jsonl");
  const auto answers = ReadJsonLines(folder + "/answers.jsonl");
  ASSERT_EQ(prompts.size(), answers.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    SCOPED_TRACE(answers[i].Find("id")->as_string());
    CheckRow(*rules, prompts[i], answers[i], folder);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SharedVisionModelTest,
                         testing::Values("gemma3", "gemma4", "llava", "llava_onevision", "pixtral",
                                         "qwen2_5_vl", "qwen2_vl", "smolvlm"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace minisgl
