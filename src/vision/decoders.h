// The decoders of single kinds of pictures: bytes to pixels as stored, before the orientation is
// applied. Each is built with its library (MINISGL_HAS_PNG, _JPEG, _WEBP, _GIF), and is absent from
// other builds. The caller has checked the size against limits; a decoder takes memory of its own
// of at most 8 bytes a pixel. Pure and thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"
#include "vision/picture_container.h"

namespace minisgl::vision {

// Pixels as stored: height rows of width pixels with 3 (RGB) or 4 (RGBA, colours not multiplied by
// alpha) channels.
struct StoredPixels {
  StoredSize size;
  int channels = 3;
  std::vector<uint8_t> values;
};

// `size`: as ReadStoredSize returned it; it is an error if the library finds another one.
// `wants_alpha`: 4 channels if the picture has transparency, else 3. A colour has the same bytes
// either way.
Result<StoredPixels> DecodePng(std::string_view bytes, StoredSize size, bool wants_alpha);
Result<StoredPixels> DecodeJpeg(std::string_view bytes, StoredSize size);
Result<StoredPixels> DecodeWebp(std::string_view bytes, StoredSize size, bool wants_alpha);
Result<StoredPixels> DecodeGif(std::string_view bytes, StoredSize size, bool wants_alpha);

// An error that quotes a library's message, on one line.
Status DecoderFault(const char* kind, std::string_view message);

}  // namespace minisgl::vision
