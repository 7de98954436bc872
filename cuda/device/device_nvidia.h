// The functions and types of device.h for nvcc. Each wrapper is one instruction of the PTX manual.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#define MINISGL_KERNEL __global__
#define MINISGL_GRID_CONSTANT const __grid_constant__
#define MINISGL_DEVICE __device__ __forceinline__
#define MINISGL_LAUNCH_BOUNDS(threads, blocks_per_sm) __launch_bounds__(threads, blocks_per_sm)

namespace minisgl::cuda::device {

inline constexpr int kWarpSize = 32;

using bf16 = __nv_bfloat16;
using f16 = __half;

MINISGL_DEVICE float ToFloat(float x) { return x; }
MINISGL_DEVICE float ToFloat(bf16 x) { return __bfloat162float(x); }
MINISGL_DEVICE float ToFloat(f16 x) { return __half2float(x); }

template <typename T>
MINISGL_DEVICE T FromFloat(float x) {
  if constexpr (sizeof(T) == 4) {
    return x;
  } else if constexpr (__is_same(T, bf16)) {
    return __float2bfloat16_rn(x);
  } else {
    return __float2half_rn(x);
  }
}

template <typename T>
MINISGL_DEVICE uint32_t Pack2(float low, float high) {
  if constexpr (__is_same(T, bf16)) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
}

template <typename T>
MINISGL_DEVICE uint32_t Pack2Finite(float low, float high) {
  if constexpr (__is_same(T, bf16)) {
    return Pack2<T>(low, high);
  } else {
    uint32_t word;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;\n" : "=r"(word) : "f"(high), "f"(low));
    return word;
  }
}

MINISGL_DEVICE uint32_t PackE4M3(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
}

template <typename T>
MINISGL_DEVICE float2 Unpack2(uint32_t word) {
  if constexpr (__is_same(T, bf16)) {
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&word));
  } else {
    return __half22float2(*reinterpret_cast<const __half2*>(&word));
  }
}

template <typename T, int N>
struct alignas(sizeof(T) * N) Vec {
  static_assert(sizeof(T) * N <= 16);
  T element[N];
  MINISGL_DEVICE T& operator[](int i) { return element[i]; }
  MINISGL_DEVICE const T& operator[](int i) const { return element[i]; }
};

// Moves a Vec as the words that one instruction moves.
template <int BYTES>
struct VecWord;
template <>
struct VecWord<2> {
  using type = unsigned short;
};
template <>
struct VecWord<4> {
  using type = unsigned int;
};
template <>
struct VecWord<8> {
  using type = uint2;
};
template <>
struct VecWord<16> {
  using type = uint4;
};

template <int N, typename T>
MINISGL_DEVICE Vec<T, N> LoadVec(const T* p) {
  using Word = typename VecWord<sizeof(T) * N>::type;
  const Word word = *reinterpret_cast<const Word*>(p);
  return *reinterpret_cast<const Vec<T, N>*>(&word);
}

template <int N, typename T>
MINISGL_DEVICE Vec<T, N> LoadStream(const T* p) {
  using Word = typename VecWord<sizeof(T) * N>::type;
  const Word word = __ldcs(reinterpret_cast<const Word*>(p));
  return *reinterpret_cast<const Vec<T, N>*>(&word);
}

template <int N, typename T>
MINISGL_DEVICE Vec<T, N> LoadStreamWide(const T* p) {
  static_assert(sizeof(T) * N == 16);
  uint4 word;
  asm volatile("ld.global.cs.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
               : "l"(p));
  return *reinterpret_cast<const Vec<T, N>*>(&word);
}

template <int N, typename T>
MINISGL_DEVICE void StoreVec(T* p, const Vec<T, N>& v) {
  using Word = typename VecWord<sizeof(T) * N>::type;
  *reinterpret_cast<Word*>(p) = *reinterpret_cast<const Word*>(&v);
}

