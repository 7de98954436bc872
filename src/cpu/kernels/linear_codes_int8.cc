// out = x w^T + bias for weights that are kept as codes of 4 or 6 bits (coded_matrix.h), by
// products of integers.
//
// x is quantized once for all outputs, as for int8 weights (weight_format.h). A code stands for a
// small unsigned integer: of numbers that count up, the code itself; of e2m1, 2 number + 12, whose
// scale is half the stored one. A weight is (integer - zero) * scale, or integer * scale + offset.
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
// some blocks are widened once into scratch, in the first-level cache, while all rows pass over
// them.
#define MINISGL_NEEDS_VNNI
#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/linear_codes_int8.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/kernels/code_quads-inl.h"
#include "cpu/kernels/codes_row-inl.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/linear_output-inl.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET == HWY_AVX3_DL
// As in linear_int8.cc.
#pragma GCC target("avx512vnni")
#endif
namespace minisgl::cpu {
namespace HWY_NAMESPACE {
namespace {

inline constexpr int kBlockQuads = kQuantBlock / 4;
// Blocks that several rows pass over at a time: 256 inputs x 64 outputs, widened, are 16 KiB.
inline constexpr int64_t kCachedBlocks = 8;
// Prefetch distances: in blocks of a panel where panels are read beside each other; in bytes where
// they are read in turn, into the next panel, too: the prefetcher of the hardware stops at the end
// of a page.
inline constexpr int64_t kBlocksAhead = 8;
inline constexpr int64_t kBytesAhead = 4096;
inline constexpr int64_t kOtherPanels = kGroupWidth / kPanelWidth - 1;

// Rows that share a read of codes, and vectors of outputs that share a read of x.
inline constexpr bool kHasManyRegisters = HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3;
inline constexpr int kRegisterRows = kHasManyRegisters ? 6 : HWY_TARGET == HWY_AVX2 ? 4 : 2;
template <int kRows>
constexpr int CodeVectors() {
  if (kLanes == 1) return 2;
  return kHasManyRegisters || kRows <= 2 ? 4 : 2;
}
// Those of one panel.
inline constexpr int kPanelVectors = kLanes == 1 ? 2 : static_cast<int>(kPanelWidth) / kLanes;
// Up to this many rows, each part of the rows widens codes in registers. It computes scales and
// offsets, too, which takes as long again if they are steps of a factor.
inline constexpr int64_t kFewRowsMax = 6 * kRegisterRows;
inline constexpr int64_t kFewRowsOfStepsMax = 2 * kRegisterRows;

// --- a block of some rows and outputs ------------------------------------------------------------

// Words whose products a 16-bit sum holds.
template <CodeForm kForm>
constexpr int SumWords() {
  return IsOf6Bits(kForm) ? 1 : kForm == CodeForm::kSigned ? 2 : 4;
}

// Sources of codes, for kVectors vectors of outputs of one block. Word<word>(v): two quads of
// vector v; Scales(half, v) and Shifts(half, v): those of a half of the block. kHalves: a step is
// half a block.

template <int kVectors, CodeForm kForm, bool kHalves>
struct CodesInMemory {
  static constexpr bool kHasHalves = kHalves;
  static constexpr bool kHasOffsets = HasOffsets(kForm);
  static constexpr int kSumWords = SumWords<kForm>();

