// Bounds on the memory that a rendering holds at one time: a constant for the template plus a
// multiple of the size of the conversation. A thread runs one rendering at a time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace minisgl::text::jinja {

// Upper bound on the length of a text, including the output: the first for any conversation, the
// second for an empty one (templates contain a few kilobytes of text). A byte of the conversation
// may appear as a six-byte escape, in several places.
inline constexpr uint64_t kTextBytesMax = uint64_t{16} << 20;
inline constexpr uint64_t kOwnTextBytesMax = uint64_t{1} << 20;
inline constexpr uint64_t kTextBytesPerByte = 16;
// The same for all values together: lists of parts of the input need several times its bytes.
inline constexpr uint64_t kHeldBytesMax = uint64_t{512} << 20;
inline constexpr uint64_t kOwnHeldBytesMax = uint64_t{6} << 20;
inline constexpr uint64_t kHeldBytesPerByte = 64;

// Bytes of the texts, lists and dicts created minus those freed on this thread.
inline thread_local int64_t g_bytes_held = 0;
// The bound for the current rendering of this thread.
inline thread_local uint64_t g_text_bytes_max = kTextBytesMax;

// Upper bound on the length of a text in the current rendering.
inline uint64_t TextBytesMax() { return g_text_bytes_max; }

// Counts bytes as held during its lifetime; stored next to the value it counts.
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

// The memory bounds of one rendering, in effect on this thread during its lifetime.
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
