// Reads numbers from bytes that may have any alignment.
#pragma once

#include <cstddef>
#include <cstring>

namespace minisgl {

// The value whose bytes begin at `from`, in the byte order of the machine.
template <typename T>
T LoadBytes(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

}  // namespace minisgl