  // Of panels that lie beside each other.
  HWY_INLINE CodesInMemory(const CodesLayout& of, int64_t first_panel, int64_t column)
      : layout(of),
        first(of.At(first_panel + column / kPanelWidth, column % kPanelWidth)),
        words(first.words) {}
  HWY_INLINE PanelCodes Of(int v) const {
    const int64_t panel = v * kLanes / kPanelWidth, lane = v * kLanes % kPanelWidth;
    const FactorLayout& of = layout.factors;
    PanelCodes at = first;
    at.scales += panel * of.panel_bytes;
    if (at.zeros != nullptr) at.zeros += panel * of.panel_zeros;
    if (at.offsets != nullptr) at.offsets += panel * of.panel_bytes;
    at.lane += lane;
    return at;
  }
  template <int kWord>
  HWY_INLINE QuadPair Word(int v) const {
    const int64_t panel = v * kLanes / kPanelWidth, lane = v * kLanes % kPanelWidth;
    const int64_t offset = panel * layout.panel_bytes;
    if (lane == 0) {
      // Of 6 bits two words have three lines.
      const int64_t line = IsOf6Bits(kForm) ? kWord / 2 * 3 + kWord % 2 : kWord;
      Fetch(ahead + offset + line * kWordBytes);
      if (IsOf6Bits(kForm) && kWord % 2 == 1) Fetch(ahead + offset + (line + 1) * kWordBytes);
    }
    const auto* const from = reinterpret_cast<const std::byte*>(words) + offset;
    return WidenWord<kForm, kWord>(reinterpret_cast<const uint32_t*>(from) + lane);
  }
  HWY_INLINE static void Fetch(const std::byte* from) {
    __builtin_prefetch(from, /*rw=*/0, /*locality=*/3);
  }
  HWY_INLINE Floats Scales(int half, int v) const {
    return ScalesAt<kForm>(layout, Of(v), groups[half]);
  }
  HWY_INLINE QuadInts Shifts(int half, int v) const {
    return ShiftsAt<kForm>(layout, Of(v), groups[half]);
  }
  // `ends`: the next group of outputs begins after kBlocksAhead blocks.
  HWY_INLINE void Advance(bool ends) {
    constexpr bool kAreBeside = kVectors * kLanes > kPanelWidth;
    const int64_t bytes_ahead = kAreBeside ? kBlocksAhead * BlockBytes<kForm>() +
                                                 (ends ? kOtherPanels * layout.panel_bytes : 0)
                                           : kBytesAhead;
    words += BlockBytes<kForm>() / 4;
    ahead = reinterpret_cast<const std::byte*>(words) + bytes_ahead;
  }

  CodesLayout layout;
  PanelCodes first;
  const uint32_t* words;  // of the block
  const std::byte* ahead = nullptr;
  int64_t groups[2] = {0, 0};  // of the halves of the block
};

// Codes of some blocks of a group of outputs, widened.
struct WidenedCodes {
  // [kCachedBlocks][kBlockQuads][kGroupWidth] quads
  uint32_t* quads;
  // [kCachedBlocks][2 halves][kGroupWidth]
  float* scales;
  int32_t* shifts;
};
inline constexpr int64_t kWidenedQuads = kCachedBlocks * kBlockQuads * kGroupWidth;
inline constexpr int64_t kWidenedFactors = kCachedBlocks * 2 * kGroupWidth;
inline constexpr int64_t kWidenedFloats = kWidenedQuads + 2 * kWidenedFactors;
static_assert(kWidenedFloats + kGroupWidth * kLinearRowsMax <= kLinearScratchFloats);

template <CodeForm kForm, bool kHalves>
struct CodesInCache {
  static constexpr bool kHasHalves = kHalves;
  static constexpr bool kHasOffsets = HasOffsets(kForm);
  static constexpr int kSumWords = SumWords<kForm>();

  template <int kWord>
  HWY_INLINE QuadPair Word(int v) const {
    const uint32_t* const from = quads + 2 * kWord * kGroupWidth + v * kLanes;
    return {hn::Load(QuadTag(), from), hn::Load(QuadTag(), from + kGroupWidth)};
  }
  HWY_INLINE Floats Scales(int half, int v) const {
    return hn::Load(F32(), scales + half * kGroupWidth + v * kLanes);
  }
  HWY_INLINE QuadInts Shifts(int half, int v) const {
    return hn::Load(hn::RebindToSigned<F32>(), shifts + half * kGroupWidth + v * kLanes);
  }
  HWY_INLINE void Advance() {
    quads += kBlockQuads * kGroupWidth;
    scales += 2 * kGroupWidth;
    shifts += 2 * kGroupWidth;
  }

