// out = x w^T + bias for weights that are kept as codes of 4 or 6 bits (coded_matrix.h), by
// products of integers.
//
// x is quantized once for all outputs, as for int8 weights (weight_format.h). A code stands for a
// small unsigned integer: of numbers that count up, the code itself; of e2m1, 2 number + 12, whose
// scale is half the weight's. A weight is (integer - zero) * scale, or integer * scale + offset.
// The sum of a step is the products of the integers with the q's of x, less the zero times the sum
// of the q's. Steps are blocks of 32 inputs, or their halves if groups of inputs are not of whole
// blocks.
//
// Order of summation of every output, whatever the number of rows: a step's products as integers,
// exact; times the product of the two scales; steps added in order, one multiply-add after another,
// with offsets a second one of the offset and the scaled sum of the q's; then the bias. Every
// target computes the same integers.
//
// Four inputs ("a quad") of an output are the four bytes of a 32-bit lane: a word of codes is two
// quads, the low and the high halves of its bytes (of 6 bits with upper bits from another word),
// and q's are stored in this order. With VNNI one instruction adds the products of a quad to the
// lane. Without, the products of two neighbours are added as 16-bit integers, which hold the sums
// of 8 quads of counting codes of 4 bits (at most 8 * 2 * 15 * 127), of 4 quads of e2m1 (4 * 2 * 24
// * 127), and of 2 quads of codes of 6 bits (2 * 2 * 63 * 127).
//
// Few rows widen codes in registers; one row reads one panel after another, or all of a group
// beside each other, as the processor prefers (ReadsPanelsInTurn). If there are many, the codes of
// some blocks are widened once into scratch, in the first-level cache, and while all rows pass over
// them, the codes of the next blocks are fetched, some with each part of the rows.
// (codes_product-inl.h has the products; linear_codes_int8_*.cc compile those of some forms.)
#define MINISGL_NEEDS_VNNI
#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/linear_codes_int8.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/kernels/code_sources-inl.h"
#include "cpu/kernels/codes_product-inl.h"
#include "cpu/kernels/codes_row-inl.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/linear_output-inl.h"
#include "cpu/kernels/simd-inl.h"

MINISGL_BEFORE_NAMESPACE_WITH_VNNI();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {
namespace {

void MultiplyByForm(const CodedMatrix& m, const CodesBlocks& blocks, int64_t num_rows) {
  if (m.kind == CodeKind::kSigned4) return MultiplyForm<CodeForm::kSigned>(blocks, num_rows);
  if (m.has_6_bits()) return MultiplyOf6Bits(blocks, m.has_offsets, num_rows);
  if (m.has_offsets) return MultiplyWithOffsets(blocks, num_rows);
  MultiplyForm<CodeForm::kCounting>(blocks, num_rows);
}

void RunCodes(const LinearBlock& linear) {
  const CodedMatrix& m = *linear.weight->coded;
  const CodesLayout layout(m);
  const int64_t first = linear.group * kGroupWidth;
  float* const sums = linear.scratch + kWidenedFloats;
  const F32 d;
  for (int64_t i = 0; i < linear.num_rows * kGroupWidth; i += kLanes) {
    hn::Store(hn::Zero(d), d, sums + i);
  }
  const CodesBlocks blocks = {
      .x = linear.x,
      .x_stride = linear.x_stride,
      .weight = &layout,
      .first_panel = first / kPanelWidth,
      .num_columns = MinOf(kGroupWidth, m.num_out - first),
      .num_blocks = (m.num_in + kQuantBlock - 1) / kQuantBlock,
      .block_begin = 0,
      .block_end = 0,
      .panels_in_turn = false,
      .widened = {reinterpret_cast<uint32_t*>(linear.scratch), linear.scratch + kWidenedQuads,
                  reinterpret_cast<int32_t*>(linear.scratch) + kWidenedQuads + kWidenedFactors},
      .sums = sums};
  MultiplyByForm(m, blocks, linear.num_rows);
  StoreOutputs(linear, sums, kGroupWidth, 0, blocks.num_columns);
}

}  // namespace

LinearKernel GetCodesInt8() {
  return {.multiply_codes = RunCodes,
          .codes_order = CodeOrder::kWords,
          .codes_rows_max = kLinearRowsMax,
          .prepare = QuantizeCodesRow,
          .row_bytes = CodesRowBytes};
}

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace minisgl::cpu {

const PerTarget<GetLinearKernel>& CodesInt8LinearKernels() {
  static constexpr PerTarget<GetLinearKernel> kTable = MINISGL_PER_TARGET(GetCodesInt8);
  return kTable;
}

}  // namespace minisgl::cpu
#endif
