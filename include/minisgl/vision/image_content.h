// A picture as a tower reads it.
#pragma once

#include "minisgl/plan/encoder_input.h"
#include "minisgl/vision/prepare_image.h"

namespace minisgl {

// The content of the EncoderInput of a picture: its values, and the layout of its patches.
struct ImageContent final : EncoderContent {
  PreparedImage image;
};

}  // namespace minisgl