  const uint32_t* quads;
  const float* scales;
  const int32_t* shifts;
};

// Pointers to a block's scales, sums and quads of kRows rows of x.
template <int kRows>
struct CodesRows {
  HWY_INLINE CodesRows(const std::byte* x, int64_t x_stride, int64_t num_blocks, int64_t block)
      : scales(reinterpret_cast<const float*>(x) + block, Floats(x_stride)),
        sums(reinterpret_cast<const int32_t*>(x) + num_blocks + block, Floats(x_stride)),
        quads(reinterpret_cast<const int32_t*>(x) + 2 * num_blocks + block * kBlockQuads,
              Floats(x_stride)) {}
  HWY_INLINE static size_t Floats(int64_t bytes) {
    return static_cast<size_t>(bytes) / sizeof(float);
  }
  HWY_INLINE void Advance() {
    scales.Advance(1);
    sums.Advance(1);
    quads.Advance(kBlockQuads);
  }
  RowPointers<kRows> scales;
  RowPointers<kRows, int32_t> sums, quads;
};

// products += those of a word of a block.
template <int kWord, int kRows, int kVectors, class Source>
HWY_INLINE void AddWord(const Source& codes, const CodesRows<kRows>& x,
                        QuadSums (&products)[kRows][kVectors]) {
  const hn::RebindToSigned<F32> di;
  QuadPair w[kVectors];
  MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) w[v] = codes.template Word<kWord>(v);
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    const QuadInts quad = hn::Set(di, x.quads.At(r, 2 * kWord));
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      AddProducts(w[v].even, quad, &products[r][v]);
    }
  }
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    const QuadInts quad = hn::Set(di, x.quads.At(r, 2 * kWord + 1));
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      AddProducts(w[v].odd, quad, &products[r][v]);
    }
  }
}

// products += those of the words [kBegin, kEnd) of a block.
template <int kBegin, int kEnd, int kRows, int kVectors, class Source>
HWY_INLINE void AddWords(const Source& codes, const CodesRows<kRows>& x,
                         QuadSums (&products)[kRows][kVectors]) {
  if constexpr (kBegin < kEnd) {
    AddWord<kBegin>(codes, x, products);
    AddWords<kBegin + 1, kEnd>(codes, x, products);
  }
}

// The sum of the q's of a step of row `r`, times the scale. The step is `half` of a block, or all.
template <int kRows>
HWY_INLINE Floats ScaledSum(const CodesRows<kRows>& x, int r, bool has_halves, int half) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const int32_t counted = !has_halves ? 0x00010001 : half == 0 ? 1 : 0x00010000;
  const QuadInts sum = MultiplyPairs(hn::Set(di, x.sums.At(r, 0)), hn::Set(di, counted));
  return hn::Mul(hn::ConvertTo(d, sum), hn::Set(d, x.scales.At(r, 0)));
}

// The integers of a block's first step, before products are added: less the zero points times the
// sums of the q's.
template <int kRows, int kVectors, class Source>
HWY_INLINE void BeginDots(const Source& codes, const CodesRows<kRows>& x, int part,
                          QuadInts (&dot)[kRows][kVectors]) {
  const hn::RebindToSigned<F32> di;
  MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
    if constexpr (Source::kHasOffsets) {
      MINISGL_UNROLL for (int r = 0; r < kRows; ++r) dot[r][v] = hn::Zero(di);
      continue;
    }
    QuadInts shifts = codes.Shifts(Source::kHasHalves ? part : 0, v);
    if constexpr (Source::kHasHalves) {
      // The other half's sum counts 0 times.
      shifts = hn::And(shifts, hn::Set(di, part == 0 ? 0xFFFF : ~0xFFFF));
    }
    MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
      dot[r][v] = MultiplyPairs(shifts, hn::Set(di, x.sums.At(r, 0)));
    }
  }
}

