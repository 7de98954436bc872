// The texts of pictures in each family, and hostile files of the facts that they follow from.
#include "minisgl/text/image_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "image_test_util.h"

namespace minisgl {
namespace {

std::string Times(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

// The text of a picture of that size among `num_images`, of which each token counts.
std::string TextOf(const TextModel& text, PictureSize size, int num_images = 1) {
  const auto layout = LayOutImage(text.images->rules, size, num_images);
  EXPECT_TRUE(layout.ok()) << layout.status().message();
  if (!layout.ok()) return "";
  std::string spelled = ImageTextOf(*text.images, *layout);
  int32_t count = 0;
  const std::string& token = text.images->token;
  for (size_t at = spelled.find(token); at != std::string::npos;
       at = spelled.find(token, at + token.size())) {
    ++count;
  }
  EXPECT_EQ(count, layout->num_tokens);
  return spelled;
}

TEST(ImageTextTest, BlocksBecomeARun) {
  const TextModel qwen = SmallQwen();
  EXPECT_EQ(TextOf(qwen, {84, 56}), Times(6, "<|image_pad|>"));
  EXPECT_EQ(qwen.images->placeholder, "<|image_pad|>");
  EXPECT_EQ(qwen.images->token_id, 258);
  EXPECT_TRUE(qwen.images->has_grid_positions);
  EXPECT_FALSE(qwen.images->attends_both_ways);
  for (const char* type : {"qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"}) {
    const TextModel other = ModelWithImages(
        std::string(R"({"vision_config": {}, "image_token_id": 256, "model_type": ")") + type +
            "\"}",
        R"({"image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 16,
            "size": {"shortest_edge": 1024, "longest_edge": 102400}})",
        "null", {"<|image_pad|>"});
    EXPECT_EQ(TextOf(other, {96, 64}), Times(6, "<|image_pad|>")) << type;
    EXPECT_TRUE(other.images->has_grid_positions) << type;
    EXPECT_EQ(other.images->family, type);
  }
}

TEST(ImageTextTest, GlmRepeatsItsImageToken) {
  const TextModel glm =
      ModelWithImages(R"({"model_type": "glm4v", "vision_config": {}, "image_token_id": 256})",
                      R"({"image_processor_type": "Glm4vImageProcessor",
          "size": {"shortest_edge": 1568, "longest_edge": 156800}})",
                      "null", {"<|image|>", "<|begin_of_image|>", "<|end_of_image|>"});
  EXPECT_EQ(TextOf(glm, {56, 84}), Times(6, "<|image|>"));
  EXPECT_TRUE(glm.images->has_grid_positions);
}

TEST(ImageTextTest, GemmaHasMarksAround) {
  const TextModel gemma3 = ModelWithImages(
      R"({"model_type": "gemma3", "vision_config": {}, "image_token_index": 258,
          "mm_tokens_per_image": 4})",
      R"({"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 56, "width": 56}})",
      "null", {"<start_of_image>", "<end_of_image>", "<image_soft_token>"});
  EXPECT_EQ(gemma3.images->placeholder, "<start_of_image>");
  EXPECT_EQ(TextOf(gemma3, {9, 30}),
            "\n\n<start_of_image>" + Times(4, "<image_soft_token>") + "<end_of_image>\n\n");
  EXPECT_TRUE(gemma3.images->attends_both_ways);
  EXPECT_FALSE(gemma3.images->has_grid_positions);

  for (const auto& [value, both_ways] : std::vector<std::pair<std::string, bool>>{
           {"\"vision\"", true}, {"null", false}, {"\"all\"", false}, {"3", false}}) {
    const TextModel gemma4 = ModelWithImages(
        R"({"model_type": "gemma4", "vision_config": {}, "image_token_id": 256, "text_config":)"
        R"( {"use_bidirectional_attention": )" +
            value + "}}",
        "null", R"({"image_processor": {"image_processor_type": "Gemma4ImageProcessor",
            "patch_size": 8, "max_soft_tokens": 70}})",
        {"<|image|>", "<|image>", "<image|>"});
    EXPECT_EQ(gemma4.images->placeholder, "<|image|>");
    EXPECT_EQ(TextOf(gemma4, {50, 50}), "<|image>" + Times(64, "<|image|>") + "<image|>");
    EXPECT_EQ(gemma4.images->attends_both_ways, both_ways) << value;
  }
}

