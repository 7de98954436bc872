// See minisgl/vision/image_layout.h. Sizes are computed in double precision step by step as the
// reference does, because a last bit decides where a quotient is a whole number.
#include "minisgl/vision/image_layout.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "minisgl/vision/picture.h"

namespace minisgl {
namespace vision {
namespace {

// Bounds of a layout: a GiB of values, and as many pixels between two steps as a picture may have.
constexpr int64_t kValuesMax = int64_t{1} << 28;
constexpr double kStepPixelsMax = 1 << 28;
constexpr int64_t kTokensMax = 1 << 24;

int64_t PixelsOf(PictureSize size) { return int64_t{size.width} * size.height; }

// A side in double precision; the checks at the end of LayOutImage refuse what does not fit.
int32_t ToSide(double side) {
  return static_cast<int32_t>(std::clamp(side, 0.0, static_cast<double>(INT32_MAX / 2)));
}
double RoundUp(double side, double unit) { return std::ceil(side / unit) * unit; }

// Sets how the picture is cut into patches without tiles: one "tile" of the resized size.
void CutWhole(PictureSize resized, ImageLayout* layout) {
  layout->resized = layout->canvas = layout->tile = resized;
}

void CutTiles(PictureSize resized, PictureSize canvas, PictureSize tile, Overview overview,
              ImageLayout* layout) {
  layout->resized = resized;
  layout->canvas = canvas;
  layout->tile = tile;
  layout->tile_rows = canvas.height / tile.height;
  layout->tile_columns = canvas.width / tile.width;
  if (layout->tile_rows * int64_t{layout->tile_columns} > 1 || overview == Overview::kFirst) {
    layout->overview = overview;
  }
}

Status LayOutBlocks(const ImageRules& rules, PictureSize size, ImageLayout* layout) {
  const double block = double{1} * rules.patch_size * rules.merge_size;
  double height = size.height, width = size.width;
  if (rules.enlarges_thin_sides && std::min(height, width) < block) {
    const double scale = std::max(block / height, block / width);
    height = std::trunc(height * scale);
    width = std::trunc(width * scale);
  }
  constexpr double kRatioMax = 200;
  if (std::max(height, width) / std::min(height, width) > kRatioMax) {
    return BadInput("a picture of {} x {} pixels; the model allows a ratio of sides of {} at most",
                    size.width, size.height, kRatioMax);
  }
  const auto pixels_max = static_cast<double>(rules.pixels_max);
  const auto pixels_min = static_cast<double>(rules.pixels_min);
  const double frames = rules.frames_counted;
  // To the nearest, halves to even.
  double rows = std::nearbyint(height / block) * block;
  double columns = std::nearbyint(width / block) * block;
  if (frames * rows * columns > pixels_max) {
    const double shrink = std::sqrt(frames * height * width / pixels_max);
    rows = std::max(block, std::floor(height / shrink / block) * block);
    columns = std::max(block, std::floor(width / shrink / block) * block);
  } else if (frames * rows * columns < pixels_min) {
    const double grow = std::sqrt(pixels_min / (frames * height * width));
    rows = std::ceil(height * grow / block) * block;
    columns = std::ceil(width * grow / block) * block;
  }
  CutWhole({ToSide(columns), ToSide(rows)}, layout);
  return Status();
}

Status LayOutPatchBudget(const ImageRules& rules, PictureSize size, ImageLayout* layout) {
  const double patch = rules.patch_size, unit = patch * rules.merge_size;
  const double patches = double{1} * rules.tokens_max * rules.merge_size * rules.merge_size;
  const double height = size.height, width = size.width;
  const double scale = std::sqrt(patches * (patch * patch) / (height * width));
  double rows = std::floor(scale * height / unit) * unit;
  double columns = std::floor(scale * width / unit) * unit;
  const double side_max = rules.tokens_max * unit;
  if (rows == 0) {
    rows = unit;
    columns = std::min(std::floor(width / height) * unit, side_max);
  } else if (columns == 0) {
    columns = unit;
    rows = std::min(std::floor(height / width) * unit, side_max);
  }
  CutWhole({ToSide(columns), ToSide(rows)}, layout);
  return Status();
}

Status LayOutLongestSide(const ImageRules& rules, PictureSize size, ImageLayout* layout) {
  double height = size.height, width = size.width;
  const double ratio = std::max(height / rules.longest.height, width / rules.longest.width);
  if (ratio > 1) {
    height = std::floor(height / ratio);
    width = std::floor(width / ratio);
  }
  const double unit = double{1} * rules.patch_size * rules.merge_size;
  // A side of 0 becomes 0 here, and an error, as in the reference.
  CutWhole({ToSide(RoundUp(width, unit)), ToSide(RoundUp(height, unit))}, layout);
  return Status();
}

Status LayOutCenterCrop(const ImageRules& rules, PictureSize size, ImageLayout* layout) {
  const int64_t shorter = std::min(size.width, size.height);
  const int64_t longer = std::max(size.width, size.height);
  // In integers until the quotient, as in the reference.
  const double side =
      static_cast<double>(rules.shortest_side * longer) / static_cast<double>(shorter);
  const int32_t long_side = ToSide(std::trunc(side));
  PictureSize resized = {rules.shortest_side, long_side};
  if (size.width > size.height) std::swap(resized.width, resized.height);
  CutTiles(resized, rules.tile, rules.tile, Overview::kNone, layout);
  // A crop larger than the picture is filled with black, the odd pixel on the right and below.
  const auto offset = [](int32_t crop, int32_t whole) {
    return crop > whole ? (crop - whole) / 2 : -((whole - crop) / 2);
  };
  layout->left = offset(rules.tile.width, resized.width);
  layout->top = offset(rules.tile.height, resized.height);
  return Status();
}

// The largest size of the aspect of `size` within `box`, the free side rounded up.
PictureSize FitInside(PictureSize size, PictureSize box) {
  const double by_width = static_cast<double>(box.width) / size.width;
  const double by_height = static_cast<double>(box.height) / size.height;
  if (by_width < by_height) {
    return {box.width, std::min(ToSide(std::ceil(size.height * by_width)), box.height)};
  }
  return {std::min(ToSide(std::ceil(size.width * by_height)), box.width), box.height};
}

PictureSize BestCanvas(const ImageRules& rules, PictureSize size) {
  PictureSize best = rules.canvases.front();
  int64_t most_useful = 0, least_waste = INT64_MAX;
  for (const PictureSize& canvas : rules.canvases) {
    const double scale = std::min(static_cast<double>(canvas.width) / size.width,
                                  static_cast<double>(canvas.height) / size.height);
    const auto width = static_cast<int64_t>(size.width * scale);
    const auto height = static_cast<int64_t>(size.height * scale);
    const int64_t useful = std::min(width * height, PixelsOf(size));
    const int64_t waste = PixelsOf(canvas) - useful;
    if (useful > most_useful || (useful == most_useful && waste < least_waste)) {
      most_useful = useful;
      least_waste = waste;
      best = canvas;
    }
  }
  return best;
}

// floor(a / b) of the exact quotient, which Python's // gives: a quotient may be rounded up to a
// whole number. REQUIRES positive numbers.
double FloorQuotient(double a, double b) { return std::nearbyint((a - std::fmod(a, b)) / b); }

// Counts the tokens of tiles that are laid out as one grid, without the padding, and shrunk to a
// number of tiles; a newline's embedding stands after each row.
void PackTokens(const ImageRules& rules, PictureSize size, ImageLayout* layout) {
  const auto side = static_cast<int32_t>(std::sqrt(static_cast<double>(rules.tokens_per_tile)));
  int32_t rows = side * layout->tile_rows, columns = side * layout->tile_columns;
  const auto round7 = [](double x) { return std::nearbyint(x * 1e7) / 1e7; };
  const double height = size.height, width = size.width;
  if (width / height > static_cast<double>(columns) / rows) {
    layout->cut_rows = (rows - ToSide(round7(height * (columns / width)))) / 2;
  } else {
    layout->cut_columns = (columns - ToSide(round7(width * (rows / height)))) / 2;
  }
  rows -= 2 * layout->cut_rows;
  columns -= 2 * layout->cut_columns;
  const double most = double{1} * rules.packed_tiles_max * side * side;
  const double ratio = std::sqrt(static_cast<double>(rows) * columns / most);
  if (ratio > 1.1) {
    rows = ToSide(FloorQuotient(rows, ratio));
    columns = ToSide(FloorQuotient(columns, ratio));
  }
  layout->token_rows = rows;
  layout->token_columns = columns;
  layout->num_tokens = rules.tokens_per_tile + rows * (columns + 1);
}

Status LayOutPinpoints(const ImageRules& rules, PictureSize size, int num_images,
                       ImageLayout* layout) {
  if (num_images > 1) {
    layout->is_squared = true;
    CutTiles(rules.tile, rules.tile, rules.tile, Overview::kNone, layout);
    const auto side = static_cast<int32_t>(std::sqrt(static_cast<double>(rules.tokens_per_tile)));
    layout->token_rows = layout->token_columns = side;
    layout->num_tokens = rules.tokens_per_tile + 1;  // and one newline
    return Status();
  }
  const PictureSize canvas = BestCanvas(rules, size);
  const PictureSize resized = FitInside(size, canvas);
  CutTiles(resized, canvas, rules.tile, Overview::kFirst, layout);
  layout->left = (canvas.width - resized.width) / 2;
  layout->top = (canvas.height - resized.height) / 2;
  PackTokens(rules, size, layout);
  return Status();
}

Status LayOutNearestGrid(const ImageRules& rules, PictureSize size, ImageLayout* layout) {
  std::vector<std::pair<int32_t, int32_t>> grids;  // columns, rows
  for (int32_t columns = 1; columns <= rules.tiles_max; ++columns) {
    for (int32_t rows = 1; rows * columns <= rules.tiles_max; ++rows) {
      if (rows * columns >= rules.tiles_min) grids.emplace_back(columns, rows);
    }
  }
  std::stable_sort(grids.begin(), grids.end(), [](const auto& a, const auto& b) {
    return a.first * a.second < b.first * b.second;
  });
  std::pair<int32_t, int32_t> best = {1, 1};
  const double aspect = static_cast<double>(size.width) / size.height;
  const auto area = static_cast<double>(PixelsOf(size));
  double least = INFINITY;
  for (const auto& [columns, rows] : grids) {
    const double difference = std::abs(aspect - static_cast<double>(columns) / rows);
    const bool is_tie = difference == least;
    // Grids of one aspect: the one with more tiles, unless it is twice as large as the picture.
    const double grid_area = 0.5 * static_cast<double>(PixelsOf(rules.tile)) * columns * rows;
    if (difference < least || (is_tie && area > grid_area)) best = {columns, rows};
    least = std::min(least, difference);
  }
  if (!rules.is_split) best = {1, 1};
  const PictureSize canvas = {rules.tile.width * best.first, rules.tile.height * best.second};
  CutTiles(canvas, canvas, rules.tile, Overview::kLast, layout);
  return Status();
}

Status LayOutSplit(const ImageRules& rules, PictureSize size, ImageLayout* layout) {
  constexpr double kSideMaxAtFirst = 4096;
  double height = size.height, width = size.width;
  const auto even = [](double side) { return std::fmod(side, 2) != 0 ? side + 1 : side; };
  double aspect = width / height;
  const bool is_wide = width >= height;
  if (is_wide) {
    width = rules.longest_side;
    height = std::max(even(std::trunc(width / aspect)), 1.0);
  } else {
    height = rules.longest_side;
    width = std::max(even(std::trunc(height * aspect)), 1.0);
  }
  aspect = width / height;
  if (width >= height && width > kSideMaxAtFirst) {
    width = kSideMaxAtFirst;
    height = std::max(std::trunc(width / aspect), 1.0);
  } else if (height > width && height > kSideMaxAtFirst) {
    height = kSideMaxAtFirst;
    width = std::max(std::trunc(height * aspect), 1.0);
  }
  layout->first = {ToSide(width), ToSide(height)};
  const double tile = rules.tile.width;
  aspect = width / height;
  if (!rules.is_split) {
    width = height = tile;
  } else if (width >= height) {
    width = RoundUp(width, tile);
    height = RoundUp(std::trunc(width / aspect), tile);
  } else {
    height = RoundUp(height, tile);
    width = RoundUp(std::trunc(height * aspect), tile);
  }
  const PictureSize canvas = {ToSide(width), ToSide(height)};
  CutTiles(canvas, canvas, rules.tile, Overview::kLast, layout);
  layout->overview_of_canvas = true;
  return Status();
}

// The reference chooses a canvas in single precision.
PictureSize LeastShrinking(const ImageRules& rules, PictureSize size) {
  PictureSize best;
  float best_scale = 0;
  for (int32_t rows = 1; rows <= rules.tiles_max; ++rows) {
    for (int32_t columns = 1; rows * columns <= rules.tiles_max; ++columns) {
      const PictureSize canvas = {columns * rules.tile.width, rows * rules.tile.height};
      const float scale =
          std::min(static_cast<float>(canvas.width) / static_cast<float>(size.width),
                   static_cast<float>(canvas.height) / static_cast<float>(size.height));
      const bool enlarges = scale >= 1, best_enlarges = best_scale >= 1;
      bool is_better = scale > best_scale;
      if (best_enlarges && enlarges && !rules.fills_canvas) is_better = scale < best_scale;
      if (best_enlarges && !enlarges) is_better = false;
      if (is_better || (scale == best_scale && PixelsOf(canvas) < PixelsOf(best))) {
        best = canvas;
        best_scale = scale;
      }
    }
  }
  return best;
}

// A quotient of the reference's, in single precision if the numerator is a side of the canvas.
struct Scale {
  double value;
  bool is_single;

