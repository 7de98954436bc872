// How much memory a rendering may hold at one time: of the conversation it is given some multiples,
// and a little that a template needs for itself. A thread runs one rendering at a time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace minisgl::text::jinja {

// The longest text, the output among them, for a conversation of any size, and for one of none:
// templates say a few kilobytes themselves. A byte of the conversation may come back as an escape
// of six, in several places.
inline constexpr uint64_t kTextBytesMax = uint64_t{16} << 20;
inline constexpr uint64_t kOwnTextBytesMax = uint64_t{1} << 20;
inline constexpr uint64_t kTextBytesPerByte = 16;
// All values together: lists of what it was given take several times its bytes.
inline constexpr uint64_t kHeldBytesMax = uint64_t{512} << 20;
inline constexpr uint64_t kOwnHeldBytesMax = uint64_t{6} << 20;
inline constexpr uint64_t kHeldBytesPerByte = 64;

// What texts, lists and dicts take that were made on this thread, less those given back on it.
inline thread_local int64_t g_bytes_held = 0;
// Of the rendering that this thread runs.
inline thread_local uint64_t g_text_bytes_max = kTextBytesMax;

inline uint64_t TextBytesMax() { return g_text_bytes_max; }

// Beside a value: counts it as long as it is there.
class HeldBytes {
 public:
  explicit HeldBytes(uint64_t bytes) { Add(bytes); }
  ~HeldBytes() { g_bytes_held -= bytes_; }
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;
  void Add(uint64_t bytes) {
    bytes_ += static_cast<int64_t>(bytes);
    g_bytes_held += static_cast<int64_t>(bytes);
  }

 private:
  int64_t bytes_ = 0;
};

// The bounds of one rendering on this thread, as long as it is there.
class MemoryBounds {
 public:
  explicit MemoryBounds(uint64_t input_bytes) : outer_text_bytes_max_(g_text_bytes_max) {
    const uint64_t bytes = std::min(input_bytes, kHeldBytesMax);
    g_text_bytes_max = std::min(kTextBytesMax, kOwnTextBytesMax + kTextBytesPerByte * bytes);
    held_max_ = std::min(kHeldBytesMax, kOwnHeldBytesMax + kHeldBytesPerByte * bytes);
  }
  ~MemoryBounds() { g_text_bytes_max = outer_text_bytes_max_; }
  MemoryBounds(const MemoryBounds&) = delete;
  MemoryBounds& operator=(const MemoryBounds&) = delete;

  uint64_t held_max() const { return held_max_; }
  bool IsBroken() const { return g_bytes_held - held_before_ > static_cast<int64_t>(held_max_); }

 private:
  const int64_t held_before_ = g_bytes_held;
  const uint64_t outer_text_bytes_max_;
  uint64_t held_max_ = 0;
};

}  // namespace minisgl::text::jinja
