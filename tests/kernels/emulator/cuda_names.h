// Names of CUDA C++ itself that kernels use, at global scope as there: built-in variables, vector
// types, barriers, warp operations, bit functions.
#pragma once

#include <math.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulator/machine.h"

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;
inline constexpr int warpSize = 32;

namespace minisgl::cuda::emulator {

// A value of 4 or 8 bytes as one word, and back.
template <typename T>
uint64_t ToWord(T value) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(T));
  return word;
}

template <typename T>
T FromWord(uint64_t word) {
  T value;
  std::memcpy(&value, &word, sizeof(T));
  return value;
}

template <typename T>
T Shuffle(WarpOp op, unsigned mask, T value, int parameter, int width, const Place& place) {
  WarpCall call{
      .op = op, .mask = mask, .value = ToWord(value), .parameter = parameter, .width = width};
  Machine::Get().MeetWarp(&call, place);
  return FromWord<T>(call.result);
}

inline uint32_t Meet(WarpOp op, unsigned mask, uint64_t value, const Place& place) {
  WarpCall call{.op = op, .mask = mask, .value = value};
  Machine::Get().MeetWarp(&call, place);
  return static_cast<uint32_t>(call.result);
}

}  // namespace minisgl::cuda::emulator

inline void __syncthreads(
    const minisgl::cuda::emulator::Place& place = minisgl::cuda::emulator::Place::current()) {
  minisgl::cuda::emulator::Machine::Get().SyncThreads(place);
}

inline void __syncwarp(unsigned mask = 0xffffffffu, const minisgl::cuda::emulator::Place& place =
                                                        minisgl::cuda::emulator::Place::current()) {
  minisgl::cuda::emulator::Meet(minisgl::cuda::emulator::WarpOp::kSyncWarp, mask, 0, place);
}

template <typename T>
T __shfl_sync(
    unsigned mask, T value, int lane, int width = 32,
    const minisgl::cuda::emulator::Place& place = minisgl::cuda::emulator::Place::current()) {
  return minisgl::cuda::emulator::Shuffle(minisgl::cuda::emulator::WarpOp::kShuffle, mask, value,
                                          lane, width, place);
}

template <typename T>
T __shfl_xor_sync(
    unsigned mask, T value, int lane_mask, int width = 32,
    const minisgl::cuda::emulator::Place& place = minisgl::cuda::emulator::Place::current()) {
  return minisgl::cuda::emulator::Shuffle(minisgl::cuda::emulator::WarpOp::kShuffleXor, mask, value,
                                          lane_mask, width, place);
}

template <typename T>
T __shfl_up_sync(
    unsigned mask, T value, unsigned distance, int width = 32,
    const minisgl::cuda::emulator::Place& place = minisgl::cuda::emulator::Place::current()) {
  return minisgl::cuda::emulator::Shuffle(minisgl::cuda::emulator::WarpOp::kShuffleUp, mask, value,
                                          static_cast<int>(distance), width, place);
}

template <typename T>
T __shfl_down_sync(
    unsigned mask, T value, unsigned distance, int width = 32,
    const minisgl::cuda::emulator::Place& place = minisgl::cuda::emulator::Place::current()) {
  return minisgl::cuda::emulator::Shuffle(minisgl::cuda::emulator::WarpOp::kShuffleDown, mask,
                                          value, static_cast<int>(distance), width, place);
}

inline unsigned __ballot_sync(
    unsigned mask, int predicate,
    const minisgl::cuda::emulator::Place& place = minisgl::cuda::emulator::Place::current()) {
  return minisgl::cuda::emulator::Meet(minisgl::cuda::emulator::WarpOp::kBallot, mask,
                                       predicate != 0, place);
}

inline int __any_sync(
    unsigned mask, int predicate,
    const minisgl::cuda::emulator::Place& place = minisgl::cuda::emulator::Place::current()) {
  return minisgl::cuda::emulator::Meet(minisgl::cuda::emulator::WarpOp::kAny, mask, predicate != 0,
                                       place) != 0;
}

inline int __all_sync(
    unsigned mask, int predicate,
    const minisgl::cuda::emulator::Place& place = minisgl::cuda::emulator::Place::current()) {
  return minisgl::cuda::emulator::Meet(minisgl::cuda::emulator::WarpOp::kAll, mask, predicate != 0,
                                       place) != 0;
}

template <typename T>
unsigned __match_any_sync(
    unsigned mask, T value,
    const minisgl::cuda::emulator::Place& place = minisgl::cuda::emulator::Place::current()) {
  return minisgl::cuda::emulator::Meet(minisgl::cuda::emulator::WarpOp::kMatch, mask,
                                       minisgl::cuda::emulator::ToWord(value), place);
}

inline unsigned __reduce_add_sync(
    unsigned mask, unsigned value,
    const minisgl::cuda::emulator::Place& place = minisgl::cuda::emulator::Place::current()) {
  return minisgl::cuda::emulator::Meet(minisgl::cuda::emulator::WarpOp::kReduceAdd, mask, value,
                                       place);
}

inline unsigned __reduce_min_sync(
    unsigned mask, unsigned value,
    const minisgl::cuda::emulator::Place& place = minisgl::cuda::emulator::Place::current()) {
  return minisgl::cuda::emulator::Meet(minisgl::cuda::emulator::WarpOp::kReduceMin, mask, value,
                                       place);
}

inline unsigned __reduce_max_sync(
    unsigned mask, unsigned value,
    const minisgl::cuda::emulator::Place& place = minisgl::cuda::emulator::Place::current()) {
  return minisgl::cuda::emulator::Meet(minisgl::cuda::emulator::WarpOp::kReduceMax, mask, value,
                                       place);
}

inline unsigned __reduce_or_sync(
    unsigned mask, unsigned value,
    const minisgl::cuda::emulator::Place& place = minisgl::cuda::emulator::Place::current()) {
  return minisgl::cuda::emulator::Meet(minisgl::cuda::emulator::WarpOp::kReduceOr, mask, value,
                                       place);
}

// A bug that the kernel found itself.
[[noreturn]] inline void __trap() { minisgl::cuda::emulator::Machine::Get().Fail("__trap"); }

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(uint64_t{a} * b >> 32);
}
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }

inline int min(int a, int b) { return b < a ? b : a; }
inline int max(int a, int b) { return a < b ? b : a; }
inline unsigned min(unsigned a, unsigned b) { return b < a ? b : a; }
inline unsigned max(unsigned a, unsigned b) { return a < b ? b : a; }
inline long min(long a, long b) { return b < a ? b : a; }
inline long max(long a, long b) { return a < b ? b : a; }
inline long long min(long long a, long long b) { return b < a ? b : a; }
inline long long max(long long a, long long b) { return a < b ? b : a; }
inline unsigned long min(unsigned long a, unsigned long b) { return b < a ? b : a; }
inline unsigned long max(unsigned long a, unsigned long b) { return a < b ? b : a; }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