template <typename T>
class Shared {
 public:
  MINISGL_DEVICE Shared() : p_(nullptr) {}
  MINISGL_DEVICE explicit Shared(T* p) : p_(p) {}
  MINISGL_DEVICE T& operator[](int i) const { return p_[i]; }
  MINISGL_DEVICE Shared operator+(int i) const { return Shared(p_ + i); }
  MINISGL_DEVICE T* raw() const { return p_; }
  // Reinterprets the same bytes as another type.
  template <typename U>
  MINISGL_DEVICE Shared<U> As() const {
    return Shared<U>(reinterpret_cast<U*>(p_));
  }

 private:
  T* p_;
};

template <int N, typename T>
MINISGL_DEVICE Vec<T, N> LoadShared(Shared<T> s) {
  return LoadVec<N>(static_cast<const T*>(s.raw()));
}

template <int N, typename T>
MINISGL_DEVICE void StoreShared(Shared<T> s, const Vec<T, N>& v) {
  StoreVec<N>(s.raw(), v);
}

class SharedArena {
 public:
  MINISGL_DEVICE SharedArena() : next_(Base()) {}
  template <typename T>
  MINISGL_DEVICE Shared<T> Take(int count) {
    T* const p = reinterpret_cast<T*>(next_);
    next_ += (static_cast<unsigned>(count) * sizeof(T) + 15) / 16 * 16;
    return Shared<T>(p);
  }

 private:
  static MINISGL_DEVICE unsigned char* Base() {
    extern __shared__ __align__(16) unsigned char minisgl_shared_memory[];
    return minisgl_shared_memory;
  }
  unsigned char* next_;
};

MINISGL_DEVICE uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

template <typename T>
MINISGL_DEVICE void CopyAsync16(Shared<T> dst, const T* src) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(SharedAddress(dst.raw())),
               "l"(src)
               : "memory");
}

template <typename T>
MINISGL_DEVICE void CopyAsync16(Shared<T> dst, const T* src, bool valid) {
#if __CUDACC_VER_MAJOR__ >= 13
  // A predicate; a number of bytes takes five more instructions.
  asm volatile(
      "{\n"
      ".reg .pred ignored;\n"
      "setp.eq.u32 ignored, %2, 0;\n"
      "cp.async.cg.shared.global [%0], [%1], 16, ignored;\n"
      "}\n" ::"r"(SharedAddress(dst.raw())),
      "l"(src), "r"(valid ? 1 : 0)
      : "memory");
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(SharedAddress(dst.raw())),
               "l"(src), "r"(valid ? 16 : 0)
               : "memory");
#endif
}

template <typename T>
MINISGL_DEVICE void CopyAsync16Wide(Shared<T> dst, const T* src, bool valid) {
#if __CUDACC_VER_MAJOR__ >= 13
  asm volatile(
      "{\n"
      ".reg .pred ignored;\n"
      "setp.eq.u32 ignored, %2, 0;\n"
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, ignored;\n"
      "}\n" ::"r"(SharedAddress(dst.raw())),
      "l"(src), "r"(valid ? 1 : 0)
      : "memory");
#else
  asm volatile(
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(SharedAddress(dst.raw())),
      "l"(src), "r"(valid ? 16 : 0)
      : "memory");
#endif
}

MINISGL_DEVICE void CopyAsyncCommit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

template <int N>
MINISGL_DEVICE void CopyAsyncWait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
}

template <typename T>
MINISGL_DEVICE void LoadMatrix4(uint32_t (&regs)[4], Shared<T> row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(regs[0]), "=r"(regs[1]), "=r"(regs[2]), "=r"(regs[3])
               : "r"(SharedAddress(row.raw()))
               : "memory");
}

template <typename T>
MINISGL_DEVICE void LoadMatrix4Trans(uint32_t (&regs)[4], Shared<T> row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(regs[0]), "=r"(regs[1]), "=r"(regs[2]), "=r"(regs[3])
               : "r"(SharedAddress(row.raw()))
               : "memory");
}

template <typename T>
MINISGL_DEVICE void Mma16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (__is_same(T, bf16)) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

MINISGL_DEVICE void GridWait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

MINISGL_DEVICE void GridRelease() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

