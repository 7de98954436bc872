// Decompression of an input as it is read: gzip (zlib) and Zstandard (libzstd), which a build may
// lack. Compressed input is hostile: it may grow a thousandfold and more, so callers limit what
// they take at once.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "minisgl/base/status.h"

namespace minisgl::batch {

enum class Compression { kNone, kGzip, kZstandard };

// The bytes that the beginning of an input must have before CompressionOf knows.
inline constexpr size_t kMagicBytesMax = 4;

// What the input that begins with `begin` is compressed with. nullopt: more bytes would tell;
// `is_all`: there are none.
std::optional<Compression> CompressionOf(std::string_view begin, bool is_all);

// Used by one thread.
class Decompressor {
 public:
  // kUnavailable: this build lacks the library. REQUIRES another compression than kNone.
  static Result<std::unique_ptr<Decompressor>> Make(Compression compression);
  virtual ~Decompressor() = default;

  // Takes bytes from the beginning of *input and appends at most `room` bytes to *out. Takes all of
  // the input unless it fills the room; then more may come, also without input. kBadInput: the
  // input is damaged. After an error it is not used again.
  virtual Status Next(std::string_view* input, size_t room, std::string* out) = 0;
  // True if the input may end here: a stream is complete, and there are no more bytes of it to
  // come out.
  virtual bool IsComplete() const = 0;
};

}  // namespace minisgl::batch
