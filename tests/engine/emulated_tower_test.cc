// Towers on the CUDA engine's kernels without a GPU: embeddings of the families in
// tests/golden/towers, and of the models beside the project, agree with those of the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/emulated_cuda.h"
#include "minisgl/device_array.h"
#include "minisgl/vision/image_layout.h"
#include "minisgl/vision/image_rules.h"
#include "model/tower_test_util.h"
#include "slow.h"

namespace minisgl {
namespace {

class EmulatedTowerTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    MarkSlow("towers on the emulator");
    folder_ = std::string(MINISGL_SOURCE_DIR "/tests/golden/towers/") + GetParam();
    if (std::filesystem::exists(folder_)) return;
    folder_ = SharedFolder("models/vision/") + GetParam();
    if (!std::filesystem::exists(folder_)) GTEST_SKIP() << "no shared models";
  }

  // The reference's smallest picture, or one of several windows or tiles.
  PreparedImage Image() const {
    const ImageRules rules = LoadImageRules(folder_).value();
    PreparedImage image;
    if (!std::filesystem::exists(folder_ + "/expected.json")) {
      image.layout = LayOutImage(rules, {150, 120}).value();
    } else {
      const Json expected = ReadJsonFile(folder_ + "/expected.json");
      for (const Json& picture : expected.Find("pictures")->as_array()) {
        const Json::Array& sides = picture.Find("size")->as_array();
        const PictureSize size = {static_cast<int32_t>(sides[0].as_int()),
                                  static_cast<int32_t>(sides[1].as_int())};
        const ImageLayout layout = LayOutImage(rules, size).value();
        const bool is_first = image.layout.num_values == 0;
        if (is_first || layout.num_values < image.layout.num_values) image.layout = layout;
      }
    }
    for (int64_t i = 0; i < image.layout.num_values; ++i) {
      const auto mixed = static_cast<uint32_t>(static_cast<uint64_t>(i) * 2654435761u);
      image.values.push_back(static_cast<float>(mixed >> 16 & 255) / 255.0f);
    }
    return image;
  }

  std::vector<float> OnEmulator(const PreparedImage& image, DType dtype) const {
    const auto config = ReadTowerConfig(ReadJsonFile(folder_ + "/config.json")).value().value();
    const auto model = MakeTowerModel(config);
    const auto ops = EmulatedCuda({.activation_dtype = dtype});
    EXPECT_TRUE(ops->CheckSupported(model->tower_shape()).ok());
    EXPECT_TRUE(ops->Reserve({.max_rows = 1,
                              .max_tokens = 16,
                              .max_seq_len = 64,
                              .num_heads = 1,
                              .num_kv_heads = 1,
                              .head_dim = 64})
                    .ok());
    const auto checkpoint = Checkpoint::Open(folder_).value();
    DecoderOptions options;
    options.weight_format = dtype;
    options.activation_dtype = dtype;
    auto loaded = model->Load(*checkpoint, options, nullptr, ops.get());
    MINISGL_CHECK(loaded.ok(), "{}", loaded.status().message());
    EXPECT_EQ((*loaded)->workspace_bytes(), model->WorkspaceBytes(options).value());
    auto& tower = dynamic_cast<Tower&>(**loaded);
    ImageContent content;
    content.image = image;
    const auto count = static_cast<uint64_t>(image.layout.num_tokens * tower.embedding_width());
    const auto out = DeviceArray<float>::Make(ops.get(), {count}).value();
    const Status encoded = tower.Encode(content, out.data());
    EXPECT_TRUE(encoded.ok()) << encoded.message();
    const auto host = ops->AllocateHost(count * sizeof(float)).value();
    ops->CopyToHost(host.get(), out.data(), count * sizeof(float));
    const auto event = ops->MakeEvent().value();
    ops->Record(event.get());
    EXPECT_TRUE(ops->Wait(event.get()).ok()) << ops->status().message();
    const auto* const floats = static_cast<const float*>(host.get());
    return std::vector<float>(floats, floats + count);
  }

  std::string folder_;
};

// The error of an embedding's vector, relative to its length.
TEST_P(EmulatedTowerTest, EmbeddingsAgreeWithTheCpu) {
  const PreparedImage image = Image();
  const LoadedTower cpu = LoadTower(folder_, 1);
  ASSERT_NE(cpu.rank_model, nullptr);
  const auto expected = cpu.Encode(image);
  for (const auto& [dtype, tolerance] :
       {std::pair(DType::kF16, 0.01), std::pair(DType::kBF16, 0.06)}) {
    const auto embeddings = OnEmulator(image, dtype);
    ASSERT_EQ(embeddings.size(), expected.size());
    const int64_t width = cpu.tower().embedding_width();
    for (size_t first = 0; first < expected.size(); first += static_cast<size_t>(width)) {
      double error = 0, length = 0;
      for (size_t i = first; i < first + static_cast<size_t>(width); ++i) {
        error += std::pow(embeddings[i] - expected[i], 2);
        length += std::pow(expected[i], 2);
      }
      ASSERT_LE(std::sqrt(error), tolerance * std::sqrt(length))
          << DTypeName(dtype) << " from " << first;
    }
    EXPECT_EQ(OnEmulator(image, dtype), embeddings) << "a second time";
  }
}

INSTANTIATE_TEST_SUITE_P(Families, EmulatedTowerTest,
                         testing::Values("gemma4_clipped", "glm4v", "internvl", "internvl_rms",
                                         "llama4", "mistral3", "qwen3_5", "qwen3_vl"),
                         [](const auto& test) { return std::string(test.param); });
INSTANTIATE_TEST_SUITE_P(Shared, EmulatedTowerTest,
                         testing::Values("gemma3", "gemma4", "llava", "llava_onevision", "pixtral",
                                         "qwen2_5_vl", "qwen2_vl", "smolvlm"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace minisgl