TEST(ImageTextTest, MistralEndsEachRow) {
  const TextModel mistral = ModelWithImages(
      R"({"model_type": "mistral3", "vision_config": {}, "image_token_index": 256,
          "spatial_merge_size": 2})",
      R"({"image_processor_type": "PixtralImageProcessor", "patch_size": 14,
          "size": {"longest_edge": 1540}})",
      R"({"patch_size": 14, "spatial_merge_size": 2})", {"[IMG]", "[IMG_BREAK]", "[IMG_END]"});
  EXPECT_EQ(TextOf(mistral, {84, 56}),
            Times(3, "[IMG]") + "[IMG_BREAK]" + Times(3, "[IMG]") + "[IMG_END]");
  EXPECT_EQ(TextOf(mistral, {1, 1}), "[IMG][IMG_END]");
  const TextModel pixtral = ModelWithImages(
      R"({"model_type": "llava", "vision_config": {"model_type": "pixtral"},
          "image_token_index": 256})",
      R"({"image_processor_type": "PixtralImageProcessor", "size": {"longest_edge": 64}})",
      R"({"patch_size": 16, "image_break_token": "[B]", "image_end_token": "[E]"})", {"[IMG]"});
  EXPECT_EQ(TextOf(pixtral, {16, 48}), "[IMG][B][IMG][B][IMG][E]");
}

TEST(ImageTextTest, LlavaRepeatsItsImageToken) {
  const TextModel llava = ModelWithImages(
      R"({"model_type": "llava", "vision_config": {"patch_size": 14}, "image_token_index": 256})",
      R"({"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 28},
          "crop_size": {"height": 28, "width": 28}})",
      "null", {"<image>"});
  EXPECT_EQ(TextOf(llava, {100, 40}), Times(4, "<image>"));
  const TextModel onevision = ModelWithImages(
      R"({"model_type": "llava_onevision", "vision_config": {"patch_size": 14},
          "image_token_index": 256})",
      R"({"image_processor_type": "LlavaOnevisionImageProcessor",
          "size": {"height": 28, "width": 28}, "image_grid_pinpoints": [[28, 56], [28, 28]]})",
      R"({"num_image_tokens": 4})", {"<image>"});
  EXPECT_EQ(TextOf(onevision, {56, 28}), Times(4 + 2 * (4 + 1), "<image>"));
  EXPECT_EQ(TextOf(onevision, {56, 28}, /*num_images=*/2), Times(4 + 1, "<image>"));
}

TEST(ImageTextTest, InternVlCountsTheTilesAndTheOverview) {
  const TextModel internvl = ModelWithImages(
      R"({"model_type": "internvl", "vision_config": {"patch_size": [14, 14]},
          "image_token_id": 256})",
      R"({"image_processor_type": "GotOcr2ImageProcessor", "crop_to_patches": false,
          "size": {"height": 56, "width": 56}})",
      R"({"image_seq_length": 4})", {"<IMG_CONTEXT>", "<img>", "</img>"});
  EXPECT_EQ(TextOf(internvl, {112, 56}), "<img>" + Times(4 * 3, "<IMG_CONTEXT>") + "</img>");
  EXPECT_EQ(TextOf(internvl, {56, 56}), "<img>" + Times(4, "<IMG_CONTEXT>") + "</img>");
}

TEST(ImageTextTest, IdeficsNamesItsTiles) {
  for (const char* type : {"idefics3", "smolvlm"}) {
    const TextModel idefics = ModelWithImages(
        std::string(R"({"vision_config": {"patch_size": 14}, "image_token_id": 256,
                        "model_type": ")") +
            type + "\"}",
        R"({"image_processor_type": "Idefics3ImageProcessor", "size": {"longest_edge": 112},
            "max_image_size": {"longest_edge": 56}})",
        R"({"image_seq_len": 2})", {"<image>", "<fake_token_around_image>", "<global-img>"});
    const std::string fake = "<fake_token_around_image>", run = "<image><image>";
    EXPECT_EQ(TextOf(idefics, {30, 15}), fake + "<row_1_col_1>" + run + fake + "<row_1_col_2>" +
                                             run + "\n\n" + fake + "<global-img>" + run + fake);
    const std::string below = fake + "<row_2_col_1>" + run + fake + "<row_2_col_2>" + run;
    EXPECT_EQ(TextOf(idefics, {30, 30}), fake + "<row_1_col_1>" + run + fake + "<row_1_col_2>" +
                                             run + "\n" + below + "\n\n" + fake + "<global-img>" +
                                             run + fake);
  }
  const TextModel alone = ModelWithImages(
      R"({"model_type": "smolvlm", "vision_config": {"patch_size": 14}, "image_token_id": 256})",
      R"({"image_processor_type": "SmolVLMImageProcessor", "do_image_splitting": false,
          "max_image_size": {"longest_edge": 56}})",
      R"({"image_seq_len": 2})", {"<image>"});
  EXPECT_EQ(TextOf(alone, {30, 30}),
            "<fake_token_around_image><global-img><image><image>"
            "<fake_token_around_image>");
}

