// The functions and types of cuda/device/device.h on the thread-block emulator, and the part of
// CUDA C++ that kernels may use. Included by kernels only, through device/device.h.
//
// Shared<T> returns proxies: s[i] reads when it is converted to T and writes when it is assigned;
// both are checked. Warp operations and barriers record their source location.
#pragma once

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulator/cuda_names.h"
#include "emulator/machine.h"
#include "minisgl/tensor/dtype.h"

#define MINISGL_KERNEL
#define MINISGL_GRID_CONSTANT const
#define MINISGL_DEVICE inline
#define MINISGL_LAUNCH_BOUNDS(threads, blocks_per_sm)

namespace minisgl::cuda::device {

inline constexpr int kWarpSize = 32;

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

inline float ToFloat(float x) { return x; }
inline float ToFloat(bf16 x) { return Bf16ToFloat(x.bits); }
inline float ToFloat(f16 x) { return F16ToFloat(x.bits); }

template <typename T>
T FromFloat(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else if constexpr (std::is_same_v<T, bf16>) {
    return {FloatToBf16(x)};
  } else {
    static_assert(std::is_same_v<T, f16>);
    return {FloatToF16(x)};
  }
}

template <typename T>
uint32_t Pack2(float low, float high) {
  return FromFloat<T>(low).bits | static_cast<uint32_t>(FromFloat<T>(high).bits) << 16;
}

template <typename T>
uint32_t Pack2Finite(float low, float high) {
  if constexpr (std::is_same_v<T, f16>) {
    constexpr float kMost = 65504;
    const auto finite = [](float x) { return x > kMost ? kMost : x < -kMost ? -kMost : x; };
    return Pack2<T>(finite(low), finite(high));
  }
  return Pack2<T>(low, high);
}

inline uint32_t E4M3Code(float x) {
  if (x != x) return 0x7F;
  constexpr float kMost = 448;
  const uint32_t sign = std::signbit(x) ? 0x80 : 0;
  const float size = std::fabs(x);
  if (size >= kMost) return sign | 0x7E;
  // Numbers below 2^-6 are multiples of 2^-9; others have four significant bits.
  if (size < 0x1p-6f) return sign | static_cast<uint32_t>(std::nearbyint(size * 512));
  const int exponent = std::ilogb(size);
  const auto digits = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, 3 - exponent)));
  return sign | ((static_cast<uint32_t>(exponent + 7) << 3) + (digits - 8));
}
inline uint32_t PackE4M3(float low, float high) { return E4M3Code(low) | E4M3Code(high) << 8; }

template <typename T>
float2 Unpack2(uint32_t word) {
  return {ToFloat(T{static_cast<uint16_t>(word)}), ToFloat(T{static_cast<uint16_t>(word >> 16)})};
}

template <typename T, int N>
struct alignas(sizeof(T) * N) Vec {
  static_assert(sizeof(T) * N <= 16);
  T element[N];
  T& operator[](int i) { return element[i]; }
  const T& operator[](int i) const { return element[i]; }
};

// Global memory.