// sums += the integers times the scales, and the offsets times the scaled sums.
template <int kRows, int kVectors, class Source>
HWY_INLINE void AddDots(const Source& codes, const CodesRows<kRows>& x, int part,
                        const QuadInts (&dot)[kRows][kVectors], float* HWY_RESTRICT sums) {
  const F32 d;
  const int half = Source::kHasHalves ? part : 0;
  Floats scaled[kRows];
  MINISGL_UNROLL for (int r = 0; Source::kHasOffsets && r < kRows; ++r) {
    scaled[r] = ScaledSum(x, r, Source::kHasHalves, half);
  }
  MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
    const Floats w_scale = codes.Scales(half, v);
    MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
      float* const at = sums + r * kGroupWidth + v * kLanes;
      const Floats scale = hn::Mul(w_scale, hn::Set(d, x.scales.At(r, 0)));
      Floats sum = hn::MulAdd(hn::ConvertTo(d, dot[r][v]), scale, hn::Load(d, at));
      if constexpr (Source::kHasOffsets) {
        sum = hn::MulAdd(hn::BitCast(d, codes.Shifts(half, v)), scaled[r], sum);
      }
      hn::Store(sum, d, at);
    }
  }
}

// A part of a block, whose sums are added as one: kPart of kParts.
template <int kPart, int kParts, int kRows, int kVectors, class Source>
HWY_INLINE void AddPart(const Source& codes, const CodesRows<kRows>& x,
                        QuadInts (&dot)[kRows][kVectors], float* HWY_RESTRICT sums) {
  constexpr int kWords = kBlockWords / kParts;
  // Parts of a step: of the block, or of a half.
  constexpr int kStepParts = Source::kHasHalves ? kParts / 2 : kParts;
  constexpr int kStep = kPart / kStepParts;
  if constexpr (kPart % kStepParts == 0) BeginDots(codes, x, kStep, dot);
  QuadSums products[kRows][kVectors];
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) products[r][v] = BeginSums(dot[r][v]);
  }
  AddWords<kPart * kWords, (kPart + 1) * kWords>(codes, x, products);
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      dot[r][v] = EndSums(products[r][v], dot[r][v]);
    }
  }
  if constexpr ((kPart + 1) % kStepParts == 0) AddDots(codes, x, kStep, dot, sums);
  if constexpr (kPart + 1 < kParts) AddPart<kPart + 1, kParts>(codes, x, dot, sums);
}

// sums += x w^T of one block of kRows rows.
template <int kRows, int kVectors, class Source>
HWY_INLINE void AddCodesBlock(const Source& codes, const CodesRows<kRows>& x,
                              float* HWY_RESTRICT sums) {
#if defined(MINISGL_CODE_PAIRS)
  constexpr int kSumParts = kBlockWords / Source::kSumWords;
#else
  constexpr int kSumParts = 1;
#endif
  constexpr int kParts = Source::kHasHalves && kSumParts < 2 ? 2 : kSumParts;
  QuadInts dot[kRows][kVectors];
  AddPart<0, kParts>(codes, x, dot, sums);
}

// --- blocks of some rows and a group of outputs --------------------------------------------------

// Blocks [block_begin, block_end) of some rows and a group of outputs.
struct CodesBlocks {
  const std::byte* x;
  int64_t x_stride;
  const CodesLayout* weight;
  int64_t first_panel;
  int64_t num_columns;
  int64_t num_blocks;  // of a whole row
  int64_t block_begin, block_end;
  bool panels_in_turn;   // of one row in memory
  WidenedCodes widened;  // of these blocks, if they come from there
  float* sums;           // [rows, kGroupWidth]
};

