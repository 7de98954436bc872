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
// (codes_product-inl.h has the products; linear_codes_int8_memory.cc compiles those
// that read codes from memory.)
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

// Reads the widened codes.
template <int kRows, class Steps>
HWY_NOINLINE void MultiplyInCache(const CodesBlocks& of) {
  const CodesBlocks b = of;
  constexpr int kVectors = CodeVectors<kRows>();
  for (int64_t column = 0; column < b.num_columns; column += kVectors * kLanes) {
    CodesInCache<Steps> codes(b.widened, column);
    CodesRows<kRows> x(b.x, b.x_stride, b.block_begin);
    Sums<kRows, kVectors> sums(b.sums + column);
    for (int64_t block = b.block_begin; block < b.block_end; ++block) {
      AddCodesBlock<kRows, kVectors>(codes, x, &sums);
      x.Advance();
      codes.Advance();
    }
    sums.Leave();
  }
}

template <class Steps>
struct InCache {
  template <int kRows>
  HWY_INLINE static void Multiply(const CodesBlocks& b) {
    MultiplyInCache<kRows, Steps>(b);
  }
};

// Fetches what is widened after the blocks of a CodesBlocks, in pieces: the codes of a block of a
// panel, or a panel's scales, zeros and offsets. The hardware's prefetcher does not foresee them:
// they are read long after each other.
class NextCodes {
 public:
  HWY_INLINE NextCodes(const CodesBlocks& b, CodeForm form)
      : m_(*b.weight), block_bytes_(BlockBytes(form)) {
    const bool ends = b.block_end == b.num_blocks;
    panel_ = b.first_panel + (ends ? kGroupPanels : 0);
    num_panels_ = MinOf(kGroupPanels, m_.num_panels - panel_);
    block_ = ends ? 0 : b.block_end;
    num_blocks_ = MinOf(kCachedBlocks, b.num_blocks - block_);
    const int64_t inputs = block_ * kQuantBlock;
    group_ = inputs / m_.group_inputs;
    num_groups_ = MinOf(m_.num_groups - group_, num_blocks_ * kQuantBlock / m_.group_inputs + 1);
  }
  // Fetches those of a part of the rows.
  HWY_INLINE void FetchOf(int64_t part, int64_t num_parts) const {
    const int64_t pieces = num_panels_ * (num_blocks_ + 1);
    const int64_t end = pieces * (part + 1) / num_parts;
    for (int64_t i = pieces * part / num_parts; i < end; ++i) Fetch(i);
  }

 private:
  HWY_INLINE static void FetchBytes(const std::byte* from, int64_t bytes) {
    constexpr int64_t kLine = 64;
    for (int64_t i = 0; i < bytes; i += kLine) FetchLine(from + i);
  }
  HWY_INLINE void Fetch(int64_t piece) const {
    const PanelCodes at = m_.At(panel_ + piece / (num_blocks_ + 1), 0);
    const int64_t i = piece % (num_blocks_ + 1);
    if (i < num_blocks_) {
      const auto* const words = reinterpret_cast<const std::byte*>(at.words);
      return FetchBytes(words + (block_ + i) * block_bytes_, block_bytes_);
    }
    const FactorLayout& of = m_.factors;
    if (at.zeros != nullptr) {
      FetchBytes(reinterpret_cast<const std::byte*>(at.zeros) + group_ * kPanelWidth,
                 num_groups_ * kPanelWidth);
    }
    for (const std::byte* from : {at.scales, at.offsets}) {
      if (from == nullptr) continue;
      if (of.HasSteps()) {
        FetchBytes(from + group_ * kPanelWidth, num_groups_ * kPanelWidth);
      }
      const int64_t bytes = kPanelWidth * static_cast<int64_t>(DTypeBytes(of.type));
      const int64_t first = group_ >> of.shift, last = (group_ + num_groups_ - 1) >> of.shift;
      FetchBytes(from + of.step_bytes + first * bytes, (last - first + 1) * bytes);
    }
  }

  const CodesLayout& m_;
  int64_t block_bytes_;
  int64_t panel_, num_panels_;
  int64_t block_, num_blocks_;
  int64_t group_, num_groups_;
};

