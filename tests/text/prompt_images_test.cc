// Pictures on a prompt's way: placeholders, runs of tokens, positions, hashes.
#include "minisgl/text/prompt_images.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "image_test_util.h"
#include "minisgl/vision/image_content.h"

namespace minisgl {
namespace {

constexpr TokenId kPad = 258;  // of SmallQwen

const std::string kTwoPictures =
    R"([{"role": "user", "content": [{"type": "text", "text": "ab"}, {"type": "image"},)"
    R"( {"type": "text", "text": "c"}, {"type": "image"}, {"type": "text", "text": "de"}]}])";

// A picture of the tree, of 16 rows or so.
std::string GoldenBytes(const std::string& name) {
  return ReadBytes(MINISGL_SOURCE_DIR "/tests/vision/golden/pictures/" + name);
}

EncodedPrompt Placed(const TextModel& text, Conversation conversation,
                     const EncodeBounds& bounds = {}) {
  auto prompt = RenderPrompt(text, std::move(conversation));
  EXPECT_TRUE(prompt.ok()) << prompt.status().message();
  if (!prompt.ok()) return {};
  auto encoded = EncodePrompt(text, std::move(prompt).value(), bounds);
  EXPECT_TRUE(encoded.ok()) << encoded.status().message();
  return encoded.ok() ? std::move(encoded).value() : EncodedPrompt();
}

std::string RenderError(const TextModel& text, Conversation conversation) {
  const auto prompt = RenderPrompt(text, std::move(conversation));
  EXPECT_FALSE(prompt.ok());
  return prompt.status().message();
}

std::vector<std::pair<int64_t, int32_t>> RunsOf(const EncodedPrompt& prompt) {
  std::vector<std::pair<int64_t, int32_t>> runs;
  for (const PlacedImage& image : prompt.images) {
    for (const ImageRun& run : image.runs) runs.emplace_back(run.token, run.count);
  }
  return runs;
}

TEST(PromptImagesTest, EachPlaceholderBecomesItsPicture) {
  const TextModel text = SmallQwen();
  const auto prompt = RenderPrompt(
      text, Showing(kTwoPictures, {PictureOf(PngHead(56, 28)), PictureOf(PngHead(84, 56))}));
  ASSERT_TRUE(prompt.ok()) << prompt.status().message();
  std::string six;
  for (int i = 0; i < 6; ++i) six += "<|image_pad|>";
  EXPECT_EQ(Joined(prompt->pieces), "user:ab<|image_pad|><|image_pad|>c" + six + "de");
  ASSERT_EQ(prompt->images.size(), 2U);
  EXPECT_EQ(prompt->images[1].layout.num_tokens, 6);
  const auto encoded = EncodePrompt(text, *prompt);
  ASSERT_TRUE(encoded.ok());
  EXPECT_EQ(encoded->total, 5 + 2 + 2 + 1 + 6 + 2);
  EXPECT_EQ(RunsOf(*encoded), (std::vector<std::pair<int64_t, int32_t>>{{7, 2}, {10, 6}}));
}

TEST(PromptImagesTest, NeighboursArePlacedByTheirCounts) {
  const TextModel text = SmallQwen();
  const std::string messages =
      R"([{"role": "user", "content": [{"type": "image"}, {"type": "image"}]}])";
  const EncodedPrompt prompt =
      Placed(text, Showing(messages, {PictureOf(PngHead(28, 28)), PictureOf(PngHead(56, 56))}));
  EXPECT_EQ(RunsOf(prompt), (std::vector<std::pair<int64_t, int32_t>>{{5, 1}, {6, 4}}));
}

TEST(PromptImagesTest, RowsOfTokensAreRunsOfOnePicture) {
  const TextModel text = ModelWithImages(
      R"({"model_type": "mistral3", "vision_config": {}, "image_token_index": 256})",
      R"({"image_processor_type": "PixtralImageProcessor", "size": {"longest_edge": 64}})",
      R"({"patch_size": 4})", {"[IMG]", "[IMG_BREAK]", "[IMG_END]"});
  const std::string bytes = GoldenBytes("png_2_8.png");
  const EncodedPrompt prompt = Placed(
      text, Showing(R"([{"role": "user", "content": [{"type": "image"}]}])", {PictureOf(bytes)}));
  const ImageLayout& layout = prompt.images.at(0).laid_out.layout;
  ASSERT_GT(layout.token_rows, 1);
  ASSERT_EQ(std::ssize(prompt.images[0].runs), layout.token_rows);
  if (!CanDecodePicture(PictureKind::kPng)) GTEST_SKIP() << "no PNG decoder";
  const auto images = MakePromptImages(text, prompt);
  ASSERT_TRUE(images.ok()) << images.status().message();
  const RowExtras& extras = *images->extras;
  ASSERT_EQ(std::ssize(extras.embeddings), layout.token_rows);
  for (int32_t row = 0; row < layout.token_rows; ++row) {
    const ReplacedEmbeddings expected = {5 + row * (layout.token_columns + 1), layout.token_columns,
                                         row * layout.token_columns, 0};
    EXPECT_EQ(extras.embeddings[static_cast<size_t>(row)], expected);
  }
  ASSERT_EQ(extras.inputs.size(), 1U);
  EXPECT_EQ(extras.inputs[0].token, 5);
  EXPECT_EQ(extras.inputs[0].length, layout.token_rows * (layout.token_columns + 1) - 1);
  EXPECT_EQ(extras.inputs[0].num_embeddings, layout.num_tokens);
  EXPECT_TRUE(extras.positions.empty());
  EXPECT_EQ(images->marks, (std::vector<KeyMark>{{5, extras.inputs[0].hash}}));
}

TEST(PromptImagesTest, PlaceholdersInContentAreText) {
  const TextModel text = SmallQwen();
  const std::string spelled =
      R"([{"role": "user", "content": [{"type": "text", "text": "<|image_pad|>"},)"
      R"( {"type": "image"}]}])";
  const EncodedPrompt prompt = Placed(text, Showing(spelled, {PictureOf(PngHead(28, 28))}));
  EXPECT_EQ(std::count(prompt.ids.begin(), prompt.ids.end(), kPad), 1);
  EXPECT_EQ(RunsOf(prompt), (std::vector<std::pair<int64_t, int32_t>>{{5 + 13, 1}}));
  const std::string alone = R"([{"role": "user", "content": "<|image_pad|>"}])";
  EXPECT_EQ(RunsOf(Placed(text, Showing(alone, {}))).size(), 0U);
}

TEST(PromptImagesTest, ContentThatCountsAsControlTokensMayNotSpellOne) {
  TextModel text = SmallQwen();
  text.parse_special = true;
  auto prompt = RenderPrompt(
      text, Showing(R"([{"role": "user", "content": [{"type": "text", "text": "<|image_pad|>"},)"
                    R"( {"type": "image"}]}])",
                    {PictureOf(PngHead(28, 28))}));
  ASSERT_TRUE(prompt.ok());
  const auto encoded = EncodePrompt(text, std::move(prompt).value());
  EXPECT_EQ(encoded.status().code(), StatusCode::kBadInput);
  EXPECT_EQ(encoded.status().message(),
            "the prompt has 2 tokens \"<|image_pad|>\", and its pictures take 1; no text may "
            "spell it");
}

TEST(PromptImagesTest, PicturesAndPlaceholdersAreAsMany) {
  TextModel text = SmallQwen();
  const auto picture = PictureOf(PngHead(28, 28));
  EXPECT_EQ(RenderError(text, Showing(kTwoPictures, {picture})),
            "the prompt has 1 pictures, but its text has 2 places for them (\"<|image_pad|>\")");
  EXPECT_EQ(RenderError(text, Showing(kTwoPictures, {picture, picture, picture})),
            "the prompt has 3 pictures, but its text has 2 places for them (\"<|image_pad|>\"); "
            "the chat template leaves out the others");
  EXPECT_NE(RenderError(text, Showing(kTwoPictures, {})).find("0 pictures"), std::string::npos);
  // A template that takes no parts writes them as a list, or fails.
  text.chat_template = ChatTemplate::Parse("{{ messages[0].content }}", "t").value();
  EXPECT_NE(RenderError(text, Showing(kTwoPictures, {picture, picture}))
                .find("the chat template leaves out the others"),
            std::string::npos);
}

TEST(PromptImagesTest, ModelsWithoutImagesRefuseThem) {
  TextModel text = SmallQwen();
  text.images.reset();
  const Conversation conversation = Showing(kTwoPictures, {PictureOf(PngHead(28, 28))});
  EXPECT_EQ(RenderError(text, conversation), "the model reads no images");
  text.images_status = BadInput("preprocessor_config.json: why");
  EXPECT_EQ(RenderError(text, conversation), "preprocessor_config.json: why");
}

TEST(PromptImagesTest, ErrorsOfAPictureHaveItsName) {
  const TextModel text = SmallQwen();
  const std::string messages = R"([{"role": "user", "content": [{"type": "image"}]}])";
  EXPECT_EQ(RenderError(text, Showing(messages, {PictureOf("no picture", "a\n.png")}))
                .rfind("a\\n.png: not a picture", 0),
            0U);
  ConversationImage picture = PictureOf(PngHead(100, 100), "b.png");
  picture.limits.pixels_max = 99;
  EXPECT_EQ(RenderError(text, Showing(messages, {picture})).rfind("b.png: ", 0), 0U);
  picture.limits.pixels_max = 1 << 20;
  picture.tokens_min = 8;
  picture.tokens_max = 4;
  EXPECT_EQ(RenderError(text, Showing(messages, {picture})),
            "b.png: at least 8 and at most 4 tokens a picture contradict each other");
}

TEST(PromptImagesTest, BoundsOfTokensChangeTheLayout) {
  const TextModel text = SmallQwen();
  const std::string messages = R"([{"role": "user", "content": [{"type": "image"}]}])";
  ConversationImage picture = PictureOf(PngHead(280, 280));
  EXPECT_EQ(RunsOf(Placed(text, Showing(messages, {picture})))[0].second, 100);
  picture.tokens_max = 16;
  EXPECT_EQ(RunsOf(Placed(text, Showing(messages, {picture})))[0].second, 16);
}

TEST(PromptImagesTest, TooLongATextIsRefused) {
  const TextModel text = ModelWithImages(
      R"({"model_type": "qwen2_vl", "vision_config": {}})",
      R"({"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 1, "merge_size": 1})",
      "null", {"<|image_pad|>"});
  ConversationImage picture = PictureOf(PngHead(1000, 1000), "large.png");
  std::string messages = R"([{"role": "user", "content": [{"type": "image"})";
  std::vector<ConversationImage> pictures = {picture};
  for (; pictures.size() < 6; pictures.push_back(picture)) messages += R"(, {"type": "image"})";
  const std::string error = RenderError(text, Showing(messages + "]}]", pictures));
  EXPECT_EQ(error.rfind("large.png: the prompt's pictures take too many tokens", 0), 0U) << error;
}

