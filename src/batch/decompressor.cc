#include "batch/decompressor.h"

#include <algorithm>
#include <new>
#include <span>
#include <utility>

#include "minisgl/base/check.h"

#if MINISGL_HAS_ZLIB
#include <zlib.h>
#endif
#if MINISGL_HAS_ZSTD
#include <zstd.h>
#include <zstd_errors.h>
#endif

namespace minisgl::batch {
namespace {

constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr std::string_view kZstandardMagic = "\x28\xb5\x2f\xfd";

#if MINISGL_HAS_ZLIB
// Streams one after the other are one text, as gunzip has it. Zeros after the last are padding.
class GzipDecompressor final : public Decompressor {
 public:
  GzipDecompressor() {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~GzipDecompressor() override { inflateEnd(&stream_); }

  Status Next(std::string_view* input, size_t room, std::string* out) override {
    const size_t size = out->size();
    out->resize(size + room);
    size_t made = 0;
    Status status;
    do {
      if (is_complete_) {
        input->remove_prefix(std::min(input->find_first_not_of('\0'), input->size()));
        if (input->empty()) break;
        inflateReset(&stream_);
      }
      status = Inflate(input, std::span(*out).subspan(size + made), &made);
    } while (status.ok() && made < room && !input->empty());
    out->resize(size + made);
    return status;
  }
  bool IsComplete() const override { return is_complete_; }

 private:
  Status Inflate(std::string_view* input, std::span<char> to, size_t* made) {
    constexpr size_t kPieceMax = size_t{1} << 30;
    const auto given = static_cast<uInt>(std::min(input->size(), kPieceMax));
    const auto room = static_cast<uInt>(std::min(to.size(), kPieceMax));
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input->data()));
    stream_.avail_in = given;
    stream_.next_out = reinterpret_cast<Bytef*>(to.data());
    stream_.avail_out = room;
    const int result = inflate(&stream_, Z_NO_FLUSH);
    input->remove_prefix(given - stream_.avail_in);
    *made += room - stream_.avail_out;
    is_complete_ = result == Z_STREAM_END;
    if (result == Z_MEM_ERROR) throw std::bad_alloc();
    if (result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR) return Status();
    return BadInput("its gzip data are damaged ({})",
                    stream_.msg == nullptr ? "another format" : stream_.msg);
  }

  z_stream stream_{};
  bool is_complete_ = false;
};
#endif

#if MINISGL_HAS_ZSTD
// Frames one after the other are one text. A frame that needs more than 128 MiB of memory is
// refused by the library.
class ZstandardDecompressor final : public Decompressor {
 public:
  ZstandardDecompressor() : stream_(ZSTD_createDStream()) {
    if (stream_ == nullptr) throw std::bad_alloc();
  }
  ~ZstandardDecompressor() override { ZSTD_freeDStream(stream_); }

  Status Next(std::string_view* input, size_t room, std::string* out) override {
    const size_t size = out->size();
    out->resize(size + room);
    ZSTD_inBuffer in = {input->data(), input->size(), 0};
    ZSTD_outBuffer to = {out->data() + size, room, 0};
    // With a full buffer it keeps bytes back, which come without more input.
    while (to.pos < to.size && (in.pos < in.size || missing_ > 0)) {
      const size_t taken = in.pos, made = to.pos;
      missing_ = ZSTD_decompressStream(stream_, &to, &in);
      if (ZSTD_isError(missing_) != 0) break;
      has_begun_ = true;
      if (in.pos == taken && to.pos == made) break;
    }
    input->remove_prefix(in.pos);
    out->resize(size + to.pos);
    if (ZSTD_isError(missing_) == 0) return Status();
    if (ZSTD_getErrorCode(missing_) == ZSTD_error_memory_allocation) throw std::bad_alloc();
    return BadInput("its Zstandard data are damaged ({})", ZSTD_getErrorName(missing_));
  }
  bool IsComplete() const override { return has_begun_ && missing_ == 0; }

 private:
  ZSTD_DStream* const stream_;
  size_t missing_ = 0;  // 0: a frame is complete
  bool has_begun_ = false;
};
#endif

}  // namespace

std::optional<Compression> CompressionOf(std::string_view begin, bool is_all) {
  for (const auto& [magic, compression] :
       {std::pair(kGzipMagic, Compression::kGzip), {kZstandardMagic, Compression::kZstandard}}) {
    if (begin.starts_with(magic)) return compression;
    if (magic.starts_with(begin) && !is_all) return std::nullopt;
  }
  return Compression::kNone;
}

Result<std::unique_ptr<Decompressor>> Decompressor::Make(Compression compression) {
  MINISGL_CHECK(compression != Compression::kNone, "nothing to decompress");
#if MINISGL_HAS_ZLIB
  if (compression == Compression::kGzip) {
    return std::unique_ptr<Decompressor>(std::make_unique<GzipDecompressor>());
  }
#endif
#if MINISGL_HAS_ZSTD
  if (compression == Compression::kZstandard) {
    return std::unique_ptr<Decompressor>(std::make_unique<ZstandardDecompressor>());
  }
#endif
  const bool is_gzip = compression == Compression::kGzip;
  return MakeStatus(StatusCode::kUnavailable,
                    "it is compressed with {}, which this build does not read (it was built "
                    "without {}); give the output of {} on standard input",
                    is_gzip ? "gzip" : "Zstandard", is_gzip ? "zlib" : "libzstd",
                    is_gzip ? "gunzip -c" : "zstd -dc");
}

}  // namespace minisgl::batch