template <int N, typename T>
Vec<T, N> LoadVec(const T* p, const emulator::Place& place = emulator::Place::current()) {
  emulator::Machine::Get().AccessGlobal(emulator::Access::kRead, p, sizeof(T) * N, sizeof(T) * N,
                                        {"LoadVec", place});
  Vec<T, N> v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

template <int N, typename T>
Vec<T, N> LoadStream(const T* p, const emulator::Place& place = emulator::Place::current()) {
  emulator::Machine::Get().AccessGlobal(emulator::Access::kRead, p, sizeof(T) * N, sizeof(T) * N,
                                        {"LoadStream", place});
  Vec<T, N> v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

// The lines beside it are those of the matrix or past its end, which no access reads.
template <int N, typename T>
Vec<T, N> LoadStreamWide(const T* p, const emulator::Place& place = emulator::Place::current()) {
  return LoadStream<N>(p, place);
}

template <int N, typename T>
void StoreVec(T* p, const Vec<T, N>& v, const emulator::Place& place = emulator::Place::current()) {
  emulator::Machine::Get().AccessGlobal(emulator::Access::kWrite, p, sizeof(T) * N, sizeof(T) * N,
                                        {"StoreVec", place, &v});
  std::memcpy(p, &v, sizeof(v));
}

// Shared memory.

template <typename T>
class Shared;

// Element of a Shared<T>; lives as long as the expression that names it.
template <typename T>
class SharedElement {
 public:
  SharedElement(const SharedElement&) = delete;
  operator T() && { return shared_.Read(index_); }  // NOLINT: stands for a T
  void operator=(T value) && { shared_.Write(index_, value); }
  void operator=(SharedElement&& other) && { shared_.Write(index_, std::move(other)); }
  void operator+=(T value) && {
    Update([&](T old) { return old + value; });
  }
  void operator-=(T value) && {
    Update([&](T old) { return old - value; });
  }
  void operator*=(T value) && {
    Update([&](T old) { return old * value; });
  }
  void operator/=(T value) && {
    Update([&](T old) { return old / value; });
  }
  void operator|=(T value) && {
    Update([&](T old) { return old | value; });
  }
  void operator&=(T value) && {
    Update([&](T old) { return old & value; });
  }
  void operator^=(T value) && {
    Update([&](T old) { return old ^ value; });
  }
  T operator++() && {
    return Update([](T old) { return old + 1; });
  }
  T operator++(int) && { return std::move(*this).operator++() - 1; }

 private:
  friend class Shared<T>;
  SharedElement(const Shared<T>& shared, int index) : shared_(shared), index_(index) {}
  template <typename Fn>
  T Update(const Fn& fn) {
    const T value = static_cast<T>(fn(shared_.Read(index_)));
    shared_.Write(index_, value);
    return value;
  }
  const Shared<T>& shared_;
  int index_;
};

template <typename T>
class Shared {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Shared() = default;
  Shared(const emulator::SharedArray& array, int64_t offset) : array_(array), offset_(offset) {}
  SharedElement<T> operator[](int i) const { return SharedElement<T>(*this, i); }
  Shared operator+(int i) const { return Shared(array_, At(i)); }
  template <typename U>
  Shared<U> As() const {
    return Shared<U>(array_, offset_);
  }

  T Read(int i) const {
    T value;
    std::memcpy(&value, Access(emulator::Access::kRead, i, sizeof(T), alignof(T)), sizeof(T));
    return value;
  }
  void Write(int i, T value) const {
    std::memcpy(Access(emulator::Access::kWrite, i, sizeof(T), alignof(T)), &value, sizeof(T));
  }
  unsigned char* Access(emulator::Access access, int i, size_t num_bytes, size_t alignment) const {
    return emulator::Machine::Get().AccessShared(access, array_, At(i), static_cast<int>(num_bytes),
                                                 static_cast<int>(alignment));
  }
  const emulator::SharedArray& array() const { return array_; }
  int64_t offset() const { return offset_; }

 private:
  int64_t At(int i) const { return offset_ + int64_t{i} * static_cast<int64_t>(sizeof(T)); }
  emulator::SharedArray array_;
  int64_t offset_ = 0;
};

template <int N, typename T>
Vec<T, N> LoadShared(Shared<T> s) {
  Vec<T, N> v;
  std::memcpy(&v, s.Access(emulator::Access::kRead, 0, sizeof(v), sizeof(v)), sizeof(v));
  return v;
}

template <int N, typename T>
void StoreShared(Shared<T> s, const Vec<T, N>& v) {
  std::memcpy(s.Access(emulator::Access::kWrite, 0, sizeof(v), sizeof(v)), &v, sizeof(v));
}

class SharedArena {
 public:
  template <typename T>
  Shared<T> Take(int count, const emulator::Place& place = emulator::Place::current()) {
    const int64_t num_bytes = int64_t{count} * static_cast<int64_t>(sizeof(T));
    const emulator::SharedArray array =
        emulator::Machine::Get().Take(num_taken_++, next_, num_bytes, place);
    const int64_t begin = next_;
    next_ += (num_bytes + 15) / 16 * 16;
    return Shared<T>(array, begin);
  }

 private:
  int num_taken_ = 0;
  int64_t next_ = 0;
};

template <typename T>
void CopyAsync16(Shared<T> dst, const T* src, bool valid,
                 const emulator::Place& place = emulator::Place::current()) {
  emulator::Machine::Get().CopyAsync16(dst.array(), dst.offset(), src, valid, place);
}

template <typename T>
void CopyAsync16Wide(Shared<T> dst, const T* src, bool valid,
                     const emulator::Place& place = emulator::Place::current()) {
  CopyAsync16(dst, src, valid, place);
}

template <typename T>
void CopyAsync16(Shared<T> dst, const T* src,
                 const emulator::Place& place = emulator::Place::current()) {
  CopyAsync16(dst, src, true, place);
}

inline void CopyAsyncCommit() { emulator::Machine::Get().CopyAsyncCommit(); }

template <int N>
void CopyAsyncWait() {
  emulator::Machine::Get().CopyAsyncWait(N);
}

// Tensor cores.

template <typename T>
void LoadMatrix(emulator::WarpOp op, uint32_t (&regs)[4], Shared<T> row,
                const emulator::Place& place) {
  emulator::WarpCall call{.op = op, .fragments = regs};
  std::memcpy(call.row.data(), row.Access(emulator::Access::kRead, 0, 16, 16), 16);
  emulator::Machine::Get().MeetWarp(&call, place);
}

template <typename T>
void LoadMatrix4(uint32_t (&regs)[4], Shared<T> row,
                 const emulator::Place& place = emulator::Place::current()) {
  LoadMatrix(emulator::WarpOp::kLoadMatrix, regs, row, place);
}

template <typename T>
void LoadMatrix4Trans(uint32_t (&regs)[4], Shared<T> row,
                      const emulator::Place& place = emulator::Place::current()) {
  LoadMatrix(emulator::WarpOp::kLoadMatrixTrans, regs, row, place);
}

template <typename T>
void Mma16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
              const emulator::Place& place = emulator::Place::current()) {
  static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, f16>);
  emulator::WarpCall call{
      .op = std::is_same_v<T, bf16> ? emulator::WarpOp::kMmaBf16 : emulator::WarpOp::kMmaF16,
      .d = d,
      .a = a,
      .b = b};
  emulator::Machine::Get().MeetWarp(&call, place);
}

