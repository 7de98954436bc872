// The weights of a tower in an engine: one list of them, used to pack them and to count their
// bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/device_array.h"
#include "minisgl/ops.h"
#include "minisgl/tensor/weight_format.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/tower_config.h"

namespace minisgl::model {

struct TowerNorm {
  DeviceArray<float> weight, bias;  // null: there is none
  NormKind kind = NormKind::kRms;
  float eps = 0;
};

// Bounds that inputs or outputs of a matrix are clamped to.
struct TowerBounds {
  float low = 0, high = 0;
};

struct TowerMatrix {
  Matrix weight;
  DeviceArray<float> bias;  // null: there is none
  std::optional<TowerBounds> of_inputs, of_outputs;
};

struct TowerLayer {
  TowerNorm norm1, norm2, post_norm1, post_norm2;
  TowerNorm query_norm, key_norm;
  TowerMatrix query, key, value, output;  // queries and keys in pairs (i, i + E/2)
  TowerMatrix gate, up, down;
  DeviceArray<float> factor1, factor2;  // [D] of what a part adds, or null
};

struct TowerStepWeights {
  TowerNorm norm;                // of kNorm, or the factors and summands of kScale
  TowerMatrix matrix, up, down;  // kLinear, or the gate of kGated and its others
};

struct TowerWeights {
  TowerMatrix patch;
  TowerNorm patch_norm, first_norm, last_norm;
  // [rows, D] what is added for places. With a class token the last row is its embedding with its
  // place.
  DeviceArray<float> places;
  DeviceArray<float> value_ones;  // [H * E] weights of the norm of values, or null
  std::vector<TowerLayer> layers;
  std::vector<TowerStepWeights> steps;
  std::vector<std::vector<TowerStepWeights>> deepstack;
  DeviceArray<float> newline;  // [text_hidden_size], or null
};

// Checks that `checkpoint` has every tensor in its shape, and packs them. kBadInput with the name
// of the tensor, kOutOfMemory.
Result<TowerWeights> LoadTowerWeights(const TowerConfig& config, const Checkpoint& checkpoint,
                                      const WeightFormat& format, Ops* ops);

// The same checks, of names and shapes alone.
Status CheckTowerWeights(const TowerConfig& config, const Checkpoint& checkpoint);

// Bytes of the result (matrices without the padding of their last rows). nullopt if 2^64 or more.
std::optional<uint64_t> CountTowerWeights(const TowerConfig& config, const WeightFormat& format);

// Rows of TowerWeights::places without that of the class token.
int64_t NumPlaceRows(const TowerConfig& config);

}  // namespace minisgl::model