template <typename T>
MINISGL_DEVICE void PrefetchL2(const T* p, uint32_t num_bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(num_bytes) : "memory");
#endif
}

template <typename T>
MINISGL_DEVICE void PrefetchL2Last(const T* p, uint32_t num_bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      ".reg .b64 stays;\n"
      "createpolicy.fractional.L2::evict_last.b64 stays, 1.0;\n"
      "cp.async.bulk.prefetch.L2.global.L2::cache_hint [%0], %1, stays;\n"
      "}\n" ::"l"(p),
      "r"(num_bytes)
      : "memory");
#endif
}

MINISGL_DEVICE void Sleep(uint32_t nanoseconds) { __nanosleep(nanoseconds); }

MINISGL_DEVICE float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}
MINISGL_DEVICE float Exp(float x) { return expf(x); }
MINISGL_DEVICE float Log(float x) { return logf(x); }
MINISGL_DEVICE float Tanh(float x) { return tanhf(x); }
MINISGL_DEVICE float Erfc(float x) { return erfcf(x); }
MINISGL_DEVICE float Sqrt(float x) { return sqrtf(x); }
MINISGL_DEVICE float MulRn(float a, float b) { return __fmul_rn(a, b); }
MINISGL_DEVICE float AddRn(float a, float b) { return __fadd_rn(a, b); }
MINISGL_DEVICE float DivRn(float a, float b) { return __fdiv_rn(a, b); }
template <typename T>
struct PairOf;
template <>
struct PairOf<bf16> {
  using type = __nv_bfloat162;
};
template <>
struct PairOf<f16> {
  using type = __half2;
};
template <typename T>
MINISGL_DEVICE uint32_t MulPairs(uint32_t a, uint32_t b) {
  using Pair = typename PairOf<T>::type;
  const Pair product =
      __hmul2_rn(*reinterpret_cast<const Pair*>(&a), *reinterpret_cast<const Pair*>(&b));
  return *reinterpret_cast<const uint32_t*>(&product);
}
template <typename T>
MINISGL_DEVICE uint32_t AddPairs(uint32_t a, uint32_t b) {
  using Pair = typename PairOf<T>::type;
  const Pair sum =
      __hadd2_rn(*reinterpret_cast<const Pair*>(&a), *reinterpret_cast<const Pair*>(&b));
  return *reinterpret_cast<const uint32_t*>(&sum);
}
MINISGL_DEVICE float BitsToFloat(uint32_t bits) { return __uint_as_float(bits); }
MINISGL_DEVICE float Rsqrt(float x) { return rsqrtf(x); }

template <typename T>
MINISGL_DEVICE T AtomicAddShared(Shared<T> s, T value) {
  return atomicAdd(s.raw(), value);
}
template <typename T>
MINISGL_DEVICE T AtomicMaxShared(Shared<T> s, T value) {
  return atomicMax(s.raw(), value);
}
template <typename T>
MINISGL_DEVICE T AtomicAddGlobal(T* p, T value) {
  return atomicAdd(p, value);
}
template <typename T>
MINISGL_DEVICE T AtomicExchangeGlobal(T* p, T value) {
  return atomicExch(p, value);
}
template <typename T>
MINISGL_DEVICE T AtomicCompareExchangeGlobal(T* p, T expected, T value) {
  return atomicCAS(p, expected, value);
}
MINISGL_DEVICE void Trap(const char*) { __trap(); }
// asm that the compiler cannot see through.
MINISGL_DEVICE int32_t Opaque(int32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}
MINISGL_DEVICE void StoreRelease(uint32_t* p, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "r"(value)
               : "memory");
}
MINISGL_DEVICE uint32_t LoadAcquire(const uint32_t* p) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];"
               : "=r"(value)
               : "l"(__cvta_generic_to_global(p))
               : "memory");
  return value;
}
MINISGL_DEVICE int64_t Nanoseconds() {
  int64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
// Not __threadfence, which is the slower fence.sc: acquire and release are what a counter needs.
MINISGL_DEVICE void ThreadFence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

}  // namespace minisgl::cuda::device
