// How a multimodal model takes its pictures: the size rule, the filter, the values and the order of
// patches, as one table of features read from the model's files. Families differ in nothing else.
//
// Files are untrusted: numbers are checked when they are read, so that a layout (image_layout.h)
// computed from rules never overflows.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/vision/picture.h"

namespace minisgl {

// Numbers as in the key `resample`.
enum class ResizeFilter { kLanczos = 1, kBilinear = 2, kBicubic = 3 };

enum class SizeRule {
  kBlocks,       // Qwen2-VL to Qwen3.5, GLM-4.1V: multiples of a block, pixels within two bounds
  kFixed,        // Gemma 3: one tile, the aspect is not kept
  kPatchBudget,  // Gemma 4: as many patches as a budget allows, small pictures are enlarged
  kLongestSide,  // Pixtral, Mistral 3: shrunk below a longest side, then up to whole patches
  kCenterCrop,   // LLaVA 1.5: the shorter side to a size, then the centre of it
  kPinpoints,    // LLaVA-OneVision: the best of a list of canvases, and the whole picture
  kNearestGrid,  // InternVL: the grid of tiles nearest in its aspect, and the whole picture
  kSplit,        // Idefics 3, SmolVLM: the longest side to a size, up to whole tiles, and the whole
  kCanvas,       // Llama 4: the canvas of tiles that shrinks least, and the whole picture
};

enum class PatchOrder {
  kBlocks,  // [patches, 3, frames, y, x], patches in blocks of merge_size x merge_size
  kRows,    // [patches, y, x, 3], patches row by row
  kTiles,   // [tiles, 3, height, width]: the tower cuts the patches
};

struct ImageRules {
  std::string processor;  // the class that image_processor_type names, without "Fast"
  SizeRule size_rule = SizeRule::kFixed;
  ResizeFilter filter = ResizeFilter::kBicubic;
  PatchOrder patch_order = PatchOrder::kTiles;

  int32_t patch_size = 14;  // pixels a side
  // Patches a side that become one token, by a merger, a pool or a pixel shuffle.
  int32_t merge_size = 1;
  int32_t num_frames = 1;  // kBlocks order: equal copies of the picture in a patch

  // kBlocks: bounds of resized pixels times `frames_counted`.
  int64_t pixels_min = 0, pixels_max = 0;
  int32_t frames_counted = 1;
  bool enlarges_thin_sides = false;  // a side below a block is first enlarged to it (GLM)

  int32_t tokens_max = 0;                // kPatchBudget: tokens a picture
  PictureSize longest;                   // kLongestSide: the bounds of both sides
  int32_t longest_side = 0;              // kSplit: the longest side after the first resize
  int32_t shortest_side = 0;             // kCenterCrop: the shorter side before the crop
  PictureSize tile;                      // all rules with tiles: the size of one
  std::vector<PictureSize> canvases;     // kPinpoints
  int32_t tiles_min = 1, tiles_max = 1;  // kNearestGrid, kCanvas
  bool is_split = true;                  // kSplit, kNearestGrid: false: one tile
  bool fills_canvas = false;             // kCanvas: enlarges to the largest canvas
  int32_t tokens_per_tile = 0;           // rules with tiles
  int32_t packed_tiles_max = 0;          // kPinpoints: more tiles' tokens are shrunk to these

  // A value v of 0..255 becomes (v - mean * 255) / (std * 255), both constants in float32; without
  // normalising v * rescale_factor. In bfloat16 (Llama 4) each step is rounded.
  double rescale_factor = 1.0 / 255;
  bool is_rescaled = true, is_normalized = true, in_bfloat16 = false;
  std::array<double, 3> mean = {}, std = {1, 1, 1};
};

// The rules in the contents of config.json, preprocessor_config.json and processor_config.json;
// each of the last two is null if the model has no such file. An "image_processor" inside
// processor_config.json stands before preprocessor_config.json. Missing keys have the defaults of
// the reference's classes. kBadInput: a key has a wrong type or value, with its name. kUnavailable:
// the processor is not known, with its name.
Result<ImageRules> ReadImageRules(const Json& config, const Json& preprocessor,
                                  const Json& processor);

// The same from the files in the folder `model_dir`.
Result<ImageRules> LoadImageRules(const std::string& model_dir);

// The same rules, with other bounds of the tokens of a picture: resized sizes, budgets or numbers
// of tiles within them. Few models can enlarge pictures (kBlocks, kPatchBudget); for others a lower
// bound is an error unless all pictures have as many. A thin picture of kBlocks may have more than
// `tokens_max`, as in the reference. REQUIRES bounds from 1 to 2^20. kUsage: the bounds contradict
// each other, or the model has no such pictures.
Result<ImageRules> WithTokenBounds(ImageRules rules, std::optional<int32_t> tokens_min,
                                   std::optional<int32_t> tokens_max);

}  // namespace minisgl