TEST(PromptImagesTest, APromptWithPicturesIsKeptWhole) {
  const TextModel text = SmallQwen();
  const Conversation conversation =
      Showing(kTwoPictures, {PictureOf(PngHead(56, 28)), PictureOf(PngHead(84, 56))});
  const EncodedPrompt prompt = Placed(text, conversation, {.kept_max = 3});
  EXPECT_EQ(std::ssize(prompt.ids), prompt.total);
  EXPECT_EQ(prompt.images.size(), 2U);
  EncodedPrompt cut = prompt;
  cut.ids.erase(cut.ids.begin(), cut.ids.begin() + 6);
  EXPECT_EQ(MakePromptImages(text, cut).status().message(), "a prompt with pictures is cut");
}

TEST(PromptImagesTest, RawPromptsHavePlaceholders) {
  TextModel text = SmallQwen();
  Conversation conversation;
  conversation.raw.text = "a<|vision_start|><|image_pad|><|vision_end|>b";
  EXPECT_EQ(Placed(text, conversation).total, 5) << "no pictures: the text is as it was";
  conversation.images = {PictureOf(PngHead(56, 28))};
  const EncodedPrompt prompt = Placed(text, conversation);
  EXPECT_EQ(prompt.total, 6);
  EXPECT_EQ(RunsOf(prompt), (std::vector<std::pair<int64_t, int32_t>>{{2, 2}}));
  text.no_parse_special = true;
  EXPECT_NE(RenderError(text, conversation).find("0 places"), std::string::npos);
}

