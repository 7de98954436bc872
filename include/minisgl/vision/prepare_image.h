// Preparing: a picture's pixels to the values that the tower of a multimodal model takes, equal to
// the reference's `pixel_values`. Pure and thread-safe; a picture takes milliseconds, so this runs
// on threads that prepare prompts.
#pragma once

#include <string_view>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/vision/image_layout.h"
#include "minisgl/vision/image_rules.h"
#include "minisgl/vision/picture.h"

namespace minisgl {

struct PreparedImage {
  ImageLayout layout;
  // float32, of layout.shape. What only fills up the reference's batches (zero patches, zero tiles,
  // borders up to the size of other pictures) is not there: the tower never sees it.
  std::vector<float> values;
};

// `num_images`: the pictures in the prompt, as in LayOutImage, whose errors it has.
Result<PreparedImage> PrepareImage(const ImageRules& rules, const Picture& picture,
                                   int num_images = 1);

// The same from a file's bytes; also with the errors of DecodePicture.
Result<PreparedImage> PrepareImageFile(const ImageRules& rules, std::string_view bytes,
                                       const PictureLimits& limits = {},
                                       Background background = Background::kDrop,
                                       int num_images = 1);

}  // namespace minisgl