  Scale(int32_t target, int32_t side, bool single)
      : value(single ? static_cast<double>(static_cast<float>(target) / static_cast<float>(side))
                     : static_cast<double>(target) / side),
        is_single(single) {}
  // floor(side * scale)
  int32_t FloorOf(int32_t side) const {
    if (!is_single) return ToSide(std::floor(side * value));
    return ToSide(std::floor(static_cast<float>(side) * static_cast<float>(value)));
  }
};

Status LayOutCanvas(const ImageRules& rules, PictureSize size, ImageLayout* layout) {
  const PictureSize canvas = LeastShrinking(rules, size);
  PictureSize box = canvas;
  bool single_width = true, single_height = true;
  if (!rules.fills_canvas) {
    const int32_t width = std::max(size.width, rules.tile.height);
    const int32_t height = std::max(size.height, rules.tile.height);
    single_width = canvas.width < width;
    single_height = canvas.height < height;
    box = {std::min(width, canvas.width), std::min(height, canvas.height)};
  }
  const Scale by_width(box.width, size.width, single_width);
  const Scale by_height(box.height, size.height, single_height);
  const bool in_single = single_width || single_height;
  const bool is_width_limiting =
      in_single ? static_cast<float>(by_width.value) < static_cast<float>(by_height.value)
                : by_width.value < by_height.value;
  PictureSize resized = box;
  if (is_width_limiting) {
    resized.height = std::max(std::min(by_width.FloorOf(size.height), box.height), 1);
  } else {
    resized.width = std::max(std::min(by_height.FloorOf(size.width), box.width), 1);
  }
  CutTiles(resized, canvas, rules.tile, Overview::kLast, layout);
  return Status();
}

Status LayOut(const ImageRules& rules, PictureSize size, int num_images, ImageLayout* layout) {
  switch (rules.size_rule) {
    case SizeRule::kBlocks:
      return LayOutBlocks(rules, size, layout);
    case SizeRule::kFixed:
      break;
    case SizeRule::kPatchBudget:
      return LayOutPatchBudget(rules, size, layout);
    case SizeRule::kLongestSide:
      return LayOutLongestSide(rules, size, layout);
    case SizeRule::kCenterCrop:
      return LayOutCenterCrop(rules, size, layout);
    case SizeRule::kPinpoints:
      return LayOutPinpoints(rules, size, num_images, layout);
    case SizeRule::kNearestGrid:
      return LayOutNearestGrid(rules, size, layout);
    case SizeRule::kSplit:
      return LayOutSplit(rules, size, layout);
    case SizeRule::kCanvas:
      return LayOutCanvas(rules, size, layout);
  }
  CutTiles(rules.tile, rules.tile, rules.tile, Overview::kNone, layout);
  return Status();
}

Status TooManyTokens(int64_t count) { return BadInput("a picture of {} tokens", count); }

// Sets the counts that follow from the sizes. kBadInput: more tokens than any prompt has.
Status Count(const ImageRules& rules, ImageLayout* layout) {
  layout->num_tiles =
      layout->tile_rows * layout->tile_columns + (layout->overview == Overview::kNone ? 0 : 1);
  layout->patch_rows = layout->tile.height / rules.patch_size;
  layout->patch_columns = layout->tile.width / rules.patch_size;
  if (rules.patch_order == PatchOrder::kTiles) {
    layout->shape = {layout->num_tiles, 3, layout->tile.height, layout->tile.width};
  } else {
    const int64_t patches = int64_t{layout->patch_rows} * layout->patch_columns;
    layout->shape = {patches, int64_t{3} * rules.num_frames * rules.patch_size * rules.patch_size};
  }
  layout->num_values = 1;
  for (const int64_t extent : layout->shape) layout->num_values *= extent;
  if (layout->num_tokens > kTokensMax) return TooManyTokens(layout->num_tokens);
  if (layout->num_tokens > 0) return Status();  // packed
  int64_t num_tokens = int64_t{rules.tokens_per_tile} * layout->num_tiles;
  if (rules.tokens_per_tile > 0) {
    const auto side = static_cast<int32_t>(std::sqrt(static_cast<double>(rules.tokens_per_tile)));
    layout->token_rows = layout->token_columns = side;
  } else {  // as many as blocks of patches
    layout->token_rows = layout->patch_rows / rules.merge_size;
    layout->token_columns = layout->patch_columns / rules.merge_size;
    num_tokens = int64_t{layout->token_rows} * layout->token_columns;
  }
  if (num_tokens > kTokensMax) return TooManyTokens(num_tokens);
  layout->num_tokens = static_cast<int32_t>(num_tokens);
  return Status();
}

// The pixels of the largest picture that is made on the way, also between the two passes of a
// resize: the columns of the result and the rows of the source.
double LargestStep(const ImageLayout& layout, PictureSize source) {
  double largest = 0;
  const auto add = [&largest](PictureSize columns, PictureSize rows) {
    largest = std::max(largest, static_cast<double>(columns.width) * rows.height);
  };
  if (layout.is_squared) {
    const int32_t side = std::max(source.width, source.height);
    source = {side, side};
    add(source, source);
  }
  PictureSize from = source;
  for (const PictureSize& step : {layout.first, layout.resized}) {
    if (step.width == 0) continue;
    add(step, from);
    add(step, step);
    from = step;
  }
  add(layout.canvas, layout.canvas);
  add(layout.tile, layout.tile);
  if (layout.overview == Overview::kNone) return largest;
  add(layout.tile, layout.overview_of_canvas ? layout.canvas : source);
  return largest;
}

}  // namespace
}  // namespace vision

Result<ImageLayout> LayOutImage(const ImageRules& rules, PictureSize size, int num_images) {
  ImageLayout layout;
  MINISGL_RETURN_IF_ERROR(vision::LayOut(rules, size, num_images, &layout));
  double values = 3.0 * rules.num_frames * layout.tile.width * layout.tile.height *
                  (layout.tile_rows * double{1} * layout.tile_columns + 1);
  if (vision::LargestStep(layout, size) > vision::kStepPixelsMax) values = INFINITY;
  if (layout.resized.width < 1 || layout.resized.height < 1) {
    return BadInput("a picture of {} x {} pixels, of which nothing is left at the model's size",
                    size.width, size.height);
  }
  if (values > static_cast<double>(vision::kValuesMax)) {
    return BadInput("a picture of {} x {} pixels; the model makes too large a picture of it",
                    size.width, size.height);
  }
  MINISGL_RETURN_IF_ERROR(vision::Count(rules, &layout));
  return layout;
}

Result<ImageLayout> LayOutImageFile(const ImageRules& rules, std::string_view bytes,
                                    const PictureLimits& limits, int num_images) {
  MINISGL_ASSIGN_OR_RETURN(const PictureHeader header, ReadPictureHeader(bytes, limits));
  return LayOutImage(rules, header.size, num_images);
}

}  // namespace minisgl
