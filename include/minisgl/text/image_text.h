// The text of pictures: what a multimodal model's chat template writes for a picture, and what
// stands in its place when the prompt is encoded, as one table of features read from the model's
// files. Families differ in nothing else here.
//
// Files are untrusted: spellings are those of tokens that the tokenizer has, and the text of a
// picture is bounded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "minisgl/base/ids.h"
#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/text/tokenizer.h"
#include "minisgl/vision/image_layout.h"
#include "minisgl/vision/image_rules.h"

namespace minisgl {

// In which order a picture's tokens stand between ImageText::before and ImageText::after.
enum class ImageTokenOrder : uint8_t {
  kRun,   // all in one run
  kRows,  // Pixtral, Mistral 3: rows of the grid, each ended by `row_end`, the last by `last_end`
  // Idefics 3, SmolVLM: a run for each tile, after `tile_mark` and its <row_R_col_C>; `row_end`
  // after each row of tiles; then `overview_mark` and the run of the whole picture.
  kNamedTiles,
  // Llama 4: a run for each tile, `tile_mark` between those of a row, `row_end` after each row;
  // then `overview_mark` and the run of the whole picture.
  kSeparatedTiles,
};

struct ImageText {
  std::string family;       // config.json's model_type
  std::string placeholder;  // what the template writes for a picture
  std::string token;        // the spelling of `token_id`
  TokenId token_id = 0;     // the token whose embeddings are replaced, one by one
  ImageTokenOrder order = ImageTokenOrder::kRun;
  std::string before, after;  // around the whole
  std::string tile_mark, row_end, last_end, overview_mark;
  bool attends_both_ways = false;   // the tokens of a picture attend to each other
  bool has_grid_positions = false;  // positions of three parts (M-RoPE)
  ImageRules rules;                 // of pixels, sizes and counts
};

// The facts of the model with these contents of config.json and processor_config.json (null if it
// has none), with the picture rules `rules`. kUnavailable: the model reads no images, or those of
// its family are not read. kBadInput: a key has a wrong value, with its name, or the tokenizer
// lacks a token.
Result<ImageText> ReadImageText(const Json& config, const Json& processor, ImageRules rules,
                                const Tokenizer& tokenizer);

// The same from the files of the folder `model_dir`, with the errors of LoadImageRules, too.
Result<ImageText> LoadImageText(const std::string& model_dir, const Tokenizer& tokenizer);

// The text that stands in a placeholder's place for a picture of `layout`, which follows from the
// rules of `images`. It has layout.num_tokens times images.token.
std::string ImageTextOf(const ImageText& images, const ImageLayout& layout);

}  // namespace minisgl
