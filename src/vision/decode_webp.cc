// WebP by libwebp: a still picture, or the first frame of an animation on its canvas.
#include <webp/decode.h>
#include <webp/demux.h>

#include <cstring>
#include <memory>
#include <new>

#include "vision/decoders.h"

namespace minisgl::vision {
namespace {

struct DemuxDeleter {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};

const char* WebpFault(VP8StatusCode code) {
  switch (code) {
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "it uses a feature that the library does not read";
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return "the file is cut off";
    default:
      return "its data are damaged";
  }
}

// Decodes `frame` to its place on the canvas `pixels`. kBadInput: it does not lie within,
// or is damaged.
Status DecodeWebpFrame(const WebPIterator& frame, StoredPixels* pixels) {
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) return DecoderFault("WebP", "another library is loaded");
  const VP8StatusCode looked =
      WebPGetFeatures(frame.fragment.bytes, frame.fragment.size, &config.input);
  if (looked != VP8_STATUS_OK) return DecoderFault("WebP", WebpFault(looked));
  const StoredSize canvas = pixels->size;
  const auto x = static_cast<uint64_t>(frame.x_offset), y = static_cast<uint64_t>(frame.y_offset);
  const auto width = static_cast<uint64_t>(config.input.width);
  const auto height = static_cast<uint64_t>(config.input.height);
  if (frame.x_offset < 0 || frame.y_offset < 0 || x + width > canvas.width ||
      y + height > canvas.height) {
    return DecoderFault("WebP", "its frame lies outside its canvas");
  }
  const auto channels = static_cast<uint64_t>(pixels->channels);
  const uint64_t row_bytes = canvas.width * channels;
  const uint64_t begin = y * row_bytes + x * channels;
  config.output.colorspace = channels == 4 ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = pixels->values.data() + begin;
  config.output.u.RGBA.stride = static_cast<int>(row_bytes);
  config.output.u.RGBA.size = pixels->values.size() - begin;
  const VP8StatusCode decoded = WebPDecode(frame.fragment.bytes, frame.fragment.size, &config);
  WebPFreeDecBuffer(&config.output);
  if (decoded == VP8_STATUS_OUT_OF_MEMORY) throw std::bad_alloc();
  return decoded == VP8_STATUS_OK ? Status() : DecoderFault("WebP", WebpFault(decoded));
}

}  // namespace

Result<StoredPixels> DecodeWebp(std::string_view bytes, StoredSize size, bool wants_alpha) {
  const WebPData data = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  WebPDemuxState state = WEBP_DEMUX_PARSE_ERROR;
  const std::unique_ptr<WebPDemuxer, DemuxDeleter> demuxer(WebPDemuxPartial(&data, &state));
  if (state != WEBP_DEMUX_DONE || demuxer == nullptr) {
    const bool is_damaged = state == WEBP_DEMUX_PARSE_ERROR;
    return DecoderFault("WebP", is_damaged ? "its data are damaged" : "the file is cut off");
  }
  if (WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH) != size.width ||
      WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT) != size.height) {
    return DecoderFault("WebP", "its headers contradict each other");
  }
  WebPIterator frame = {};
  if (WebPDemuxGetFrame(demuxer.get(), 1, &frame) == 0) {
    return DecoderFault("WebP", "it has no frame");
  }
  const bool is_animated =
      (WebPDemuxGetI(demuxer.get(), WEBP_FF_FORMAT_FLAGS) & ANIMATION_FLAG) != 0;
  // The canvas of an animation is transparent where its first frame is not.
  const bool has_alpha = frame.has_alpha != 0 || is_animated;
  StoredPixels pixels = {size, has_alpha && wants_alpha ? 4 : 3, {}};
  pixels.values.resize(size.width * size.height * static_cast<uint64_t>(pixels.channels));
  const Status decoded = DecodeWebpFrame(frame, &pixels);
  WebPDemuxReleaseIterator(&frame);
  if (!decoded.ok()) return decoded;
  return pixels;
}

}  // namespace minisgl::vision