TEST(ImageTextTest, LlamaSeparatesItsTiles) {
  const TextModel llama = ModelWithImages(
      R"({"model_type": "llama4", "vision_config": {"patch_size": 14, "pixel_shuffle_ratio": 0.5},
          "image_token_index": 257})",
      R"({"image_processor_type": "Llama4ImageProcessorFast", "size": {"height": 28, "width": 28},
          "max_patches": 4})",
      R"({"patch_size": 14, "image_token": "<|image|>", "fake_image_token": "<|image|>"})",
      {"<|image|>", "<|patch|>"});
  EXPECT_EQ(llama.images->placeholder, "<|image|>");
  EXPECT_EQ(TextOf(llama, {28, 28}), "<|image_start|><|image|><|patch|><|image_end|>");
  EXPECT_EQ(TextOf(llama, {56, 28}),
            "<|image_start|><|patch|><|tile_x_separator|><|patch|><|tile_y_separator|>"
            "<|image|><|patch|><|image_end|>");
  EXPECT_EQ(TextOf(llama, {28, 56}),
            "<|image_start|><|patch|><|tile_y_separator|><|patch|><|tile_y_separator|>"
            "<|image|><|patch|><|image_end|>");
}

ImageRules RulesOf(SizeRule rule) {
  ImageRules rules;
  rules.size_rule = rule;
  rules.processor = "SomeImageProcessor";
  return rules;
}

Status StatusOf(const std::string& config, SizeRule rule = SizeRule::kBlocks,
                const std::string& processor = "null") {
  static const auto& tokenizer = *ImageTokenizer({"<|image_pad|>", "[IMG]"}).release();
  return ReadImageText(ParsedJson(config), ParsedJson(processor), RulesOf(rule), tokenizer)
      .status();
}

TEST(ImageTextTest, ModelsWithoutImagesSaySo) {
  for (const char* config :
       {"{}", "null", "[]", R"({"model_type": "llama"})", R"({"vision_config": {}})",
        R"({"model_type": "gemma3_text", "vision_config": null})",
        R"({"model_type": 3, "vision_config": {}})"}) {
    const Status status = StatusOf(config);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << config;
    EXPECT_EQ(status.message(), "the model reads no images") << config;
  }
  EXPECT_EQ(StatusOf(R"({"model_type": "mllama", "vision_config": {}})").message(),
            "the images of mllama are not read");
  EXPECT_EQ(
      StatusOf(R"({"model_type": "qwen2_vl", "vision_config": {}})", SizeRule::kCanvas).message(),
      "the images of qwen2_vl are not read with the image processor SomeImageProcessor");
}

TEST(ImageTextTest, WrongFactsAreErrors) {
  const std::string qwen = R"({"model_type": "qwen2_vl", "vision_config": {}, "image_token_id": )";
  EXPECT_TRUE(StatusOf(qwen + "256}").ok());
  EXPECT_TRUE(StatusOf(qwen + "null}").ok()) << "the spelling of the class's default";
  for (const char* id : {"-1", "258", "1e9", "9223372036854775807", "\"256\"", "[]", "1.5"}) {
    const Status status = StatusOf(qwen + id + "}");
    EXPECT_EQ(status.code(), StatusCode::kBadInput) << id;
    EXPECT_NE(status.message().find("\"image_token_id\" must be an integer from 0 to 257"),
              std::string::npos)
        << status.message();
  }
  EXPECT_EQ(
      StatusOf(R"({"model_type": "gemma3", "vision_config": {}})", SizeRule::kFixed).message(),
      "the tokenizer has no token \"<image_soft_token>\" for images");
  // A letter is found in any text, but a byte of a letter is no text.
  EXPECT_EQ(StatusOf(qwen + "200}").code(), StatusCode::kBadInput);
  const std::string pixtral = R"({"model_type": "mistral3", "vision_config": {}})";
  for (const std::string value : {"\"\"", "3", "[]", "{}"}) {
    const Status status =
        StatusOf(pixtral, SizeRule::kLongestSide, R"({"image_break_token": )" + value + "}");
    EXPECT_EQ(status.code(), StatusCode::kBadInput) << value;
    EXPECT_NE(status.message().find("image_break_token"), std::string::npos) << status.message();
  }
  EXPECT_FALSE(StatusOf(pixtral, SizeRule::kLongestSide,
                        R"({"image_end_token": ")" + std::string(65, 'x') + "\"}")
                   .ok());
}

