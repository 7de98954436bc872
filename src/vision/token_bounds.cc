// Bounds of a picture's tokens that a user asks for, as numbers of the family's own rule.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>

#include "minisgl/vision/image_rules.h"

namespace minisgl {
namespace vision {
namespace {

Status NoSuchBound(const ImageRules& rules, const char* which, int32_t tokens) {
  return UsageError(
      "pictures of this model cannot have at {} {} tokens (its image processor is {})", which,
      tokens, rules.processor);
}

// The tiles, with an overview if they are more than one, whose tokens are at most `tokens`; 0 if
// there are none.
int32_t TilesWithin(const ImageRules& rules, int32_t tokens) {
  const int32_t tiles = tokens / std::max(rules.tokens_per_tile, 1);
  return tiles > 2 ? tiles - 1 : std::min(tiles, 1);
}

// The pixels of `tokens` units, at most those of any picture.
int64_t PixelsOf(const ImageRules& rules, int32_t tokens) {
  constexpr double kMost = int64_t{1} << 52;
  const double unit = static_cast<double>(rules.patch_size) * rules.merge_size;
  return static_cast<int64_t>(std::min(tokens * unit * unit * rules.frames_counted, kMost));
}

// Gemma 4's models are trained with these budgets.
constexpr int32_t kBudgets[] = {70, 140, 280, 560, 1120};

Status SetMost(int32_t tokens, ImageRules* rules) {
  const int32_t tiles = TilesWithin(*rules, tokens);
  switch (rules->size_rule) {
    case SizeRule::kBlocks:
      rules->pixels_max = PixelsOf(*rules, tokens);
      rules->pixels_min = std::min(rules->pixels_min, rules->pixels_max);
      return Status();
    case SizeRule::kPatchBudget: {
      const auto* const above = std::upper_bound(std::begin(kBudgets), std::end(kBudgets), tokens);
      if (above == std::begin(kBudgets)) return NoSuchBound(*rules, "most", tokens);
      rules->tokens_max = std::min(rules->tokens_max, *std::prev(above));
      return Status();
    }
    case SizeRule::kLongestSide: {
      const double unit = static_cast<double>(rules->patch_size) * rules->merge_size;
      const auto side = static_cast<int32_t>(
          std::min(std::floor(std::sqrt(tokens)) * unit, static_cast<double>(INT32_MAX)));
      rules->longest = {std::min(rules->longest.width, side),
                        std::min(rules->longest.height, side)};
      return Status();
    }
    case SizeRule::kPinpoints:
      std::erase_if(rules->canvases, [&](PictureSize canvas) {
        const int64_t columns = canvas.width / rules->tile.width;
        const int64_t rows = canvas.height / rules->tile.height;
        const auto side = static_cast<int64_t>(std::sqrt(rules->tokens_per_tile));
        return (rows * columns + 1) * rules->tokens_per_tile + rows * side > tokens;
      });
      return rules->canvases.empty() ? NoSuchBound(*rules, "most", tokens) : Status();
    case SizeRule::kSplit:
      rules->longest_side =
          std::min(rules->longest_side,
                   static_cast<int32_t>(std::sqrt(std::max(tiles, 1))) * rules->tile.width);
      break;
    case SizeRule::kNearestGrid:
    case SizeRule::kCanvas:
      rules->tiles_max = std::min(rules->tiles_max, std::max(tiles, 1));
      rules->tiles_min = std::min(rules->tiles_min, rules->tiles_max);
      break;
    case SizeRule::kFixed:
    case SizeRule::kCenterCrop:
      break;
  }
  return tiles == 0 ? NoSuchBound(*rules, "most", tokens) : Status();
}

Status SetLeast(int32_t tokens, ImageRules* rules) {
  if (rules->size_rule == SizeRule::kBlocks) {
    rules->pixels_min = PixelsOf(*rules, tokens);
    rules->pixels_max = std::max(rules->pixels_min, rules->pixels_max);
    return Status();
  }
  if (rules->size_rule == SizeRule::kPatchBudget) {
    const auto* const budget = std::lower_bound(std::begin(kBudgets), std::end(kBudgets), tokens);
    if (budget == std::end(kBudgets)) return NoSuchBound(*rules, "least", tokens);
    rules->tokens_max = std::max(rules->tokens_max, *budget);
    return Status();
  }
  return rules->tokens_per_tile >= tokens ? Status() : NoSuchBound(*rules, "least", tokens);
}

}  // namespace
}  // namespace vision

Result<ImageRules> WithTokenBounds(ImageRules rules, std::optional<int32_t> tokens_min,
                                   std::optional<int32_t> tokens_max) {
  if (tokens_min && tokens_max && *tokens_min > *tokens_max) {
    return UsageError("at least {} and at most {} tokens a picture contradict each other",
                      *tokens_min, *tokens_max);
  }
  if (tokens_min) MINISGL_RETURN_IF_ERROR(vision::SetLeast(*tokens_min, &rules));
  if (tokens_max) MINISGL_RETURN_IF_ERROR(vision::SetMost(*tokens_max, &rules));
  if (tokens_min && rules.size_rule == SizeRule::kPatchBudget && rules.tokens_max < *tokens_min) {
    return vision::NoSuchBound(rules, "least", *tokens_min);
  }
  return rules;
}

}  // namespace minisgl
