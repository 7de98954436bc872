// Resizing 8-bit RGB with antialiasing, as the reference's default processors do: two passes,
// horizontal first, each with integer weights and rounded to 8 bits. Pure and thread-safe.
#pragma once

#include "minisgl/vision/image_rules.h"
#include "minisgl/vision/picture.h"

namespace minisgl::vision {

// `from` resized to `size`. A pass that does not change its side is left out. REQUIRES positive
// sizes. Takes memory of the result and of size.width x from.size.height pixels.
Picture Resize(const Picture& from, PictureSize size, ResizeFilter filter);

}  // namespace minisgl::vision
