// The table of towers: for each family the features that no configuration states, the names of its
// tensors, and a reader of its keys.
#pragma once

#include <string_view>

#include "minisgl/weights/tower_config.h"
#include "weights/field_reader.h"

namespace minisgl::weights {

inline constexpr IntRange kTowerWidthRange = {1, 1 << 20};
inline constexpr IntRange kTowerLayersRange = {1, 1000};
inline constexpr IntRange kTowerHeadsRange = {1, 1 << 12};
inline constexpr IntRange kPatchSizeRange = {1, 1 << 8};
inline constexpr IntRange kFramesRange = {1, 16};
inline constexpr IntRange kUnitSideRange = {1, 16};
inline constexpr IntRange kImageSizeRange = {1, 1 << 16};

// What a reader of a family reads: the configuration of the tower, and of the whole model.
struct TowerKeys {
  FieldReader* vision;
  FieldReader* model;
  FieldReader* text;  // text_config, or the whole
};

struct TowerFamily {
  const char* model_type;   // of the model
  const char* vision_type;  // of vision_config; "": any
  void (*read)(const TowerKeys& keys, TowerConfig* config);
  const char* vision_default = "";  // of a vision_config without model_type, if families share one
};

// The family of a model, or null.
const TowerFamily* FindTowerFamily(std::string_view model_type, std::string_view vision_type);
// True if some family has this model_type.
bool HasTowerFamily(std::string_view model_type);

// --- readers of single keys, shared by families --------------------------------------------------

// Sizes under the names of SigLIP and CLIP, whose absent keys have the given values.
struct TowerSizes {
  int64_t hidden, intermediate, layers, heads, image, patch;
};
void ReadTowerSizes(const TowerSizes& absent, FieldReader* vision, TowerConfig* config);
// Sets head_dim and attention_scale. Fails unless heads divide the hidden size, and, if queries
// turn, the size of a head is a multiple of 4.
void SetTowerHeads(std::string_view heads_key, FieldReader* vision, TowerConfig* config);
void ReadTowerActivation(std::string_view key, std::string_view absent, FieldReader* vision,
                         TowerConfig* config);
// The activation of a projector, which must be GELU.
void CheckProjectorActivation(FieldReader* model);
// A number of pixels, or [height, width] of two equal ones.
int32_t ReadSide(std::string_view key, IntRange range, int64_t absent, FieldReader* vision);
// Runs as many layers as the key asks for (-1: all; k >= 0: the first k). Fails for lists.
void ReadFeatureLayer(int64_t absent, FieldReader* model, TowerConfig* config);
// The base of the rotation's frequencies: rope_theta, or rope_parameters.rope_theta.
double ReadTowerTheta(double absent, FieldReader* vision);

// --- families, in files of their own -------------------------------------------------------------

void ReadQwen2Vl(const TowerKeys& keys, TowerConfig* config);
void ReadQwen25Vl(const TowerKeys& keys, TowerConfig* config);
void ReadQwen3Vl(const TowerKeys& keys, TowerConfig* config);
void ReadGlm4v(const TowerKeys& keys, TowerConfig* config);

void ReadGemma3(const TowerKeys& keys, TowerConfig* config);
void ReadGemma4(const TowerKeys& keys, TowerConfig* config);
void ReadLlavaClip(const TowerKeys& keys, TowerConfig* config);
void ReadLlavaSiglip(const TowerKeys& keys, TowerConfig* config);
void ReadLlavaPixtral(const TowerKeys& keys, TowerConfig* config);
void ReadLlavaOneVision(const TowerKeys& keys, TowerConfig* config);
void ReadMistral3(const TowerKeys& keys, TowerConfig* config);
void ReadIdefics3(const TowerKeys& keys, TowerConfig* config);
void ReadInternVl(const TowerKeys& keys, TowerConfig* config);
void ReadLlama4(const TowerKeys& keys, TowerConfig* config);

}  // namespace minisgl::weights
