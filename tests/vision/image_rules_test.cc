// Rules read from a model's files: where keys stand, defaults, and what is refused by name.
#include "minisgl/vision/image_rules.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "minisgl/vision/image_layout.h"
#include "temporary_folder.h"
#include "vision/vision_test_util.h"

namespace minisgl {
namespace {

Json Parsed(const std::string& text) {
  auto json = ParseJson(text);
  EXPECT_TRUE(json.ok()) << text;
  return json.ok() ? *std::move(json) : Json();
}

Result<ImageRules> RulesOf(const std::string& preprocessor, const std::string& processor = "null",
                           const std::string& config = "{}") {
  return ReadImageRules(Parsed(config), Parsed(preprocessor), Parsed(processor));
}

void ExpectRefused(const Result<ImageRules>& rules, const std::string& message) {
  ASSERT_FALSE(rules.ok());
  EXPECT_EQ(rules.status().message(), message);
}

TEST(ImageRulesTest, MissingKeysHaveTheDefaultsOfTheClass) {
  const auto rules = RulesOf(R"({"image_processor_type": "Qwen2VLImageProcessor"})");
  ASSERT_TRUE(rules.ok()) << rules.status().message();
  EXPECT_EQ(rules->size_rule, SizeRule::kBlocks);
  EXPECT_EQ(rules->filter, ResizeFilter::kBicubic);
  EXPECT_EQ(rules->patch_size, 14);
  EXPECT_EQ(rules->merge_size, 2);
  EXPECT_EQ(rules->num_frames, 2);
  EXPECT_EQ(rules->pixels_min, 3136);
  EXPECT_EQ(rules->pixels_max, 1003520);
  EXPECT_EQ(rules->mean[0], 0.48145466);
}

TEST(ImageRulesTest, PixelsStandBeforeEdges) {
  const auto rules =
      RulesOf(R"({"image_processor_type": "Qwen2VLImageProcessor", "max_pixels": 7000,
      "size": {"shortest_edge": 4000, "longest_edge": 9000}})");
  ASSERT_TRUE(rules.ok()) << rules.status().message();
  EXPECT_EQ(rules->pixels_min, 4000);
  EXPECT_EQ(rules->pixels_max, 7000);
}

TEST(ImageRulesTest, NamesOfOldAndFastClassesAreTheSameRules) {
  for (const char* text :
       {R"({"image_processor_type": "CLIPImageProcessorFast", "size": 98, "crop_size": 98})",
        R"({"feature_extractor_type": "CLIPFeatureExtractor", "size": 98, "crop_size": 98})"}) {
    const auto rules = RulesOf(text);
    ASSERT_TRUE(rules.ok()) << rules.status().message();
    EXPECT_EQ(rules->processor, "CLIPImageProcessor");
    EXPECT_EQ(rules->shortest_side, 98);
    EXPECT_EQ(rules->tile, (PictureSize{98, 98}));
    EXPECT_EQ(rules->tokens_per_tile, 49);
  }
}

TEST(ImageRulesTest, TheProcessorsOwnRulesStandFirst) {
  const std::string nested = R"({"image_processor":
      {"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 448, "width": 448}},
      "image_seq_length": 64})";
  const auto rules = RulesOf(
      R"({"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 896, "width": 896}})",
      nested);
  ASSERT_TRUE(rules.ok()) << rules.status().message();
  EXPECT_EQ(rules->tile, (PictureSize{448, 448}));
  EXPECT_EQ(rules->tokens_per_tile, 64);
}

TEST(ImageRulesTest, OtherProcessorsAreRefusedByName) {
  const auto rules = RulesOf(R"({"image_processor_type": "MllamaImageProcessor"})");
  ExpectRefused(rules,
                "pictures of the image processor \"MllamaImageProcessor\" are not supported");
  EXPECT_EQ(rules.status().code(), StatusCode::kUnavailable);
  ExpectRefused(RulesOf("null"), "pictures of the image processor \"\" are not supported");
}

