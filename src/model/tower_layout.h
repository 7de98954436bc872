// Where each patch of a picture is in a tower: the order of rows, attention's segments, and the
// tables of places and rotations. Pure; host memory.
#pragma once

#include <cstdint>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/vision/image_layout.h"
#include "minisgl/weights/tower_config.h"

namespace minisgl::model {

// One tile, or a whole picture without tiles. Its rows are its patches, in the order that the
// layers have them, and the class token.
struct TowerLayout {
  int64_t num_tiles = 1;
  int64_t num_patches = 0;  // of a tile
  int64_t num_rows = 0;     // of a tile: patches and the class token
  int64_t num_units = 0;    // of a tile
  int64_t class_row = -1;   // -1: there is none
  int64_t first_patch = 0;  // the row of the first patch
  // [num_patches] of each patch in order of rows:
  std::vector<int32_t> row, column;  // its place in the tile
  std::vector<int32_t> value_index;  // its index among the picture's values, of kBlocks and kRows
  // [num_patches] the row of each patch in order of units, row by row in each.
  std::vector<int32_t> unit_rows;
  bool is_in_unit_order = false;  // unit_rows are 0, 1, 2, ...
  // Segments of the layers with windows: [S + 1] rows. Empty: there are none.
  std::vector<int32_t> window_begin;
};

// kBadInput: pictures of this layout do not fit the tower (the two are of different files).
Result<TowerLayout> LayOutTower(const TowerConfig& config, const ImageLayout& image);

// Sums of rows of a table: MixRowsParams.
struct RowMix {
  int32_t num_per_row = 0;
  std::vector<int32_t> rows;
  std::vector<float> shares;

  void Add(int64_t row, double share) {
    rows.push_back(static_cast<int32_t>(row));
    shares.push_back(static_cast<float>(share));
  }
};

// Rows of TowerWeights::places for each row of a tile. Empty without places.
RowMix MixPlaces(const TowerConfig& config, const ImageLayout& image, const TowerLayout& layout);
int32_t PlacesPerRow(const TowerConfig& config);

// The rotation's cosines and sines [num_rows, E / 2] of a tile. Empty without a rotation.
void MakeTowerRotation(const TowerConfig& config, const TowerLayout& layout,
                       std::vector<float>* cos, std::vector<float>* sin);

// The mean of each of `num_units` units of consecutive rows, times `factor`.
RowMix MixUnits(int64_t num_units, int64_t unit_patches, double factor);

// The embeddings of a picture of tiles, in order of its placeholders, as sums of the tiles'
// embeddings and of the newline's, which stands after all of them (TowerConfig::packs_tiles).
RowMix MixPackedTiles(const ImageLayout& image, const TowerLayout& layout);

}  // namespace minisgl::model
