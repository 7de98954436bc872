// From a picture's values to the rows that the layers read.
#include <algorithm>
#include <vector>

#include "minisgl/tensor/dtype.h"
#include "model/tower_workspace.h"

namespace minisgl::model {
namespace {

// Appends the patch at (row, column) of a tile [3, height, width].
void AppendPatch(const TowerConfig& config, const TowerLayout& layout, const float* tile,
                 int32_t row, int32_t column, int64_t columns, std::vector<float>* patches) {
  const int64_t size = config.patch_size, width = columns * size;
  const int64_t plane = layout.num_patches * size * size;
  for (int64_t channel = 0; channel < 3; ++channel) {
    for (int64_t y = 0; y < size; ++y) {
      const float* const from = tile + channel * plane + (row * size + y) * width + column * size;
      patches->insert(patches->end(), from, from + size);
    }
  }
}

// The patches of the run's tiles, in order of rows.
std::vector<float> ArrangePatches(const TowerRun& run, const float* values) {
  const TowerLayout& layout = run.layout;
  const int64_t patch = run.config.patch_values(), of_tile = layout.num_patches * patch;
  const int64_t columns = *std::max_element(layout.column.begin(), layout.column.end()) + 1;
  std::vector<float> patches;
  patches.reserve(static_cast<size_t>(run.num_tiles * of_tile));
  for (int64_t t = 0; t < run.num_tiles; ++t) {
    const float* const tile = values + t * of_tile;
    for (size_t i = 0; i < layout.row.size(); ++i) {
      if (run.config.patches == TowerPatches::kTiles) {
        AppendPatch(run.config, layout, tile, layout.row[i], layout.column[i], columns, &patches);
      } else {
        const float* const from = tile + layout.value_index[i] * patch;
        patches.insert(patches.end(), from, from + patch);
      }
    }
  }
  if (!run.config.doubles_values) return patches;
  for (float& value : patches) value = 2 * (value - 0.5f);
  return patches;
}

// Rounded to the dtype of activations.
Status UploadPatches(const TowerRun& run, const std::vector<float>& patches) {
  const ActivationPtr to = run.space.patches.ptr();
  if (to.dtype == DType::kF32) {
    return run.ops->Upload(to.data, patches.data(), patches.size() * sizeof(float));
  }
  std::vector<uint16_t> rounded;
  rounded.reserve(patches.size());
  for (const float value : patches) {
    rounded.push_back(to.dtype == DType::kBF16 ? FloatToBf16(value) : FloatToF16(value));
  }
  return run.ops->Upload(to.data, rounded.data(), rounded.size() * sizeof(uint16_t));
}

}  // namespace

Status EmbedPatches(const TowerRun& run, const float* values) {
  const TowerConfig& config = run.config;
  const TowerWorkspace& space = run.space;
  const std::vector<float> patches = ArrangePatches(run, values);
  MINISGL_RETURN_IF_ERROR(UploadPatches(run, patches));
  const int64_t width = config.hidden_size, of_tile = run.layout.num_patches;
  const bool has_places = config.places != TowerPlaces::kNone;
  const ActivationPtr embedded = has_places ? space.hidden.ptr() : space.residual.data();
  MultiplyRows(run, run.weights.patch, space.patches.ptr(), run.num_patches(), embedded);
  if (!config.names.patch_norm.empty()) {
    NormalizeRows(run, run.weights.patch_norm, embedded, run.num_patches(), width, embedded);
  }
  if (has_places) {
    run.ops->MixRows({.x = run.weights.places.data(),
                      .rows = space.place_rows.data(),
                      .shares = space.place_shares.data(),
                      .out = space.residual.data(),
                      .num_rows = run.num_rows(),
                      .width = width,
                      .num_per_row = PlacesPerRow(config)});
    for (int64_t t = 0; t < run.num_tiles; ++t) {
      const int64_t first = t * run.layout.num_rows + run.layout.first_patch;
      AddRows(run, embedded.At(t * of_tile * width), of_tile, width,
              space.residual.data() + first * width);
    }
  }
  if (!config.names.first_norm.empty()) {
    NormalizeRows(run, run.weights.first_norm, space.residual.data(), run.num_rows(), width,
                  space.residual.data());
  }
  return Status();
}

}  // namespace minisgl::model
