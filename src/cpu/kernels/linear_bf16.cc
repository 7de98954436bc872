// out = x w^T + bias for bf16 weights, with the dot-product instruction of AVX512-BF16. The SIMD
// library does not have this instruction, so the file is compiled for one instruction set, and runs
// on CpuTarget::kAvx512Bf16 only.
//
// x is rounded to bf16 once for all outputs. Order of summation of every output, whatever the
// number of rows: inputs in blocks of kDotBlockInputs, pair by pair within a block, blocks added in
// order, then the bias. The instruction adds the two products of a pair and takes subnormal numbers
// as 0. Weights are read as packed: a pair of inputs of 16 outputs is one vector.
#include "cpu/kernels/kernels.h"

#include <cstring>

#include "cpu/kernels/bf16_dot.h"

MINISGL_BF16_DOT_BEGIN
namespace minisgl::cpu {
namespace {

using bf16_dot::kLanes;

constexpr int kPanels = static_cast<int>(kGroupWidth / kPanelWidth);
constexpr int64_t kPairBytes = kPanelWidth * 4;  // bytes of a pair of inputs in a panel
// Prefetch distance in pairs for at most kFewRowsMax rows: the memory latency (one row, one thread,
// all matrices of Qwen3-0.6B: 44 ms; with 8 pairs 46, with 64 or a block 49). With six rows,
// products take so long that a block ahead is better.
constexpr int64_t kPairsAhead = 16;
constexpr int64_t kFewRowsMax = 4;

int64_t RowBytes(int64_t num_in) { return (num_in + num_in % 2) * 2; }

// One block of inputs for some rows and the group's outputs.
struct RowBlock {
  const std::byte* x;
  int64_t x_stride;
  const std::byte* panel[kPanels];  // the block's weights
  int64_t num_pairs;
  // Weights are prefetched this many pairs ahead. For the block's last pairs those are in the next
  // block, whose first pair is `next` bytes past this block's.
  int64_t pairs_ahead;
  int64_t next;
  float* out;
  int64_t out_stride;
  int64_t num_columns;
  bool adds;          // not the first block of inputs: add to `out`
  const float* bias;  // bias of the group; set only for the last block
};

// sum += the products of pairs [begin, end). Prefetches the weights `bytes_ahead` past each.
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
  bf16_dot::SetZero(sum);
  const int64_t last = b.num_pairs - b.pairs_ahead;
  AddPairs(b, 0, last, b.pairs_ahead * kPairBytes, sum);
  AddPairs(b, last, b.num_pairs, b.next - last * kPairBytes, sum);
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    MINISGL_UNROLL for (int v = 0; v < kPanels; ++v) {
      const int64_t column = int64_t{v} * kLanes;
      bf16_dot::StoreSums(sum[r][v], b.num_columns - column, b.adds,
                          b.bias == nullptr ? nullptr : b.bias + column,
                          b.out + r * b.out_stride + column);
    }
  }
}

// Calls MultiplyRows for `rows`. REQUIRES rows >= kRows.
template <int kRows>
inline void MultiplyPart(const RowBlock& b, int64_t rows) {
  if constexpr (kRows < kRowsMax) {
    if (rows > kRows) return MultiplyPart<kRows + 1>(b, rows);
  }
  MultiplyRows<kRows>(b);
}

// Multiplies rows in even parts of at most kRowsMax.
void MultiplyBlock(RowBlock b, int64_t num_rows) {
  for (int64_t parts = (num_rows + kRowsMax - 1) / kRowsMax; parts > 0; --parts) {
    const int64_t rows = (num_rows + parts - 1) / parts;
    MultiplyPart<1>(b, rows);
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
  // The last group may have fewer panels; missing ones alias the last panel, and their outputs are
  // discarded.
  const int64_t last_panel = (w.num_out - 1) / kPanelWidth;
  for (int64_t input = 0; input < w.num_in; input += kDotBlockInputs) {
    const int64_t left = w.num_in - input;
    for (int64_t v = 0; v < kPanels; ++v) {
      const int64_t panel = first / kPanelWidth + v;
      block.panel[v] = w.panel(panel < last_panel ? panel : last_panel) + input * kPanelWidth * 2;
    }
    block.num_pairs = ((left < kDotBlockInputs ? left : kDotBlockInputs) + 1) / 2;
    // After the last block the next group begins, four panels further.
    block.next = block.num_pairs * kPairBytes;
    if (left <= kDotBlockInputs) block.next += (kPanels - 1) * w.panel_stride() * 2;
    // If several parts of the rows pass over a block, all of it has to be in the second-level
    // cache.
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
MINISGL_BF16_DOT_END

namespace minisgl::cpu {

LinearKernel Bf16DotLinearKernel() {
  return {.multiply = Multiply, .prepare = RoundRowToBf16, .row_bytes = RowBytes};
}

}  // namespace minisgl::cpu
