// The arrays of a tower, and what its parts share while a picture is encoded.
//
// N rows: patches and class tokens of the tiles that are encoded together. C: rows that pass a
// feed-forward part together, at most kFeedForwardRows: its inner features would otherwise take
// more memory than all else.
#pragma once

#include <cstdint>
#include <optional>

#include "minisgl/base/status.h"
#include "minisgl/device_array.h"
#include "minisgl/ops.h"
#include "minisgl/weights/tower_config.h"
#include "model/tower_layout.h"
#include "model/tower_weights.h"

namespace minisgl::model {

inline constexpr int64_t kFeedForwardRows = 1024;

struct TowerWorkspace {
  int64_t max_rows = 0;                          // N
  DType dtype = DType::kF32;                     // of activations
  DeviceArray<float> residual;                   // [N, D]
  ActivationArray patches;                       // [N, patch_values]
  ActivationArray hidden;                        // [N, D]
  ActivationArray query, key, value, attention;  // [N, H * E]
  ActivationArray gate, up;                      // [C, I], of the widest feed-forward part
  ActivationArray branch;                        // [C, D]
  ActivationArray clipped;                       // a matrix's inputs, clamped: [N, widest], or null
  ActivationArray step[2];                       // inputs and outputs of steps, in turn
  DeviceArray<float> cos, sin;                   // [N, E / 2]
  DeviceArray<float> ones;                       // [N]
  DeviceArray<float> place_shares;               // [N, places of a row]
  DeviceArray<int32_t> place_rows;               // likewise
  DeviceArray<float> pool_shares;                // [N]
  DeviceArray<int32_t> pool_rows;                // [N]
  DeviceArray<int32_t> unit_rows;                // [N]
  DeviceArray<int32_t> positions;                // [N] 0, 1, 2, ...
};

// With activations of the Ops' dtype. kOutOfMemory.
Result<TowerWorkspace> MakeTowerWorkspace(const TowerConfig& config, int64_t max_rows, Ops* ops);
// Bytes that MakeTowerWorkspace allocates; nullopt if 2^64 or more.
std::optional<uint64_t> CountTowerWorkspace(const TowerConfig& config, int64_t max_rows,
                                            DType dtype);

// What is encoded: tiles [first_tile, first_tile + num_tiles) of a picture.
struct TowerRun {
  const TowerConfig& config;
  const TowerWeights& weights;
  const TowerLayout& layout;
  const TowerWorkspace& space;
  Ops* ops;
  int64_t num_tiles = 0;
  std::vector<int32_t> tile_begin;    // [num_tiles + 1] rows, on the host
  std::vector<int32_t> window_begin;  // of all windows; empty without windows

  int64_t num_rows() const { return num_tiles * layout.num_rows; }
  int64_t num_patches() const { return num_tiles * layout.num_patches; }
};

// Rows are activations or f32: the inputs of a product have the dtype of activations, and all other
// inputs and outputs of one operation have one dtype.

// out = x * matrix + bias, with its bounds. `out_stride`: of consecutive rows; 0: the outputs.
void MultiplyRows(const TowerRun& run, const TowerMatrix& matrix, ConstActivationPtr x,
                  int64_t num_rows, ActivationPtr out, int64_t out_stride = 0);
// out = norm(x); out may be x. `group_width`: features that are normalised together; 0: all.
void NormalizeRows(const TowerRun& run, const TowerNorm& norm, ConstActivationPtr x,
                   int64_t num_rows, int64_t width, ActivationPtr out, int64_t group_width = 0);
// The same of the rows in space.residual, to space.hidden. A norm without weights copies them.
void NormalizeResidual(const TowerRun& run, const TowerNorm& norm);
// x = factors * x + summands (or null).
void ScaleRows(const TowerRun& run, const DeviceArray<float>& factors,
               const DeviceArray<float>& summands, int64_t num_rows, int64_t width,
               ConstActivationPtr x, ActivationPtr out);
// residual += x
void AddRows(const TowerRun& run, ConstActivationPtr x, int64_t num_rows, int64_t width,
             float* residual);
// A feed-forward part: out = down(activation(gate x) * (up x)), or down(activation(up x)) if gate
// is null. Rows of `out` are `out_stride` elements apart (0: all features).
struct FeedForward {
  const TowerMatrix* gate;
  const TowerMatrix& up;
  const TowerMatrix& down;
  Activation activation;
  float limit = 0;
};
void RunFeedForward(const TowerRun& run, const FeedForward& part, ConstActivationPtr x,
                    int64_t num_rows, ActivationPtr out, int64_t out_stride = 0);

// Writes the embeddings of patches with what stands for their places to space.residual
// (tower_patches.cc). `values`: of the tiles. kOutOfMemory.
Status EmbedPatches(const TowerRun& run, const float* values);
// The parts of a layer, in turn over space.residual (tower_layers.cc). Of the workspace nothing
// else is kept between them.
void RunTowerAttention(const TowerRun& run, int32_t layer);
void RunTowerFeedForward(const TowerRun& run, int32_t layer);
// Makes embeddings of space.residual by `steps`, one row for each unit (tower_steps.cc).
// `is_last`: after all layers, so that the tower's last norm is applied. Rows of `out` are
// `out_stride` floats apart.
void RunTowerSteps(const TowerRun& run, const std::vector<TowerStep>& steps,
                   const std::vector<TowerStepWeights>& weights, bool is_last, float* out,
                   int64_t out_stride);

}  // namespace minisgl::model
