// See minisgl/vision/picture.h.
#include "minisgl/vision/picture.h"

#include <algorithm>
#include <utility>

#include "minisgl/base/utf8.h"
#include "vision/decoders.h"
#include "vision/picture_container.h"

namespace minisgl {
namespace vision {
namespace {

const char* LibraryOf(PictureKind kind) {
  switch (kind) {
    case PictureKind::kPng:
      return "libpng";
    case PictureKind::kJpeg:
      return "libjpeg";
    case PictureKind::kWebp:
      return "libwebp";
    case PictureKind::kGif:
      break;
  }
  return "giflib";
}

Result<StoredPixels> Decode(PictureKind kind, std::string_view bytes, StoredSize size,
                            [[maybe_unused]] bool wants_alpha) {
#if MINISGL_HAS_PNG
  if (kind == PictureKind::kPng) return DecodePng(bytes, size, wants_alpha);
#endif
#if MINISGL_HAS_JPEG
  if (kind == PictureKind::kJpeg) return DecodeJpeg(bytes, size);
#endif
#if MINISGL_HAS_WEBP
  if (kind == PictureKind::kWebp) return DecodeWebp(bytes, size, wants_alpha);
#endif
#if MINISGL_HAS_GIF
  if (kind == PictureKind::kGif) return DecodeGif(bytes, size, wants_alpha);
#endif
  static_cast<void>(bytes);
  static_cast<void>(size);
  return MakeStatus(StatusCode::kUnavailable,
                    "this build has no {} decoder ({}); convert the picture to another format",
                    PictureKindName(kind), LibraryOf(kind));
}

struct StoredHeader {
  PictureKind kind = PictureKind::kPng;
  StoredSize size;
};

Status CheckLimits(const char* kind, StoredSize size, const PictureLimits& limits) {
  if (size.width == 0 || size.height == 0) {
    return BadInput("a {} of {} x {} pixels", kind, size.width, size.height);
  }
  // Sides have at most 32 bits, so that their product has 64.
  if (size.width > INT32_MAX || size.height > INT32_MAX ||
      size.width * size.height > limits.pixels_max) {
    return BadInput("a {} of {} x {} pixels; at most {} pixels are allowed", kind, size.width,
                    size.height, limits.pixels_max);
  }
  const auto longer = static_cast<double>(std::max(size.width, size.height));
  const auto shorter = static_cast<double>(std::min(size.width, size.height));
  if (longer > limits.sides_ratio_max * shorter) {
    return BadInput("a {} of {} x {} pixels; the ratio of its sides may be at most {}", kind,
                    size.width, size.height, limits.sides_ratio_max);
  }
  return Status();
}

Result<StoredHeader> ReadStoredHeader(std::string_view bytes, const PictureLimits& limits) {
  if (bytes.size() > limits.bytes_max) {
    return BadInput("a picture of {} bytes; at most {} are allowed", bytes.size(),
                    limits.bytes_max);
  }
  const auto kind = KindOfPicture(bytes);
  if (!kind) {
    return BadInput("not a picture in PNG, JPEG, WebP or GIF (it begins with \"{}\")",
                    Visible(bytes.substr(0, 12)));
  }
  MINISGL_ASSIGN_OR_RETURN(const StoredSize size, ReadStoredSize(*kind, bytes));
  MINISGL_RETURN_IF_ERROR(CheckLimits(PictureKindName(*kind), size, limits));
  return StoredHeader{*kind, size};
}

// Lays pixels of four channels over white and removes the fourth.
void LayOverWhite(StoredPixels* pixels) {
  const uint64_t num_pixels = pixels->size.width * pixels->size.height;
  uint8_t* const values = pixels->values.data();
  for (uint64_t i = 0; i < num_pixels; ++i) {
    const uint32_t alpha = values[4 * i + 3];
    for (uint64_t c = 0; c < 3; ++c) {
      const uint32_t sum = values[4 * i + c] * alpha + 255 * (255 - alpha);
      values[3 * i + c] = static_cast<uint8_t>((sum + 127) / 255);
    }
  }
  pixels->values.resize(num_pixels * 3);
  pixels->channels = 3;
}

// The picture of RGB `pixels`, turned as `orientation` (of EXIF) says.
Picture Turn(StoredPixels pixels, int orientation) {
  const auto width = static_cast<int32_t>(pixels.size.width);
  const auto height = static_cast<int32_t>(pixels.size.height);
  Picture picture = {{width, height}, {}};
  if (orientation == 1) {
    picture.rgb = std::move(pixels.values);
    return picture;
  }
  // Orientations 5 to 8 exchange rows and columns. The row and the column that are read for a place
  // of the result run backwards in these orientations.
  const bool is_transposed = orientation >= 5;
  const bool x_backwards =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool y_backwards =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  if (is_transposed) std::swap(picture.size.width, picture.size.height);
  picture.rgb.resize(pixels.values.size());
  uint8_t* to = picture.rgb.data();
  for (int32_t row = 0; row < picture.size.height; ++row) {
    for (int32_t column = 0; column < picture.size.width; ++column, to += 3) {
      int32_t x = is_transposed ? row : column, y = is_transposed ? column : row;
      if (x_backwards) x = width - 1 - x;
      if (y_backwards) y = height - 1 - y;
      const auto from =
          (static_cast<size_t>(y) * static_cast<size_t>(width) + static_cast<size_t>(x)) * 3;
      std::copy_n(&pixels.values[from], 3, to);
    }
  }
  return picture;
}

}  // namespace

Status DecoderFault(const char* kind, std::string_view message) {
  return BadInput("a damaged {}: {}", kind, Visible(message));
}

}  // namespace vision

const char* PictureKindName(PictureKind kind) {
  switch (kind) {
    case PictureKind::kPng:
      return "PNG";
    case PictureKind::kJpeg:
      return "JPEG";
    case PictureKind::kWebp:
      return "WebP";
    case PictureKind::kGif:
      break;
  }
  return "GIF";
}

bool CanDecodePicture(PictureKind kind) {
  constexpr bool kHas[] = {MINISGL_HAS_PNG, MINISGL_HAS_JPEG, MINISGL_HAS_WEBP, MINISGL_HAS_GIF};
  return kHas[static_cast<int>(kind)];
}

Result<PictureHeader> ReadPictureHeader(std::string_view bytes, const PictureLimits& limits) {
  MINISGL_ASSIGN_OR_RETURN(const vision::StoredHeader stored,
                           vision::ReadStoredHeader(bytes, limits));
  PictureHeader header;
  header.kind = stored.kind;
  header.orientation = vision::ReadOrientation(stored.kind, bytes);
  header.size = {static_cast<int32_t>(stored.size.width), static_cast<int32_t>(stored.size.height)};
  if (header.orientation >= 5) std::swap(header.size.width, header.size.height);
  return header;
}

Result<Picture> DecodePicture(std::string_view bytes, const PictureLimits& limits,
                              Background background) {
  MINISGL_ASSIGN_OR_RETURN(const vision::StoredHeader stored,
                           vision::ReadStoredHeader(bytes, limits));
  MINISGL_ASSIGN_OR_RETURN(
      vision::StoredPixels pixels,
      vision::Decode(stored.kind, bytes, stored.size, background == Background::kWhite));
  if (pixels.channels == 4) vision::LayOverWhite(&pixels);
  return vision::Turn(std::move(pixels), vision::ReadOrientation(stored.kind, bytes));
}

}  // namespace minisgl
