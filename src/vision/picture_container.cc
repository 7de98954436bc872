// See picture_container.h.
#include "vision/picture_container.h"

#include <algorithm>

#include "vision/byte_reader.h"

namespace minisgl::vision {
namespace {

constexpr std::string_view kPngMagic("\x89PNG\r\n\x1a\n", 8);

// Calls visit(name, data) for each chunk of a PNG until it returns false. A chunk that the file
// cuts off is not visited.
template <typename Visit>
void ForEachPngChunk(std::string_view bytes, const Visit& visit) {
  constexpr size_t kFrame = 12;  // length, name and checksum
  for (size_t at = kPngMagic.size(); bytes.size() - std::min(at, bytes.size()) >= kFrame;) {
    const uint64_t length = BigEndian32(bytes, at);
    if (length > bytes.size() - at - kFrame) return;
    if (!visit(bytes.substr(at + 4, 4), bytes.substr(at + 8, length))) return;
    at += kFrame + length;
  }
}

Result<StoredSize> PngSize(std::string_view bytes) {
  if (bytes.size() < 33 || bytes.substr(12, 4) != "IHDR") {
    return BadInput("a PNG without its header");
  }
  return StoredSize{BigEndian32(bytes, 16), BigEndian32(bytes, 20)};
}

// A segment of a JPEG: its marker (the byte behind 0xff) and its data. Calls visit(marker, data)
// until it returns false or the compressed data begin.
template <typename Visit>
void ForEachJpegSegment(std::string_view bytes, const Visit& visit) {
  size_t at = 2;
  while (at < bytes.size()) {
    // Bytes between segments are skipped, as libjpeg does.
    at = bytes.find('\xff', at);
    if (at == std::string_view::npos) return;
    while (at < bytes.size() && bytes[at] == '\xff') ++at;
    if (at >= bytes.size()) return;
    const auto marker = static_cast<uint8_t>(bytes[at++]);
    const bool is_alone = marker == 0 || marker == 1 || (marker >= 0xd0 && marker <= 0xd8);
    if (is_alone) continue;
    if (marker == 0xd9 || marker == 0xda || bytes.size() - at < 2) return;
    const uint64_t length = BigEndian16(bytes, at);
    if (length < 2 || length > bytes.size() - at) return;
    if (!visit(marker, bytes.substr(at + 2, length - 2))) return;
    at += length;
  }
}

Result<StoredSize> JpegSize(std::string_view bytes) {
  std::optional<StoredSize> size;
  ForEachJpegSegment(bytes, [&](uint8_t marker, std::string_view data) {
    const bool is_frame =
        marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
    if (!is_frame || data.size() < 6) return true;
    size = StoredSize{BigEndian16(data, 3), BigEndian16(data, 1)};
    return false;
  });
  if (!size) return BadInput("a JPEG without a frame header");
  return *size;
}

// Calls visit(name, data) for each chunk of a WebP until it returns false. The data of a chunk that
// the file cuts off are what there is.
template <typename Visit>
void ForEachWebpChunk(std::string_view bytes, const Visit& visit) {
  for (size_t at = 12; bytes.size() - std::min(at, bytes.size()) >= 8;) {
    const uint64_t length = LittleEndian32(bytes, at + 4);
    const std::string_view data = bytes.substr(at + 8, length);
    if (!visit(bytes.substr(at, 4), data)) return;
    if (length > bytes.size() - at - 8) return;
    at += 8 + length + length % 2;
  }
}

Result<StoredSize> WebpSize(std::string_view bytes) {
  std::optional<StoredSize> size;
  ForEachWebpChunk(bytes, [&](std::string_view name, std::string_view data) {
    if (name == "VP8X" && data.size() >= 10) {
      size = StoredSize{LittleEndian24(data, 4) + 1, LittleEndian24(data, 7) + 1};
    } else if (name == "VP8 " && data.size() >= 10) {
      size = StoredSize{LittleEndian16(data, 6) & 0x3fff, LittleEndian16(data, 8) & 0x3fff};
    } else if (name == "VP8L" && data.size() >= 5) {
      const uint64_t packed = LittleEndian32(data, 1);
      size = StoredSize{(packed & 0x3fff) + 1, (packed >> 14 & 0x3fff) + 1};
    }
    return false;  // one of them comes first
  });
  if (!size) return BadInput("a WebP without its header");
  return *size;
}

// The end of the data blocks at `at`; the size of the file if it ends before.
size_t SkipGifBlocks(std::string_view bytes, size_t at) {
  while (at < bytes.size() && bytes[at] != 0) at += 1 + static_cast<uint8_t>(bytes[at]);
  return std::min(at + 1, bytes.size());
}

// The screen, made larger if the first frame lies outside it.
Result<StoredSize> GifSize(std::string_view bytes) {
  if (bytes.size() < 13) return BadInput("a GIF that ends in its header");
  StoredSize size = {LittleEndian16(bytes, 6), LittleEndian16(bytes, 8)};
  const auto flags = static_cast<uint8_t>(bytes[10]);
  size_t at = 13 + ((flags & 0x80) != 0 ? size_t{6} << (flags & 7) : 0);
  while (at < bytes.size()) {
    if (bytes[at] == '!') {
      at = SkipGifBlocks(bytes, at + 2);
    } else if (bytes[at] == ',' && bytes.size() - at >= 10) {
      size.width =
          std::max(size.width, LittleEndian16(bytes, at + 1) + LittleEndian16(bytes, at + 5));
      size.height =
          std::max(size.height, LittleEndian16(bytes, at + 3) + LittleEndian16(bytes, at + 7));
      return size;
    } else if (bytes[at] == ';') {
      break;
    } else {
      ++at;
    }
  }
  return BadInput("a GIF without a frame");
}

}  // namespace

std::optional<PictureKind> KindOfPicture(std::string_view bytes) {
  if (bytes.starts_with(kPngMagic)) return PictureKind::kPng;
  if (bytes.starts_with("\xff\xd8\xff")) return PictureKind::kJpeg;
  if (bytes.starts_with("GIF87a") || bytes.starts_with("GIF89a")) return PictureKind::kGif;
  if (bytes.size() >= 12 && bytes.starts_with("RIFF") && bytes.substr(8, 4) == "WEBP") {
    return PictureKind::kWebp;
  }
  return std::nullopt;
}

Result<StoredSize> ReadStoredSize(PictureKind kind, std::string_view bytes) {
  switch (kind) {
    case PictureKind::kPng:
      return PngSize(bytes);
    case PictureKind::kJpeg:
      return JpegSize(bytes);
    case PictureKind::kWebp:
      return WebpSize(bytes);
    case PictureKind::kGif:
      break;
  }
  return GifSize(bytes);
}

int ExifOrientation(std::string_view exif) {
  constexpr std::string_view kPrefix("Exif\0\0", 6);
  if (exif.starts_with(kPrefix)) exif.remove_prefix(kPrefix.size());
  if (exif.size() < 8) return 1;
  const bool is_big = exif.starts_with("MM");
  if (!is_big && !exif.starts_with("II")) return 1;
  const auto read16 = [&](size_t at) {
    return is_big ? BigEndian16(exif, at) : LittleEndian16(exif, at);
  };
  const uint64_t directory = is_big ? BigEndian32(exif, 4) : LittleEndian32(exif, 4);
  if (read16(2) != 42 || directory > exif.size() - 2) return 1;
  constexpr size_t kEntryBytes = 12;
  constexpr uint64_t kOrientationTag = 0x0112, kShort = 3;
  const uint64_t room = (exif.size() - directory - 2) / kEntryBytes;
  const uint64_t count = std::min(read16(directory), room);
  int orientation = 1;
  for (uint64_t i = 0; i < count; ++i) {
    const size_t at = directory + 2 + i * kEntryBytes;
    if (read16(at) != kOrientationTag || read16(at + 2) != kShort) continue;
    const uint64_t value = read16(at + 8);
    orientation = value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return orientation;
}

int ReadOrientation(PictureKind kind, std::string_view bytes) {
  int orientation = 1;
  if (kind == PictureKind::kPng) {
    ForEachPngChunk(bytes, [&](std::string_view name, std::string_view data) {
      if (name == "eXIf") orientation = ExifOrientation(data);
      return name != "eXIf" && name != "IEND";
    });
  } else if (kind == PictureKind::kJpeg) {
    ForEachJpegSegment(bytes, [&](uint8_t marker, std::string_view data) {
      const bool is_exif = marker == 0xe1 && data.starts_with(std::string_view("Exif\0\0", 6));
      if (is_exif) orientation = ExifOrientation(data);
      return !is_exif;
    });
  } else if (kind == PictureKind::kWebp) {
    ForEachWebpChunk(bytes, [&](std::string_view name, std::string_view data) {
      if (name == "EXIF") orientation = ExifOrientation(data);
      return name != "EXIF";
    });
  }
  return orientation;
}

}  // namespace minisgl::vision