inline void GridWait() { emulator::Machine::Get().GridWait(); }
inline void GridRelease() { emulator::Machine::Get().GridRelease(); }

// Fetches nothing; the range must be one of global memory.
template <typename T>
void PrefetchL2(const T* p, uint32_t num_bytes) {
  emulator::Machine::Get().PrefetchL2(p, num_bytes);
}

template <typename T>
void PrefetchL2Last(const T* p, uint32_t num_bytes) {
  PrefetchL2(p, num_bytes);
}

// Other ranks, whose kernels run on other OS threads, go on meanwhile.
inline void Sleep(uint32_t) { emulator::GiveTurn(); }
inline int64_t Nanoseconds() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline float Exp2(float x) { return exp2f(x); }
inline float Exp(float x) { return expf(x); }
inline float Log(float x) { return logf(x); }
inline float Tanh(float x) { return tanhf(x); }
inline float Erfc(float x) { return erfcf(x); }
inline float Sqrt(float x) { return sqrtf(x); }
inline float MulRn(float a, float b) { return a * b; }
inline float AddRn(float a, float b) { return a + b; }
inline float DivRn(float a, float b) { return a / b; }
template <typename T>
uint32_t MulPairs(uint32_t a, uint32_t b) {
  const float2 x = Unpack2<T>(a), y = Unpack2<T>(b);
  return Pack2<T>(x.x * y.x, x.y * y.y);
}
template <typename T>
uint32_t AddPairs(uint32_t a, uint32_t b) {
  const float2 x = Unpack2<T>(a), y = Unpack2<T>(b);
  return Pack2<T>(x.x + y.x, x.y + y.y);
}
inline float BitsToFloat(uint32_t bits) { return std::bit_cast<float>(bits); }
inline float Rsqrt(float x) { return 1.0f / sqrtf(x); }

