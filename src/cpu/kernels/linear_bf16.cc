// out = x w^T + bias of bf16 weights with the dot-product instruction of AVX512-BF16, for which the
// SIMD library has no name: a file of one instruction set, run on CpuTarget::kAvx512Bf16 only.
//
// x is rounded to bf16 once for all outputs. Order of summation of every output, whatever the
// number of rows: inputs in blocks of kDotBlockInputs, in a block pair after pair (the instruction
// adds the two products of a pair, subnormal numbers taken as 0), blocks added in order, then the
// bias. Weights are read as they are packed: 16 outputs' pairs of inputs are one vector.
#include "cpu/kernels/kernels.h"

#if defined(__x86_64__)

// Before the target below, or the compiler takes the header's functions for that target's.
#include <immintrin.h>

#include <cstring>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

#define MINISGL_UNROLL _Pragma("GCC unroll 16")

namespace minisgl::cpu {
namespace {

constexpr int kLanes = 16;
constexpr int kPanels = static_cast<int>(kGroupWidth / kPanelWidth);
constexpr int64_t kPairBytes = kPanelWidth * 4;  // of a panel
// The weights of a block, 64 KiB, come from the second-level cache while rows pass: 256 bytes for
// 24 products, as fast as those take. Smaller blocks keep them in the first and lose more to sums
// that are stored and added (128 inputs: 88 % of the peak at 32 rows, 256: 91, 512: 94, 1024: 94).
constexpr int64_t kDotBlockInputs = 512;
// How far ahead weights are fetched, in pairs, where up to so many rows read them once: as far as
// memory takes (one row, one thread, all matrices of Qwen3-0.6B: 44 ms, with 8 pairs 46, with 64 or
// a block 49). With six rows products take so long that a block ahead is better.
constexpr int64_t kPairsAhead = 16;
constexpr int64_t kFewRowsMax = 4;

int64_t RowBytes(int64_t num_in) { return (num_in + num_in % 2) * 2; }

// One block of inputs for some rows and the group's outputs.
struct RowBlock {
  const std::byte* x;
  int64_t x_stride;
  const std::byte* panel[kPanels];  // the block's weights
  int64_t num_pairs;
  // Weights are fetched this many pairs ahead: those of the block's last pairs lie in the next one,
  // whose first pair is `next` bytes behind this one's.
  int64_t pairs_ahead;
  int64_t next;
  float* out;
  int64_t out_stride;
  int64_t num_columns;
  bool adds;          // not the first block of inputs
  const float* bias;  // of the group; only with the last block
};

inline void StoreSums(const RowBlock& b, __m512 sum, float* out, int64_t column) {
  const int64_t left = b.num_columns - column;
  if (left <= 0) return;
  const __mmask16 mask =
      static_cast<__mmask16>(left >= kLanes ? 0xFFFF : (uint32_t{1} << left) - 1);
  if (b.adds) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out + column), sum);
  if (b.bias != nullptr) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, b.bias + column));
  _mm512_mask_storeu_ps(out + column, mask, sum);
}

// sum += the products of pairs [begin, end); with each, the weights `bytes_ahead` of it are
// fetched.
template <int kRows>
inline void AddPairs(const RowBlock& b, int64_t begin, int64_t end, int64_t bytes_ahead,
                     __m512 (&sum)[kRows][kPanels]) {
  for (int64_t pair = begin; pair < end; ++pair) {
    __m512bh w[kPanels];
    MINISGL_UNROLL for (int v = 0; v < kPanels; ++v) {
      const std::byte* const from = b.panel[v] + pair * kPairBytes;
      __builtin_prefetch(from + bytes_ahead, /*rw=*/0, /*locality=*/2);  // simd-inl.h
      w[v] = (__m512bh)_mm512_loadu_si512(from);
    }
    MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
      int32_t both;
      std::memcpy(&both, b.x + r * b.x_stride + pair * 4, sizeof(both));
      const auto x = (__m512bh)_mm512_set1_epi32(both);
      MINISGL_UNROLL for (int v = 0; v < kPanels; ++v) {
        sum[r][v] = _mm512_dpbf16_ps(sum[r][v], x, w[v]);
      }
    }
  }
}

