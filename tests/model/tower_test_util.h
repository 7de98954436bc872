// Towers loaded for tests, and what the reference says of their embeddings.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/model/tower.h"
#include "minisgl/vision/image_content.h"
#include "vision/vision_test_util.h"

namespace minisgl {

// A tower over operations of its own.
struct LoadedTower {
  std::shared_ptr<const ListedModel> model;
  std::unique_ptr<Ops> ops;
  std::unique_ptr<RankModel> rank_model;

  Tower& tower() const { return dynamic_cast<Tower&>(*rank_model); }
  // In pieces of `parts`.
  std::vector<float> Encode(const PreparedImage& image, int64_t parts = 1) const {
    ImageContent content;
    content.image = image;
    std::vector<float> out(static_cast<size_t>(image.layout.num_tokens * tower().embedding_width()),
                           std::numeric_limits<float>::quiet_NaN());
    auto encoding = tower().Begin(content, out.data());
    EXPECT_TRUE(encoding.ok()) << encoding.status().message();
    for (int64_t part = 1; encoding.ok() && part <= parts; ++part) {
      const Status status = (*encoding)->Advance(part, parts);
      EXPECT_TRUE(status.ok()) << status.message();
    }
    return out;
  }
};

inline DecoderOptions OptionsFor(const ListedModel& model, std::optional<DType> dtype) {
  DecoderOptions options;
  options.weight_format = model.FormatFor(dtype, Quantization::kNone);
  return options;
}

inline LoadedTower LoadTower(TowerConfig config, const Checkpoint& checkpoint, int num_threads,
                             std::optional<DType> dtype = {}) {
  LoadedTower loaded;
  loaded.model = MakeTowerModel(std::move(config));
  CpuOpsConfig ops_config;
  ops_config.num_threads = num_threads;
  loaded.ops = MakeCpuOps(ops_config).value();
  auto rank_model =
      loaded.model->Load(checkpoint, OptionsFor(*loaded.model, dtype), nullptr, loaded.ops.get());
  EXPECT_TRUE(rank_model.ok()) << rank_model.status().message();
  if (rank_model.ok()) loaded.rank_model = std::move(rank_model).value();
  return loaded;
}

inline LoadedTower LoadTower(TowerConfig config, const std::string& dir, int num_threads,
                             std::optional<DType> dtype = {}) {
  const auto checkpoint = Checkpoint::Open(dir);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  return checkpoint.ok() ? LoadTower(std::move(config), **checkpoint, num_threads, dtype)
                         : LoadedTower();
}

inline LoadedTower LoadTower(const std::string& folder, int num_threads,
                             std::optional<DType> dtype = {}) {
  auto config = ReadTowerConfig(ReadJsonFile(folder + "/config.json"));
  EXPECT_TRUE(config.ok()) << config.status().message();
  if (!config.ok() || !config->has_value()) return {};
  return LoadTower(std::move(**config), folder, num_threads, dtype);
}

// Compares rows of `embeddings` [*, width], of which `count` features from `first` on are meant,
// with what the reference says of each part of them.
inline void ExpectEmbeddings(const Json& parts, const std::vector<float>& embeddings, int64_t width,
                             int64_t first, int64_t count) {
  int64_t row = 0;
  for (const Json& part : parts.as_array()) {
    const int64_t rows = part.Find("shape")->as_array()[0].as_int();
    ASSERT_EQ(part.Find("shape")->as_array()[1].as_int(), count);
    ASSERT_LE((row + rows) * width, std::ssize(embeddings));
    const double mean = part.Find("mean_abs")->as_double();
    const auto at = [&](int64_t r, int64_t i) {
      return embeddings[static_cast<size_t>((row + r) * width + first + i)];
    };
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < count; ++i) sum += std::abs(at(r, i));
    }
    EXPECT_NEAR(sum / static_cast<double>(rows * count), mean, 1e-4 * mean);
    for (int64_t i = 0; i < 8; ++i) {
      EXPECT_NEAR(at(0, i), part.Find("first")->as_array()[i].as_double(), 1e-4 * mean);
      EXPECT_NEAR(at(rows - 1, i), part.Find("last")->as_array()[i].as_double(), 1e-4 * mean);
    }
    const Json* const means = part.Find("token_means");
    for (int64_t r = 0; means != nullptr && r < rows; ++r) {
      double total = 0;
      for (int64_t i = 0; i < count; ++i) total += at(r, i);
      EXPECT_NEAR(total / static_cast<double>(count),
                  means->as_array()[static_cast<size_t>(r)].as_double(), 1e-4 * mean);
    }
    row += rows;
  }
  EXPECT_EQ(row * width, std::ssize(embeddings));
}

}  // namespace minisgl
