// The configuration of a multimodal model's tower, read from config.json: sizes, and the features
// in which families differ, as one table. src/model/tower.cc computes it.
//
// Files are untrusted: numbers are checked when they are read, so that products of two of them fit
// int64_t.
//
// Letters: D hidden_size, H num_heads, E head_dim, I intermediate_size, P patch_size, F num_frames,
// M unit_side.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/model_kinds.h"
#include "minisgl/tensor/dtype.h"
#include "minisgl/weights/quantization_config.h"

namespace minisgl {

// How a picture's values are patches (PatchOrder of minisgl/vision/image_rules.h).
enum class TowerPatches : uint8_t {
  kBlocks,  // in blocks of M x M
  kRows,    // row by row
  kTiles,   // the tower cuts tiles [3, height, width]
};

// What is added to the embedding of a patch for its place.
enum class TowerPlaces : uint8_t {
  kNone,
  kTable,      // a row for each patch of a tile, and for the class token
  kBilinear,   // a square table for pictures of any size: corners on corners
  kBicubic,    // the same, with half-pixel centres
  kTwoTables,  // a row for the column of a patch, plus a row for its row
};

// How queries and keys turn. The frequencies of one half of a head's pairs turn by the row of the
// patch, those of the other half by its column.
enum class TowerRotation : uint8_t {
  kNone,
  kRowsFirst,    // pairs (i, i + E/2); the first half by the row
  kAlternating,  // the same, and frequencies are dealt to rows and columns in turn
  kHalves,       // the first half of the head by the column, the second by the row, each in itself
  kPairs,        // pairs (2i, 2i + 1); the first half by the column + 1, the others by the row + 1
};

enum class TowerClassToken : uint8_t { kNone, kFirst, kLast };

// One step from the last layer's output to embeddings. Rows are patches, unit by unit of M x M,
// until kJoin or kPool makes rows of units.
enum class TowerStepKind : uint8_t {
  kNorm,
  kScale,     // (x - NAME_bias) * NAME_scale
  kJoin,      // the patches of a unit side by side
  kPool,      // their mean, times `factor`
  kLinear,    // a matrix to `width` features
  kActivate,  // an activation
  kGated,     // a gated feed-forward part of inner width `width`; the width stays
};

struct TowerStep {
  TowerStepKind kind = TowerStepKind::kLinear;
  // The name of its tensors, as in TowerNames; kNorm: "" if it has no weights.
  std::string name;
  int64_t width = 0;
  bool has_bias = false;
  NormKind norm = NormKind::kRms;
  double eps = 0;
  bool plus_one = false;  // kNorm: weights are stored less 1
  double factor = 1;
  Activation activation = Activation::kGelu;
  bool by_channel = false;     // kLinear: inputs are stored [D, M, M], not [M, M, D]
  bool is_transposed = false;  // kLinear: stored as NAME [in, out]
};

// Names of tensors, in the tower or, with a leading '/', in the model. Matrices, norms and biases
// are NAME.weight and NAME.bias. "": the tower has none.
struct TowerNames {
  std::string prefix;  // "visual."
  std::string patch, patch_norm, first_norm, last_norm;
  std::string class_token, places;  // whole names
  std::string layers;               // before a layer's number; the others are in a layer
  std::string norm1, qkv, query, key, value, query_norm, key_norm, output, post_norm1;
  std::string norm2, gate, up, down, post_norm2;
  std::string factor1, factor2;  // whole names
  std::string newline;           // whole name, in the model
};

struct TowerConfig {
  std::string name;              // the family, as reports name it
  int32_t text_hidden_size = 0;  // floats of an embedding
  int32_t num_deepstack = 0;     // further vectors of each embedding

  DType dtype = DType::kF32;        // of published weights, or of what codes are expanded to
  QuantizationConfig quantization;  // of the model; most towers are dense all the same
  TowerNames names;
  int64_t hidden_size = 0, intermediate_size = 0;
  int32_t num_layers = 0;  // that are run: later ones of the file are not read
  int32_t num_heads = 0, head_dim = 0;

  TowerPatches patches = TowerPatches::kTiles;
  int32_t patch_size = 0, num_frames = 1;
  bool patch_bias = false;
  bool doubles_values = false;  // values v of 0..1 are read as 2 v - 1
  int32_t tile_side = 0;        // patches a side of a tile; 0: any
  int32_t unit_side = 1;        // patches a side of what becomes one embedding

  TowerPlaces places = TowerPlaces::kNone;
  int32_t places_side = 0;  // of a table that is read by interpolation, or rows of each of two
  TowerClassToken class_token = TowerClassToken::kNone;

  NormKind norm = NormKind::kLayer;
  double norm_eps = 1e-6;
  bool last_norm_is_layer = false;  // kLayer, whatever the others are
  TowerRotation rotation = TowerRotation::kNone;
  double rope_theta = 10000;
  bool qkv_bias = true, output_bias = true, feed_forward_bias = true;
  // query_norm and key_norm: head by head, or all heads as one vector.
  bool head_norms = false;
  bool value_norm = false;  // head by head, without weights
  double attention_scale = 1;
  Activation activation = Activation::kGelu;
  float activation_limit = 0;  // ActivateParams::limit
  bool gated = false;
  bool clips = false;  // inputs and outputs of a layer's matrices are clamped to stored bounds

  // Attention stays inside windows of this many units a side, except in the layers listed; 0: none.
  int32_t window_units = 0;
  std::vector<int32_t> whole_layers;  // ascending

  std::vector<TowerStep> steps;
  // The layers after which further vectors are made, by steps of their own.
  std::vector<int32_t> deepstack_layers;
  std::vector<std::vector<TowerStep>> deepstack_steps;
  // Tiles are laid out as one grid with a newline's embedding after each row (LLaVA-OneVision).
  bool packs_tiles = false;

  int64_t patch_values() const { return int64_t{3} * num_frames * patch_size * patch_size; }
  int64_t attention_width() const { return int64_t{num_heads} * head_dim; }
  int32_t unit_patches() const { return unit_side * unit_side; }
};

// The tower in the contents of config.json; nullopt: the model has none. kBadInput: a key has a
// wrong type or value, with its name. kUnavailable: this program has no such tower, with the
// family's name; the text of the model may run all the same.
Result<std::optional<TowerConfig>> ReadTowerConfig(const Json& config);

}  // namespace minisgl