template <int kRows>
inline void MultiplyRows(const RowBlock& b) {
  __m512 sum[kRows][kPanels];
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    MINISGL_UNROLL for (int v = 0; v < kPanels; ++v) sum[r][v] = _mm512_setzero_ps();
  }
  const int64_t last = b.num_pairs - b.pairs_ahead;
  AddPairs(b, 0, last, b.pairs_ahead * kPairBytes, sum);
  AddPairs(b, last, b.num_pairs, b.next - last * kPairBytes, sum);
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    MINISGL_UNROLL for (int v = 0; v < kPanels; ++v) {
      StoreSums(b, sum[r][v], b.out + r * b.out_stride, int64_t{v} * kLanes);
    }
  }
}

// Rows in even parts of at most kRowsMax.
void MultiplyBlock(RowBlock b, int64_t num_rows) {
  for (int64_t parts = (num_rows + kRowsMax - 1) / kRowsMax; parts > 0; --parts) {
    const int64_t rows = (num_rows + parts - 1) / parts;
    switch (rows) {
      case 1:
        MultiplyRows<1>(b);
        break;
      case 2:
        MultiplyRows<2>(b);
        break;
      case 3:
        MultiplyRows<3>(b);
        break;
      case 4:
        MultiplyRows<4>(b);
        break;
      case 5:
        MultiplyRows<5>(b);
        break;
      default:
        MultiplyRows<6>(b);
        break;
    }
    b.x += rows * b.x_stride;
    b.out += rows * b.out_stride;
    num_rows -= rows;
  }
}

void Multiply(const LinearBlock& linear) {
  const PackedMatrix& w = *linear.weight;
  const int64_t first = linear.group * kGroupWidth;
  RowBlock block = {
      .x = linear.x,
      .x_stride = linear.x_stride,
      .panel = {},
      .num_pairs = 0,
      .pairs_ahead = 0,
      .next = 0,
      .out = linear.out,
      .out_stride = linear.out_stride,
      .num_columns = w.num_out - first < kGroupWidth ? w.num_out - first : kGroupWidth,
      .adds = false,
      .bias = nullptr};
  // The last group may have fewer panels: then its last stands for those missing, whose outputs are
  // not stored.
  const int64_t last_panel = (w.num_out - 1) / kPanelWidth;
  for (int64_t input = 0; input < w.num_in; input += kDotBlockInputs) {
    const int64_t left = w.num_in - input;
    for (int64_t v = 0; v < kPanels; ++v) {
      const int64_t panel = first / kPanelWidth + v;
      block.panel[v] = w.panel(panel < last_panel ? panel : last_panel) + input * kPanelWidth * 2;
    }
    block.num_pairs = ((left < kDotBlockInputs ? left : kDotBlockInputs) + 1) / 2;
    // Behind the last block comes the next group, four panels further.
    block.next = block.num_pairs * kPairBytes;
    if (left <= kDotBlockInputs) block.next += (kPanels - 1) * w.panel_stride() * 2;
    // What several parts of the rows pass over has to be in the second-level cache as a whole.
    const bool is_near = linear.num_rows <= kFewRowsMax && kPairsAhead < block.num_pairs;
    block.pairs_ahead = is_near ? kPairsAhead : block.num_pairs;
    block.adds = input > 0;
    if (left <= kDotBlockInputs && linear.bias != nullptr) block.bias = linear.bias + first;
    MultiplyBlock(block, linear.num_rows);
    block.x += kDotBlockInputs * 2;
  }
}

}  // namespace

void RoundRowToBf16(const float* x, int64_t num_in, std::byte* row) {
  int64_t i = 0;
  for (; i + kLanes <= num_in; i += kLanes) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + i * 2),
                        (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x + i)));
  }
  const int64_t left = num_in - i;
  if (left == 0) return;
  const auto mask = static_cast<__mmask16>((uint32_t{1} << left) - 1);
  // The pair of a last odd input is written too.
  const auto stored = static_cast<__mmask16>(left % 2 == 0 ? mask : mask | (mask << 1));
  const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, x + i));
  _mm256_mask_storeu_epi16(row + i * 2, stored, (__m256i)rounded);
}

}  // namespace minisgl::cpu

#pragma GCC pop_options

namespace minisgl::cpu {

LinearKernel Bf16DotLinearKernel() {
  return {.multiply = Multiply, .prepare = RoundRowToBf16, .row_bytes = RowBytes};
}

}  // namespace minisgl::cpu

#else

namespace minisgl::cpu {

LinearKernel Bf16DotLinearKernel() { return {}; }

}  // namespace minisgl::cpu

#endif
