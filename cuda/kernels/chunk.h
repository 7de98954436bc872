// Rows taken in chunks of 8 elements: one thread's piece of an elementwise kernel, as floats.
//
// Aligned: rows begin at multiples of 16 bytes and have whole chunks only; then a chunk moves in
// accesses of 16 bytes. Otherwise it moves element by element, and the last of a row may be short.
#pragma once

#include <cstdint>

#include "device/device.h"

namespace minisgl {

inline constexpr int kChunk = 8;  // 16 bytes of 16-bit elements

inline bool IsAligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// N elements as floats, in accesses of 16 bytes (or of all N, where that is less), to which p is
// aligned.
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

// Elements [0, count) from p on, zeros behind them.
template <typename T>
MINISGL_DEVICE void LoadChunk(const T* p, int64_t count, bool aligned, float (&v)[kChunk]) {
  if (aligned) {
    LoadFloats(p, v);
    return;
  }
#pragma unroll
  for (int i = 0; i < kChunk; ++i) v[i] = i < count ? device::ToFloat(p[i]) : 0.0f;
}

template <typename T>
MINISGL_DEVICE void StoreChunk(T* p, int64_t count, bool aligned, const float (&v)[kChunk]) {
  if (aligned) {
    StoreFloats(p, v);
    return;
  }
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    if (i < count) p[i] = device::FromFloat<T>(v[i]);
  }
}

}  // namespace minisgl
