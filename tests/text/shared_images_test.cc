// The prompts of the tiny multimodal models beside the project: their text, their ids, the runs of
// pictures' tokens and their positions are the reference's.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "image_test_util.h"
#include "minisgl/text/chat_messages.h"
#include "minisgl/text/prompt_images.h"

namespace minisgl {
namespace {

const char* const kModels[] = {"gemma3",  "gemma4",     "llava",    "llava_onevision",
                               "pixtral", "qwen2_5_vl", "qwen2_vl", "smolvlm"};

std::string DecodedBase64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char digit : text) {
    const size_t value = kDigits.find(digit);
    if (value == std::string_view::npos) break;
    bits = bits << 6 | static_cast<uint32_t>(value);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes.push_back(static_cast<char>(bits >> num_bits & 0xff));
  }
  return bytes;
}

std::string BytesOf(const std::string& url, const std::string& folder) {
  const size_t data = url.find("base64,");
  return data == std::string::npos ? ReadBytes(folder + "/" + url.substr(5))
                                   : DecodedBase64(std::string_view(url).substr(data + 7));
}

// The conversation of a row of prompts.jsonl: pictures are parts {"type": "image"}.
Conversation ConversationOf(const Json& row, const std::string& folder) {
  Conversation conversation;
  conversation.messages = *row.Find("messages");
  for (Json& message : conversation.messages.as_array()) {
    for (Json& part : message.Find("content")->as_array()) {
      const Json* const url = part.Find("image_url");
      if (url == nullptr) continue;
      const std::string text = url->Find("url")->as_string();
      conversation.images.push_back(PictureOf(BytesOf(text, folder), text.substr(0, 40)));
      part = Json();
      part.Set("type", "image");
    }
  }
  return conversation;
}

std::string WithoutRuns(const TextModel& text, const Conversation& conversation) {
  ChatInput input;
  input.messages = conversation.messages;
  input.bos_token = text.tokenizer->bos_token();
  input.eos_token = text.tokenizer->eos_token();
  const auto pieces = RenderMessages(*text.chat_template, &input);
  EXPECT_TRUE(pieces.ok()) << pieces.status().message();
  return pieces.ok() ? Joined(*pieces) : "";
}

// The runs as answers.jsonl has them: one for each picture, or for each of its tiles if they have
// names.
std::vector<int64_t> RunsOf(const TextModel& text, const EncodedPrompt& prompt) {
  std::vector<int64_t> runs;
  for (const PlacedImage& image : prompt.images) {
    if (text.images->order == ImageTokenOrder::kRows) {
      runs.push_back(image.laid_out.layout.num_tokens);
      continue;
    }
    for (const ImageRun& run : image.runs) runs.push_back(run.count);
  }
  return runs;
}

void ExpectPositions(const Json& answer, const EncodedPrompt& prompt, const PromptImages& images) {
  const Json* const expected = answer.Find("positions");
  if (expected == nullptr) return;
  std::vector<RopePosition> positions;
  if (images.extras != nullptr) positions = images.extras->positions.of_prompt;
  for (int32_t place = 0; images.extras == nullptr && place < prompt.total; ++place) {
    positions.push_back({place, place, place});
  }
  ASSERT_EQ(std::ssize(positions), prompt.total);
  for (size_t part = 0; part < 3; ++part) {
    std::vector<TokenId> own;
    for (const RopePosition& position : positions) own.push_back(position[part]);
    EXPECT_EQ(own, Ids(expected->as_array()[part])) << "part " << part;
  }
  const int64_t shift = images.extras == nullptr ? 0 : images.extras->positions.shift;
  EXPECT_EQ(prompt.total + shift, answer.Find("next_position")->as_int());
}

void ExpectAnswer(const TextModel& text, const Json& row, const Json& answer,
                  const std::string& folder) {
  const Conversation conversation = ConversationOf(row, folder);
  EXPECT_EQ(WithoutRuns(text, conversation), answer.Find("prompt")->as_string());
  const auto prompt = RenderPrompt(text, conversation);
  ASSERT_TRUE(prompt.ok()) << prompt.status().message();
  const auto encoded = EncodePrompt(text, *prompt);
  ASSERT_TRUE(encoded.ok()) << encoded.status().message();
  EXPECT_EQ(encoded->ids, Ids(*answer.Find("prompt_token_ids")));
  const Json* const runs = answer.Find("image_token_runs");
  ASSERT_EQ(encoded->images.size(), conversation.images.size());
  std::vector<int64_t> expected;
  if (runs != nullptr) {
    for (const Json& run : runs->as_array()) expected.push_back(run.as_int());
  }
  EXPECT_EQ(RunsOf(text, *encoded), expected);
  const auto images = MakePromptImages(text, *encoded);
  ASSERT_TRUE(images.ok()) << images.status().message();
  EXPECT_EQ(images->extras == nullptr, conversation.images.empty());
  EXPECT_EQ(images->marks.size(), conversation.images.size());
  ExpectPositions(answer, *encoded, *images);
}

TextModel LoadText(const std::string& dir) {
  TextModel text;
  text.dir = dir;
  text.tokenizer = LoadTokenizer(dir);
  auto chat = ChatTemplate::Load(dir);
  EXPECT_TRUE(chat.ok()) << chat.status().message();
  if (chat.ok()) text.chat_template = std::move(chat).value();
  LoadImages(&text);
  EXPECT_TRUE(text.images.has_value()) << text.images_status.message();
  return text;
}

TEST(SharedImagesTest, PromptsAreTheReferences) {
  if (!HasShared("models/vision")) GTEST_SKIP() << "no " << SharedDir() << "/models/vision";
  for (const PictureKind kind : {PictureKind::kPng, PictureKind::kJpeg}) {
    if (!CanDecodePicture(kind)) GTEST_SKIP() << "no decoder of " << PictureKindName(kind);
  }
  for (const char* model : kModels) {
    const std::string folder = SharedDir() + "/models/vision/" + model;
    const TextModel text = LoadText(folder);
    if (!text.images) continue;
    const std::vector<Json> rows = ReadRows(folder + "/prompts.jsonl");
    const std::vector<Json> answers = ReadRows(folder + "/answers.jsonl");
    ASSERT_EQ(rows.size(), 10U);
    ASSERT_EQ(answers.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      SCOPED_TRACE(rows[i].Find("id")->as_string());
      ASSERT_EQ(*rows[i].Find("id"), *answers[i].Find("id"));
      ExpectAnswer(text, rows[i], answers[i], folder);
    }
  }
}

// LLaVA's template, given a string, renders no text of the user's at all.
TEST(SharedImagesTest, TextAloneReachesLlavaInAnyForm) {
  if (!HasShared("models/vision")) GTEST_SKIP() << "no " << SharedDir() << "/models/vision";
  for (const char* model : {"llava", "llava_onevision", "smolvlm"}) {
    const TextModel text = LoadText(SharedDir() + "/models/vision/" + model);
    const std::string parts =
        R"([{"role": "user", "content": [{"type": "text", "text": "one two"}]}])";
    const std::string string = R"([{"role": "user", "content": "one two"}])";
    const auto of_parts = RenderPrompt(text, Showing(parts, {}));
    const auto of_string = RenderPrompt(text, Showing(string, {}));
    ASSERT_TRUE(of_parts.ok() && of_string.ok());
    EXPECT_NE(Joined(of_parts->pieces).find("one two"), std::string::npos) << model;
    EXPECT_EQ(Joined(of_parts->pieces), Joined(of_string->pieces)) << model;
  }
}

}  // namespace
}  // namespace minisgl
