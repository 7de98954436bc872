// See gguf_projector.h. The metadata of a projector is written as the JSON of a model directory's
// files, so that every check of those holds for it, too.
#include "weights/gguf_projector.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "minisgl/base/setting.h"
#include "minisgl/base/utf8.h"
#include "weights/config_keys.h"
#include "weights/gguf_metadata.h"
#include "weights/tower_families.h"

namespace minisgl::weights {
namespace {

constexpr const char* kArchitecture = "clip";
constexpr IntRange kTokensRange = {1, 1 << 20};
constexpr IntRange kPixelsRange = {1, int64_t{1} << 40};

// The files of a model directory while they are written.
struct Writer {
  GgufMetadata metadata;
  Json config, text, vision, preprocessor, processor;
  PictureAttention attention = PictureAttention::kCausal;

  int64_t Int(const char* name, IntRange range, std::optional<int64_t> fallback = {}) {
    return metadata.Int(fmt::format("vision.{}", name), range, fallback);
  }
  int64_t width() { return Int("embedding_length", kTowerWidthRange); }
  int64_t image_side() { return Int("image_size", kImageSizeRange); }
  int64_t patch_side() { return Int("patch_size", kPatchSizeRange); }
  int64_t text_width() { return Int("projection_dim", kTowerWidthRange); }
  bool Has(std::string_view tensor) const { return metadata.Tensor(tensor) != nullptr; }
  // The length of an axis of a tensor; an error if it has none.
  int64_t Axis(const char* tensor, size_t axis) {
    const GgufTensor* const found = metadata.Tensor(tensor);
    if (found != nullptr && axis < found->shape.size()) return found->shape[axis];
    metadata.FailWith(BadInput("has no tensor \"{}\" of {} axes", tensor, axis + 1));
    return 1;
  }
};

Json Square(int64_t side) {
  Json size;
  size.Set("height", side).Set("width", side);
  return size;
}

Json Longest(int64_t side) {
  Json size;
  size.Set("longest_edge", side);
  return size;
}

// Sizes under the names of SigLIP, which most families have.
void WriteSizes(Writer* writer) {
  Json& vision = writer->vision;
  vision.Set("hidden_size", writer->width());
  vision.Set("intermediate_size", writer->Int("feed_forward_length", kTowerWidthRange));
  vision.Set("num_hidden_layers", writer->Int("block_count", kTowerLayersRange));
  vision.Set("num_attention_heads", writer->Int("attention.head_count", kTowerHeadsRange));
  vision.Set("image_size", writer->image_side());
  vision.Set("patch_size", writer->patch_side());
}

void WriteLayerEps(const char* key, Writer* writer) {
  writer->metadata.Copy("vision.attention.layer_norm_epsilon", key, &writer->vision);
}

// The activation that the metadata names; files that name none mean the first of CLIP.
const char* ActivationOf(Writer* writer) {
  if (writer->metadata.Bool("use_gelu", false)) return "gelu";
  return writer->metadata.Bool("use_silu", false) ? "silu" : "quick_gelu";
}

// Sizes of Qwen's towers. `pixels`: the published bounds of a resized picture.
void WriteQwen(const char* width_key, std::array<int64_t, 2> pixels, Writer* writer) {
  Json& vision = writer->vision;
  const int64_t patch = writer->patch_side();
  const int64_t merge = writer->Int("spatial_merge_size", kUnitSideRange, 2);
  vision.Set(width_key, writer->width());
  vision.Set("depth", writer->Int("block_count", kTowerLayersRange));
  vision.Set("num_heads", writer->Int("attention.head_count", kTowerHeadsRange));
  vision.Set("patch_size", patch).Set("spatial_merge_size", merge);
  writer->preprocessor.Set("image_processor_type", "Qwen2VLImageProcessor");
  writer->preprocessor.Set("patch_size", patch).Set("merge_size", merge);
  writer->preprocessor.Set("min_pixels", writer->Int("image_min_pixels", kPixelsRange, pixels[0]));
  writer->preprocessor.Set("max_pixels", writer->Int("image_max_pixels", kPixelsRange, pixels[1]));
}

constexpr std::array<int64_t, 2> kPixelsOfQwen2 = {3136, 12845056};
constexpr std::array<int64_t, 2> kPixelsOfQwen3 = {65536, 16777216};

void WriteQwen2(Writer* writer) {
  writer->config.Set("model_type", "qwen2_vl");
  WriteQwen("embed_dim", kPixelsOfQwen2, writer);
  // The metadata has the text's width in place of the inner one.
  const int64_t inner = writer->Axis("v.blk.0.ffn_up.bias", 0);
  const int64_t outer = writer->Axis("v.blk.0.ffn_down.bias", 0);
  writer->vision.Set("mlp_ratio", static_cast<double>(std::max(inner, outer)) /
                                      static_cast<double>(writer->width()));
  writer->vision.Set("hidden_act", ActivationOf(writer));
  writer->vision.Set("hidden_size", writer->text_width());
}

void WriteQwen25(Writer* writer) {
  writer->config.Set("model_type", "qwen2_5_vl");
  WriteQwen("hidden_size", kPixelsOfQwen2, writer);
  Json& vision = writer->vision;
  const int64_t inner = writer->Int("feed_forward_length", kTowerWidthRange);
  vision.Set("intermediate_size", inner).Set("hidden_act", ActivationOf(writer));
  vision.Set("window_size", writer->Int("window_size", kImageSizeRange, 112));
  // Each such layer is the last of a run of so many.
  const int64_t run = writer->Int("n_wa_pattern", kTowerLayersRange);
  const int64_t layers = writer->Int("block_count", kTowerLayersRange);
  Json whole = Json(Json::Array());
  for (int64_t layer = run - 1; layer < layers; layer += run) whole.Append(layer);
  vision.Set("fullatt_block_indexes", std::move(whole));
}

void WriteQwen3(Writer* writer) {
  WriteQwen("hidden_size", kPixelsOfQwen3, writer);
  Json& vision = writer->vision;
  vision.Set("intermediate_size", writer->Int("feed_forward_length", kTowerWidthRange));
  vision.Set("num_position_embeddings", writer->Axis("v.position_embd.weight", 0));
  Json deepstack = Json(Json::Array());
  const GgufValue* const listed = writer->metadata.Find("vision.is_deepstack_layers");
  if (listed != nullptr) {
    int64_t layer = 0;
    for (const GgufValue& takes_part : listed->Elements(kTowerLayersRange.max)) {
      if (takes_part.AsBool().value_or(false)) deepstack.Append(layer);
      ++layer;
    }
  }
  // Only Qwen3-VL has such layers.
  writer->config.Set("model_type", deepstack.as_array().empty() ? "qwen3_5" : "qwen3_vl");
  vision.Set("deepstack_visual_indexes", std::move(deepstack));
}

void WriteGemma3(Writer* writer) {
  writer->config.Set("model_type", "gemma3");
  WriteSizes(writer);
  WriteLayerEps("layer_norm_eps", writer);
  writer->vision.Set("model_type", "siglip_vision_model");
  writer->attention = PictureAttention::kAllLayers;
  const int64_t patches = writer->image_side() / writer->patch_side();
  const int64_t side = patches / writer->Int("projector.scale_factor", kUnitSideRange, 4);
  writer->config.Set("mm_tokens_per_image", side * side);
  writer->preprocessor.Set("image_processor_type", "Gemma3ImageProcessor");
  writer->preprocessor.Set("size", Square(writer->image_side()));
}

void WriteGemma4(Writer* writer) {
  writer->config.Set("model_type", "gemma4");
  WriteSizes(writer);
  WriteLayerEps("rms_norm_eps", writer);
  Json& vision = writer->vision;
  const int64_t heads = writer->Int("attention.head_count", kTowerHeadsRange);
  const int64_t pool = writer->Int("projector.scale_factor", kUnitSideRange, 3);
  vision.Set("model_type", "gemma4_vision").Set("pooling_kernel_size", pool);
  vision.Set("head_dim", writer->Int("attention.key_length", kHeadDimRange,
                                     writer->Axis("v.blk.0.attn_q.weight", 0) / heads));
  vision.Set("position_embedding_size", writer->Axis("v.position_embd.weight", 1));
  vision.Set("standardize", writer->Has("v.std_bias"));
  vision.Set("use_clipped_linears", writer->Has("v.blk.0.attn_q.input_max"));
  // The small ones of the family read pictures in the order of the text.
  const int64_t text = writer->text_width();
  if (text != 1536 && text != 2560) {
    writer->text.Set("use_bidirectional_attention", "vision");
    writer->attention = PictureAttention::kWindowLayers;
  }
  writer->preprocessor.Set("image_processor_type", "Gemma4ImageProcessor");
  writer->preprocessor.Set("patch_size", writer->patch_side()).Set("pooling_kernel_size", pool);
  writer->preprocessor.Set("do_normalize", false);
}

// Pixtral, or with a merger of patches Mistral 3.
void WritePixtral(Writer* writer) {
  WriteSizes(writer);
  const bool merges = writer->Has("mm.patch_merger.weight");
  const int64_t merge = writer->Int("spatial_merge_size", kUnitSideRange, merges ? 2 : 1);
  Json &config = writer->config, &vision = writer->vision;
  config.Set("model_type", merges ? "mistral3" : "llava").Set("vision_feature_layer", -1);
  config.Set("multimodal_projector_bias", writer->Has("mm.1.bias"));
  if (merges) config.Set("spatial_merge_size", merge);
  vision.Set("model_type", "pixtral").Set("hidden_act", ActivationOf(writer));
  writer->preprocessor.Set("image_processor_type", "PixtralImageProcessor");
  writer->preprocessor.Set("size", Longest(writer->image_side()));
  writer->preprocessor.Set("patch_size", Square(writer->patch_side()));
  writer->processor.Set("patch_size", writer->patch_side());
  if (merges) writer->processor.Set("spatial_merge_size", merge);
}

void WriteIdefics3(Writer* writer) {
  writer->config.Set("model_type", "idefics3");
  WriteSizes(writer);
  WriteLayerEps("layer_norm_eps", writer);
  const int64_t side = writer->image_side();
  writer->config.Set("scale_factor", writer->Int("projector.scale_factor", kUnitSideRange, 2));
  writer->preprocessor.Set("image_processor_type", "Idefics3ImageProcessor");
  writer->preprocessor.Set("size",
                           Longest(writer->Int("preproc_image_size", kImageSizeRange, side)));
  writer->preprocessor.Set("max_image_size", Longest(side));
}

void WriteInternVl(Writer* writer) {
  writer->config.Set("model_type", "internvl");
  WriteSizes(writer);
  WriteLayerEps("layer_norm_eps", writer);
  Json& vision = writer->vision;
  vision.Set("hidden_act", ActivationOf(writer));
  vision.Set("attention_bias", writer->Has("v.blk.0.attn_q.bias"));
  vision.Set("use_qk_norm", writer->Has("v.blk.0.attn_q_norm.weight"));
  vision.Set("norm_type", writer->Has("v.blk.0.ln1.bias") ? "layer_norm" : "rms_norm");
  const int64_t unit = writer->Int("projector.scale_factor", kUnitSideRange, 2);
  writer->config.Set("downsample_ratio", 1 / static_cast<double>(unit));
  Json& preprocessor = writer->preprocessor;
  preprocessor.Set("image_processor_type", "GotOcr2ImageProcessor");
  preprocessor.Set("size", Square(writer->image_side())).Set("crop_to_patches", true);
  preprocessor.Set("min_patches", writer->Int("preproc_min_tiles", kTokensRange, 1));
  preprocessor.Set("max_patches", writer->Int("preproc_max_tiles", kTokensRange, 12));
}

struct Kind {
  std::string_view name;  // of "clip.projector_type"
  void (*write)(Writer* writer);
};
constexpr Kind kKinds[] = {
    {"qwen2vl_merger", WriteQwen2}, {"qwen2.5vl_merger", WriteQwen25},
    {"qwen3vl_merger", WriteQwen3}, {"gemma3", WriteGemma3},
    {"gemma4v", WriteGemma4},       {"pixtral", WritePixtral},
    {"idefics3", WriteIdefics3},    {"internvl", WriteInternVl},
};

Result<const Kind*> KindOf(GgufMetadata* metadata) {
  if (!metadata->Bool("has_vision_encoder", true)) {
    return MakeStatus(StatusCode::kUnavailable, "the projector is of sounds, which are not read");
  }
  std::string type = metadata->Text("projector_type");
  if (type.empty()) type = metadata->Text("vision.projector_type");
  MINISGL_RETURN_IF_ERROR(metadata->status());
  std::string names;
  for (const Kind& kind : kKinds) {
    if (type == kind.name) return &kind;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", kind.name);
  }
  return MakeStatus(StatusCode::kUnavailable,
                    "this program has no tower for projectors of type \"{}\" (it has {})",
                    Visible(type, 100), names);
}

// Constants that files state as the nearest f32: as the families publish them.
constexpr double kPublished[] = {0.48145466, 0.4578275, 0.40821073, 0.26862954, 0.26130258,
                                 0.27577711, 0.485,     0.456,      0.406,      0.229,
                                 0.224,      0.225,     0.5,        0,          1};

void WriteChannels(const char* key, Writer* writer) {
  const GgufValue* const list = writer->metadata.Find(fmt::format("vision.{}", key));
  if (list == nullptr) return;
  Json channels = Json(Json::Array());
  for (const GgufValue& element : list->Elements(4)) {
    double value = element.AsDouble().value_or(NAN);
    for (const double published : kPublished) {
      if (static_cast<float>(value) == static_cast<float>(published)) value = published;
    }
    if (std::isfinite(value)) channels.Append(value);
  }
  if (channels.as_array().size() != 3) {
    return writer->metadata.Fail(fmt::format("vision.{}", key), "three numbers are needed");
  }
  writer->preprocessor.Set(key, std::move(channels));
}

// The type of the tower's matrices, or bf16 if they are codes.
const char* TypeOfMatrices(const GgufMetadata& metadata) {
  const GgufTensor* matrix = metadata.Tensor("v.blk.0.attn_out.weight");
  const std::string_view type = matrix == nullptr ? "F32" : matrix->type->name;
  return type == "F32" ? "float32" : type == "F16" ? "float16" : "bfloat16";
}

// The tower reads queries, keys and values from matrices of their own if the file has them apart.
void SplitHeads(TowerConfig* tower) {
  TowerNames& names = tower->names;
  if (names.qkv.empty()) return;
  names.query = names.qkv + "_query";
  names.key = names.qkv + "_key";
  names.value = names.qkv + "_value";
  names.qkv.clear();
}

}  // namespace

bool IsProjector(const GgufHeader& header) {
  const GgufValue* const name = header.Find("general.architecture");
  return name != nullptr && name->AsString() == kArchitecture;
}

Result<Projector> ReadProjector(const GgufHeader& header) {
  if (!IsProjector(header)) {
    return BadInput(
        "it is no projector: key \"general.architecture\" is not \"{}\"; give an "
        "mmproj file",
        kArchitecture);
  }
  Writer writer = {.metadata = GgufMetadata(header, kArchitecture)};
  MINISGL_ASSIGN_OR_RETURN(const Kind* const kind, KindOf(&writer.metadata));
  kind->write(&writer);
  WriteChannels("image_mean", &writer);
  WriteChannels("image_std", &writer);
  writer.text.Set("hidden_size", writer.text_width()).Set("rms_norm_eps", 1e-5);
  MINISGL_RETURN_IF_ERROR(writer.metadata.status());
  writer.config.Set("torch_dtype", TypeOfMatrices(writer.metadata));
  writer.config.Set("text_config", std::move(writer.text));
  writer.config.Set("vision_config", std::move(writer.vision));
  Projector projector;
  MINISGL_ASSIGN_OR_RETURN(std::optional<TowerConfig> tower, ReadTowerConfig(writer.config));
  MINISGL_CHECK(tower.has_value(), "a projector without a tower");
  projector.tower = std::move(*tower);
  projector.attention = writer.attention;
  if (!writer.Has("v.blk.0.attn_qkv.weight")) SplitHeads(&projector.tower);
  for (TowerStep& step : projector.tower.steps) step.plus_one = false;  // stored as they are
  projector.config = std::move(writer.config);
  projector.preprocessor = std::move(writer.preprocessor);
  projector.processor = std::move(writer.processor);
  return projector;
}

namespace {

// Takes from the text what a projector does not state.
Status TakeText(const GgufHeader& text, Projector* projector) {
  const GgufValue* const name = text.Find("general.architecture");
  GgufMetadata metadata(text, std::string(name == nullptr ? "" : name->AsString().value_or("")));
  const int64_t width = metadata.Int("embedding_length", kWidthRange);
  MINISGL_RETURN_IF_ERROR(metadata.status());
  if (width != projector->tower.text_hidden_size) {
    return BadInput(
        "the projector is of another model: its embeddings have {} features, the "
        "model's {}",
        projector->tower.text_hidden_size, width);
  }
  const Json eps = metadata.Number("attention.layer_norm_rms_epsilon");
  if (projector->tower.name == "mistral3" && !eps.is_null()) {
    projector->tower.steps.front().eps = eps.as_double();
  }
  const GgufValue* const sections = metadata.Find("rope.dimension_sections");
  if (sections == nullptr) return metadata.status();
  size_t index = 0;
  for (const GgufValue& section : sections->Elements(projector->sections.size())) {
    const int64_t frequencies = section.AsInt().value_or(-1);
    if (!kHeadDimRange.Holds(frequencies) && frequencies != 0) {
      metadata.Fail("rope.dimension_sections", "numbers of frequencies are needed");
      return metadata.status();
    }
    projector->sections[index++] = static_cast<int32_t>(frequencies);
  }
  projector->sections_mixed = projector->tower.name.starts_with("qwen3");
  return metadata.status();
}

}  // namespace
}  // namespace minisgl::weights