TEST(ImageRulesTest, WrongValuesAreErrorsThatNameFileAndKey) {
  const std::string qwen = R"({"image_processor_type": "Qwen2VLImageProcessor", )";
  const std::string file = "preprocessor_config.json: ";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("patch_size": 0})", R"("patch_size" must be an integer from 1 to 65536 (found 0))"},
      {R"("patch_size": "14"})", R"("patch_size" must be an integer from 1 to 65536 (found "14"))"},
      {R"("resample": 0})", R"("resample" must be an integer from 1 to 3 (found 0))"},
      {R"("image_mean": [1, 2]})", R"("image_mean" must be three numbers (found [1, 2]))"},
      {R"("image_std": [1, 0, 1]})",
       R"("image_std" must be numbers other than 0 (found [1, 0, 1]))"},
      {R"("do_resize": false})", R"("do_resize" must be true (found false))"},
      {R"("do_rescale": 1})", R"("do_rescale" must be true or false (found 1))"},
      {R"("rescale_factor": 0})", R"("rescale_factor" must be a number above 0 (found 0))"},
      {R"("size": {"longest_edge": -5}})",
       R"("size.longest_edge" must be an integer from 1 to 1099511627776 (found -5))"}};
  for (const auto& [text, message] : cases) ExpectRefused(RulesOf(qwen + text), file + message);
  ExpectRefused(RulesOf(R"({"image_processor_type": "LlavaOnevisionImageProcessor",
                            "image_grid_pinpoints": [[384, 400]]})"),
                file +
                    "\"image_grid_pinpoints\" must be a list of [height, width] in multiples of "
                    "a tile (found [[384, 400]])");
  ExpectRefused(RulesOf(R"({"image_processor_type": "LlavaOnevisionImageProcessor"})",
                        R"({"vision_aspect_ratio": "square"})"),
                "processor_config.json: \"vision_aspect_ratio\" must be anyres_max_N (found "
                "\"square\")");
  ExpectRefused(
      RulesOf(R"({"image_processor_type": "Gemma3ImageProcessor", "do_pan_and_scan": true})"),
      file + "\"do_pan_and_scan\" must be false (found true)");
}

TEST(ImageRulesTest, AFolderNeedsNoFileButItsConfiguration) {
  TemporaryFolder folder;
  EXPECT_EQ(LoadImageRules(folder.Path("")).status().code(), StatusCode::kNoInput);
  folder.Write("config.json", "{}");
  folder.Write("processor_config.json",
               R"({"image_processor": {"image_processor_type": "Gemma4ImageProcessor"}})");
  const auto rules = LoadImageRules(folder.Path(""));
  ASSERT_TRUE(rules.ok()) << rules.status().message();
  EXPECT_EQ(rules->tokens_max, 280);
  folder.Write("preprocessor_config.json", "{");
  EXPECT_NE(LoadImageRules(folder.Path("")).status().message().find("preprocessor_config.json"),
            std::string::npos);
}

// Rules may be hostile and pictures of any shape: layouts stay within bounds or are errors.
TEST(ImageLayoutTest, TooLargeLayoutsAreErrors) {
  const auto huge = RulesOf(R"({"image_processor_type": "Qwen2VLImageProcessor",
      "min_pixels": 1000000000000, "max_pixels": 1000000000000})");
  ASSERT_TRUE(huge.ok());
  const auto layout = LayOutImage(*huge, {100, 100});
  ASSERT_FALSE(layout.ok());
  EXPECT_EQ(layout.status().message(),
            "a picture of 100 x 100 pixels; the model makes too large a picture of it");
  const auto thin = RulesOf(R"({"image_processor_type": "CLIPImageProcessor",
      "size": {"shortest_edge": 65536}, "crop_size": 14})");
  ASSERT_TRUE(thin.ok());
  EXPECT_FALSE(LayOutImage(*thin, {2000, 10}).ok());
}

