// See tower_layout.h.
#include "model/tower_layout.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace minisgl::model {
namespace {

Status DoesNotFit(const TowerConfig& config, const ImageLayout& image) {
  return BadInput(
      "pictures of {} x {} patches as the processor's files describe them do not fit the tower of "
      "{} as config.json describes it",
      image.patch_rows, image.patch_columns, config.name);
}

Status CheckFits(const TowerConfig& config, const ImageLayout& image) {
  const int64_t unit = config.unit_side;
  const bool is_tiled = image.shape.size() == 4;
  bool fits = image.patch_rows >= unit && image.patch_columns >= unit &&
              is_tiled == (config.patches == TowerPatches::kTiles);
  fits = fits && image.patch_rows % unit == 0 && image.patch_columns % unit == 0;
  if (fits && is_tiled) {
    fits = image.shape[2] / config.patch_size == image.patch_rows &&
           image.shape[3] / config.patch_size == image.patch_columns;
  } else if (fits) {
    fits = image.shape[1] == config.patch_values();
  }
  const int64_t side = config.tile_side;
  fits = fits && (side == 0 || (image.patch_rows == side && image.patch_columns == side));
  if (config.places == TowerPlaces::kTwoTables) {
    fits = fits && std::max(image.patch_rows, image.patch_columns) <= config.places_side;
  }
  return fits ? Status() : DoesNotFit(config, image);
}

// Row by row.
void PlaceInRows(const ImageLayout& image, TowerLayout* layout) {
  for (int32_t row = 0; row < image.patch_rows; ++row) {
    for (int32_t column = 0; column < image.patch_columns; ++column) {
      layout->row.push_back(row);
      layout->column.push_back(column);
    }
  }
}

// The units of a picture in the order of the layers, counted row by row: window by window, or all
// in one.
std::vector<int32_t> OrderUnits(int32_t rows, int32_t columns, int32_t window, int32_t patches,
                                TowerLayout* layout) {
  std::vector<int32_t> units;
  if (window > 0) layout->window_begin = {0};
  const int32_t height = window > 0 ? window : rows, width = window > 0 ? window : columns;
  for (int32_t top = 0; top < rows; top += height) {
    for (int32_t left = 0; left < columns; left += width) {
      for (int32_t row = top; row < std::min(rows, top + height); ++row) {
        for (int32_t column = left; column < std::min(columns, left + width); ++column) {
          units.push_back(row * columns + column);
        }
      }
      if (window > 0) {
        layout->window_begin.push_back(static_cast<int32_t>(units.size()) * patches);
      }
    }
  }
  return units;
}

// Unit by unit.
void PlaceInUnits(const TowerConfig& config, const ImageLayout& image, TowerLayout* layout) {
  const int32_t side = config.unit_side, patches = config.unit_patches();
  const int32_t columns = image.patch_columns / side;
  for (const int32_t unit :
       OrderUnits(image.patch_rows / side, columns, config.window_units, patches, layout)) {
    for (int32_t i = 0; i < patches; ++i) {
      layout->row.push_back(unit / columns * side + i / side);
      layout->column.push_back(unit % columns * side + i % side);
      layout->value_index.push_back(unit * patches + i);
    }
  }
}

void FindUnitRows(const TowerConfig& config, const ImageLayout& image, TowerLayout* layout) {
  const int32_t side = config.unit_side, columns = image.patch_columns / side;
  layout->unit_rows.resize(layout->row.size());
  layout->is_in_unit_order = layout->class_row < 0;
  for (size_t i = 0; i < layout->row.size(); ++i) {
    const int32_t row = layout->row[i], column = layout->column[i];
    const int32_t unit = row / side * columns + column / side;
    const auto at = static_cast<size_t>(unit * side * side + row % side * side + column % side);
    layout->unit_rows[at] = static_cast<int32_t>(layout->first_patch + static_cast<int64_t>(i));
    layout->is_in_unit_order = layout->is_in_unit_order && at == i;
  }
}

// Taps of an interpolation along one axis.
struct Taps {
  int32_t count = 0;
  std::array<int64_t, 4> index{};
  std::array<double, 4> share{};
};

// Place `i` of `count` in a table of `side` places whose first and last are those of the picture.
Taps LinearTaps(int64_t i, int64_t count, int64_t side) {
  const double at =
      count == 1 ? 0 : static_cast<double>(i * (side - 1)) / static_cast<double>(count - 1);
  const auto first = static_cast<int64_t>(std::floor(at));
  const double rest = at - static_cast<double>(first);
  return {2, {first, std::min(first + 1, side - 1)}, {1 - rest, rest}};
}

// The convolution of cubic pieces with a = -0.75 at the distances 1 + t, t, 1 - t and 2 - t.
std::array<double, 4> CubicShares(double t) {
  constexpr double kA = -0.75;
  const auto near = [](double x) { return ((kA + 2) * x - (kA + 3)) * x * x + 1; };
  const auto far = [](double x) { return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA; };
  return {far(t + 1), near(t), near(1 - t), far(2 - t)};
}

// Half-pixel centres; places outside the table are those of its border.
Taps CubicTaps(int64_t i, int64_t count, int64_t side) {
  const double at =
      (static_cast<double>(i) + 0.5) * static_cast<double>(side) / static_cast<double>(count) - 0.5;
  const double whole = std::floor(at);
  Taps taps = {4, {}, CubicShares(at - whole)};
  for (int64_t k = 0; k < 4; ++k) {
    taps.index[static_cast<size_t>(k)] =
        std::clamp<int64_t>(static_cast<int64_t>(whole) - 1 + k, 0, side - 1);
  }
  return taps;
}

// Place `i` of `count` in a row of `length`, by half-pixel centres, without antialiasing.
Taps ResizeTaps(int64_t i, int64_t count, int64_t length) {
  const double at = std::max(0.0, (static_cast<double>(i) + 0.5) * static_cast<double>(length) /
                                          static_cast<double>(count) -
                                      0.5);
  const auto first = std::min(static_cast<int64_t>(at), length - 1);
  const double rest = at - static_cast<double>(first);
  return {2, {first, std::min(first + 1, length - 1)}, {1 - rest, rest}};
}

void AddProducts(const Taps& rows, const Taps& columns, int64_t first, int64_t stride,
                 RowMix* mix) {
  for (size_t r = 0; r < static_cast<size_t>(rows.count); ++r) {
    for (size_t c = 0; c < static_cast<size_t>(columns.count); ++c) {
      mix->Add(first + rows.index[r] * stride + columns.index[c], rows.share[r] * columns.share[c]);
    }
  }
}

// The mix's row is one row of the table.
void AddSingle(int64_t row, RowMix* mix) {
  mix->Add(row, 1);
  for (int32_t k = 1; k < mix->num_per_row; ++k) mix->Add(row, 0);
}

// The embeddings that the tower makes of a picture.
int64_t NumTokens(const TowerConfig& config, const ImageLayout& image, const TowerLayout& layout) {
  if (!config.packs_tiles) return layout.num_units * image.num_tiles;
  if (image.overview == Overview::kNone) return image.num_tiles == 1 ? layout.num_units + 1 : 0;
  if (image.overview != Overview::kFirst) return 0;
  return layout.num_units + image.token_rows * (int64_t{image.token_columns} + 1);
}

}  // namespace

