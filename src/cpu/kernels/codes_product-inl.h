// Products of integers with codes of one form (CodeForm), for linear_codes_int8*.cc, of which each
// compiles some forms: a fifth of the time in which the program compiles would be one file's.
// Compiled once for each instruction set (simd-inl.h).
#if defined(MINISGL_CPU_CODES_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINISGL_CPU_CODES_PRODUCT_INL_H_
#undef MINISGL_CPU_CODES_PRODUCT_INL_H_
#else
#define MINISGL_CPU_CODES_PRODUCT_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "cpu/kernels/code_quads-inl.h"
#include "cpu/kernels/code_sources-inl.h"
#include "cpu/kernels/codes_row-inl.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/simd-inl.h"

MINISGL_BEFORE_NAMESPACE_WITH_VNNI();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {

// Rows that share a read of codes, and vectors of outputs that share a read of x.
inline constexpr bool kHasManyRegisters = HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3;
inline constexpr int kRegisterRows = kHasManyRegisters ? 6 : HWY_TARGET == HWY_AVX2 ? 4 : 2;
template <int kRows>
constexpr int CodeVectors() {
  return kLanes > 1 && kRows <= (kHasManyRegisters ? 3 : 2) ? 4 : 2;
}
// The same where codes come from memory: four panels are read faster than two.
template <int kRows>
constexpr int MemoryVectors() {
  return kHasManyRegisters && kRows <= 5 ? 4 : CodeVectors<kRows>();
}
// Those of one panel.
inline constexpr int kPanelVectors = kLanes == 1 ? 2 : static_cast<int>(kPanelWidth) / kLanes;
// If there are registers for them, sums stay there from one block to the next.
template <int kRows, int kVectors>
constexpr bool KeepsSums() {
  return kRows * kVectors <= (kHasManyRegisters ? 12 : 4);
}

// --- a block of some rows and outputs ------------------------------------------------------------

// Sums of rows and vectors of outputs: in memory, rows kGroupWidth apart, or in registers until
// Leave().
struct SumsInMemory {
  HWY_INLINE explicit SumsInMemory(float* from) : at(from) {}
  HWY_INLINE Floats Get(int r, int v) const {
    return hn::Load(F32(), at + r * kGroupWidth + v * kLanes);
  }
  HWY_INLINE void Set(int r, int v, Floats sum) const {
    hn::Store(sum, F32(), at + r * kGroupWidth + v * kLanes);
  }
  HWY_INLINE void Leave() const {}
  float* HWY_RESTRICT at;
};
template <int kRows, int kVectors>
struct SumsInRegisters {
  HWY_INLINE explicit SumsInRegisters(float* from) : memory(from) {
    MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
      MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) sum[r][v] = memory.Get(r, v);
    }
  }
  HWY_INLINE Floats Get(int r, int v) const { return sum[r][v]; }
  HWY_INLINE void Set(int r, int v, Floats value) { sum[r][v] = value; }
  HWY_INLINE void Leave() const {
    MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
      MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) memory.Set(r, v, sum[r][v]);
    }
  }
  SumsInMemory memory;
  Floats sum[kRows][kVectors];
};
template <int kRows, int kVectors>
using Sums = std::conditional_t<KeepsSums<kRows, kVectors>(), SumsInRegisters<kRows, kVectors>,
                                SumsInMemory>;

// products += those of a word of a block.
template <int kWord, int kRows, int kVectors, class Source>
HWY_INLINE void AddWord(const Source& codes, const CodesRows<kRows>& x,
                        QuadSums (&products)[kRows][kVectors]) {
  QuadPair w[kVectors];
  MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) w[v] = codes.template Word<kWord>(v);
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    const QuadInts quad = x.Quad(r, 2 * kWord);
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      AddProducts(w[v].even, quad, &products[r][v]);
    }
  }
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    const QuadInts quad = x.Quad(r, 2 * kWord + 1);
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
      dot[r][v] = MultiplyPairs(shifts, x.HalfSums(r));
    }
  }
}

// sums += the integers times the scales, and the offsets times the scaled sums.
template <int kRows, int kVectors, class Source>
HWY_INLINE void AddDots(const Source& codes, const CodesRows<kRows>& x, int part,
                        const QuadInts (&dot)[kRows][kVectors], Sums<kRows, kVectors>* sums) {
  const F32 d;
  const int half = Source::kHasHalves ? part : 0;
  Floats w_scales[kVectors];
  MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) w_scales[v] = codes.Scales(half, v);
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    const Floats x_scale = x.Scale(r);
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      const Floats scale = hn::Mul(w_scales[v], x_scale);
      sums->Set(r, v, hn::MulAdd(hn::ConvertTo(d, dot[r][v]), scale, sums->Get(r, v)));
    }
  }
  if constexpr (Source::kHasOffsets) {
    Floats offsets[kVectors];
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      offsets[v] = hn::BitCast(d, codes.Shifts(half, v));
    }
    MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
      const Floats x_sum = x.ScaledSum(r, Source::kHasHalves, half);
      MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
        sums->Set(r, v, hn::MulAdd(offsets[v], x_sum, sums->Get(r, v)));
      }
    }
  }
}

