// Integers at a place in bytes. REQUIRES that the bytes are there. Thread-safe (no state).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace minisgl::vision {

inline uint64_t ByteAt(std::string_view bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at]);
}
inline uint64_t BigEndian16(std::string_view bytes, size_t at) {
  return ByteAt(bytes, at) << 8 | ByteAt(bytes, at + 1);
}
inline uint64_t BigEndian32(std::string_view bytes, size_t at) {
  return BigEndian16(bytes, at) << 16 | BigEndian16(bytes, at + 2);
}
inline uint64_t LittleEndian16(std::string_view bytes, size_t at) {
  return ByteAt(bytes, at) | ByteAt(bytes, at + 1) << 8;
}
inline uint64_t LittleEndian24(std::string_view bytes, size_t at) {
  return LittleEndian16(bytes, at) | ByteAt(bytes, at + 2) << 16;
}
inline uint64_t LittleEndian32(std::string_view bytes, size_t at) {
  return LittleEndian16(bytes, at) | LittleEndian16(bytes, at + 2) << 16;
}

}  // namespace minisgl::vision