namespace minisgl {

Result<Projector> LoadProjector(const std::string& path, const std::string& model_file) {
  if (!IsGgufFile(model_file)) {
    return MakeStatus(StatusCode::kUsage,
                      "{} goes with a GGUF file; {} has the tower of its own files",
                      SettingName(Setting::kProjector), Visible(model_file, 400));
  }
  MINISGL_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  Result<Projector> projector = weights::ReadProjector(file.header());
  if (!projector.ok()) return projector.status().WithPrefix(Visible(path, 400));
  MINISGL_ASSIGN_OR_RETURN(const GgufFile text, GgufFile::Open(model_file));
  const Status fits = weights::TakeText(text.header(), &*projector);
  if (!fits.ok()) return fits.WithPrefix(Visible(path, 400));
  return projector;
}

Status CheckIsNoProjector(const std::string& path) {
  if (!IsGgufFile(path)) return Status();
  const Result<GgufFile> file = GgufFile::Open(path);
  if (!file.ok() || !weights::IsProjector(file->header())) return Status();
  return BadInput(
      "{}: is a projector, which reads pictures for a model; give it with {} beside "
      "the model's own file",
      Visible(path, 400), SettingName(Setting::kProjector));
}

Status PrepareText(const Projector& projector, ModelConfig* text) {
  text->picture_attention = projector.attention;
  const auto& sections = projector.sections;
  const int32_t sum = sections[0] + sections[1] + sections[2];
  if (sum == 0) return Status();
  for (RopeConfig& rope : text->ropes) {
    if (sum != rope.dim / 2) {
      return BadInput("key \"rope.dimension_sections\": {} frequencies are needed (found {})",
                      rope.dim / 2, sum);
    }
    rope.sections = sections;
    rope.sections_mixed = projector.sections_mixed;
  }
  return Status();
}

}  // namespace minisgl
