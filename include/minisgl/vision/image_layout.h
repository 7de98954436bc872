// Planning: what becomes of a picture of a given size, without its pixels: sizes after resizing,
// tiles, patches, tokens. For prompts' lengths, estimates, and the placeholders of a prompt.
// Pure and thread-safe; costs microseconds.
#pragma once

#include <cstdint>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/vision/image_rules.h"
#include "minisgl/vision/picture.h"

namespace minisgl {

// The whole picture, squeezed to one tile beside the tiles of its parts.
enum class Overview { kNone, kFirst, kLast };

struct ImageLayout {
  // The way of the pixels. Sizes of {0, 0} are steps left out.
  bool is_squared = false;  // first centred on a square of the mean colour
  PictureSize first;        // then resized to this
  PictureSize resized;      // then to this
  // Then laid on a black canvas with its left upper corner at (left, top), which is negative if the
  // picture is cropped; then cut into tiles.
  PictureSize canvas;
  int32_t left = 0, top = 0;
  PictureSize tile;
  int32_t tile_rows = 1, tile_columns = 1;
  Overview overview = Overview::kNone;
  bool overview_of_canvas = false;  // made of the canvas, not of the picture itself

  // What the tower reads: tiles, and the rows and columns of patches in one tile.
  int32_t num_tiles = 1;  // with the overview
  int32_t patch_rows = 0, patch_columns = 0;
  // The shape of the values: [patches, values of a patch] or [tiles, 3, height, width].
  std::vector<int64_t> shape;
  int64_t num_values = 0;

  // What the text takes: `num_tokens` placeholders. They form a grid of token_rows x token_columns
  // (without an overview's tokens), or such a grid for each tile if tiles are not packed.
  int32_t num_tokens = 0;
  int32_t token_rows = 0, token_columns = 0;
  // kPinpoints: rows or columns of tokens that are only padding. They are cut from either side
  // before the grid is shrunk to token_rows x token_columns; a newline's embedding stands after
  // each row.
  int32_t cut_rows = 0, cut_columns = 0;
};

// The layout of a picture of `size` among `num_images` of its prompt (LLaVA-OneVision cuts a
// picture into tiles only if it is alone). REQUIRES positive sizes and num_images >= 1. kBadInput:
// the rules allow no picture of this shape, or one of too many values.
Result<ImageLayout> LayOutImage(const ImageRules& rules, PictureSize size, int num_images = 1);

// The same from a file's bytes, of which the headers alone are read.
Result<ImageLayout> LayOutImageFile(const ImageRules& rules, std::string_view bytes,
                                    const PictureLimits& limits = {}, int num_images = 1);

}  // namespace minisgl
