// JPEG by libjpeg (libjpeg-turbo): the accurate integer inverse transform and smooth upsampling of
// chroma, its defaults.
//
// libjpeg leaves a failed call by longjmp. The functions that it may leave so (ReadJpegHeader,
// ReadJpegRows) have no objects with destructors; what they need is in JpegReader, whose owner
// frees it.
#include <stddef.h>
#include <stdio.h>
// jpeglib.h needs the two above.
#include <jerror.h>
#include <jpeglib.h>

#include <csetjmp>
#include <cstring>

#include "vision/decoders.h"

namespace minisgl::vision {
namespace {

// Bounds on the work of a progressive file: a scan may cost two bytes of input and a pass over the
// whole picture. Encoders write about ten scans; the format allows some hundreds that make sense.
constexpr int kScansMax = 300;
constexpr uint64_t kScanPixelsMax = uint64_t{1} << 32;

struct JpegReader {
  jpeg_decompress_struct decompress = {};
  jpeg_error_mgr errors = {};
  jpeg_source_mgr source = {};
  jpeg_progress_mgr progress = {};
  std::jmp_buf leave;
  char fault[JMSG_LENGTH_MAX] = {};
  uint64_t num_pixels = 0;
  uint8_t* pixels = nullptr;  // height rows of width pixels of output_components bytes

  JpegReader() = default;
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
  // Does nothing before jpeg_create_decompress.
  ~JpegReader() { jpeg_destroy_decompress(&decompress); }
};

JpegReader* JpegReaderOf(j_common_ptr common) {
  return static_cast<JpegReader*>(common->client_data);
}

[[noreturn]] void LeaveJpeg(JpegReader* reader, const char* fault) {
  std::strncpy(reader->fault, fault, sizeof(reader->fault) - 1);
  std::longjmp(reader->leave, 1);
}

[[noreturn]] void OnJpegError(j_common_ptr common) {
  char message[JMSG_LENGTH_MAX];
  common->err->format_message(common, message);
  LeaveJpeg(JpegReaderOf(common), message);
}

void OnJpegMessage(j_common_ptr, int) {}

void OnJpegProgress(j_common_ptr common) {
  JpegReader* const reader = JpegReaderOf(common);
  const auto num_scans = static_cast<uint64_t>(reader->decompress.input_scan_number);
  if (num_scans > kScansMax || num_scans * reader->num_pixels > kScanPixelsMax) {
    LeaveJpeg(reader, "it has too many scans");
  }
}

void DoNothing(j_decompress_ptr) {}

// All of the file is in the buffer: who asks for more has come to its end.
boolean FailAtEnd(j_decompress_ptr decompress) {
  LeaveJpeg(JpegReaderOf(reinterpret_cast<j_common_ptr>(decompress)), "the file is cut off");
}

void SkipBytes(j_decompress_ptr decompress, long count) {
  if (count <= 0) return;
  jpeg_source_mgr* const source = decompress->src;
  if (static_cast<size_t>(count) > source->bytes_in_buffer) FailAtEnd(decompress);
  source->next_input_byte += count;
  source->bytes_in_buffer -= static_cast<size_t>(count);
}

// Reads the headers of `bytes` and starts to decode. False: `fault` says why.
bool ReadJpegHeader(JpegReader* reader, const char* bytes, size_t num_bytes) {
  jpeg_decompress_struct& decompress = reader->decompress;
  decompress.err = jpeg_std_error(&reader->errors);
  reader->errors.error_exit = OnJpegError;
  reader->errors.emit_message = OnJpegMessage;
  decompress.client_data = reader;
  if (setjmp(reader->leave) != 0) return false;
  jpeg_create_decompress(&decompress);
  reader->source.next_input_byte = reinterpret_cast<const JOCTET*>(bytes);
  reader->source.bytes_in_buffer = num_bytes;
  reader->source.init_source = DoNothing;
  reader->source.fill_input_buffer = FailAtEnd;
  reader->source.skip_input_data = SkipBytes;
  reader->source.resync_to_restart = jpeg_resync_to_restart;
  reader->source.term_source = DoNothing;
  decompress.src = &reader->source;
  reader->progress.progress_monitor = OnJpegProgress;
  decompress.progress = &reader->progress;
  jpeg_read_header(&decompress, TRUE);
  if (decompress.num_components == 1) {
    decompress.out_color_space = JCS_GRAYSCALE;
  } else if (decompress.num_components == 3) {
    decompress.out_color_space = JCS_RGB;
  } else if (decompress.num_components == 4) {
    decompress.out_color_space = JCS_CMYK;
  } else {
    LeaveJpeg(reader, "it has neither 1, 3 nor 4 colour components");
  }
  jpeg_calc_output_dimensions(&decompress);
  return true;
}

bool ReadJpegRows(JpegReader* reader) {
  jpeg_decompress_struct& decompress = reader->decompress;
  if (setjmp(reader->leave) != 0) return false;
  jpeg_start_decompress(&decompress);
  const size_t row_bytes = static_cast<size_t>(decompress.output_width) *
                           static_cast<size_t>(decompress.output_components);
  while (decompress.output_scanline < decompress.output_height) {
    JSAMPROW row = reader->pixels + decompress.output_scanline * row_bytes;
    jpeg_read_scanlines(&decompress, &row, 1);
  }
  return true;
}

// a * b / 255, rounded.
uint8_t MulDiv255(uint32_t a, uint32_t b) {
  const uint32_t product = a * b + 128;
  return static_cast<uint8_t>(((product >> 8) + product) >> 8);
}

// Widens or narrows the pixels of `from` channels to RGB, in place. Four channels are CMYK,
// inverted as Adobe's programs write them.
void MakeRgb(int from, uint64_t num_pixels, std::vector<uint8_t>* values) {
  uint8_t* const data = values->data();
  if (from == 1) {
    values->resize(num_pixels * 3);
    uint8_t* const wide = values->data();
    for (uint64_t i = num_pixels; i-- > 0;) {
      const uint8_t gray = wide[i];
      wide[3 * i] = wide[3 * i + 1] = wide[3 * i + 2] = gray;
    }
  } else if (from == 4) {
    for (uint64_t i = 0; i < num_pixels; ++i) {
      const uint8_t black = data[4 * i + 3];
      for (uint64_t c = 0; c < 3; ++c) {
        const uint8_t ink = static_cast<uint8_t>(255 - data[4 * i + c]);
        data[3 * i + c] = static_cast<uint8_t>(black - MulDiv255(ink, black));
      }
    }
    values->resize(num_pixels * 3);
  }
}

}  // namespace

Result<StoredPixels> DecodeJpeg(std::string_view bytes, StoredSize size) {
  JpegReader reader;
  reader.num_pixels = size.width * size.height;
  if (!ReadJpegHeader(&reader, bytes.data(), bytes.size()))
    return DecoderFault("JPEG", reader.fault);
  const jpeg_decompress_struct& decompress = reader.decompress;
  if (decompress.output_width != size.width || decompress.output_height != size.height) {
    return DecoderFault("JPEG", "its headers contradict each other");
  }
  StoredPixels pixels = {size, 3, {}};
  pixels.values.resize(reader.num_pixels * static_cast<uint64_t>(decompress.num_components));
  reader.pixels = pixels.values.data();
  if (!ReadJpegRows(&reader)) return DecoderFault("JPEG", reader.fault);
  MakeRgb(decompress.num_components, reader.num_pixels, &pixels.values);
  return pixels;
}

}  // namespace minisgl::vision
