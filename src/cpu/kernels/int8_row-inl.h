// A row of x as products of integers with 8-bit weights read it (linear_int8.cc). Compiled once for
// each instruction set (simd-inl.h).
#if defined(MINISGL_CPU_INT8_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINISGL_CPU_INT8_ROW_INL_H_
#undef MINISGL_CPU_INT8_ROW_INL_H_
#else
#define MINISGL_CPU_INT8_ROW_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/quantize_block-inl.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {

// Targets that multiply pairs of 16-bit integers and add the two products. They shift weights to
// the upper half, which is one instruction for each of a pair; 32 bits hold the sums of a block.
#undef MINISGL_INT8_PAIRS
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
#define MINISGL_INT8_PAIRS 1
inline constexpr int kWeightShift = 8;
#else
inline constexpr int kWeightShift = 0;
#endif

#if HWY_TARGET == HWY_AVX3_DL
inline constexpr int64_t kInputBytes = 1;
inline constexpr int32_t kWeightOffset = 128;  // added to the weights
#else
inline constexpr int64_t kInputBytes = 2;
inline constexpr int32_t kWeightOffset = 0;
#endif

// A quantized row of x: [blocks] f32 scales, [blocks] int32 -kWeightOffset sum(q), then the quads
// of q; if kInputBytes is 2, in the order 0, 2, 1, 3 within a quad.
struct Int8RowLayout {
  explicit Int8RowLayout(int64_t num_in)
      : num_blocks((num_in + kQuantBlock - 1) / kQuantBlock), q_offset(8 * num_blocks) {}
  int64_t bytes() const { return q_offset + num_blocks * kQuantBlock * kInputBytes; }
  int64_t num_blocks;
  int64_t q_offset;
};

inline int64_t Int8RowBytes(int64_t num_in) { return Int8RowLayout(num_in).bytes(); }

#ifdef MINISGL_INT8_PAIRS
// The pairs of 16-bit words (0, 2) and (1, 3) of every quad of q's, in the first half of the quad's
// lanes.
HWY_INLINE auto PairQuads(const int32_t* q) {
  const hn::RebindToSigned<F32> di;
  const Ints quads = hn::Load(di, q);
  const Ints pairs =
      hn::Or(hn::And(quads, hn::Set(di, 0xFFFF)), hn::ShiftLeft<16>(hn::Shuffle1032(quads)));
  return hn::BitCast(hn::Repartition<int64_t, F32>(), pairs);
}
#endif

// Stores a block's q's as 16-bit words, in the order 0, 2, 1, 3 within each quad.
HWY_INLINE void StoreWords(const int32_t* HWY_RESTRICT q, int16_t* HWY_RESTRICT words) {
#ifdef MINISGL_INT8_PAIRS
  const hn::Repartition<int64_t, F32> d64;
  for (int64_t i = 0; i < kQuantBlock; i += 2 * kLanes) {
    const auto both = hn::ConcatEven(d64, PairQuads(q + i + kLanes), PairQuads(q + i));
    hn::StoreU(both, d64, reinterpret_cast<int64_t*>(words + i));
  }
#else
  constexpr int kOrder[] = {0, 2, 1, 3};
  for (int64_t i = 0; i < kQuantBlock; ++i) {
    words[i] = static_cast<int16_t>(q[i / 4 * 4 + kOrder[i % 4]]);
  }
#endif
}

inline void QuantizeInt8Row(const float* x, int64_t num_in, std::byte* row) {
  const Int8RowLayout layout(num_in);
  auto* const scales = reinterpret_cast<float*>(row);
  auto* const corrections = reinterpret_cast<int32_t*>(row) + layout.num_blocks;
  std::byte* to = row + layout.q_offset;
  for (int64_t block = 0; block < layout.num_blocks; ++block) {
    HWY_ALIGN int32_t q[kQuantBlock];
    scales[block] = QuantizeBlockOf(x, num_in, block, q);
    int32_t sum = 0;
    for (int64_t i = 0; i < kQuantBlock; ++i) sum += q[i];
    corrections[block] = -kWeightOffset * sum;
    if constexpr (kInputBytes == 1) {
      auto* const bytes = reinterpret_cast<int8_t*>(to);
      for (int64_t i = 0; i < kQuantBlock; ++i) bytes[i] = static_cast<int8_t>(q[i]);
    } else {
      StoreWords(q, reinterpret_cast<int16_t*>(to));
    }
    to += kQuantBlock * kInputBytes;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
