// The identity of packed weights differs with the weights and with every setting of their packing.
#include "minisgl/model/pack_source.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/tiny_model.h"
#include "temporary_folder.h"

namespace minisgl {
namespace {

class PackSourceTest : public testing::Test {
 protected:
  std::optional<PackSource> Source(const ModelConfig& config, const WeightFormat& format) const {
    return MakePackSource(config, *checkpoint_, format, folder_.Path("packed"), 1);
  }
  std::string Key(const ModelConfig& config, const WeightFormat& format) const {
    return Source(config, format).value().key;
  }

  const TemporaryFolder folder_;
  const TinyModelDir dir_;
  const std::unique_ptr<Checkpoint> checkpoint_ = WriteCheckpoint(dir_, TinyTensors(TinyConfig()));
};

TEST_F(PackSourceTest, KeysDifferWithWhateverDecidesThePacking) {
  const ModelConfig config = TinyConfig();
  const std::string key = Key(config, DType::kF32);
  EXPECT_EQ(Key(config, DType::kF32), key);
  EXPECT_NE(Key(config, DType::kBF16), key);
  EXPECT_NE(Key(config, {DType::kF32, Quantization::kInt8}), key);
  EXPECT_NE(Key(config, {DType::kF32, Quantization::kInt4}), key);
  EXPECT_NE(Key(config, {DType::kF32, Quantization::kInt4}),
            Key(config, {DType::kF32, Quantization::kInt8}));
  ModelConfig heads = config;
  heads.num_heads *= 2;
  EXPECT_NE(Key(heads, DType::kF32), key);
  ModelConfig interleaved = config;
  interleaved.rotary_interleaved = true;
  EXPECT_NE(Key(interleaved, DType::kF32), key);
  ModelConfig unrotated = config;
  unrotated.layers[1].rope = -1;
  EXPECT_NE(Key(unrotated, DType::kF32), key);
}

TEST_F(PackSourceTest, KeysDifferWithTheWeights) {
  const TinyModelDir other_dir;
  const auto other = WriteCheckpoint(other_dir, TinyTensors(TinyConfig(), 2));
  const auto source = MakePackSource(TinyConfig(), *other, DType::kF32, folder_.Path("packed"), 1);
  EXPECT_NE(source.value().key, Key(TinyConfig(), DType::kF32));
}

TEST_F(PackSourceTest, ASourceHoldsUntilItsFilesChange) {
  const PackSource source = Source(TinyConfig(), DType::kF32).value();
  EXPECT_TRUE(source.holds());
  WriteCheckpoint(dir_, TinyTensors(TinyConfig(), 2));
  EXPECT_FALSE(source.holds());
}

TEST_F(PackSourceTest, WithoutAFolderOrFilesThereIsNone) {
  EXPECT_FALSE(MakePackSource(TinyConfig(), *checkpoint_, DType::kF32, "", 1).has_value());
  const auto in_memory = Checkpoint::FromViews({}, nullptr, "memory");
  EXPECT_FALSE(
      MakePackSource(TinyConfig(), *in_memory, DType::kF32, folder_.Path("packed"), 1).has_value());
}

TEST_F(PackSourceTest, AFolderThatCannotBeUsedGivesAnEmptyKey) {
  const std::string file = folder_.Write("file", "");
  const auto source = MakePackSource(TinyConfig(), *checkpoint_, DType::kF32, file, 1);
  EXPECT_EQ(source.value().key, "");
}

}  // namespace
}  // namespace minisgl
