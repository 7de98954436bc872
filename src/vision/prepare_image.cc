// See minisgl/vision/prepare_image.h.
#include "minisgl/vision/prepare_image.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "vision/resize.h"

namespace minisgl {
namespace vision {
namespace {

// The value of each of 256 levels of each channel.
using ValueTable = std::array<std::array<float, 256>, 3>;

float RoundToBfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
}

ValueTable ValuesOf(const ImageRules& rules) {
  const auto factor = static_cast<float>(rules.rescale_factor);
  const auto inverse = static_cast<float>(1.0 / rules.rescale_factor);
  ValueTable table;
  for (size_t c = 0; c < table.size(); ++c) {
    auto mean = static_cast<float>(rules.mean[c]), std = static_cast<float>(rules.std[c]);
    if (rules.in_bfloat16) {
      mean = RoundToBfloat16(mean);
      std = RoundToBfloat16(std);
    } else if (rules.is_rescaled) {
      mean *= inverse;
      std *= inverse;
    }
    for (size_t level = 0; level < table[c].size(); ++level) {
      auto value = static_cast<float>(level);
      if (rules.in_bfloat16) {
        if (rules.is_rescaled) value = RoundToBfloat16(value * factor);
        if (rules.is_normalized) {
          value = RoundToBfloat16(RoundToBfloat16(value - mean) / std);
        }
      } else if (rules.is_normalized) {
        value = (value - mean) / std;
      } else if (rules.is_rescaled) {
        value *= factor;
      }
      table[c][level] = value;
    }
  }
  return table;
}

// Lays `picture` on a canvas of `color` with its left upper corner at (left, top), which may lie
// outside it; so may other parts of the picture.
Picture LayOn(PictureSize canvas, const Picture& picture, int32_t left, int32_t top,
              std::array<uint8_t, 3> color) {
  Picture result = {canvas, {}};
  const auto width = static_cast<size_t>(canvas.width);
  result.rgb.resize(3 * width * static_cast<size_t>(canvas.height));
  for (size_t i = 0; i < result.rgb.size(); ++i) result.rgb[i] = color[i % 3];
  const int32_t x_begin = std::max(left, 0);
  const int32_t x_end = std::min(left + picture.size.width, canvas.width);
  const int32_t y_end = std::min(top + picture.size.height, canvas.height);
  for (int32_t y = std::max(top, 0); y < y_end && x_begin < x_end; ++y) {
    const size_t from = static_cast<size_t>(y - top) * static_cast<size_t>(picture.size.width) +
                        static_cast<size_t>(x_begin - left);
    const size_t to = static_cast<size_t>(y) * width + static_cast<size_t>(x_begin);
    std::memcpy(&result.rgb[3 * to], &picture.rgb[3 * from],
                3 * static_cast<size_t>(x_end - x_begin));
  }
  return result;
}

Picture Square(const ImageRules& rules, const Picture& picture) {
  const int32_t side = std::max(picture.size.width, picture.size.height);
  std::array<uint8_t, 3> color = {};
  for (size_t c = 0; c < color.size(); ++c) {
    color[c] = static_cast<uint8_t>(std::clamp(rules.mean[c] * 255, 0.0, 255.0));
  }
  return LayOn({side, side}, picture, (side - picture.size.width) / 2,
               (side - picture.size.height) / 2, color);
}

// Appends the values [3, height, width] of the part of `picture` at (left, top).
void AppendTile(const ValueTable& table, const Picture& picture, PictureSize tile, int32_t left,
                int32_t top, std::vector<float>* values) {
  const auto row_bytes = 3 * static_cast<size_t>(picture.size.width);
  for (size_t c = 0; c < table.size(); ++c) {
    for (int32_t y = 0; y < tile.height; ++y) {
      const uint8_t* at =
          &picture
               .rgb[static_cast<size_t>(top + y) * row_bytes + 3 * static_cast<size_t>(left) + c];
      for (int32_t x = 0; x < tile.width; ++x, at += 3) values->push_back(table[c][*at]);
    }
  }
}

// Appends the patch [3, frames, y, x] or, by rows, [y, x, 3] at (left, top).
void AppendPatch(const ImageRules& rules, const ValueTable& table, const Picture& picture,
                 int32_t left, int32_t top, std::vector<float>* values) {
  const PictureSize patch = {rules.patch_size, rules.patch_size};
  const auto row_bytes = 3 * static_cast<size_t>(picture.size.width);
  const uint8_t* const corner =
      &picture.rgb[static_cast<size_t>(top) * row_bytes + 3 * static_cast<size_t>(left)];
  if (rules.patch_order == PatchOrder::kRows) {
    for (int32_t y = 0; y < patch.height; ++y) {
      const uint8_t* const row = corner + static_cast<size_t>(y) * row_bytes;
      for (int32_t i = 0; i < 3 * patch.width; ++i) {
        values->push_back(table[static_cast<size_t>(i % 3)][row[i]]);
      }
    }
    return;
  }
  const auto plane = static_cast<size_t>(patch.width) * static_cast<size_t>(patch.height);
  for (size_t c = 0; c < table.size(); ++c) {
    for (int32_t y = 0; y < patch.height; ++y) {
      const uint8_t* at = corner + static_cast<size_t>(y) * row_bytes + c;
      for (int32_t x = 0; x < patch.width; ++x, at += 3) values->push_back(table[c][*at]);
    }
    // The other frames are copies.
    for (int32_t frame = 1; frame < rules.num_frames; ++frame) {
      const size_t begin = values->size() - plane;
      for (size_t i = 0; i < plane; ++i) values->push_back((*values)[begin + i]);
    }
  }
}

void AppendPatches(const ImageRules& rules, const ImageLayout& layout, const ValueTable& table,
                   const Picture& picture, std::vector<float>* values) {
  const int32_t size = rules.patch_size;
  const int32_t block = rules.patch_order == PatchOrder::kBlocks ? rules.merge_size : 1;
  for (int32_t row = 0; row + block <= layout.patch_rows; row += block) {
    for (int32_t column = 0; column + block <= layout.patch_columns; column += block) {
      for (int32_t i = 0; i < block * block; ++i) {
        AppendPatch(rules, table, picture, (column + i % block) * size, (row + i / block) * size,
                    values);
      }
    }
  }
}

// The canvas of `layout`; `picture` is squared already.
Picture CanvasOf(const ImageRules& rules, const ImageLayout& layout, const Picture& picture) {
  Picture resized;
  if (layout.first.width > 0) {
    resized = Resize(Resize(picture, layout.first, rules.filter), layout.resized, rules.filter);
  } else {
    resized = Resize(picture, layout.resized, rules.filter);
  }
  const bool is_whole = layout.canvas == layout.resized && layout.left == 0 && layout.top == 0;
  if (is_whole) return resized;
  return LayOn(layout.canvas, resized, layout.left, layout.top, {0, 0, 0});
}

void AppendTiles(const ImageRules& rules, const ImageLayout& layout, const ValueTable& table,
                 const Picture& picture, const Picture& canvas, std::vector<float>* values) {
  const PictureSize tile = layout.tile;
  Picture overview;
  if (layout.overview != Overview::kNone) {
    overview = Resize(layout.overview_of_canvas ? canvas : picture, tile, rules.filter);
  }
  if (layout.overview == Overview::kFirst) AppendTile(table, overview, tile, 0, 0, values);
  for (int32_t row = 0; row < layout.tile_rows; ++row) {
    for (int32_t column = 0; column < layout.tile_columns; ++column) {
      AppendTile(table, canvas, tile, column * tile.width, row * tile.height, values);
    }
  }
  if (layout.overview == Overview::kLast) AppendTile(table, overview, tile, 0, 0, values);
}

}  // namespace
}  // namespace vision

