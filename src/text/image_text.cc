// The families as rows of a table. What a row leaves out is empty or false.
#include "minisgl/text/image_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "minisgl/base/folder.h"
#include "minisgl/base/setting.h"
#include "minisgl/base/utf8.h"
#include "minisgl/gguf/gguf_file.h"
#include "minisgl/text/text_model.h"
#include "text/tokenizer_config.h"

namespace minisgl {
namespace text {
namespace {

// Upper bound on the size of one mark around tokens; real ones have at most 26 bytes.
constexpr size_t kMarkBytesMax = 64;

// A text, unless processor_config.json has another one under `key`.
struct Mark {
  const char* text = "";
  const char* key = nullptr;
};

struct Family {
  const char* model_type;
  SizeRule size_rule;
  const char* token;  // its spelling, where config.json does not say the id
  ImageTokenOrder order = ImageTokenOrder::kRun;
  Mark placeholder = {};  // "": the token
  Mark before = {}, after = {};
  Mark tile_mark = {}, row_end = {}, last_end = {}, overview_mark = {};
  bool has_grid_positions = false;
  bool attends_both_ways = false;
  bool may_attend_both_ways = false;  // if the text's configuration says so
};

Family OfQwen(const char* model_type) {
  return {.model_type = model_type,
          .size_rule = SizeRule::kBlocks,
          .token = "<|image_pad|>",
          .has_grid_positions = true};
}

Family OfPixtral(const char* model_type) {
  return {.model_type = model_type,
          .size_rule = SizeRule::kLongestSide,
          .token = "[IMG]",
          .order = ImageTokenOrder::kRows,
          .row_end = {"[IMG_BREAK]", "image_break_token"},
          .last_end = {"[IMG_END]", "image_end_token"}};
}

Family OfLlava(const char* model_type, SizeRule size_rule) {
  return {.model_type = model_type, .size_rule = size_rule, .token = "<image>"};
}

Family OfIdefics(const char* model_type) {
  return {.model_type = model_type,
          .size_rule = SizeRule::kSplit,
          .token = "<image>",
          .order = ImageTokenOrder::kNamedTiles,
          .after = {"<fake_token_around_image>"},
          .tile_mark = {"<fake_token_around_image>"},
          .row_end = {"\n"},
          .overview_mark = {"<fake_token_around_image><global-img>"}};
}

Family OfLlama4() {
  return {.model_type = "llama4",
          .size_rule = SizeRule::kCanvas,
          .token = "<|patch|>",
          .order = ImageTokenOrder::kSeparatedTiles,
          .placeholder = {"<|image|>", "fake_image_token"},
          .before = {"<|image_start|>", "start_of_image_token"},
          .after = {"<|image_end|>", "end_of_image_token"},
          .tile_mark = {"<|tile_x_separator|>", "tile_x_separator_token"},
          .row_end = {"<|tile_y_separator|>", "tile_y_separator_token"},
          .overview_mark = {"<|image|>", "image_token"}};
}

const std::vector<Family>& Families() {
  static const auto& all = *new std::vector<Family>{
      OfQwen("qwen2_vl"),
      OfQwen("qwen2_5_vl"),
      OfQwen("qwen3_vl"),
      OfQwen("qwen3_vl_moe"),
      OfQwen("qwen3_5"),
      OfQwen("qwen3_5_moe"),
      {.model_type = "glm4v",
       .size_rule = SizeRule::kBlocks,
       .token = "<|image|>",
       .has_grid_positions = true},
      {.model_type = "gemma3",
       .size_rule = SizeRule::kFixed,
       .token = "<image_soft_token>",
       .placeholder = {"<start_of_image>"},
       .before = {"\n\n<start_of_image>"},
       .after = {"<end_of_image>\n\n"},
       .attends_both_ways = true},
      {.model_type = "gemma4",
       .size_rule = SizeRule::kPatchBudget,
       .token = "<|image|>",
       .before = {"<|image>"},
       .after = {"<image|>"},
       .may_attend_both_ways = true},
      OfPixtral("mistral3"),
      OfPixtral("llava"),
      OfLlava("llava", SizeRule::kCenterCrop),
      OfLlava("llava", SizeRule::kFixed),
      OfLlava("llava_onevision", SizeRule::kPinpoints),
      {.model_type = "internvl",
       .size_rule = SizeRule::kNearestGrid,
       .token = "<IMG_CONTEXT>",
       .before = {"<img>"},
       .after = {"</img>"}},
      OfIdefics("idefics3"),
      OfIdefics("smolvlm"),
      OfLlama4(),
  };
  return all;
}

// The member `key`; null if it is missing or null.
const Json* Given(const Json& object, const char* key) {
  const Json* const value = object.Find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

// The model's type. kUnavailable: it reads no images, or those of no known family.
Result<std::string> FamilyOf(const Json& config) {
  const Json* const type = Given(config, "model_type");
  if (type == nullptr || !type->is_string() || Given(config, "vision_config") == nullptr) {
    return MakeStatus(StatusCode::kUnavailable, "the model reads no images");
  }
  const bool is_known =
      std::any_of(Families().begin(), Families().end(),
                  [type](const Family& family) { return type->as_string() == family.model_type; });
  if (is_known) return type->as_string();
  return MakeStatus(StatusCode::kUnavailable, "the images of {} are not read",
                    Visible(type->as_string()));
}

Status ReadMark(const Json& processor, const Mark& mark, std::string* text) {
  *text = mark.text;
  const Json* const given = mark.key == nullptr ? nullptr : Given(processor, mark.key);
  if (given == nullptr) return Status();
  if (!given->is_string() || given->as_string().empty() ||
      given->as_string().size() > kMarkBytesMax) {
    return BadInput("processor_config.json: \"{}\" must be a string of 1 to {} bytes (found {})",
                    mark.key, kMarkBytesMax, Visible(given->Dump(), 60));
  }
  *text = given->as_string();
  return Status();
}

// Sets the token, which must be one that is found in trusted text.
Status ReadToken(const Json& config, const Family& family, const Tokenizer& tokenizer,
                 ImageText* images) {
  images->token = family.token;
  std::optional<TokenId> id = tokenizer.IdOf(images->token);
  for (const char* key : {"image_token_index", "image_token_id"}) {
    const Json* const given = Given(config, key);
    if (given == nullptr) continue;
    if (!given->is_int() || given->as_int() < 0 || given->as_int() >= tokenizer.vocab_size()) {
      return BadInput("config.json: \"{}\" must be an integer from 0 to {} (found {})", key,
                      tokenizer.vocab_size() - 1, Visible(given->Dump(), 60));
    }
    id = static_cast<TokenId>(given->as_int());
    images->token = tokenizer.PieceText(*id);
  }
  if (!id) return BadInput("the tokenizer has no token \"{}\" for images", images->token);
  images->token_id = *id;
  const bool fits = !images->token.empty() && images->token.size() <= kMarkBytesMax;
  if (fits) {
    const TextPiece twice[] = {{images->token + images->token, true}};
    MINISGL_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, tokenizer.Encode(twice));
    if (std::count(ids.begin(), ids.end(), *id) == 2) return Status();
  }
  return BadInput(
      "token {} (\"{}\"), which stands for images, is no control token of the tokenizer", *id,
      Visible(images->token));
}

bool ReadsBothWays(const Json& config) {
  const Json* const text = Given(config, "text_config");
  const Json* const value = text == nullptr ? nullptr : Given(*text, "use_bidirectional_attention");
  return value != nullptr && *value == Json("vision");
}

// Appends `text` `count` times.
void Repeat(const std::string& text, int64_t count, std::string* out) {
  for (int64_t i = 0; i < count; ++i) *out += text;
}

// The tiles of a picture, and then the whole of it.
void AppendTiles(const ImageText& images, const ImageLayout& layout, std::string* out) {
  const bool has_names = images.order == ImageTokenOrder::kNamedTiles;
  const int32_t num_tokens = layout.num_tokens / std::max(layout.num_tiles, 1);
  const bool is_cut = layout.overview != Overview::kNone;
  for (int32_t row = 0; is_cut && row < layout.tile_rows; ++row) {
    for (int32_t column = 0; column < layout.tile_columns; ++column) {
      if (has_names || column > 0) *out += images.tile_mark;
      if (has_names) *out += fmt::format("<row_{}_col_{}>", row + 1, column + 1);
      Repeat(images.token, num_tokens, out);
    }
    *out += images.row_end;
  }
  if (is_cut && has_names) *out += images.row_end;
  *out += images.overview_mark;
  Repeat(images.token, num_tokens, out);
}

}  // namespace
}  // namespace text

Result<ImageText> ReadImageText(const Json& config, const Json& processor, ImageRules rules,
                                const Tokenizer& tokenizer) {
  ImageText images;
  MINISGL_ASSIGN_OR_RETURN(images.family, text::FamilyOf(config));
  const std::vector<text::Family>& families = text::Families();
  const auto family =
      std::find_if(families.begin(), families.end(), [&](const text::Family& candidate) {
        return images.family == candidate.model_type && rules.size_rule == candidate.size_rule;
      });
  if (family == families.end()) {
    return MakeStatus(StatusCode::kUnavailable,
                      "the images of {} are not read with the image processor {}", images.family,
                      Visible(rules.processor));
  }
  MINISGL_RETURN_IF_ERROR(text::ReadToken(config, *family, tokenizer, &images));
  images.order = family->order;
  for (const auto& [mark, text] : {std::pair(&family->placeholder, &images.placeholder),
                                   {&family->before, &images.before},
                                   {&family->after, &images.after},
                                   {&family->tile_mark, &images.tile_mark},
                                   {&family->row_end, &images.row_end},
                                   {&family->last_end, &images.last_end},
                                   {&family->overview_mark, &images.overview_mark}}) {
    MINISGL_RETURN_IF_ERROR(text::ReadMark(processor, *mark, text));
  }
  if (images.placeholder.empty()) images.placeholder = images.token;
  images.has_grid_positions = family->has_grid_positions;
  images.attends_both_ways =
      family->attends_both_ways || (family->may_attend_both_ways && text::ReadsBothWays(config));
  images.rules = std::move(rules);
  return images;
}

Result<ImageText> LoadImageText(const std::string& model_dir, const Tokenizer& tokenizer) {
  if (IsGgufFile(model_dir)) {
    return MakeStatus(StatusCode::kUnavailable,
                      "images are read with a GGUF file if {} names its projector",
                      SettingName(Setting::kProjector));
  }
  MINISGL_ASSIGN_OR_RETURN(const Json config, text::LoadJsonObject(model_dir, "config.json"));
  MINISGL_RETURN_IF_ERROR(text::FamilyOf(config).status());
  MINISGL_ASSIGN_OR_RETURN(const Json processor,
                           text::LoadJsonObject(model_dir, "processor_config.json"));
  const bool has_rules = IsListed(model_dir + "/preprocessor_config.json") || !processor.is_null();
  if (!has_rules) {
    return MakeStatus(StatusCode::kNoInput,
                      "preprocessor_config.json is missing, without which no images are read");
  }
  MINISGL_ASSIGN_OR_RETURN(ImageRules rules, LoadImageRules(model_dir));
  return ReadImageText(config, processor, std::move(rules), tokenizer);
}

std::string ImageTextOf(const ImageText& images, const ImageLayout& layout) {
  std::string text = images.before;
  switch (images.order) {
    case ImageTokenOrder::kRun:
      text::Repeat(images.token, layout.num_tokens, &text);
      break;
    case ImageTokenOrder::kRows:
      for (int32_t row = 1; row <= layout.token_rows; ++row) {
        text::Repeat(images.token, layout.token_columns, &text);
        text += row < layout.token_rows ? images.row_end : images.last_end;
      }
      break;
    case ImageTokenOrder::kNamedTiles:
    case ImageTokenOrder::kSeparatedTiles:
      text::AppendTiles(images, layout, &text);
  }
  return text + images.after;
}

void LoadImages(TextModel* text) {
  auto images = LoadImageText(text->dir, *text->tokenizer);
  text->images_status = images.status().WithPrefix(Visible(text->dir, 400));
  text->images.reset();
  if (images.ok()) text->images = std::move(images).value();
}

}  // namespace minisgl