Result<TowerLayout> LayOutTower(const TowerConfig& config, const ImageLayout& image) {
  MINISGL_RETURN_IF_ERROR(CheckFits(config, image));
  TowerLayout layout;
  layout.num_tiles = image.num_tiles;
  layout.num_patches = int64_t{image.patch_rows} * image.patch_columns;
  layout.num_units = layout.num_patches / config.unit_patches();
  const bool has_class = config.class_token != TowerClassToken::kNone;
  layout.num_rows = layout.num_patches + (has_class ? 1 : 0);
  layout.first_patch = config.class_token == TowerClassToken::kFirst ? 1 : 0;
  if (has_class) layout.class_row = layout.first_patch == 1 ? 0 : layout.num_patches;
  if (config.patches == TowerPatches::kBlocks) {
    PlaceInUnits(config, image, &layout);
  } else {
    PlaceInRows(image, &layout);
    layout.value_index.resize(layout.row.size());
    std::iota(layout.value_index.begin(), layout.value_index.end(), 0);
  }
  FindUnitRows(config, image, &layout);
  if (image.num_tokens != NumTokens(config, image, layout)) return DoesNotFit(config, image);
  return layout;
}

int32_t PlacesPerRow(const TowerConfig& config) {
  switch (config.places) {
    case TowerPlaces::kNone:
      return 0;
    case TowerPlaces::kTable:
      return 1;
    case TowerPlaces::kBilinear:
      return 4;
    case TowerPlaces::kBicubic:
      return 16;
    case TowerPlaces::kTwoTables:
      break;
  }
  return 2;
}

