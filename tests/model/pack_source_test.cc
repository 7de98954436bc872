// The identity of packed weights differs with the weights and with every setting of their packing.
#include "minisgl/model/pack_source.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/tiny_model.h"
#include "temporary_folder.h"

namespace minisgl {
namespace {

const WeightFormat kOneF32[] = {DType::kF32};

class PackSourceTest : public testing::Test {
 protected:
  std::optional<PackSource> Source(const ModelConfig& config, const WeightFormat& format) const {
    return MakePackSource(config, *checkpoint_, {&format, 1}, folder_.Path("packed"), 1);
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
  const auto source = MakePackSource(TinyConfig(), *other, kOneF32, folder_.Path("packed"), 1);
  EXPECT_NE(source.value().key, Key(TinyConfig(), DType::kF32));
}

TEST_F(PackSourceTest, TheKeyOfSeveralModelsNamesEach) {
  const TinyModelDir other_dir;
  static_cast<void>(WriteCheckpoint(other_dir, TinyTensors(TinyConfig(), 2)));
  const WeightFormat formats[] = {DType::kF32, DType::kF32}, others[] = {DType::kF32, DType::kBF16};
  const auto source = [&](const std::string& dir, std::span<const WeightFormat> of) {
    ModelList models = ModelList(TinyConfig());
    EXPECT_TRUE(models.Add(MakeDecoderModel(ModelRole::kDrafter, TinyConfig(), dir)).ok());
    const auto files = ModelFiles::Open(models, dir_.path());
    MINISGL_CHECK(files.ok(), "{}", files.status().message());
    return MakePackSource(models, *files, of, folder_.Path("packed"), 1).value();
  };
  const std::string alone = Key(TinyConfig(), DType::kF32), both = source("", formats).key;
  EXPECT_EQ(both, alone + "\ndrafter " + alone) << "of the same files";
  EXPECT_NE(source(other_dir.path(), formats).key, both);
  EXPECT_NE(source("", others).key, both);
  const PackSource whole = source(other_dir.path(), formats);
  EXPECT_TRUE(whole.holds());
  static_cast<void>(WriteCheckpoint(other_dir, TinyTensors(TinyConfig(), 3)));
  EXPECT_FALSE(whole.holds());
}

TEST_F(PackSourceTest, ASourceHoldsUntilItsFilesChange) {
  const PackSource source = Source(TinyConfig(), DType::kF32).value();
  EXPECT_TRUE(source.holds());
  WriteCheckpoint(dir_, TinyTensors(TinyConfig(), 2));
  EXPECT_FALSE(source.holds());
}

TEST_F(PackSourceTest, WithoutAFolderOrFilesThereIsNone) {
  EXPECT_FALSE(MakePackSource(TinyConfig(), *checkpoint_, kOneF32, "", 1).has_value());
  const auto in_memory = Checkpoint::FromViews({}, nullptr, "memory");
  EXPECT_FALSE(
      MakePackSource(TinyConfig(), *in_memory, kOneF32, folder_.Path("packed"), 1).has_value());
}

TEST_F(PackSourceTest, AFolderThatCannotBeUsedGivesAnEmptyKey) {
  const std::string file = folder_.Write("file", "");
  const auto source = MakePackSource(TinyConfig(), *checkpoint_, kOneF32, file, 1);
  EXPECT_EQ(source.value().key, "");
}

}  // namespace
}  // namespace minisgl