TEST(PromptImagesTest, SampledAnswersAreSplicedBehindPictures) {
  TextModel text = SmallQwen();
  text.tokenizer = ImageTokenizer({"<|vision_start|>", "<|vision_end|>", "<|image_pad|>"}, {"ye"});
  constexpr TokenId kYe = 259;
  Conversation conversation =
      Showing(R"([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "q"}]},)"
              R"( {"role": "assistant", "content": "yes"}, {"role": "user", "content":)"
              R"( [{"type": "image"}]}])",
              {PictureOf(PngHead(84, 56)), PictureOf(PngHead(28, 28))});
  conversation.goes_on = true;
  const std::vector<TokenId> spelled = text.tokenizer->EncodeText("yes").value();
  ASSERT_EQ(spelled.size(), 3U);
  conversation.answers = {{1, "yes", {kYe, spelled[2]}}};
  text.chat_template =
      ChatTemplate::Parse(
          "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
          "{% for part in m.content %}{% if part.type == 'image' %}{{ '<|image_pad|>' }}"
          "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{{ ';' }}{% endfor %}",
          "template")
          .value();
  const EncodedPrompt spliced = Placed(text, conversation);
  EXPECT_EQ(spliced.total, 6 + 2 + 2 + 1 + 1 + 1);
  EXPECT_EQ(std::count(spliced.ids.begin(), spliced.ids.end(), kYe), 1);
  EXPECT_EQ(RunsOf(spliced), (std::vector<std::pair<int64_t, int32_t>>{{0, 6}, {11, 1}}));
  // An answer in which the picture's token was sampled is encoded as its text.
  conversation.answers[0].ids.push_back(kPad);
  const EncodedPrompt encoded = Placed(text, conversation);
  EXPECT_EQ(encoded.total, spliced.total + 1);
  EXPECT_EQ(RunsOf(encoded), (std::vector<std::pair<int64_t, int32_t>>{{0, 6}, {12, 1}}));
}

