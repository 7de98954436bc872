// GIF by giflib: the first frame on its screen.
#include <gif_lib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>

#include "vision/decoders.h"

namespace minisgl::vision {
namespace {

struct GifDeleter {
  void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
};

int ReadGifBytes(GifFileType* gif, GifByteType* to, int count) {
  auto* const left = static_cast<std::string_view*>(gif->UserData);
  const size_t taken = std::min(left->size(), static_cast<size_t>(std::max(count, 0)));
  if (taken > 0) std::memcpy(to, left->data(), taken);
  left->remove_prefix(taken);
  return static_cast<int>(taken);
}

Status GifFault(int error) {
  if (error == D_GIF_ERR_READ_FAILED || error == D_GIF_ERR_EOF_TOO_SOON) {
    return DecoderFault("GIF", "the file is cut off");
  }
  const char* const text = GifErrorString(error);
  return DecoderFault("GIF", text == nullptr ? "its data are damaged" : text);
}

// Reads up to the first frame. Returns the index that its colours give to transparent pixels.
Result<std::optional<int>> FindGifFrame(GifFileType* gif) {
  std::optional<int> transparent;
  for (;;) {
    GifRecordType record = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(gif, &record) == GIF_ERROR) return GifFault(gif->Error);
    if (record == IMAGE_DESC_RECORD_TYPE) return transparent;
    if (record != EXTENSION_RECORD_TYPE) return DecoderFault("GIF", "it has no frame");
    int code = 0;
    GifByteType* block = nullptr;
    if (DGifGetExtension(gif, &code, &block) == GIF_ERROR) return GifFault(gif->Error);
    while (block != nullptr) {
      // A graphics control: its first byte is its length.
      if (code == GRAPHICS_EXT_FUNC_CODE && block[0] >= 4) {
        transparent = (block[1] & 1) != 0 ? std::optional<int>(block[4]) : std::nullopt;
      }
      if (DGifGetExtensionNext(gif, &block) == GIF_ERROR) return GifFault(gif->Error);
    }
  }
}

struct Palette {
  std::array<std::array<uint8_t, 4>, 256> colors;
};

// Colours past the end of the palette are grays, as in Pillow.
Palette PaletteOf(const ColorMapObject* map, std::optional<int> transparent) {
  Palette palette;
  for (int i = 0; i < 256; ++i) {
    const bool has_color = map != nullptr && i < map->ColorCount;
    const auto gray = static_cast<uint8_t>(i);
    const GifColorType color = has_color ? map->Colors[i] : GifColorType{gray, gray, gray};
    const uint8_t alpha = transparent && *transparent == i ? 0 : 255;
    palette.colors[static_cast<size_t>(i)] = {color.Red, color.Green, color.Blue, alpha};
  }
  return palette;
}

// The row of the frame that is stored as its row `stored`.
int GifRow(int stored, int height, bool is_interlaced) {
  if (!is_interlaced) return stored;
  constexpr int kBegins[] = {0, 4, 2, 1}, kSteps[] = {8, 8, 4, 2};
  for (int pass = 0; pass < 4; ++pass) {
    const int count = std::max(0, (height - kBegins[pass] + kSteps[pass] - 1) / kSteps[pass]);
    if (stored < count) return kBegins[pass] + stored * kSteps[pass];
    stored -= count;
  }
  return 0;
}

}  // namespace

Result<StoredPixels> DecodeGif(std::string_view bytes, StoredSize size, bool wants_alpha) {
  int error = 0;
  std::string_view left = bytes;
  const std::unique_ptr<GifFileType, GifDeleter> gif(DGifOpen(&left, ReadGifBytes, &error));
  if (gif == nullptr) return GifFault(error);
  const auto transparent = FindGifFrame(gif.get());
  if (!transparent.ok()) return transparent.status();
  if (DGifGetImageDesc(gif.get()) == GIF_ERROR) return GifFault(gif->Error);
  const GifImageDesc& frame = gif->Image;
  const bool is_inside =
      frame.Left >= 0 && frame.Top >= 0 && frame.Width > 0 && frame.Height > 0 &&
      static_cast<uint64_t>(frame.Left) + static_cast<uint64_t>(frame.Width) <= size.width &&
      static_cast<uint64_t>(frame.Top) + static_cast<uint64_t>(frame.Height) <= size.height;
  if (!is_inside) return DecoderFault("GIF", "its frame has no pixels on its screen");
  const Palette palette =
      PaletteOf(frame.ColorMap != nullptr ? frame.ColorMap : gif->SColorMap, *transparent);
  const bool has_alpha = wants_alpha && transparent->has_value();
  const auto channels = static_cast<uint64_t>(has_alpha ? 4 : 3);
  StoredPixels pixels = {size, static_cast<int>(channels), {}};
  pixels.values.resize(size.width * size.height * channels);
  const auto put = [&](uint64_t pixel, uint8_t index) {
    std::memcpy(&pixels.values[pixel * channels], palette.colors[index].data(), channels);
  };
  // The screen around the frame has the transparent colour, or the first.
  for (uint64_t pixel = 0; pixel < size.width * size.height; ++pixel) {
    put(pixel, static_cast<uint8_t>(transparent->value_or(0)));
  }
  std::vector<GifPixelType> row(static_cast<size_t>(frame.Width));
  for (int stored = 0; stored < frame.Height; ++stored) {
    if (DGifGetLine(gif.get(), row.data(), frame.Width) == GIF_ERROR) return GifFault(gif->Error);
    const auto y = static_cast<uint64_t>(frame.Top + GifRow(stored, frame.Height, frame.Interlace));
    const uint64_t begin = y * size.width + static_cast<uint64_t>(frame.Left);
    for (size_t x = 0; x < row.size(); ++x) put(begin + x, row[x]);
  }
  return pixels;
}

}  // namespace minisgl::vision
