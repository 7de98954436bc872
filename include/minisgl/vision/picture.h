// Pictures: the bytes of a file to 8-bit RGB.
//
// Kinds: PNG, JPEG, WebP and the first frame of a GIF, recognised by their bytes. Each is decoded
// by a library that a build may lack (libpng, libjpeg, libwebp, giflib); the error names it. Bytes
// are untrusted: size, number of pixels and ratio of sides are checked against limits before memory
// is taken, a decoder's fault is a Status, and a file that ends early is an error.
//
// Decoded pictures have the bytes of Pillow's `exif_transpose(image).convert("RGB")`:
//   - the orientation of EXIF data (JPEG, PNG, WebP) is applied; an orientation in XMP is not;
//   - samples of 16 bits keep their high byte (Pillow instead cuts gray ones without alpha at 255,
//     which leaves a white picture: the one difference);
//   - gray is repeated, palettes are looked up, CMYK and YCCK (inverted, as Adobe writes them)
//     become RGB; colour profiles and gamma are not applied;
//   - alpha is dropped, or laid over white (Background).
// The functions are pure and thread-safe. Memory in use is at most 8 bytes a pixel beside the
// result, and for progressive JPEG 6 bytes more.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"

namespace minisgl {

enum class PictureKind { kPng, kJpeg, kWebp, kGif };

// "PNG", "JPEG", "WebP" or "GIF".
const char* PictureKindName(PictureKind kind);

// True if this build can decode pictures of `kind`. Sizes of all kinds are read without a library.
bool CanDecodePicture(PictureKind kind);

// The width and the height in pixels, as displayed: after the orientation is applied. Both > 0.
struct PictureSize {
  int32_t width = 0, height = 0;
  bool operator==(const PictureSize&) const = default;
};

struct PictureLimits {
  uint64_t bytes_max = uint64_t{64} << 20;        // of the file
  uint64_t pixels_max = (uint64_t{1} << 28) / 3;  // 89,478,485: RGB of a quarter of a GiB
  // The longer side divided by the shorter one. The reference's Qwen processors allow 200.
  double sides_ratio_max = 200;
};

// What becomes of transparency. The reference's chat drops it, which uncovers the colours stored
// under it; vLLM, and the reference given a Pillow image, lay it over white.
enum class Background { kDrop, kWhite };

struct PictureHeader {
  PictureKind kind = PictureKind::kPng;
  PictureSize size;
  int orientation = 1;  // 1 to 8, as in EXIF; `size` takes it into account
};

// 8-bit RGB. rgb[height][width][3], rows from the top, no padding.
struct Picture {
  PictureSize size;
  std::vector<uint8_t> rgb;
};

// Reads the kind and the size from the headers and checks them against `limits`, without decoding.
// `bytes` is the whole file. kBadInput: not a picture of a known kind, damaged or past a limit.
Result<PictureHeader> ReadPictureHeader(std::string_view bytes, const PictureLimits& limits = {});

// Decodes the whole file `bytes`. kBadInput: as above, damaged, cut off, or of a variant that the
// library does not read. kUnavailable: this build has no decoder of the kind; the message names the
// library.
Result<Picture> DecodePicture(std::string_view bytes, const PictureLimits& limits = {},
                              Background background = Background::kDrop);

}  // namespace minisgl