TEST(ImageLayoutTest, ShapesThatTheReferenceRefusesAreErrors) {
  const auto qwen = RulesOf(R"({"image_processor_type": "Qwen2VLImageProcessor"})");
  ASSERT_TRUE(qwen.ok());
  EXPECT_TRUE(LayOutImage(*qwen, {2000, 10}).ok());
  const auto ratio = LayOutImage(*qwen, {2001, 10});
  ASSERT_FALSE(ratio.ok());
  EXPECT_EQ(ratio.status().message(),
            "a picture of 2001 x 10 pixels; the model allows a ratio of sides of 200 at most");
  const auto pixtral =
      RulesOf(R"({"image_processor_type": "PixtralImageProcessor", "size": {"longest_edge": 64}})");
  ASSERT_TRUE(pixtral.ok());
  const auto nothing = LayOutImage(*pixtral, {1000, 5});
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.status().message(),
            "a picture of 1000 x 5 pixels, of which nothing is left at the model's size");
}

TEST(ImageLayoutTest, HalvesOfBlocksGoToTheEvenOne) {
  const auto rules = RulesOf(R"({"image_processor_type": "Qwen2VLImageProcessor"})");
  ASSERT_TRUE(rules.ok());
  const auto layout = LayOutImage(*rules, {210, 70});  // 7.5 and 2.5 blocks
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->resized, (PictureSize{8 * 28, 2 * 28}));
}

// A last bit decides where the reference's quotients are whole numbers.
TEST(ImageLayoutTest, PackedRowsAreThoseOfTheExactQuotient) {
  const auto rules = RulesOf(R"({"image_processor_type": "LlavaOnevisionImageProcessor"})",
                             R"({"num_image_tokens": 729, "vision_aspect_ratio": "anyres_max_9"})");
  ASSERT_TRUE(rules.ok());
  const auto layout = LayOutImage(*rules, {3110, 1896});
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->num_tokens, 7239);
  EXPECT_EQ(layout->token_rows, 62);
  EXPECT_EQ(layout->token_columns, 104);
  EXPECT_EQ(layout->cut_rows, 5);
}

// Every rule with a bound keeps it for pictures of all usual shapes.
TEST(TokenBoundsTest, PicturesHaveAtMostTheTokensAskedFor) {
  const Json cases =
      Parsed(ReadAllBytes(MINISGL_SOURCE_DIR "/tests/vision/golden/pixel_values.json"));
  int num_bounded = 0;
  for (const Json& one : cases.as_array()) {
    SCOPED_TRACE(one.Find("name")->as_string());
    auto rules =
        ReadImageRules(*one.Find("config"), *one.Find("preprocessor"), *one.Find("processor"));
    ASSERT_TRUE(rules.ok()) << rules.status().message();
    if (one.Find("num_images")->as_int() > 1) continue;
    for (const int32_t bound : {71, 200, 733, 1500, 4000}) {
      const auto bounded = WithTokenBounds(*rules, std::nullopt, bound);
      if (!bounded.ok()) continue;
      ++num_bounded;
      for (const PictureSize size :
           {PictureSize{3000, 2000}, {700, 900}, {100, 100}, {500, 1000}}) {
        const auto layout = LayOutImage(*bounded, size);
        ASSERT_TRUE(layout.ok()) << layout.status().message();
        EXPECT_LE(layout->num_tokens, bound) << size.width << " x " << size.height;
      }
    }
  }
  EXPECT_GT(num_bounded, 40);
}

TEST(TokenBoundsTest, SmallPicturesHaveAtLeastTheTokensAskedFor) {
  const auto rules = RulesOf(R"({"image_processor_type": "Qwen2VLImageProcessor"})");
  ASSERT_TRUE(rules.ok());
  const auto bounded = WithTokenBounds(*rules, 1024, std::nullopt);
  ASSERT_TRUE(bounded.ok());
  const auto before = LayOutImage(*rules, {200, 100}), after = LayOutImage(*bounded, {200, 100});
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_EQ(before->num_tokens, 28);
  EXPECT_GE(after->num_tokens, 1024);
  const auto gemma = RulesOf(R"({"image_processor_type": "Gemma4ImageProcessor"})");
  ASSERT_TRUE(gemma.ok());
  const auto larger = WithTokenBounds(*gemma, 300, std::nullopt);
  ASSERT_TRUE(larger.ok());
  EXPECT_EQ(larger->tokens_max, 560);
}

