// What the tests of pictures' text share: a byte-level tokenizer with given control tokens,
// pictures, and conversations with them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "minisgl/text/encode_prompt.h"
#include "minisgl/text/image_text.h"
#include "minisgl/text/render_prompt.h"
#include "minisgl/text/text_model.h"
#include "text_test_util.h"

namespace minisgl {

inline void AppendUtf8(uint32_t code, std::string* text) {
  if (code < 0x80) {
    text->push_back(static_cast<char>(code));
    return;
  }
  text->push_back(static_cast<char>(0xC0 | code >> 6));
  text->push_back(static_cast<char>(0x80 | (code & 0x3F)));
}

// A tokenizer of single bytes (ids 0 to 255), in which `controls` have the ids from 256 on. After
// them come `pieces` of letters, which no text is encoded to.
inline std::unique_ptr<Tokenizer> ImageTokenizer(const std::vector<std::string>& controls,
                                                 const std::vector<std::string>& pieces = {}) {
  Json vocabulary, added = Json(Json::Array());
  uint32_t beyond = 0;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool is_letter =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    std::string letter;
    AppendUtf8(is_letter ? byte : 256 + beyond++, &letter);
    vocabulary.Set(letter, static_cast<int64_t>(byte));
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    vocabulary.Set(pieces[i], static_cast<int64_t>(256 + controls.size() + i));
  }
  for (size_t i = 0; i < controls.size(); ++i) {
    Json token;
    token.Set("id", static_cast<int64_t>(256 + i)).Set("content", controls[i]);
    for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) {
      token.Set(flag, false);
    }
    token.Set("special", true);
    added.Append(std::move(token));
  }
  Json model, levels, all;
  model.Set("type", "BPE").Set("vocab", std::move(vocabulary)).Set("merges", Json::Array());
  levels.Set("type", "ByteLevel").Set("add_prefix_space", false).Set("trim_offsets", true);
  levels.Set("use_regex", true);
  all.Set("version", "1.0").Set("added_tokens", std::move(added));
  all.Set("pre_tokenizer", levels).Set("decoder", levels).Set("model", std::move(model));
  const ModelDir dir;
  dir.Write("tokenizer.json", all.Dump());
  return LoadTokenizer(dir.path());
}

// The head of a PNG of that size: enough to lay it out.
inline std::string PngHead(uint32_t width, uint32_t height) {
  std::string bytes("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16);
  for (const uint32_t side : {width, height}) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(side >> shift));
  }
  return bytes + std::string("\x08\x02\0\0\0\0\0\0\0", 9);
}

inline ConversationImage PictureOf(std::string bytes, std::string name = "picture") {
  ConversationImage picture;
  picture.name = std::move(name);
  picture.bytes = std::make_shared<const std::string>(std::move(bytes));
  return picture;
}

// A conversation with these messages (JSON) and pictures.
inline Conversation Showing(const std::string& messages, std::vector<ConversationImage> pictures) {
  Conversation conversation;
  auto parsed = ParseJson(messages);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  if (parsed.ok()) conversation.messages = std::move(parsed).value();
  conversation.images = std::move(pictures);
  return conversation;
}

// A template that writes `placeholder` for each picture.
inline std::unique_ptr<ChatTemplate> PartsTemplate(const std::string& placeholder) {
  auto chat = ChatTemplate::Parse(
      "{% for m in messages %}{{ m.role + ':' }}{% if m.content is string %}{{ m.content }}"
      "{% else %}{% for part in m.content %}{% if part.type == 'image' %}{{ '" +
          placeholder +
          "' }}{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}",
      "template");
  EXPECT_TRUE(chat.ok()) << chat.status().message();
  return chat.ok() ? std::move(chat).value() : nullptr;
}

inline Json ParsedJson(const std::string& text) {
  auto json = ParseJson(text);
  EXPECT_TRUE(json.ok()) << text << ": " << json.status().message();
  return json.ok() ? std::move(json).value() : Json();
}

// A model with the contents of these files.
inline TextModel ModelWithImages(const std::string& config, const std::string& preprocessor,
                                 const std::string& processor,
                                 const std::vector<std::string>& controls) {
  TextModel text;
  text.tokenizer = ImageTokenizer(controls);
  const Json config_json = ParsedJson(config), processor_json = ParsedJson(processor);
  auto rules = ReadImageRules(config_json, ParsedJson(preprocessor), processor_json);
  EXPECT_TRUE(rules.ok()) << rules.status().message();
  if (!rules.ok()) return text;
  auto images = ReadImageText(config_json, processor_json, *rules, *text.tokenizer);
  EXPECT_TRUE(images.ok()) << images.status().message();
  if (!images.ok()) return text;
  text.images = std::move(images).value();
  text.chat_template = PartsTemplate(text.images->placeholder);
  return text;
}

// A small Qwen2-VL: blocks of 28 pixels a side, <|image_pad|> is token 258.
inline TextModel SmallQwen() {
  return ModelWithImages(
      R"({"model_type": "qwen2_vl", "vision_config": {}, "image_token_id": 258})",
      R"({"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 784,
          "max_pixels": 78400})",
      "null", {"<|vision_start|>", "<|vision_end|>", "<|image_pad|>"});
}

}  // namespace minisgl