// Which group of inputs the next step is in, without a division for each.
template <bool kHalves>
class GroupCounter {
 public:
  HWY_INLINE GroupCounter(const CodesLayout& m, int64_t block) : last_(m.num_groups - 1) {
    constexpr int64_t kStep = kHalves ? kQuantBlock / 2 : kQuantBlock;
    // A group that is not of whole steps is the only one.
    steps_ = (m.group_inputs + kStep - 1) / kStep;
    left_ = steps_;
    if (block == 0) return;
    const int64_t step = block * (kHalves ? 2 : 1);
    group_ = step / steps_;
    left_ -= step % steps_;
  }
  HWY_INLINE int64_t Next() {
    // The second half of a last block may be past the last group.
    const int64_t group = MinOf(group_, last_);
    if (--left_ == 0) {
      ++group_;
      left_ = steps_;
    }
    return group;
  }

 private:
  int64_t last_, steps_, left_, group_ = 0;
};

// Reads the codes from memory. REQUIRES whole blocks, and a group of all its panels unless kVectors
// are those of one.
template <int kRows, int kVectors, CodeForm kForm, bool kHalves>
HWY_NOINLINE void MultiplyInMemory(const CodesBlocks& of) {
  // Copies, so that no store of sums can alias them.
  const CodesBlocks b = of;
  const CodesLayout layout = *of.weight;
  for (int64_t column = 0; column < b.num_columns; column += kVectors * kLanes) {
    CodesInMemory<kVectors, kForm, kHalves> codes(layout, b.first_panel, column);
    codes.words += b.block_begin * BlockBytes<kForm>() / 4;
    GroupCounter<kHalves> groups(layout, b.block_begin);
    CodesRows<kRows> x(b.x, b.x_stride, b.num_blocks, b.block_begin);
    codes.ahead = reinterpret_cast<const std::byte*>(codes.words);
    for (int64_t block = b.block_begin; block < b.block_end; ++block) {
      codes.groups[0] = groups.Next();
      if constexpr (kHalves) codes.groups[1] = groups.Next();
      AddCodesBlock<kRows, kVectors>(codes, x, b.sums + column);
      x.Advance();
      codes.Advance(block + 1 + kBlocksAhead >= b.num_blocks);
    }
  }
}

// Reads the widened codes.
template <int kRows, CodeForm kForm, bool kHalves>
HWY_NOINLINE void MultiplyInCache(const CodesBlocks& of) {
  const CodesBlocks b = of;
  constexpr int kVectors = CodeVectors<kRows>();
  for (int64_t column = 0; column < b.num_columns; column += kVectors * kLanes) {
    CodesInCache<kForm, kHalves> codes = {b.widened.quads + column, b.widened.scales + column,
                                          b.widened.shifts + column};
    CodesRows<kRows> x(b.x, b.x_stride, b.num_blocks, b.block_begin);
    for (int64_t block = b.block_begin; block < b.block_end; ++block) {
      AddCodesBlock<kRows, kVectors>(codes, x, b.sums + column);
      x.Advance();
      codes.Advance();
    }
  }
}

template <CodeForm kForm, bool kHalves>
struct InMemory {
  template <int kRows>
  HWY_INLINE static void Multiply(const CodesBlocks& b) {
    if constexpr (kRows == 1) {
      if (b.panels_in_turn) return MultiplyInMemory<1, kPanelVectors, kForm, kHalves>(b);
    }
    MultiplyInMemory<kRows, CodeVectors<kRows>(), kForm, kHalves>(b);
  }
};
template <CodeForm kForm, bool kHalves>
struct InCache {
  template <int kRows>
  HWY_INLINE static void Multiply(const CodesBlocks& b) {
    MultiplyInCache<kRows, kForm, kHalves>(b);
  }
};

