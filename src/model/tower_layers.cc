// The parts of a tower's layer: attention in both directions, and feed-forward.
#include <algorithm>

#include "model/tower_workspace.h"

namespace minisgl::model {
namespace {

// Passes what a part gives through its norm and its factors, in place.
void FinishPart(const TowerRun& run, const TowerNorm& norm, const DeviceArray<float>& factor,
                int64_t num_rows, ActivationPtr x) {
  const int64_t width = run.config.hidden_size;
  if (norm.weight.data() != nullptr) NormalizeRows(run, norm, x, num_rows, width, x);
  if (factor.data() != nullptr) ScaleRows(run, factor, {}, num_rows, width, x, x);
}

void Turn(const TowerRun& run, ActivationPtr heads) {
  run.ops->RopeKvWrite({.qkv = heads,
                        .positions = run.space.positions.data(),
                        .slots = nullptr,
                        .cos = run.space.cos.data(),
                        .sin = run.space.sin.data(),
                        .kv = {},
                        .num_tokens = run.num_rows(),
                        .num_heads = run.config.num_heads,
                        .num_kv_heads = 0,
                        .head_dim = run.config.head_dim,
                        .rotary_dim = run.config.head_dim});
}

// Queries, keys and values of the rows in space.hidden, normalised and turned.
void MakeHeads(const TowerRun& run, const TowerLayer& layer) {
  const TowerConfig& config = run.config;
  const TowerWorkspace& space = run.space;
  const int64_t rows = run.num_rows(), width = config.attention_width();
  const int64_t group = config.head_norms ? config.head_dim : 0;
  struct Part {
    const TowerMatrix& matrix;
    const TowerNorm& norm;
    ActivationPtr out;
  };
  for (const Part& part : {Part{layer.query, layer.query_norm, space.query.ptr()},
                           Part{layer.key, layer.key_norm, space.key.ptr()}}) {
    MultiplyRows(run, part.matrix, space.hidden.ptr(), rows, part.out);
    if (part.norm.weight.data() != nullptr) {
      NormalizeRows(run, part.norm, part.out, rows, width, part.out, group);
    }
    if (config.rotation != TowerRotation::kNone) Turn(run, part.out);
  }
  MultiplyRows(run, layer.value, space.hidden.ptr(), rows, space.value.ptr());
  if (!config.value_norm) return;
  TowerNorm norm;
  norm.weight = run.weights.value_ones;
  norm.eps = static_cast<float>(config.norm_eps);
  NormalizeRows(run, norm, space.value.ptr(), rows, width, space.value.ptr(), config.head_dim);
}

}  // namespace

void RunTowerAttention(const TowerRun& run, int32_t index) {
  const TowerConfig& config = run.config;
  const TowerWorkspace& space = run.space;
  const TowerLayer& layer = run.weights.layers[static_cast<size_t>(index)];
  const int64_t rows = run.num_rows(), width = config.hidden_size;
  float* const residual = space.residual.data();
  const ActivationPtr hidden = space.hidden.ptr();
  NormalizeResidual(run, layer.norm1);
  MakeHeads(run, layer);
  const bool is_whole = run.window_begin.empty() ||
                        std::find(config.whole_layers.begin(), config.whole_layers.end(), index) !=
                            config.whole_layers.end();
  const auto& segments = is_whole ? run.tile_begin : run.window_begin;
  run.ops->SegmentAttention({.q = space.query.ptr(),
                             .k = space.key.ptr(),
                             .v = space.value.ptr(),
                             .out = space.attention.ptr(),
                             .segment_begin = segments.data(),
                             .num_segments = static_cast<int32_t>(segments.size()) - 1,
                             .num_heads = config.num_heads,
                             .head_dim = config.head_dim,
                             .scale = static_cast<float>(config.attention_scale)});
  MultiplyRows(run, layer.output, space.attention.ptr(), rows, hidden);
  FinishPart(run, layer.post_norm1, layer.factor1, rows, hidden);
  AddRows(run, hidden, rows, width, residual);
}

void RunTowerFeedForward(const TowerRun& run, int32_t index) {
  const TowerConfig& config = run.config;
  const TowerWorkspace& space = run.space;
  const TowerLayer& layer = run.weights.layers[static_cast<size_t>(index)];
  const int64_t rows = run.num_rows(), width = config.hidden_size;
  float* const residual = space.residual.data();
  const ActivationPtr hidden = space.hidden.ptr();
  NormalizeResidual(run, layer.norm2);
  const FeedForward part = {config.gated ? &layer.gate : nullptr, layer.up, layer.down,
                            config.activation, config.activation_limit};
  const int64_t rows_max = std::min(space.max_rows, kFeedForwardRows);
  for (int64_t first = 0; first < rows; first += rows_max) {
    const int64_t count = std::min(rows_max, rows - first);
    const ActivationPtr branch = space.branch.ptr();
    RunFeedForward(run, part, hidden.At(first * width), count, branch);
    FinishPart(run, layer.post_norm2, layer.factor2, count, branch);
    AddRows(run, branch, count, width, residual + first * width);
  }
}

}  // namespace minisgl::model
