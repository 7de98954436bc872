// What the fuzz targets of pictures share: any bytes as a picture are either refused with one
// readable line, or decode to as many bytes as their header says, with and without transparency.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "minisgl/base/check.h"
#include "minisgl/base/utf8.h"
#include "minisgl/vision/picture.h"

namespace minisgl {

inline void CheckPictureMessage(const Status& status) {
  const std::string& message = status.message();
  MINISGL_CHECK(Visible(message, message.size()) == message, "not one readable line");
}

inline void CheckPicture(std::string_view bytes) {
  // Small, so that a run takes microseconds; larger ones are the limits' matter.
  PictureLimits limits;
  limits.pixels_max = 1 << 16;
  const auto header = ReadPictureHeader(bytes, limits);
  CheckPictureMessage(header.status());
  for (const Background background : {Background::kDrop, Background::kWhite}) {
    const auto picture = DecodePicture(bytes, limits, background);
    CheckPictureMessage(picture.status());
    if (!picture.ok()) continue;
    MINISGL_CHECK(header.ok() && picture->size == header->size, "another size");
    const auto width = static_cast<uint64_t>(picture->size.width);
    const auto height = static_cast<uint64_t>(picture->size.height);
    MINISGL_CHECK(picture->rgb.size() == 3 * width * height, "another number of bytes");
    MINISGL_CHECK(width * height <= limits.pixels_max, "past the limit");
  }
}

}  // namespace minisgl
