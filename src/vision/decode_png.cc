// PNG by libpng.
//
// libpng leaves a failed call by longjmp. The functions that it may leave so (ReadPngInfo,
// ReadPngRows) have no objects with destructors; what they need is in PngReader, whose owner frees
// it.
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <new>

#include "vision/decoders.h"

namespace minisgl::vision {
namespace {

// The greatest ratio of lengths of deflate, rounded up.
constexpr uint64_t kGrowthMax = 1040;

struct PngReader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  const char* next = nullptr;  // bytes of the file that are not read yet
  size_t num_left = 0;
  char fault[160] = {};
  bool wants_alpha = false;
  // Set by ReadPngInfo.
  uint32_t width = 0, height = 0;
  size_t row_bytes = 0;
  int channels = 0;
  uint64_t stored_bits = 0;  // of a pixel
  // The pixels, which ReadPngRows writes.
  uint8_t* pixels = nullptr;

  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
};

[[noreturn]] void OnPngError(png_structp png, png_const_charp message) {
  auto* const reader = static_cast<PngReader*>(png_get_error_ptr(png));
  std::strncpy(reader->fault, message, sizeof(reader->fault) - 1);
  png_longjmp(png, 1);
}

void OnPngWarning(png_structp, png_const_charp) {}

void ReadPngBytes(png_structp png, png_bytep to, size_t count) {
  auto* const reader = static_cast<PngReader*>(png_get_io_ptr(png));
  if (count > reader->num_left) png_error(png, "the file is cut off");
  std::memcpy(to, reader->next, count);
  reader->next += count;
  reader->num_left -= count;
}

// Reads the header and asks for 8-bit RGB or RGBA. False: `fault` says why.
bool ReadPngInfo(PngReader* reader) {
  if (setjmp(png_jmpbuf(reader->png)) != 0) return false;
  const png_structp png = reader->png;
  png_set_read_fn(png, reader, ReadPngBytes);
  // Texts, profiles and what else has no bearing on the pixels are skipped without memory.
  constexpr int kAllAncillary = -1;
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, kAllAncillary);
  png_set_chunk_malloc_max(png, 1 << 26);
  png_set_user_limits(png, reader->width, reader->height);
  png_read_info(png, reader->info);
  const int color = png_get_color_type(png, reader->info);
  reader->stored_bits = static_cast<uint64_t>(png_get_bit_depth(png, reader->info)) *
                        png_get_channels(png, reader->info);
  const bool has_key = png_get_valid(png, reader->info, PNG_INFO_tRNS) != 0;
  const bool has_alpha = has_key || (color & PNG_COLOR_MASK_ALPHA) != 0;
  if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if ((color & PNG_COLOR_MASK_COLOR) == 0) {
    if (png_get_bit_depth(png, reader->info) < 8) png_set_expand_gray_1_2_4_to_8(png);
    png_set_gray_to_rgb(png);
  }
  if (has_key) png_set_tRNS_to_alpha(png);
  png_set_strip_16(png);
  if (has_alpha && !reader->wants_alpha) png_set_strip_alpha(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, reader->info);
  reader->width = png_get_image_width(png, reader->info);
  reader->height = png_get_image_height(png, reader->info);
  reader->row_bytes = png_get_rowbytes(png, reader->info);
  reader->channels = png_get_channels(png, reader->info);
  return true;
}

bool ReadPngRows(PngReader* reader) {
  if (setjmp(png_jmpbuf(reader->png)) != 0) return false;
  const bool is_interlaced =
      png_get_interlace_type(reader->png, reader->info) != PNG_INTERLACE_NONE;
  const int num_passes = is_interlaced ? PNG_INTERLACE_ADAM7_PASSES : 1;
  for (int pass = 0; pass < num_passes; ++pass) {
    for (uint32_t y = 0; y < reader->height; ++y) {
      png_read_row(reader->png, reader->pixels + y * reader->row_bytes, nullptr);
    }
  }
  return true;
}

}  // namespace

Result<StoredPixels> DecodePng(std::string_view bytes, StoredSize size, bool wants_alpha) {
  PngReader reader;
  reader.next = bytes.data();
  reader.num_left = bytes.size();
  reader.wants_alpha = wants_alpha;
  reader.width = static_cast<uint32_t>(size.width);
  reader.height = static_cast<uint32_t>(size.height);
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, OnPngError, OnPngWarning);
  if (reader.png == nullptr) throw std::bad_alloc();
  reader.info = png_create_info_struct(reader.png);
  if (reader.info == nullptr) throw std::bad_alloc();
  if (!ReadPngInfo(&reader)) return DecoderFault("PNG", reader.fault);
  StoredPixels pixels = {size, reader.channels, {}};
  const bool is_expected = reader.width == size.width && reader.height == size.height &&
                           (pixels.channels == 3 || (pixels.channels == 4 && wants_alpha)) &&
                           reader.row_bytes == size.width * static_cast<uint64_t>(pixels.channels);
  if (!is_expected) return DecoderFault("PNG", "its headers contradict each other");
  // Compressed data become at most 1,032 times as long, so that fewer are not all of them.
  const uint64_t stored_row_bytes = (size.width * reader.stored_bits + 7) / 8;
  if (stored_row_bytes * size.height / kGrowthMax > bytes.size()) {
    return DecoderFault("PNG", "the file is cut off");
  }
  pixels.values.resize(reader.row_bytes * reader.height);
  reader.pixels = pixels.values.data();
  if (!ReadPngRows(&reader)) return DecoderFault("PNG", reader.fault);
  return pixels;
}

}  // namespace minisgl::vision
