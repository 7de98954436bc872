// A row of x as products of integers with codes read it (linear_codes_int8.cc). Compiled once for
// each instruction set (simd-inl.h).
#if defined(MINISGL_CPU_CODES_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINISGL_CPU_CODES_ROW_INL_H_
#undef MINISGL_CPU_CODES_ROW_INL_H_
#else
#define MINISGL_CPU_CODES_ROW_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/code_quads-inl.h"
#include "cpu/kernels/quantize_block-inl.h"
#include "cpu/kernels/simd-inl.h"

MINISGL_BEFORE_NAMESPACE_WITH_VNNI();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {

// A block of a quantized row of x.
struct CodesRowBlock {
  float scale;
  float scaled_sum;       // the sum of all q's, times the scale
  int16_t half_sums[2];   // the sums of each half's q's
  int8_t q[kQuantBlock];  // of each eight those with even indices, then the others
};
// The places in it, in words of 32 bits.
inline constexpr int kRowScale = 0, kRowScaledSum = 1, kRowHalfSums = 2, kRowQuads = 3;
inline constexpr int kRowHalfQuads = kQuantBlock / 8;
inline constexpr int kRowBlockWords = kRowQuads + 2 * kRowHalfQuads;
static_assert(sizeof(CodesRowBlock) == kRowBlockWords * 4);

inline int64_t CodesRowBytes(int64_t num_in) {
  return (num_in + kQuantBlock - 1) / kQuantBlock * static_cast<int64_t>(sizeof(CodesRowBlock));
}

// Stores a block's q's in their order in CodesRowBlock.
HWY_INLINE void StoreCodesOrder(const int32_t* HWY_RESTRICT q, int8_t* HWY_RESTRICT to) {
#if HWY_TARGET == HWY_SCALAR
  constexpr int kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};
  for (int64_t i = 0; i < kQuantBlock; ++i) {
    to[i] = static_cast<int8_t>(q[i / 8 * 8 + kOrder[i % 8]]);
  }
#else
  constexpr int64_t kBytes = 16;
  const hn::CappedTag<uint8_t, kBytes> d8;
  alignas(kBytes) constexpr uint8_t kOrder[] = {0, 2,  4,  6,  1, 3,  5,  7,
                                                8, 10, 12, 14, 9, 11, 13, 15};
  HWY_ALIGN uint8_t bytes[kQuantBlock];
  for (int64_t i = 0; i < kQuantBlock; ++i) bytes[i] = static_cast<uint8_t>(q[i]);
  for (int64_t i = 0; i < kQuantBlock; i += kBytes) {
    const auto ordered = hn::TableLookupBytes(hn::Load(d8, bytes + i), hn::Load(d8, kOrder));
    hn::StoreU(ordered, d8, reinterpret_cast<uint8_t*>(to) + i);
  }
#endif
}

inline void QuantizeCodesRow(const float* x, int64_t num_in, std::byte* row) {
  constexpr int64_t kHalf = kQuantBlock / 2;
  auto* to = reinterpret_cast<CodesRowBlock*>(row);
  for (int64_t block = 0; block * kQuantBlock < num_in; ++block, ++to) {
    HWY_ALIGN int32_t q[kQuantBlock];
    to->scale = QuantizeBlockOf(x, num_in, block, q);
    int32_t sums[2] = {0, 0};
    for (int half = 0; half < 2; ++half) {
      for (int64_t i = 0; i < kHalf; ++i) sums[half] += q[half * kHalf + i];
      to->half_sums[half] = static_cast<int16_t>(sums[half]);
    }
    to->scaled_sum = static_cast<float>(sums[0] + sums[1]) * to->scale;
    StoreCodesOrder(q, to->q);
  }
}

// A block of kRows rows. Half of it is passed at a time; `words` is how many words of it have been.
template <int kRows>
struct CodesRows {
  using Pointers = RowPointers<kRows, int32_t>;
  HWY_INLINE CodesRows(const std::byte* x, int64_t x_stride, int64_t block)
      : blocks(reinterpret_cast<const int32_t*>(x) + block * kRowBlockWords,
               static_cast<size_t>(x_stride) / sizeof(int32_t)) {}
  // A quad of the next half.
  HWY_INLINE QuadInts Quad(int r, int quad) const { return At(r, kRowQuads + quad); }
  HWY_INLINE QuadInts HalfSums(int r, int words) const { return At(r, kRowHalfSums - words); }
  HWY_INLINE Floats Scale(int r, int words) const {
    return hn::BitCast(F32(), At(r, kRowScale - words));
  }
  // The sum of the q's of a step, times the scale. The step is `half` of a block, or all.
  HWY_INLINE Floats ScaledSum(int r, bool has_halves, int half, int words) const {
    if (!has_halves) return hn::BitCast(F32(), At(r, kRowScaledSum - words));
    const QuadInts counted = hn::Set(hn::RebindToSigned<F32>(), half == 0 ? 1 : 0x00010000);
    const QuadInts sum = MultiplyPairs(HalfSums(r, words), counted);
    return hn::Mul(hn::ConvertTo(F32(), sum), Scale(r, words));
  }
  HWY_INLINE void PassHalf() { blocks.Advance(kRowHalfQuads); }
  // After both halves: to the next block.
  HWY_INLINE void Advance() { blocks.Advance(kRowBlockWords - 2 * kRowHalfQuads); }

 private:
  HWY_INLINE QuadInts At(int r, int word) const {
    return hn::Set(hn::RebindToSigned<F32>(), blocks.At(r, word));
  }
  Pointers blocks;
};

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
