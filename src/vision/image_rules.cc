// See minisgl/vision/image_rules.h.
#include "minisgl/vision/image_rules.h"

#include <algorithm>
#include <utility>

#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "vision/rule_reader.h"

namespace minisgl {
namespace vision {
namespace {

constexpr std::array<double, 3> kHalf = {0.5, 0.5, 0.5};
constexpr std::array<double, 3> kClipMean = {0.48145466, 0.4578275, 0.40821073};
constexpr std::array<double, 3> kClipStd = {0.26862954, 0.26130258, 0.27577711};
constexpr int64_t kPixelsMax = int64_t{1} << 40;  // of a rule's bound; layouts have a lower one
constexpr int32_t kTilesMax = 4096;
constexpr int32_t kTileTokensMax = 1 << 14;

// The files of a model: `image` holds the picture's rules, the others what they lack.
struct Files {
  RuleReader config, image, processor;
};

void ReadBlocks(Files* files, ImageRules* rules) {
  const bool is_glm = rules->processor.starts_with("Glm");
  rules->size_rule = SizeRule::kBlocks;
  rules->patch_order = PatchOrder::kBlocks;
  rules->patch_size = files->image.Side("patch_size", 14);
  rules->merge_size = static_cast<int32_t>(files->image.Int("merge_size", 2, 1, 64));
  rules->num_frames = static_cast<int32_t>(files->image.Int("temporal_patch_size", 2, 1, 16));
  rules->pixels_min = is_glm ? 112 * 112 : 56 * 56;
  rules->pixels_max = is_glm ? 28 * 28 * 15000 : 28 * 28 * 1280;
  for (const auto& [key, value] : {std::pair("size.shortest_edge", &rules->pixels_min),
                                   {"size.longest_edge", &rules->pixels_max},
                                   {"min_pixels", &rules->pixels_min},
                                   {"max_pixels", &rules->pixels_max}}) {
    *value = files->image.Int(key, *value, 1, kPixelsMax);
  }
  rules->frames_counted = is_glm ? rules->num_frames : 1;
  rules->enlarges_thin_sides = is_glm;
}

void ReadFixed(Files* files, ImageRules* rules) {
  rules->size_rule = SizeRule::kFixed;
  rules->filter = ResizeFilter::kBilinear;
  rules->mean = rules->std = kHalf;
  rules->tile = files->image.Size("size", {224, 224});
  rules->patch_size = files->config.Side("vision_config.patch_size", 14);
  const int64_t tokens = files->config.Int("mm_tokens_per_image", 256, 1, kTileTokensMax);
  rules->tokens_per_tile =
      static_cast<int32_t>(files->processor.Int("image_seq_length", tokens, 1, kTileTokensMax));
  if (files->image.Bool("do_pan_and_scan", false)) files->image.Fail("do_pan_and_scan", "false");
}

void ReadPatchBudget(Files* files, ImageRules* rules) {
  rules->size_rule = SizeRule::kPatchBudget;
  rules->patch_order = PatchOrder::kRows;
  rules->patch_size = files->image.Side("patch_size", 16);
  rules->merge_size = static_cast<int32_t>(files->image.Int("pooling_kernel_size", 3, 1, 64));
  rules->tokens_max =
      static_cast<int32_t>(files->image.Int("max_soft_tokens", 280, 1, kTileTokensMax));
  rules->mean = {0, 0, 0};
  rules->std = {1, 1, 1};
  rules->is_normalized = false;
}

void ReadLongestSide(Files* files, ImageRules* rules) {
  rules->size_rule = SizeRule::kLongestSide;
  // The processor's patch stands before the image processor's, which older files lack.
  const Json* const patch = files->image.Find("patch_size");
  int32_t patch_size = 16;
  if (patch != nullptr) patch_size = files->image.Size("patch_size", {16, 16}).width;
  rules->patch_size = files->processor.Side("patch_size", patch_size);
  const int64_t merge = files->config.Int("spatial_merge_size", 1, 1, 64);
  rules->merge_size =
      static_cast<int32_t>(files->processor.Int("spatial_merge_size", merge, 1, 64));
  if (files->image.Find("size.longest_edge") != nullptr || files->image.Find("size") == nullptr) {
    const int32_t side = files->image.Side("size.longest_edge", 1024);
    rules->longest = {side, side};
  } else {
    rules->longest = files->image.Size("size", {1024, 1024});
  }
}

// The tokens of a tower's tile: its patches, and a class token unless the selection drops it.
int32_t TokensOfTower(Files* files, const ImageRules& rules) {
  const bool is_clip =
      files->config.Text("vision_config.model_type", "clip_vision_model") == "clip_vision_model";
  const int64_t additional =
      files->processor.Int("num_additional_image_tokens", is_clip ? 1 : 0, 0, 64);
  const std::string kept =
      files->processor.Text("vision_feature_select_strategy",
                            files->config.Text("vision_feature_select_strategy", "default"));
  const int64_t tokens =
      int64_t{rules.tile.height / rules.patch_size} * (rules.tile.width / rules.patch_size) +
      additional - (kept == "default" ? 1 : 0);
  return static_cast<int32_t>(std::max<int64_t>(tokens, 1));
}

void ReadCenterCrop(Files* files, ImageRules* rules) {
  rules->size_rule = SizeRule::kCenterCrop;
  const PictureSize size = files->image.Size("size", {224, 224});
  const bool has_shortest = files->image.Find("size.shortest_edge") != nullptr ||
                            files->image.Find("size.height") == nullptr;
  if (has_shortest) rules->shortest_side = size.width;
  rules->tile = size;
  if (files->image.Bool("do_center_crop", true)) {
    rules->tile = files->image.Size("crop_size", {224, 224});
    if (!has_shortest) files->image.Fail("size", "an object with shortest_edge");
  } else if (has_shortest) {
    files->image.Fail("do_center_crop", "true");
  } else {
    rules->size_rule = SizeRule::kFixed;
  }
  rules->patch_size =
      files->processor.Side("patch_size", files->config.Side("vision_config.patch_size", 14));
  rules->tokens_per_tile = TokensOfTower(files, *rules);
}

void ReadSiglip(Files* files, ImageRules* rules) {
  rules->size_rule = SizeRule::kFixed;
  rules->mean = rules->std = kHalf;
  rules->tile = files->image.Size("size", {224, 224});
  rules->patch_size =
      files->processor.Side("patch_size", files->config.Side("vision_config.patch_size", 14));
  rules->tokens_per_tile = TokensOfTower(files, *rules);
}

// "anyres_max_9": 9.
int32_t PackedTilesMax(Files* files) {
  constexpr std::string_view kPrefix = "anyres_max_";
  const char* const key = "vision_aspect_ratio";
  const std::string text = files->processor.Text(key, files->config.Text(key, "anyres_max_9"));
  int32_t count = 0;
  if (text.starts_with(kPrefix)) {
    for (const char digit : text.substr(kPrefix.size())) {
      const bool is_digit = digit >= '0' && digit <= '9';
      count = is_digit && count < kTilesMax ? count * 10 + (digit - '0') : kTilesMax + 1;
    }
  }
  if (count < 1 || count > kTilesMax) files->processor.Fail(key, "anyres_max_N");
  return std::max(count, 1);
}

void ReadPinpoints(Files* files, ImageRules* rules) {
  rules->size_rule = SizeRule::kPinpoints;
  rules->tile = files->image.Size("size", {384, 384});
  if (rules->tile.width != rules->tile.height) files->image.Fail("size", "a square");
  rules->patch_size = files->config.Side("vision_config.patch_size", 14);
  const int64_t side = rules->tile.width / rules->patch_size;
  rules->tokens_per_tile = static_cast<int32_t>(files->processor.Int(
      "num_image_tokens", std::max<int64_t>(side * side, 1), 1, kTileTokensMax));
  rules->packed_tiles_max = PackedTilesMax(files);
  const Json* const pinpoints = files->image.Find("image_grid_pinpoints");
  const std::string expected = "a list of [height, width] in multiples of a tile";
  if (pinpoints == nullptr) {
    for (int32_t height = 1; height <= 6; ++height) {
      for (int32_t width = 1; width <= 6; ++width) {
        rules->canvases.push_back({384 * width, 384 * height});
      }
    }
  } else if (!pinpoints->is_array() || pinpoints->as_array().empty() ||
             pinpoints->as_array().size() > kTilesMax) {
    return files->image.Fail("image_grid_pinpoints", expected);
  } else {
    for (const Json& pair : pinpoints->as_array()) {
      const bool is_pair = pair.is_array() && pair.as_array().size() == 2 &&
                           pair.as_array()[0].is_int() && pair.as_array()[1].is_int();
      const int64_t height = is_pair ? pair.as_array()[0].as_int() : 0;
      const int64_t width = is_pair ? pair.as_array()[1].as_int() : 0;
      if (std::min(height, width) < 1 || std::max(height, width) > kSideMax) {
        return files->image.Fail("image_grid_pinpoints", expected);
      }
      rules->canvases.push_back({static_cast<int32_t>(width), static_cast<int32_t>(height)});
    }
  }
  for (const PictureSize& canvas : rules->canvases) {
    const int64_t tiles =
        int64_t{canvas.width / rules->tile.width} * (canvas.height / rules->tile.height);
    const bool is_whole =
        canvas.width % rules->tile.width == 0 && canvas.height % rules->tile.height == 0;
    if (!is_whole || tiles > kTilesMax) files->image.Fail("image_grid_pinpoints", expected);
  }
}

// The patches a side that a pixel shuffle joins, of a key with its ratio (0.5: 2).
int32_t ShuffledSide(RuleReader* reader, const std::string& key, double absent) {
  const double ratio = reader->Positive(key, absent);
  return static_cast<int32_t>(std::clamp(ratio < 1 ? 1 / ratio + 0.5 : ratio + 0.5, 1.0, 64.0));
}

// (side of a tile in patches / merge_size)^2, at most kTileTokensMax
int64_t ShuffledTokens(const ImageRules& rules) {
  const int64_t side = rules.patch_size * int64_t{rules.merge_size};
  return std::clamp<int64_t>((rules.tile.width / side) * (rules.tile.height / side), 1,
                             kTileTokensMax);
}

void ReadNearestGrid(Files* files, ImageRules* rules) {
  rules->size_rule = SizeRule::kNearestGrid;
  rules->tile = files->image.Size("size", {384, 384});
  rules->patch_size = files->config.Size("vision_config.patch_size", {14, 14}).width;
  rules->merge_size = ShuffledSide(&files->config, "downsample_ratio", 0.5);
  // The processor sets crop_to_patches whatever the image processor's file says.
  rules->tiles_min = static_cast<int32_t>(files->image.Int("min_patches", 1, 1, kTilesMax));
  rules->tiles_max = static_cast<int32_t>(files->image.Int("max_patches", 12, 1, 256));
  rules->tokens_per_tile = static_cast<int32_t>(
      files->processor.Int("image_seq_length", ShuffledTokens(*rules), 1, kTileTokensMax));
}

void ReadSplit(Files* files, ImageRules* rules) {
  rules->size_rule = SizeRule::kSplit;
  rules->filter = ResizeFilter::kLanczos;
  rules->mean = rules->std = kHalf;
  const int32_t side = files->image.Side("max_image_size.longest_edge", 364);
  rules->tile = {side, side};
  rules->longest_side = files->image.Side("size.longest_edge", 4 * 364);
  rules->is_split = files->image.Bool("do_image_splitting", true);
  rules->patch_size = files->config.Side("vision_config.patch_size", 14);
  rules->merge_size = ShuffledSide(&files->config, "scale_factor", 2);
  rules->tokens_per_tile = static_cast<int32_t>(
      files->processor.Int("image_seq_len", ShuffledTokens(*rules), 1, kTileTokensMax));
}

void ReadCanvas(Files* files, ImageRules* rules) {
  rules->size_rule = SizeRule::kCanvas;
  rules->filter = ResizeFilter::kBilinear;
  rules->mean = rules->std = kHalf;
  rules->in_bfloat16 = true;
  rules->tile = files->image.Size("size", {336, 336});
  if (rules->tile.width != rules->tile.height) files->image.Fail("size", "a square");
  rules->tiles_max = static_cast<int32_t>(files->image.Int("max_patches", 16, 1, 256));
  rules->fills_canvas = files->image.Bool("resize_to_max_canvas", false);
  rules->patch_size =
      files->processor.Side("patch_size", files->config.Side("vision_config.patch_size", 14));
  const bool has_ratio = files->processor.Find("pixel_shuffle_ratio") != nullptr;
  rules->merge_size = has_ratio
                          ? ShuffledSide(&files->processor, "pixel_shuffle_ratio", 0.5)
                          : ShuffledSide(&files->config, "vision_config.pixel_shuffle_ratio", 0.5);
  rules->tokens_per_tile = static_cast<int32_t>(ShuffledTokens(*rules));
}

struct Family {
  const char* processor;
  void (*read)(Files* files, ImageRules* rules);
};

constexpr Family kFamilies[] = {
    {"Qwen2VLImageProcessor", ReadBlocks},
    {"Glm4vImageProcessor", ReadBlocks},
    {"Glm46VImageProcessor", ReadBlocks},
    {"Gemma3ImageProcessor", ReadFixed},
    {"Gemma4ImageProcessor", ReadPatchBudget},
    {"PixtralImageProcessor", ReadLongestSide},
    {"CLIPImageProcessor", ReadCenterCrop},
    {"SiglipImageProcessor", ReadSiglip},
    {"LlavaOnevisionImageProcessor", ReadPinpoints},
    {"GotOcr2ImageProcessor", ReadNearestGrid},
    {"Idefics3ImageProcessor", ReadSplit},
    {"SmolVLMImageProcessor", ReadSplit},
    {"Llama4ImageProcessor", ReadCanvas},
};

// The keys that all families have.
void ReadValues(RuleReader* image, ImageRules* rules) {
  const auto filter = static_cast<int64_t>(rules->filter);
  rules->filter = static_cast<ResizeFilter>(image->Int("resample", filter, 1, 3));
  rules->rescale_factor = image->Positive("rescale_factor", rules->rescale_factor);
  rules->is_rescaled = image->Bool("do_rescale", rules->is_rescaled);
  rules->is_normalized = image->Bool("do_normalize", rules->is_normalized);
  rules->mean = image->Channels("image_mean", rules->mean);
  rules->std = image->Channels("image_std", rules->std);
  for (const double std : rules->std) {
    if (std == 0 && rules->is_normalized) image->Fail("image_std", "numbers other than 0");
  }
  if (!image->Bool("do_resize", true)) image->Fail("do_resize", "true");
}

// The class that makes the pixels; of old files, which do not name it, by their other names.
std::string ProcessorOf(const Files& files) {
  std::string name;
  for (const char* key : {"image_processor_type", "feature_extractor_type"}) {
    const Json* const value = files.image.Find(key);
    if (name.empty() && value != nullptr && value->is_string()) name = value->as_string();
  }
  if (name.ends_with("FeatureExtractor")) {
    name = name.substr(0, name.size() - std::string_view("FeatureExtractor").size()) +
           "ImageProcessor";
  }
  if (name.ends_with("Fast")) name.resize(name.size() - std::string_view("Fast").size());
  return name;
}

}  // namespace
}  // namespace vision

Result<ImageRules> ReadImageRules(const Json& config, const Json& preprocessor,
                                  const Json& processor) {
  const Json* const nested = processor.Find("image_processor");
  const bool is_nested = nested != nullptr && nested->is_object();
  vision::Files files = {
      {config, "config.json"},
      {is_nested ? *nested : preprocessor,
       is_nested ? "processor_config.json, image_processor" : "preprocessor_config.json"},
      {processor, "processor_config.json"}};
  ImageRules rules;
  rules.processor = vision::ProcessorOf(files);
  rules.mean = vision::kClipMean;
  rules.std = vision::kClipStd;
  const auto* const family =
      std::find_if(std::begin(vision::kFamilies), std::end(vision::kFamilies),
                   [&](const vision::Family& entry) { return rules.processor == entry.processor; });
  if (family == std::end(vision::kFamilies)) {
    return MakeStatus(StatusCode::kUnavailable,
                      "pictures of the image processor \"{}\" are not supported",
                      Visible(rules.processor));
  }
  family->read(&files, &rules);
  vision::ReadValues(&files.image, &rules);
  for (const vision::RuleReader* reader : {&files.image, &files.processor, &files.config}) {
    MINISGL_RETURN_IF_ERROR(reader->status());
  }
  return rules;
}

Result<ImageRules> LoadImageRules(const std::string& model_dir) {
  constexpr uint64_t kBytesMax = uint64_t{16} << 20;
  Json files[3];
  const char* const names[] = {"config.json", "preprocessor_config.json", "processor_config.json"};
  for (size_t i = 0; i < 3; ++i) {
    const std::string path = model_dir + "/" + names[i];
    if (i > 0 && !StampOf(path)) continue;
    MINISGL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kBytesMax));
    auto json = ParseJson(text);
    if (!json.ok()) return json.status().WithPrefix(path);
    files[i] = *std::move(json);
  }
  return ReadImageRules(files[0], files[1], files[2]);
}

}  // namespace minisgl