// Calls Where::Multiply for `rows`. REQUIRES rows >= kRows.
template <class Where, int kRows>
HWY_INLINE void MultiplyPart(const CodesBlocks& b, int64_t rows) {
  if constexpr (kRows < kRegisterRows) {
    if (rows > kRows) return MultiplyPart<Where, kRows + 1>(b, rows);
  }
  Where::template Multiply<kRows>(b);
}

// Multiplies rows in even parts of at most kRegisterRows.
template <class Where>
HWY_INLINE void MultiplyRows(CodesBlocks b, int64_t num_rows) {
  for (int64_t parts = (num_rows + kRegisterRows - 1) / kRegisterRows; parts > 0; --parts) {
    const int64_t rows = (num_rows + parts - 1) / parts;
    MultiplyPart<Where, 1>(b, rows);
    b.x += rows * b.x_stride;
    b.sums += rows * kGroupWidth;
    num_rows -= rows;
  }
}

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
  const int64_t bytes_ahead = (b.block_end - b.block_begin) * BlockBytes<kForm>();
  const uint32_t* words = at.words + b.block_begin * BlockBytes<kForm>() / 4;
  for (int64_t block = b.block_begin; block < b.block_end; ++block) {
    for (int64_t line = 0; lane % kPanelWidth == 0 && line < BlockBytes<kForm>();
         line += kWordBytes) {
      PrefetchStream(reinterpret_cast<const std::byte*>(words) + bytes_ahead + line);
    }
    const int64_t left = m.num_words - block * kBlockWords;
    const auto widen = [&]<int kWord>() {
      // x is 0 past the last input; the codes may be anything.
      QuadPair w = {hn::Zero(du), hn::Zero(du)};
      if (kWord < left) w = WidenWord<kForm, kWord>(words);
      hn::Store(w.even, du, quads + 2 * kWord * kGroupWidth);
      hn::Store(w.odd, du, quads + (2 * kWord + 1) * kGroupWidth);
    };
    static_assert(kBlockWords == 4);
    widen.template operator()<0>();
    widen.template operator()<1>();
    widen.template operator()<2>();
    widen.template operator()<3>();
    words += BlockBytes<kForm>() / 4;
    quads += kBlockQuads * kGroupWidth;
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

template <CodeForm kForm, bool kHalves>
HWY_INLINE void MultiplyCodes(CodesBlocks b, int64_t num_rows) {
  b.block_end = 0;
  const bool is_whole = b.first_panel + kGroupWidth / kPanelWidth <= b.weight->num_panels;
  b.panels_in_turn = !is_whole || ReadsPanelsInTurn();
  const int64_t few = b.weight->factors.has_steps ? kFewRowsOfStepsMax : kFewRowsMax;
  if (num_rows == 1 || (num_rows <= few && is_whole)) {
    const int64_t end = b.weight->num_inputs / kQuantBlock;
    const int64_t step = num_rows <= kRegisterRows ? end : kCachedBlocks;
    for (; b.block_begin < end; b.block_begin = b.block_end) {
      b.block_end = MinOf(end, b.block_begin + step);
      MultiplyRows<InMemory<kForm, kHalves>>(b, num_rows);
    }
  }
  // What is left: for few rows, a last part of a block.
  for (; b.block_begin < b.num_blocks; b.block_begin = b.block_end) {
    b.block_end = MinOf(b.num_blocks, b.block_begin + kCachedBlocks);
    WidenCodes<kForm, kHalves>(b);
    MultiplyRows<InCache<kForm, kHalves>>(b, num_rows);
  }
}

template <CodeForm kForm>
HWY_INLINE void MultiplyForm(const CodesBlocks& b, int64_t num_rows) {
  const bool has_halves = b.weight->num_groups > 1 && b.weight->group_inputs % kQuantBlock != 0;
  if (has_halves) return MultiplyCodes<kForm, true>(b, num_rows);
  MultiplyCodes<kForm, false>(b, num_rows);
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
      .num_blocks = CodesRowLayout(m.num_in).num_blocks,
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