// Widens the blocks of a vector of outputs, from `lane` of the group on.
template <CodeForm kForm, bool kHalves>
HWY_INLINE void WidenVector(const CodesBlocks& b, const CodesLayout& m, int64_t lane) {
  const QuadTag du;
  // The last group may have fewer panels; missing ones alias the last panel, and their outputs are
  // discarded.
  const int64_t panel = MinOf(b.first_panel + lane / kPanelWidth, m.num_panels - 1);
  const PanelCodes at = m.At(panel, lane % kPanelWidth);
  GroupCounter<kHalves> groups(m, b.block_begin);
  float* scales = b.widened.scales + lane;
  int32_t* shifts = b.widened.shifts + lane;
  for (int64_t block = b.block_begin; block < b.block_end; ++block) {
    for (int half = 0; half < (kHalves ? 2 : 1); ++half) {
      const int64_t group = groups.Next();
      hn::Store(ScalesAt<kForm>(m, at, group), F32(), scales + half * kGroupWidth);
      hn::Store(ShiftsAt<kForm>(m, at, group), hn::RebindToSigned<F32>(),
                shifts + half * kGroupWidth);
    }
    scales += 2 * kGroupWidth;
    shifts += 2 * kGroupWidth;
  }
  uint32_t* quads = b.widened.quads + lane;
  const uint32_t* words = at.words + b.block_begin * BlockBytes(kForm) / 4;
  for (int64_t word = b.block_begin * kBlockWords; word < b.block_end * kBlockWords; word += 2) {
    // x is 0 past the last input; the codes may be anything.
    QuadPair first = {hn::Zero(du), hn::Zero(du)}, second = first;
    if (word < m.num_words) first = WidenWord<kForm, 0>(words);
    if (word + 1 < m.num_words) second = WidenWord<kForm, 1>(words);
    hn::Store(first.even, du, quads);
    hn::Store(first.odd, du, quads + kGroupWidth);
    hn::Store(second.even, du, quads + 2 * kGroupWidth);
    hn::Store(second.odd, du, quads + 3 * kGroupWidth);
    words += BlockBytes(kForm) / 8;
    quads += 4 * kGroupWidth;
  }
}

template <CodeForm kForm, bool kHalves>
HWY_NOINLINE void WidenCodes(const CodesBlocks& of) {
  const CodesBlocks b = of;
  const CodesLayout layout = *of.weight;
  for (int64_t lane = 0; lane < kGroupWidth; lane += kLanes) {
    WidenVector<kForm, kHalves>(b, layout, lane);
  }
}

// Multiplies rows in even parts of at most kRegisterRows with widened codes.
template <class Steps>
HWY_NOINLINE void MultiplyCached(CodesBlocks b, const NextCodes& next, int64_t num_rows) {
  const int64_t num_parts = (num_rows + kRegisterRows - 1) / kRegisterRows;
  for (int64_t part = 0; part < num_parts; ++part) {
    next.FetchOf(part, num_parts);
    const int64_t left = num_parts - part;
    const int64_t rows = (num_rows + left - 1) / left;
    MultiplyPart<InCache<Steps>, 1>(b, rows);
    b.x += rows * b.x_stride;
    b.sums += rows * kGroupWidth;
    num_rows -= rows;
  }
}

// Calls WidenCodes and MultiplyCached for blocks [block_end, num_blocks).
template <CodeForm kForm, bool kHalves>
HWY_INLINE void MultiplyBlocks(CodesBlocks b, int64_t num_rows) {
  for (b.block_begin = b.block_end; b.block_begin < b.num_blocks; b.block_begin = b.block_end) {
    b.block_end = MinOf(b.num_blocks, b.block_begin + kCachedBlocks);
    WidenCodes<kForm, kHalves>(b);
    MultiplyCached<StepsOf<kForm, kHalves>>(b, NextCodes(b, kForm), num_rows);
  }
}

template <CodeForm kForm, bool kHalves>
HWY_INLINE void MultiplyForm(CodesBlocks b, int64_t num_rows) {
  constexpr RowsInMemory kRows = RowsInMemoryOf(kForm, kHalves);
  const bool is_whole = b.first_panel + kGroupPanels <= b.weight->num_panels;
  b.panels_in_turn = !is_whole || ReadsPanelsInTurn();
  const bool some = kRows == RowsInMemory::kSome && is_whole && num_rows <= kRegisterRows;
  if (kRows != RowsInMemory::kNone && (num_rows == 1 || some)) {
    b.block_end = b.weight->num_inputs / kQuantBlock;
    MultiplyCodesInMemory(kForm, kHalves, b, num_rows);
  }
  // What is left: for few rows, a last part of a block.
  MultiplyBlocks<kForm, kHalves>(b, num_rows);
}

template <CodeForm kForm>
HWY_INLINE void MultiplyForm(const CodesBlocks& b, int64_t num_rows) {
  const bool has_halves = b.weight->num_groups > 1 && b.weight->group_inputs % kQuantBlock != 0;
  if (has_halves) return MultiplyForm<kForm, true>(b, num_rows);
  MultiplyForm<kForm, false>(b, num_rows);
}

void MultiplyByForm(const CodedMatrix& m, const CodesBlocks& blocks, int64_t num_rows) {
  if (m.kind == CodeKind::kSigned4) return MultiplyForm<CodeForm::kSigned>(blocks, num_rows);
  if (m.has_6_bits()) {
    if (m.has_offsets) return MultiplyForm<CodeForm::kWithOffsets6>(blocks, num_rows);
    return MultiplyForm<CodeForm::kCounting6>(blocks, num_rows);
  }
  if (m.has_offsets) return MultiplyForm<CodeForm::kWithOffsets>(blocks, num_rows);
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
