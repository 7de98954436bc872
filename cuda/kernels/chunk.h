// Rows in chunks of 8 elements (or of N), read and written as floats: a thread's part of an
// elementwise kernel.
//
// Aligned rows begin at multiples of 16 bytes and consist of whole chunks: a chunk is accessed in
// units of 16 bytes, or as a whole if it is less. Otherwise it is accessed element by element, and
// a row's last chunk may be short.
#pragma once

#include <cstdint>

#include "device/device.h"

namespace minisgl::cuda {

inline constexpr int kChunk = 8;  // 16 bytes of 16-bit elements

inline bool IsAligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// Reads N elements as floats, in accesses of 16 bytes (or of all N, if that is less). REQUIRES p
// aligned to one access.
template <int N, typename T>
MINISGL_DEVICE void LoadFloats(const T* p, float (&v)[N]) {
  constexpr int kVec = N < 16 / static_cast<int>(sizeof(T)) ? N : 16 / static_cast<int>(sizeof(T));
#pragma unroll
  for (int begin = 0; begin < N; begin += kVec) {
    const device::Vec<T, kVec> part = device::LoadVec<kVec>(p + begin);
#pragma unroll
    for (int i = 0; i < kVec; ++i) v[begin + i] = device::ToFloat(part[i]);
  }
}

template <int N, typename T>
MINISGL_DEVICE void StoreFloats(T* p, const float (&v)[N]) {
  constexpr int kVec = N < 16 / static_cast<int>(sizeof(T)) ? N : 16 / static_cast<int>(sizeof(T));
#pragma unroll
  for (int begin = 0; begin < N; begin += kVec) {
    device::Vec<T, kVec> part;
#pragma unroll
    for (int i = 0; i < kVec; ++i) part[i] = device::FromFloat<T>(v[begin + i]);
    device::StoreVec(p + begin, part);
  }
}

// Reads elements [0, count) from p on; the rest of the chunk is 0.
template <typename T, int N>
MINISGL_DEVICE void LoadChunk(const T* p, int64_t count, bool aligned, float (&v)[N]) {
  if (aligned) {
    LoadFloats(p, v);
    return;
  }
#pragma unroll
  for (int i = 0; i < N; ++i) v[i] = i < count ? device::ToFloat(p[i]) : 0.0f;
}

template <typename T, int N>
MINISGL_DEVICE void StoreChunk(T* p, int64_t count, bool aligned, const float (&v)[N]) {
  if (aligned) {
    StoreFloats(p, v);
    return;
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i < count) p[i] = device::FromFloat<T>(v[i]);
  }
}

}  // namespace minisgl::cuda