TEST(PromptImagesTest, AnAnswerThatIsContinuedFollowsPictures) {
  const TextModel text = SmallQwen();
  Conversation conversation =
      Showing(R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]},)"
              R"( {"role": "assistant", "content": "b"}])",
              {PictureOf(PngHead(56, 28))});
  conversation.start = AnswerStart::kContinue;
  const auto prompt = RenderPrompt(text, conversation);
  ASSERT_TRUE(prompt.ok()) << prompt.status().message();
  EXPECT_EQ(Joined(prompt->pieces), "user:a<|image_pad|><|image_pad|>assistant:b");
}

TEST(PromptImagesTest, PositionsOfTwoPictures) {
  if (!CanDecodePicture(PictureKind::kPng)) GTEST_SKIP() << "no PNG decoder";
  const TextModel text = SmallQwen();
  ConversationImage first = PictureOf(GoldenBytes("png_2_8.png"));
  ConversationImage second = PictureOf(GoldenBytes("png_3_8.png"));
  first.tokens_min = first.tokens_max = 6;
  second.tokens_min = second.tokens_max = 4;
  const EncodedPrompt prompt = Placed(text, Showing(kTwoPictures, {first, second}));
  const auto images = MakePromptImages(text, prompt);
  ASSERT_TRUE(images.ok()) << images.status().message();
  const GivenPositions& positions = images->extras->positions;
  ASSERT_EQ(std::ssize(positions.of_prompt), prompt.total);
  int32_t next = 0;
  size_t at = 0;
  const auto expect_text = [&](int count) {
    for (int i = 0; i < count; ++i, ++next) {
      EXPECT_EQ(positions.of_prompt.at(at++), (RopePosition{next, next, next}));
    }
  };
  const auto expect_picture = [&](const ImageLayout& layout) {
    for (int32_t row = 0; row < layout.token_rows; ++row) {
      for (int32_t column = 0; column < layout.token_columns; ++column) {
        EXPECT_EQ(positions.of_prompt.at(at++), (RopePosition{next, next + row, next + column}));
      }
    }
    next += std::max(layout.token_rows, layout.token_columns);
  };
  expect_text(7);
  expect_picture(prompt.images[0].laid_out.layout);
  expect_text(1);
  expect_picture(prompt.images[1].laid_out.layout);
  expect_text(2);
  EXPECT_EQ(std::ssize(positions.of_prompt), static_cast<int64_t>(at));
  EXPECT_EQ(positions.shift, next - prompt.total);
  EXPECT_LT(positions.shift, 0);
}