Result<PreparedImage> PrepareImage(const ImageRules& rules, const Picture& picture,
                                   int num_images) {
  PreparedImage image;
  MINISGL_ASSIGN_OR_RETURN(image.layout, LayOutImage(rules, picture.size, num_images));
  const ImageLayout& layout = image.layout;
  Picture squared;
  if (layout.is_squared) squared = vision::Square(rules, picture);
  const Picture& source = layout.is_squared ? squared : picture;
  const Picture canvas = vision::CanvasOf(rules, layout, source);
  const vision::ValueTable table = vision::ValuesOf(rules);
  image.values.reserve(static_cast<size_t>(layout.num_values));
  if (rules.patch_order == PatchOrder::kTiles) {
    vision::AppendTiles(rules, layout, table, source, canvas, &image.values);
  } else {
    vision::AppendPatches(rules, layout, table, canvas, &image.values);
  }
  MINISGL_CHECK(image.values.size() == static_cast<size_t>(layout.num_values), "{} values of {}",
                image.values.size(), layout.num_values);
  return image;
}

Result<PreparedImage> PrepareImageFile(const ImageRules& rules, std::string_view bytes,
                                       const PictureLimits& limits, Background background,
                                       int num_images) {
  MINISGL_ASSIGN_OR_RETURN(const Picture picture, DecodePicture(bytes, limits, background));
  return PrepareImage(rules, picture, num_images);
}

}  // namespace minisgl