RowMix MixPlaces(const TowerConfig& config, const ImageLayout& image, const TowerLayout& layout) {
  RowMix mix;
  mix.num_per_row = PlacesPerRow(config);
  if (mix.num_per_row == 0) return mix;
  const int64_t side = config.places_side;
  const auto num_patches = layout.row.size();
  if (layout.class_row == 0) AddSingle(layout.num_patches, &mix);
  for (size_t i = 0; i < num_patches; ++i) {
    const int64_t row = layout.row[i], column = layout.column[i];
    if (config.places == TowerPlaces::kTable) {
      AddSingle(row * image.patch_columns + column, &mix);
    } else if (config.places == TowerPlaces::kTwoTables) {
      mix.Add(column, 1);
      mix.Add(side + row, 1);
    } else {
      const auto taps = config.places == TowerPlaces::kBilinear ? LinearTaps : CubicTaps;
      AddProducts(taps(row, image.patch_rows, side), taps(column, image.patch_columns, side), 0,
                  side, &mix);
    }
  }
  if (layout.class_row > 0) AddSingle(layout.num_patches, &mix);
  return mix;
}

void MakeTowerRotation(const TowerConfig& config, const TowerLayout& layout,
                       std::vector<float>* cos, std::vector<float>* sin) {
  if (config.rotation == TowerRotation::kNone) return;
  const int64_t quarter = config.head_dim / 4;
  const bool alternates = config.rotation == TowerRotation::kAlternating;
  const bool rows_first = alternates || config.rotation == TowerRotation::kRowsFirst;
  const int64_t shift = config.rotation == TowerRotation::kPairs ? 1 : 0;
  // The frequency of pair `i` of the half that turns by the first (0) or second coordinate.
  const auto frequency = [&](int64_t i, int64_t half) {
    const int64_t index = alternates ? 2 * i + half : i;
    const int64_t count = alternates ? 2 * quarter : quarter;
    return std::pow(config.rope_theta, -static_cast<double>(index) / static_cast<double>(count));
  };
  std::vector<float> frequencies;
  for (int64_t half = 0; half < 2; ++half) {
    for (int64_t i = 0; i < quarter; ++i) {
      frequencies.push_back(static_cast<float>(frequency(i, half)));
    }
  }
  for (int64_t r = 0; r < layout.num_rows; ++r) {
    const bool turns = r != layout.class_row;
    const auto patch = static_cast<size_t>(r - layout.first_patch);
    for (int64_t i = 0; i < 2 * quarter; ++i) {
      double angle = 0;
      if (turns) {
        const bool by_row = (i < quarter) == rows_first;
        const int64_t place = (by_row ? layout.row[patch] : layout.column[patch]) + shift;
        angle = static_cast<float>(place) * frequencies[static_cast<size_t>(i)];
      }
      cos->push_back(static_cast<float>(std::cos(angle)));
      sin->push_back(static_cast<float>(std::sin(angle)));
    }
  }
}

RowMix MixUnits(int64_t num_units, int64_t unit_patches, double factor) {
  RowMix mix;
  mix.num_per_row = static_cast<int32_t>(unit_patches);
  for (int64_t i = 0; i < num_units * unit_patches; ++i) {
    mix.Add(i, factor / static_cast<double>(unit_patches));
  }
  return mix;
}

RowMix MixPackedTiles(const ImageLayout& image, const TowerLayout& layout) {
  RowMix mix;
  mix.num_per_row = 4;
  const int64_t of_tile = layout.num_units, newline = of_tile * layout.num_tiles;
  for (int64_t i = 0; i < of_tile; ++i) AddSingle(i, &mix);
  if (image.overview == Overview::kNone) {  // a single tile, and one newline
    AddSingle(newline, &mix);
    return mix;
  }
  const int64_t side = image.patch_columns;
  const int64_t rows = side * image.tile_rows - 2 * int64_t{image.cut_rows};
  const int64_t columns = side * image.tile_columns - 2 * int64_t{image.cut_columns};
  // The embedding at a place of the grid that is left after the cut.
  const auto index = [&](int64_t row, int64_t column) {
    row += image.cut_rows;
    column += image.cut_columns;
    const int64_t tile = 1 + row / side * image.tile_columns + column / side;
    return tile * of_tile + row % side * side + column % side;
  };
  for (int64_t row = 0; row < image.token_rows; ++row) {
    const Taps of_rows = ResizeTaps(row, image.token_rows, rows);
    for (int64_t column = 0; column < image.token_columns; ++column) {
      const Taps of_columns = ResizeTaps(column, image.token_columns, columns);
      for (size_t r = 0; r < 2; ++r) {
        for (size_t c = 0; c < 2; ++c) {
          mix.Add(index(of_rows.index[r], of_columns.index[c]),
                  of_rows.share[r] * of_columns.share[c]);
        }
      }
    }
    AddSingle(newline, &mix);
  }
  return mix;
}

}  // namespace minisgl::model
