// The containers of pictures: kind, size and orientation, read without a library. Input is hostile.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "minisgl/base/status.h"
#include "minisgl/vision/picture.h"

namespace minisgl::vision {

// The kind by the first bytes; nullopt if it is unknown.
std::optional<PictureKind> KindOfPicture(std::string_view bytes);

// The size as stored, before the orientation is applied. Each side may be 0.
struct StoredSize {
  uint64_t width = 0, height = 0;
};

// Reads the size from the headers of a picture of `kind`. kBadInput: the headers are damaged or cut
// off.
Result<StoredSize> ReadStoredSize(PictureKind kind, std::string_view bytes);

// The orientation (1 to 8) that the file's EXIF data give; 1 if there is none or it is damaged.
int ReadOrientation(PictureKind kind, std::string_view bytes);

// The orientation in a block of EXIF data, which begins with a TIFF header or with "Exif\0\0".
int ExifOrientation(std::string_view exif);

}  // namespace minisgl::vision