// A part of a block, whose sums are added as one: kPart of kParts.
template <int kPart, int kParts, int kRows, int kVectors, class Source>
HWY_INLINE void AddPart(const Source& codes, const CodesRows<kRows>& x,
                        QuadInts (&dot)[kRows][kVectors], Sums<kRows, kVectors>* sums) {
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
                              Sums<kRows, kVectors>* sums) {
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

// Reads the codes from memory. REQUIRES whole blocks, and a group of all its panels unless kVectors
// are those of one.
template <int kRows, int kVectors, CodeForm kForm, bool kHalves>
HWY_NOINLINE void MultiplyInMemory(const CodesBlocks& of) {
  // Copies, so that no store of sums can alias them.
  const CodesBlocks b = of;
  const CodesLayout layout = *of.weight;
  for (int64_t column = 0; column < b.num_columns; column += kVectors * kLanes) {
    CodesInMemory<kVectors, kForm, kHalves> codes(layout, b.first_panel, column, b.block_begin,
                                                  b.num_blocks);
    GroupCounter<kHalves> groups(layout, b.block_begin);
    CodesRows<kRows> x(b.x, b.x_stride, b.block_begin);
    Sums<kRows, kVectors> sums(b.sums + column);
    for (int64_t block = b.block_begin; block < b.block_end; ++block) {
      codes.groups[0] = groups.Next();
      if constexpr (kHalves) codes.groups[1] = groups.Next();
      AddCodesBlock<kRows, kVectors>(codes, x, &sums);
      x.Advance();
      codes.Advance();
    }
    sums.Leave();
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

template <CodeForm kForm, bool kHalves>
struct InMemory {
  template <int kRows>
  HWY_INLINE static void Multiply(const CodesBlocks& b) {
    if constexpr (kRows == 1) {
      if (b.panels_in_turn) return MultiplyInMemory<1, kPanelVectors, kForm, kHalves>(b);
    }
    MultiplyInMemory<kRows, MemoryVectors<kRows>(), kForm, kHalves>(b);
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

// Fetches what is widened after the blocks of a CodesBlocks, in pieces: the codes of a block of a
// panel, or a panel's scales, zeros and offsets. The hardware's prefetcher does not foresee them:
// they are read long after each other.
template <CodeForm kForm>
class NextCodes {
 public:
  HWY_INLINE explicit NextCodes(const CodesBlocks& b) : m_(*b.weight) {
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
      return FetchBytes(words + (block_ + i) * BlockBytes<kForm>(), BlockBytes<kForm>());
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
  int64_t panel_, num_panels_;
  int64_t block_, num_blocks_;
  int64_t group_, num_groups_;
};

// Multiplies rows in even parts of at most kRegisterRows.
template <CodeForm kForm, bool kHalves>
HWY_INLINE void MultiplyRows(CodesBlocks b, int64_t num_rows) {
  const NextCodes<kForm> next(b);
  const int64_t num_parts = (num_rows + kRegisterRows - 1) / kRegisterRows;
  for (int64_t part = 0; part < num_parts; ++part) {
    next.FetchOf(part, num_parts);
    const int64_t left = num_parts - part;
    const int64_t rows = (num_rows + left - 1) / left;
    MultiplyPart<InCache<kForm, kHalves>, 1>(b, rows);
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
  const uint32_t* words = at.words + b.block_begin * BlockBytes<kForm>() / 4;
  for (int64_t block = b.block_begin; block < b.block_end; ++block) {
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
  if (num_rows == 1 || (num_rows <= kRegisterRows && is_whole)) {
    b.block_end = b.weight->num_inputs / kQuantBlock;
    MultiplyPart<InMemory<kForm, kHalves>, 1>(b, num_rows);
  }
  // What is left: for few rows, a last part of a block.
  for (b.block_begin = b.block_end; b.block_begin < b.num_blocks; b.block_begin = b.block_end) {
    b.block_end = MinOf(b.num_blocks, b.block_begin + kCachedBlocks);
    WidenCodes<kForm, kHalves>(b);
    MultiplyRows<kForm, kHalves>(b, num_rows);
  }
}

template <CodeForm kForm>
HWY_INLINE void MultiplyForm(const CodesBlocks& b, int64_t num_rows) {
  const bool has_halves = b.weight->num_groups > 1 && b.weight->group_inputs % kQuantBlock != 0;
  if (has_halves) return MultiplyCodes<kForm, true>(b, num_rows);
  MultiplyCodes<kForm, false>(b, num_rows);
}

// Codes of 4 bits with offsets (linear_codes_int8_offsets.cc), and of 6 bits
// (linear_codes_int8_6bits.cc).
void MultiplyWithOffsets(const CodesBlocks& b, int64_t num_rows);
void MultiplyOf6Bits(const CodesBlocks& b, bool has_offsets, int64_t num_rows);

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