TEST(PromptImagesTest, EqualPicturesHaveEqualHashes) {
  if (!CanDecodePicture(PictureKind::kPng)) GTEST_SKIP() << "no PNG decoder";
  const TextModel text = SmallQwen();
  const std::string bytes = GoldenBytes("png_2_8.png");
  const auto made = [&](const ConversationImage& a, const ConversationImage& b) {
    auto images = MakePromptImages(text, Placed(text, Showing(kTwoPictures, {a, b})));
    EXPECT_TRUE(images.ok()) << images.status().message();
    return images.ok() ? images->extras->inputs : std::vector<EncoderInput>(2);
  };
  auto inputs = made(PictureOf(bytes), PictureOf(bytes, "copy"));
  EXPECT_EQ(inputs[0].hash, inputs[1].hash);
  EXPECT_EQ(inputs[0].content, inputs[1].content) << "prepared once";
  ASSERT_NE(dynamic_cast<const ImageContent*>(inputs[0].content.get()), nullptr);
  // Other files with the same pixels: the same picture, interlaced.
  inputs = made(PictureOf(bytes), PictureOf(GoldenBytes("png_2_8_interlaced.png")));
  const auto& one = static_cast<const ImageContent&>(*inputs[0].content).image;
  const auto& two = static_cast<const ImageContent&>(*inputs[1].content).image;
  EXPECT_EQ(one.values == two.values && one.layout.shape == two.layout.shape,
            inputs[0].hash == inputs[1].hash);
  inputs = made(PictureOf(bytes), PictureOf(GoldenBytes("png_3_8.png")));
  EXPECT_NE(inputs[0].hash, inputs[1].hash);
  ConversationImage bounded = PictureOf(bytes);
  bounded.tokens_min = 9;
  inputs = made(PictureOf(bytes), bounded);
  EXPECT_NE(inputs[0].hash, inputs[1].hash) << "other rules";
}

TEST(PromptImagesTest, APromptWithoutPicturesHasNoExtras) {
  const TextModel text = SmallQwen();
  const auto images =
      MakePromptImages(text, Placed(text, Showing(R"([{"role": "user", "content": "a"}])", {})));
  ASSERT_TRUE(images.ok());
  EXPECT_EQ(images->extras, nullptr);
  EXPECT_TRUE(images->marks.empty());
}

TEST(PromptImagesTest, DamagedPicturesFailWithTheirName) {
  const TextModel text = SmallQwen();
  const EncodedPrompt prompt = Placed(text, Showing(R"([{"role": "user", "content": [)"
                                                    R"({"type": "image"}]}])",
                                                    {PictureOf(PngHead(28, 28), "cut.png")}));
  const auto images = MakePromptImages(text, prompt);
  ASSERT_FALSE(images.ok());
  EXPECT_EQ(images.status().message().rfind("cut.png: ", 0), 0U) << images.status().message();
}

TEST(PromptImagesTest, APictureThatAttendsBothWaysIsNotTheEnd) {
  if (!CanDecodePicture(PictureKind::kPng)) GTEST_SKIP() << "no PNG decoder";
  TextModel text = ModelWithImages(
      R"({"model_type": "gemma3", "vision_config": {}, "image_token_index": 258,
          "mm_tokens_per_image": 4})",
      R"({"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 56, "width": 56}})",
      "null", {"<start_of_image>", "<end_of_image>", "<image_soft_token>"});
  const EncodedPrompt prompt =
      Placed(text, Showing(R"([{"role": "user", "content": [{"type": "image"}]}])",
                           {PictureOf(GoldenBytes("png_2_8.png"))}));
  auto images = MakePromptImages(text, prompt);
  ASSERT_TRUE(images.ok()) << images.status().message();
  EXPECT_TRUE(images->extras->inputs[0].attends_both_ways);
  EXPECT_EQ(images->extras->inputs[0].length, 4);
  text.images->after.clear();
  images = MakePromptImages(text, Placed(text, Showing(R"([{"role": "user", "content":)"
                                                       R"( [{"type": "image"}]}])",
                                                       {PictureOf(GoldenBytes("png_2_8.png"))})));
  EXPECT_EQ(images.status().code(), StatusCode::kBadInput);
}

TEST(PromptImagesTest, AProcessorAddsTheBosTokenUnlessTheTextHasIt) {
  TextModel text;
  text.dir = kWrenDir;
  text.tokenizer = LoadTokenizer(kWrenDir);
  const std::string bos = text.tokenizer->bos_token();
  ASSERT_EQ(text.tokenizer->Prefix().size(), 1U);
  const Conversation conversation = Showing(R"([{"role": "user", "content": "a"}])", {});
  const auto count = [&](const std::string& source) {
    text.chat_template = ChatTemplate::Parse(source, "t").value();
    const EncodedPrompt prompt = Placed(text, conversation);
    return std::count(prompt.ids.begin(), prompt.ids.end(), *text.tokenizer->bos_id());
  };
  EXPECT_EQ(count("{{ messages[0].content }}"), 0) << "a model of text";
  text.images.emplace();
  text.images->placeholder = text.images->token = "<image>";
  EXPECT_EQ(count("{{ messages[0].content }}"), 1);
  EXPECT_EQ(count("{{ bos_token + messages[0].content }}"), 1);
}

}  // namespace
}  // namespace minisgl
