// Towers of the tiny multimodal models beside the project: each picture's embeddings are those of
// the reference.
#include "minisgl/model/tower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "minisgl/vision/prepare_image.h"
#include "tower_test_util.h"
#include "vision/shared_pictures.h"
#include "vision/vision_test_util.h"

namespace minisgl {
namespace {

// The pictures of a prompt.
std::vector<PreparedImage> PreparePictures(const ImageRules& rules, const Json& prompt,
                                           const std::string& folder) {
  const auto files = PicturesOf(prompt, folder);
  std::vector<PreparedImage> images;
  for (const std::string& file : files) {
    auto image =
        PrepareImageFile(rules, file, {}, Background::kDrop, static_cast<int>(files.size()));
    EXPECT_TRUE(image.ok()) << image.status().message();
    if (image.ok()) images.push_back(*std::move(image));
  }
  return images;
}

class TowerTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = SharedFolder(std::string("models/vision/") + GetParam());
    if (!std::filesystem::exists(folder_)) GTEST_SKIP() << "there is no " << folder_;
    for (const PictureKind kind : {PictureKind::kPng, PictureKind::kJpeg}) {
      if (!CanDecodePicture(kind)) {
        GTEST_SKIP() << "this build does not read " << PictureKindName(kind);
      }
    }
    rules_ = LoadImageRules(folder_).value();
    prompts_ = ReadJsonLines(folder_ + "/prompts.jsonl");
    answers_ = ReadJsonLines(folder_ + "/answers.jsonl");
  }

  std::string folder_;
  ImageRules rules_;
  std::vector<Json> prompts_, answers_;
};

TEST_P(TowerTest, EmbeddingsAreTheReferences) {
  const LoadedTower loaded = LoadTower(folder_, 2, DType::kF32);
  ASSERT_NE(loaded.rank_model, nullptr);
  const int64_t width = loaded.tower().embedding_width();
  int num_checked = 0;
  ASSERT_EQ(prompts_.size(), answers_.size());
  for (size_t i = 0; i < prompts_.size(); ++i) {
    const Json* const expected = answers_[i].Find("image_embeds");
    if (expected == nullptr) continue;
    SCOPED_TRACE(answers_[i].Find("id")->as_string());
    std::vector<float> embeddings;
    for (const PreparedImage& image : PreparePictures(rules_, prompts_[i], folder_)) {
      const auto own = loaded.Encode(image);
      embeddings.insert(embeddings.end(), own.begin(), own.end());
    }
    const int64_t count = expected->as_array()[0].Find("shape")->as_array()[1].as_int();
    ExpectEmbeddings(*expected, embeddings, width, 0, count);
    const Json* const deepstack = answers_[i].Find("deepstack");
    EXPECT_EQ(deepstack != nullptr, width > count);
    for (int64_t j = 0; deepstack != nullptr && j < width / count - 1; ++j) {
      ExpectEmbeddings(deepstack->as_array()[static_cast<size_t>(j)], embeddings, width,
                       (j + 1) * count, count);
    }
    ++num_checked;
  }
  EXPECT_GE(num_checked, 5);
}

TEST_P(TowerTest, APictureHasTheSameBitsInEveryRunAndInPieces) {
  const LoadedTower one = LoadTower(folder_, 1), two = LoadTower(folder_, 2);
  ASSERT_NE(one.rank_model, nullptr);
  std::vector<PreparedImage> images;
  for (const Json& prompt : prompts_) {
    for (PreparedImage& image : PreparePictures(rules_, prompt, folder_)) {
      images.push_back(std::move(image));
    }
  }
  ASSERT_GE(images.size(), 3u);
  std::vector<std::vector<float>> first;
  for (const PreparedImage& image : images) first.push_back(one.Encode(image));
  for (size_t i = images.size(); i-- > 0;) {
    const auto again = two.Encode(images[i], i % 2 == 0 ? 7 : 100);
    ASSERT_EQ(again.size(), first[i].size());
    EXPECT_EQ(std::memcmp(again.data(), first[i].data(), again.size() * sizeof(float)), 0) << i;
  }
}

TEST_P(TowerTest, BytesFollowFromTheConfiguration) {
  const LoadedTower loaded = LoadTower(folder_, 1);
  ASSERT_NE(loaded.rank_model, nullptr);
  const ListedModel& model = *loaded.model;
  const DecoderOptions options = OptionsFor(model, {});
  EXPECT_EQ(model.WeightBytes(options), loaded.rank_model->weight_bytes());
  EXPECT_EQ(model.WorkspaceBytes(options), loaded.rank_model->workspace_bytes());
  EXPECT_EQ(model.role(), ModelRole::kTower);
  EXPECT_FALSE(model.is_cut());
  EXPECT_EQ(model.layers(), nullptr);
  for (const Json& prompt : prompts_) {
    for (const PreparedImage& image : PreparePictures(rules_, prompt, folder_)) {
      loaded.Encode(image);
    }
  }
  EXPECT_LE(loaded.ops->scratch_bytes(), model.ScratchBytes(options, 1));
}

// The reader of another model's files: patches of another size, or tiles of another side.
TEST_P(TowerTest, PicturesOfOtherRulesAreRefused) {
  const LoadedTower loaded = LoadTower(folder_, 1);
  ASSERT_NE(loaded.rank_model, nullptr);
  ImageContent content;
  for (const Json& prompt : prompts_) {
    const auto images = PreparePictures(rules_, prompt, folder_);
    if (images.empty()) continue;
    content.image = images[0];
    break;
  }
  ASSERT_FALSE(content.image.values.empty());
  ++content.image.layout.patch_columns;
  std::vector<float> out(1);
  const Status status = loaded.tower().Encode(content, out.data());
  EXPECT_EQ(status.code(), StatusCode::kBadInput);
  EXPECT_NE(status.message().find("do not fit the tower"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Models, TowerTest,
                         testing::Values("gemma3", "gemma4", "llava", "llava_onevision", "pixtral",
                                         "qwen2_5_vl", "qwen2_vl", "smolvlm"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace minisgl
