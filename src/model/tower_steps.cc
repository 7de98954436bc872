// From the last layer's rows to embeddings: norms, units joined or pooled, projectors.
#include "minisgl/base/check.h"
#include "model/tower_workspace.h"

namespace minisgl::model {
namespace {

// Rows between two steps: in one of space.step, in the residual or in space.hidden.
struct Rows {
  ConstActivationPtr data;
  int64_t count, width;
};

// The patches of units side by side, as the steps need them.
Rows FirstRows(const TowerRun& run, bool is_last) {
  const TowerWorkspace& space = run.space;
  const int64_t width = run.config.hidden_size;
  ConstActivationPtr x = space.hidden.ptr();
  if (is_last && !run.config.names.last_norm.empty()) {
    NormalizeResidual(run, run.weights.last_norm);
  } else if (space.dtype != DType::kF32) {
    NormalizeResidual(run, TowerNorm());
  } else {
    x = space.residual.data();
  }
  if (run.layout.is_in_unit_order) return {x, run.num_patches(), width};
  const ActivationPtr gathered = space.step[0].ptr();
  run.ops->GatherRows({.x = x,
                       .rows = space.unit_rows.data(),
                       .out = gathered,
                       .num_rows = run.num_patches(),
                       .width = width});
  return {gathered, run.num_patches(), width};
}

// True if a step's output may have another dtype than its input.
bool IsProduct(TowerStepKind kind) {
  return kind == TowerStepKind::kLinear || kind == TowerStepKind::kGated;
}

// Runs a step to `out`, and returns what it has written. kJoin writes nothing.
Rows RunStep(const TowerRun& run, const TowerStep& step, const TowerStepWeights& weights,
             const Rows& in, ActivationPtr out, int64_t out_stride) {
  const int64_t patches = run.config.unit_patches();
  switch (step.kind) {
    case TowerStepKind::kNorm:
      NormalizeRows(run, weights.norm, in.data, in.count, in.width, out);
      break;
    case TowerStepKind::kScale:
      ScaleRows(run, weights.norm.weight, weights.norm.bias, in.count, in.width, in.data, out);
      break;
    case TowerStepKind::kJoin:
      return {in.data, in.count / patches, in.width * patches};
    case TowerStepKind::kPool:
      run.ops->MixRows({.x = in.data,
                        .rows = run.space.pool_rows.data(),
                        .shares = run.space.pool_shares.data(),
                        .out = out,
                        .num_rows = in.count / patches,
                        .width = in.width,
                        .num_per_row = static_cast<int32_t>(patches)});
      return {out, in.count / patches, in.width};
    case TowerStepKind::kLinear:
      MultiplyRows(run, weights.matrix, in.data, in.count, out, out_stride);
      return {out, in.count, step.width};
    case TowerStepKind::kActivate:
      run.ops->Activate({.gate_up = in.data,
                         .out = out,
                         .num_tokens = in.count,
                         .width = in.width,
                         .activation = step.activation,
                         .gated = false,
                         .xielu = {}});
      break;
    case TowerStepKind::kGated:
      RunFeedForward(run, {&weights.matrix, weights.up, weights.down, step.activation}, in.data,
                     in.count, out, out_stride);
      break;
  }
  return {out, in.count, in.width};
}

}  // namespace

void RunTowerSteps(const TowerRun& run, const std::vector<TowerStep>& steps,
                   const std::vector<TowerStepWeights>& weights, bool is_last, float* out,
                   int64_t out_stride) {
  Rows rows = FirstRows(run, is_last);
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool is_end = i + 1 == steps.size();
    const bool is_in_first = rows.data.data == run.space.step[0].ptr().data;
    const ActivationPtr to =
        is_end ? ActivationPtr(out) : run.space.step[is_in_first ? 1 : 0].ptr();
    MINISGL_CHECK(!is_end || IsProduct(steps[i].kind) || run.space.dtype == DType::kF32,
                  "a last step whose result is not f32");
    rows = RunStep(run, steps[i], weights[i], rows, to, is_end ? out_stride : 0);
  }
}

}  // namespace minisgl::model
