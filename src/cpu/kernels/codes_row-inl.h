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

#include "cpu/kernels/quantize_block-inl.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {

// A quantized row of x: [blocks] f32 scales, [blocks] the sums of each half of a block's q's, as
// two 16-bit integers, then the q's: of each eight those with even indices, then the others.
struct CodesRowLayout {
  explicit CodesRowLayout(int64_t num_in)
      : num_blocks((num_in + kQuantBlock - 1) / kQuantBlock), q_offset(8 * num_blocks) {}
  int64_t bytes() const { return q_offset + num_blocks * kQuantBlock; }
  int64_t num_blocks;
  int64_t q_offset;
};

inline int64_t CodesRowBytes(int64_t num_in) { return CodesRowLayout(num_in).bytes(); }

inline void QuantizeCodesRow(const float* x, int64_t num_in, std::byte* row) {
  constexpr int kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};
  constexpr int64_t kHalf = kQuantBlock / 2;
  const CodesRowLayout layout(num_in);
  auto* const scales = reinterpret_cast<float*>(row);
  auto* const sums = reinterpret_cast<int16_t*>(row + 4 * layout.num_blocks);
  auto* to = reinterpret_cast<int8_t*>(row + layout.q_offset);
  for (int64_t block = 0; block < layout.num_blocks; ++block, to += kQuantBlock) {
    HWY_ALIGN int32_t q[kQuantBlock];
    scales[block] = QuantizeBlockOf(x, num_in, block, q);
    for (int half = 0; half < 2; ++half) {
      int32_t sum = 0;
      for (int64_t i = 0; i < kHalf; ++i) sum += q[half * kHalf + i];
      sums[block * 2 + half] = static_cast<int16_t>(sum);
    }
    for (int64_t i = 0; i < kQuantBlock; ++i) {
      to[i] = static_cast<int8_t>(q[i / 8 * 8 + kOrder[i % 8]]);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