// Whatever the files say, the facts are read or refused, and the text of a picture has its tokens.
TEST(ImageTextTest, AnyFilesAreReadOrRefused) {
  const auto tokenizer = ImageTokenizer({"<|image_pad|>", "[IMG]", "<image>", "<|patch|>",
                                         "<image_soft_token>", "<|image|>", "<IMG_CONTEXT>"});
  const std::vector<std::string> types = {"qwen2_vl", "glm4v",   "gemma3",   "gemma4",
                                          "mistral3", "llava",   "idefics3", "llava_onevision",
                                          "internvl", "smolvlm", "llama4"};
  const std::vector<std::string> values = {"0",
                                           "1",
                                           "256",
                                           "260",
                                           "-5",
                                           "\"vision\"",
                                           "null",
                                           "\"a\"",
                                           "[1]",
                                           "{}",
                                           "1.5",
                                           "\"<image>\"",
                                           "{\"use_bidirectional_attention\": [1]}"};
  const std::vector<std::string> keys = {"image_token_id",    "image_token_index", "text_config",
                                         "image_break_token", "image_token",       "vision_config"};
  int num_read = 0;
  uint32_t random = 1;
  const auto pick = [&random](const std::vector<std::string>& list) {
    random = random * 1664525 + 1013904223;
    return list[(random >> 8) % list.size()];
  };
  for (int round = 0; round < 3000; ++round) {
    Json config, processor;
    config.Set("model_type", pick(types)).Set("vision_config", Json(Json::Object()));
    for (int i = 0; i < 2; ++i) config.Set(pick(keys), ParsedJson(pick(values)));
    processor.Set(pick(keys), ParsedJson(pick(values)));
    ImageRules rules = RulesOf(static_cast<SizeRule>(round % 9));
    rules.tile = {28, 28};
    rules.longest = {280, 280};
    rules.longest_side = rules.shortest_side = 56;
    rules.pixels_min = 1;
    rules.pixels_max = 78400;
    rules.canvases = {{28, 56}, {56, 28}};
    rules.packed_tiles_max = rules.tiles_max = 4;
    rules.tokens_max = 70;
    const bool has_tiles = rules.size_rule != SizeRule::kBlocks &&
                           rules.size_rule != SizeRule::kLongestSide &&
                           rules.size_rule != SizeRule::kPatchBudget;
    rules.tokens_per_tile = has_tiles ? 4 : 0;
    TextModel text;
    auto images = ReadImageText(config, processor, rules, *tokenizer);
    if (!images.ok()) continue;
    ++num_read;
    text.images = std::move(images).value();
    EXPECT_FALSE(text.images->placeholder.empty());
    EXPECT_GE(TextOf(text, {60, 90}).size(), text.images->token.size());
  }
  EXPECT_GT(num_read, 50);
}

TEST(ImageTextTest, ADamagedFileOfPicturesLeavesTheText) {
  const ModelDir dir;
  dir.Write("config.json", R"({"model_type": "qwen2_vl", "vision_config": {}})");
  TextModel text;
  text.dir = dir.path();
  text.tokenizer = ImageTokenizer({"<|image_pad|>"});
  LoadImages(&text);
  EXPECT_EQ(text.images_status.message(),
            dir.path() + ": preprocessor_config.json is missing, without which no images are read");
  dir.Write("preprocessor_config.json", "{");
  LoadImages(&text);
  EXPECT_FALSE(text.images.has_value());
  EXPECT_EQ(text.images_status.code(), StatusCode::kBadInput);
  EXPECT_NE(text.images_status.message().find("preprocessor_config.json"), std::string::npos);
  text.chat_template = PartsTemplate("<|image_pad|>");
  EXPECT_TRUE(RenderPrompt(text, Showing(R"([{"role": "user", "content": "a"}])", {})).ok());
  const auto refused = RenderPrompt(
      text,
      Showing(R"([{"role": "user", "content": [{"type": "image"}]}])", {PictureOf(PngHead(9, 9))}));
  EXPECT_EQ(refused.status().message(), text.images_status.message());

  dir.Write("preprocessor_config.json", R"({"image_processor_type": "Qwen2VLImageProcessor"})");
  LoadImages(&text);
  EXPECT_TRUE(text.images.has_value()) << text.images_status.message();
  EXPECT_TRUE(text.images_status.ok());
  dir.Write("config.json", R"({"model_type": "qwen2"})");
  LoadImages(&text);
  EXPECT_FALSE(text.images.has_value());
  EXPECT_NE(text.images_status.message().find("the model reads no images"), std::string::npos);
}

}  // namespace
}  // namespace minisgl