// Atomics, of the types that CUDA has them for.

template <typename T, typename... Ts>
inline constexpr bool kIsOneOf = (std::is_same_v<T, Ts> || ...);

template <typename T, typename Fn>
T UpdateShared(Shared<T> s, const Fn& fn) {
  unsigned char* const p = s.Access(emulator::Access::kAtomic, 0, sizeof(T), alignof(T));
  T old;
  std::memcpy(&old, p, sizeof(T));
  const T changed = static_cast<T>(fn(old));
  std::memcpy(p, &changed, sizeof(T));
  return old;
}

template <typename T>
T AtomicAddShared(Shared<T> s, T value) {
  static_assert(kIsOneOf<T, int, unsigned, unsigned long long, float, double>);
  return UpdateShared(s, [&](T old) { return old + value; });
}

template <typename T>
T AtomicMaxShared(Shared<T> s, T value) {
  static_assert(kIsOneOf<T, int, unsigned, unsigned long long, long long>);
  return UpdateShared(s, [&](T old) { return old > value ? old : value; });
}

template <typename T, typename Fn>
T UpdateGlobal(T* p, const emulator::Call& call, const Fn& fn) {
  emulator::Machine& machine = emulator::Machine::Get();
  const T old = emulator::FromWord<T>(machine.BeginAtomic(p, sizeof(T), call));
  machine.EndAtomic(p, sizeof(T), emulator::ToWord<T>(fn(old)));
  return old;
}

template <typename T>
T AtomicAddGlobal(T* p, T value, const emulator::Place& place = emulator::Place::current()) {
  static_assert(kIsOneOf<T, int, unsigned, unsigned long long, float, double>);
  return UpdateGlobal(p, {"AtomicAddGlobal", place}, [&](T old) { return old + value; });
}

template <typename T>
T AtomicExchangeGlobal(T* p, T value, const emulator::Place& place = emulator::Place::current()) {
  static_assert(kIsOneOf<T, int, unsigned, unsigned long long, float>);
  return UpdateGlobal(p, {"AtomicExchangeGlobal", place}, [&](T) { return value; });
}

template <typename T>
T AtomicCompareExchangeGlobal(T* p, T expected, T value,
                              const emulator::Place& place = emulator::Place::current()) {
  static_assert(kIsOneOf<T, int, unsigned, unsigned long long>);
  emulator::Machine& machine = emulator::Machine::Get();
  const uint64_t wanted = emulator::ToWord<T>(expected);
  const uint64_t old =
      machine.BeginAtomic(p, sizeof(T), {"AtomicCompareExchangeGlobal", place}, &wanted);
  if (old == wanted) machine.EndAtomic(p, sizeof(T), emulator::ToWord<T>(value));
  return emulator::FromWord<T>(old);
}

// A fence and an atomic, and an atomic and a fence: what orders blocks, orders devices here.
inline void StoreRelease(uint32_t* p, uint32_t value,
                         const emulator::Place& place = emulator::Place::current()) {
  emulator::Machine::Get().Fence();
  UpdateGlobal(p, {"StoreRelease", place}, [&](uint32_t) { return value; });
}
inline uint32_t LoadAcquire(const uint32_t* p,
                            const emulator::Place& place = emulator::Place::current()) {
  constexpr uint64_t kNoWord = uint64_t{1} << 32;  // no word holds it: nothing is written
  emulator::Machine& machine = emulator::Machine::Get();
  const uint64_t word = machine.BeginAtomic(p, sizeof(uint32_t), {"LoadAcquire", place}, &kNoWord);
  machine.Fence();
  return static_cast<uint32_t>(word);
}

inline int32_t Opaque(int32_t x) { return x; }

[[noreturn]] inline void Trap(const char* why) {
  emulator::Machine::Get().Fail(std::string("trap: ") + why);
}

inline void ThreadFence() { emulator::Machine::Get().Fence(); }

}  // namespace minisgl::cuda::device