TEST(TokenBoundsTest, BoundsThatAModelLacksAreErrors) {
  const auto rules = RulesOf(R"({"image_processor_type": "Gemma3ImageProcessor"})");
  ASSERT_TRUE(rules.ok());
  const auto few = WithTokenBounds(*rules, std::nullopt, 255);
  ASSERT_FALSE(few.ok());
  EXPECT_EQ(few.status().message(),
            "pictures of this model cannot have at most 255 tokens (its image processor is "
            "Gemma3ImageProcessor)");
  EXPECT_EQ(few.status().code(), StatusCode::kUsage);
  EXPECT_TRUE(WithTokenBounds(*rules, 256, 256).ok());
  EXPECT_FALSE(WithTokenBounds(*rules, 257, std::nullopt).ok());
  EXPECT_FALSE(WithTokenBounds(*rules, 300, 200).ok());
}

// Beside other pictures LLaVA-OneVision squares each: the square may be far larger than the file.
TEST(ImageRulesTest, NoPictureOnTheWayIsWithoutBounds) {
  const auto squares = RulesOf(R"({"image_processor_type": "LlavaOnevisionImageProcessor",
      "image_grid_pinpoints": [[384, 384]]})");
  ASSERT_TRUE(squares.ok()) << squares.status().message();
  EXPECT_TRUE(LayOutImage(*squares, {669, 133747}, 1).ok());
  EXPECT_FALSE(LayOutImage(*squares, {669, 133747}, 2).ok());
  EXPECT_TRUE(LayOutImage(*squares, {669, 1337}, 2).ok());
  // Between the passes of a resize it has the columns of the result and the rows of the source.
  const auto wide = RulesOf(R"({"image_processor_type": "Gemma3ImageProcessor",
      "size": {"height": 64, "width": 65536}})");
  ASSERT_TRUE(wide.ok()) << wide.status().message();
  EXPECT_TRUE(LayOutImage(*wide, {1000, 1000}).ok());
  EXPECT_FALSE(LayOutImage(*wide, {669, 133747}).ok());
}

TEST(ImageRulesTest, ASiglipProcessorNeitherCropsNorKeepsTheRatio) {
  const auto rules = RulesOf(R"({"image_processor_type": "SiglipImageProcessor",
      "size": {"height": 384, "width": 384}})");
  ASSERT_TRUE(rules.ok()) << rules.status().message();
  EXPECT_EQ(rules->size_rule, SizeRule::kFixed);
  EXPECT_EQ(rules->tile.width, 384);
  EXPECT_EQ(rules->mean[1], 0.5);
  EXPECT_EQ(rules->std[1], 0.5);
}

TEST(ImageRulesTest, ASideThatIsNullIsMissing) {
  const auto rules = RulesOf(R"({"image_processor_type": "SiglipImageProcessor",
      "size": {"shortest_edge": null, "height": 384, "width": 320}})");
  ASSERT_TRUE(rules.ok()) << rules.status().message();
  EXPECT_EQ(rules->tile.height, 384);
  EXPECT_EQ(rules->tile.width, 320);
  EXPECT_FALSE(RulesOf(R"({"image_processor_type": "SiglipImageProcessor",
      "size": {"height": 384, "width": null}})")
                   .ok());
}

TEST(ImageRulesTest, ALowerBoundIsNotLostToAnUpperOne) {
  const auto rules = RulesOf(R"({"image_processor_type": "Gemma4ImageProcessor"})");
  ASSERT_TRUE(rules.ok()) << rules.status().message();
  EXPECT_TRUE(WithTokenBounds(*rules, 200, 400).ok());  // 280
  EXPECT_FALSE(WithTokenBounds(*rules, 300, 400).ok());
}

TEST(ImageRulesTest, BoundsOfHugePatchesDoNotOverflow) {
  const auto rules = RulesOf(R"({"image_processor_type": "Qwen2VLImageProcessor",
      "patch_size": 65536, "merge_size": 64, "temporal_patch_size": 1})");
  ASSERT_TRUE(rules.ok()) << rules.status().message();
  const auto bounded = WithTokenBounds(*rules, 1 << 20, 1 << 20);
  ASSERT_TRUE(bounded.ok()) << bounded.status().message();
  EXPECT_GT(bounded->pixels_max, 0);
}

}  // namespace
}  // namespace minisgl
