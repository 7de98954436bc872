// One list of arrays, used to allocate them and to count their bytes; and operations over rows.
#include "model/tower_workspace.h"

#include <algorithm>
#include <vector>

#include "minisgl/base/checked_math.h"

namespace minisgl::model {
namespace {

struct TowerActivations {
  ActivationArray* array;
  uint64_t rows, width;
};
struct TowerFloats {
  DeviceArray<float>* array;
  uint64_t rows, width;
};
struct TowerIntegers {
  DeviceArray<int32_t>* array;
  uint64_t rows, width;
};
struct TowerArrays {
  std::vector<TowerActivations> activations;
  std::vector<TowerFloats> floats;
  std::vector<TowerIntegers> integers;
};

// The features of a step's input or output that come of one patch, rounded up; the most of all.
uint64_t StepWidth(const TowerConfig& config, const std::vector<TowerStep>& steps) {
  const auto patches = static_cast<uint64_t>(config.unit_patches());
  auto width = static_cast<uint64_t>(config.hidden_size);
  uint64_t divisor = 1, most = width;
  for (const TowerStep& step : steps) {
    const bool joins = step.kind == TowerStepKind::kJoin;
    if (joins) width *= patches;
    if (joins || step.kind == TowerStepKind::kPool) divisor = patches;
    if (step.kind == TowerStepKind::kLinear) width = static_cast<uint64_t>(step.width);
    most = std::max(most, width / divisor + (width % divisor != 0));
  }
  return most;
}

// The inner features of the widest feed-forward part.
uint64_t InnerWidth(const TowerConfig& config) {
  int64_t width = config.intermediate_size;
  for (const TowerStep& step : config.steps) {
    if (step.kind == TowerStepKind::kGated) width = std::max(width, step.width);
  }
  return static_cast<uint64_t>(width);
}

void ListStepArrays(const TowerConfig& config, uint64_t rows, TowerWorkspace* space,
                    TowerArrays* arrays) {
  uint64_t width = StepWidth(config, config.steps);
  for (const auto& steps : config.deepstack_steps) {
    width = std::max(width, StepWidth(config, steps));
  }
  for (ActivationArray& array : space->step) arrays->activations.push_back({&array, rows, width});
  arrays->floats.push_back({&space->pool_shares, rows, 1});
  arrays->floats.push_back({&space->ones, rows, 1});
  arrays->integers.push_back({&space->pool_rows, rows, 1});
  arrays->integers.push_back({&space->unit_rows, rows, 1});
}

TowerArrays ListTowerArrays(const TowerConfig& config, int64_t max_rows, TowerWorkspace* space) {
  const auto rows = static_cast<uint64_t>(max_rows);
  const auto chunk = static_cast<uint64_t>(std::min(max_rows, kFeedForwardRows));
  const auto hidden = static_cast<uint64_t>(config.hidden_size);
  const auto width = static_cast<uint64_t>(config.attention_width());
  const uint64_t inner = InnerWidth(config);
  TowerArrays arrays;
  arrays.floats = {{&space->residual, rows, hidden}};
  arrays.activations = {{&space->patches, rows, static_cast<uint64_t>(config.patch_values())},
                        {&space->hidden, rows, hidden},
                        {&space->query, rows, width},
                        {&space->key, rows, width},
                        {&space->value, rows, width},
                        {&space->attention, rows, width},
                        {&space->up, chunk, inner},
                        {&space->gate, chunk, inner},
                        {&space->branch, chunk, hidden}};
  if (config.clips) {
    // chunk * inner: factors below 2^45
    const uint64_t widest = std::max(rows * std::max(hidden, width), chunk * inner);
    arrays.activations.push_back({&space->clipped, widest, 1});
  }
  if (config.rotation != TowerRotation::kNone) {
    const auto pairs = static_cast<uint64_t>(config.head_dim / 2);
    arrays.floats.push_back({&space->cos, rows, pairs});
    arrays.floats.push_back({&space->sin, rows, pairs});
    arrays.integers.push_back({&space->positions, rows, 1});
  }
  if (config.places != TowerPlaces::kNone) {
    const auto count = static_cast<uint64_t>(PlacesPerRow(config));
    arrays.floats.push_back({&space->place_shares, rows, count});
    arrays.integers.push_back({&space->place_rows, rows, count});
  }
  ListStepArrays(config, rows, space, &arrays);
  return arrays;
}

}  // namespace

Result<TowerWorkspace> MakeTowerWorkspace(const TowerConfig& config, int64_t max_rows, Ops* ops) {
  TowerWorkspace space;
  space.max_rows = max_rows;
  space.dtype = ops->activation_dtype();
  const TowerArrays arrays = ListTowerArrays(config, max_rows, &space);
  for (const auto& [array, rows, width] : arrays.activations) {
    MINISGL_ASSIGN_OR_RETURN(
        *array, ActivationArray::Make(ops, space.dtype, {std::max<uint64_t>(1, rows), width}));
  }
  for (const auto& [array, rows, width] : arrays.floats) {
    MINISGL_ASSIGN_OR_RETURN(*array, DeviceArray<float>::Make(ops, {rows, width}));
  }
  for (const auto& [array, rows, width] : arrays.integers) {
    MINISGL_ASSIGN_OR_RETURN(*array, DeviceArray<int32_t>::Make(ops, {rows, width}));
  }
  const std::vector<float> ones(static_cast<size_t>(max_rows), 1.0f);
  MINISGL_RETURN_IF_ERROR(ops->Upload(space.ones.data(), ones.data(), ones.size() * sizeof(float)));
  return space;
}

std::optional<uint64_t> CountTowerWorkspace(const TowerConfig& config, int64_t max_rows,
                                            DType dtype) {
  TowerWorkspace space;
  const TowerArrays arrays = ListTowerArrays(config, max_rows, &space);
  std::optional<uint64_t> sum = 0;
  const auto add = [&sum](uint64_t rows, uint64_t width, uint64_t element_bytes) {
    auto bytes = CheckedMul(rows, width);
    if (bytes) bytes = CheckedMul(std::max<uint64_t>(1, *bytes), element_bytes);
    sum = sum && bytes ? CheckedAdd(*sum, *bytes) : std::nullopt;
  };
  for (const TowerActivations& one : arrays.activations)
    add(one.rows, one.width, DTypeBytes(dtype));
  for (const TowerFloats& one : arrays.floats) add(one.rows, one.width, sizeof(float));
  for (const TowerIntegers& one : arrays.integers) add(one.rows, one.width, sizeof(int32_t));
  return sum;
}

void MultiplyRows(const TowerRun& run, const TowerMatrix& matrix, ConstActivationPtr x,
                  int64_t num_rows, ActivationPtr out, int64_t out_stride) {
  const int64_t width = matrix.weight.num_in, num_out = matrix.weight.num_out;
  if (matrix.of_inputs) {
    const ActivationPtr clipped = run.space.clipped.ptr();
    NormalizeRows(run, TowerNorm(), x, num_rows, width, clipped);
    run.ops->Clamp({clipped, num_rows * width, matrix.of_inputs->low, matrix.of_inputs->high});
    x = clipped;
  }
  run.ops->Linear({.x = x,
                   .weight = &matrix.weight,
                   .bias = matrix.bias.data(),
                   .out = out,
                   .num_tokens = num_rows,
                   .next = nullptr,
                   .out_stride = out_stride});
  if (matrix.of_outputs) {
    run.ops->Clamp({out, num_rows * num_out, matrix.of_outputs->low, matrix.of_outputs->high});
  }
}

void NormalizeRows(const TowerRun& run, const TowerNorm& norm, ConstActivationPtr x,
                   int64_t num_rows, int64_t width, ActivationPtr out, int64_t group_width) {
  run.ops->Norm({.x = x,
                 .residual = nullptr,
                 .weight = norm.weight.data(),
                 .out = out,
                 .num_tokens = num_rows,
                 .width = width,
                 .eps = norm.eps,
                 .kind = norm.kind,
                 .bias = norm.bias.data(),
                 .group_width = group_width});
}

void NormalizeResidual(const TowerRun& run, const TowerNorm& norm) {
  const TowerWorkspace& space = run.space;
  const int64_t width = run.config.hidden_size;
  if (space.dtype == DType::kF32) {
    NormalizeRows(run, norm, space.residual.data(), run.num_rows(), width, space.hidden.ptr());
    return;
  }
  // As after an addition of nothing, whose result has the dtype of activations.
  run.ops->Norm({.x = nullptr,
                 .residual = space.residual.data(),
                 .weight = norm.weight.data(),
                 .out = space.hidden.ptr(),
                 .num_tokens = run.num_rows(),
                 .width = width,
                 .eps = norm.eps,
                 .kind = norm.kind,
                 .bias = norm.bias.data()});
}

// A norm of vectors whose mean square is known to be 1.
void ScaleRows(const TowerRun& run, const DeviceArray<float>& factors,
               const DeviceArray<float>& summands, int64_t num_rows, int64_t width,
               ConstActivationPtr x, ActivationPtr out) {
  run.ops->Norm({.x = x,
                 .residual = nullptr,
                 .weight = factors.data(),
                 .out = out,
                 .num_tokens = num_rows,
                 .width = width,
                 .eps = 0,
                 .bias = summands.data(),
                 .mean_squares = run.space.ones.data()});
}

void AddRows(const TowerRun& run, ConstActivationPtr x, int64_t num_rows, int64_t width,
             float* residual) {
  run.ops->Norm({.x = x,
                 .residual = residual,
                 .weight = nullptr,
                 .out = nullptr,
                 .num_tokens = num_rows,
                 .width = width,
                 .eps = 0});
}

void RunFeedForward(const TowerRun& run, const FeedForward& part, ConstActivationPtr x,
                    int64_t num_rows, ActivationPtr out, int64_t out_stride) {
  const int64_t width = part.up.weight.num_in, inner = part.up.weight.num_out;
  const int64_t num_out = part.down.weight.num_out;
  const int64_t stride = out_stride == 0 ? num_out : out_stride;
  const ActivationPtr up = run.space.up.ptr();
  const ActivationPtr gate = part.gate == nullptr ? up : run.space.gate.ptr();
  const int64_t rows_max = std::min(run.space.max_rows, kFeedForwardRows);
  for (int64_t first = 0; first < num_rows; first += rows_max) {
    const int64_t count = std::min(rows_max, num_rows - first);
    const ConstActivationPtr in = x.At(first * width);
    MultiplyRows(run, part.up, in, count, up);
    if (part.gate != nullptr) MultiplyRows(run, *part.gate, in, count, gate);
    ActivateParams activate = {.gate_up = gate,
                               .out = gate,
                               .num_tokens = count,
                               .width = inner,
                               .activation = part.activation,
                               .gated = false,
                               .limit = part.limit,
                               .xielu = {}};
    if (part.gate != nullptr) {
      activate.up = up;
      activate.up_stride = inner;
    }
    run.ops->Activate(activate);
    MultiplyRows(run, part.down, gate, count, out.At(first * stride), stride);
  }
}

}  // namespace minisgl::model
