// Products of integers with codes, wherever they are read from (code_sources-inl.h). Compiled once
// for each instruction set (simd-inl.h).
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
inline constexpr int kRegisterRows = kHasManyRegisters        ? 6
                                     : HWY_TARGET == HWY_AVX2 ? 4
                                     : kIsFallback            ? 1
                                                              : 2;
template <int kRows>
constexpr int CodeVectors() {
  return !kIsFallback && kRows <= (kHasManyRegisters ? 3 : 2) ? 4 : 2;
}
// The same where codes come from memory: four panels are read faster than two.
template <int kRows>
constexpr int MemoryVectors() {
  return kHasManyRegisters && kRows <= 5 ? 4 : CodeVectors<kRows>();
}
// Vectors of one panel.
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

// products += those of word kWord of a half of a block.
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

template <int kRows, int kVectors>
HWY_INLINE void BeginProducts(const QuadInts (&dot)[kRows][kVectors],
                              QuadSums (&products)[kRows][kVectors]) {
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) products[r][v] = BeginSums(dot[r][v]);
  }
}
template <int kRows, int kVectors>
HWY_INLINE void EndProducts(const QuadSums (&products)[kRows][kVectors],
                            QuadInts (&dot)[kRows][kVectors]) {
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      dot[r][v] = EndSums(products[r][v], dot[r][v]);
    }
  }
}

// The integers of a step before products are added: less the zero points times the sums of the q's.
// `words`: of x that have been passed since the block began.
template <int kRows, int kVectors, class Source>
HWY_INLINE void BeginDots(const StepFactors& factors, const CodesRows<kRows>& x, int half,
                          int words, QuadInts (&dot)[kRows][kVectors]) {
  const hn::RebindToSigned<F32> di;
  MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
    if constexpr (Source::kHasOffsets) {
      MINISGL_UNROLL for (int r = 0; r < kRows; ++r) dot[r][v] = hn::Zero(di);
      continue;
    }
    QuadInts shifts = hn::Load(di, factors.shifts + v * kLanes);
    if constexpr (Source::kHasHalves) {
      // The other half's sum counts 0 times.
      shifts = hn::And(shifts, hn::Set(di, half == 0 ? 0xFFFF : ~0xFFFF));
    }
    MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
      dot[r][v] = MultiplyPairs(shifts, x.HalfSums(r, words));
    }
  }
}

// sums += the integers times the scales, and the offsets times the scaled sums.
template <int kRows, int kVectors, class Source>
HWY_INLINE void AddDots(const StepFactors& factors, const CodesRows<kRows>& x, int half, int words,
                        const QuadInts (&dot)[kRows][kVectors], Sums<kRows, kVectors>* sums) {
  const F32 d;
  Floats w_scales[kVectors];
  MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
    w_scales[v] = hn::Load(d, factors.scales + v * kLanes);
  }
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    const Floats x_scale = x.Scale(r, words);
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      const Floats scale = hn::Mul(w_scales[v], x_scale);
      sums->Set(r, v, hn::MulAdd(hn::ConvertTo(d, dot[r][v]), scale, sums->Get(r, v)));
    }
  }
  if constexpr (Source::kHasOffsets) {
    Floats offsets[kVectors];
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      offsets[v] = hn::BitCast(d, hn::Load(hn::RebindToSigned<F32>(), factors.shifts + v * kLanes));
    }
    MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
      const Floats x_sum = x.ScaledSum(r, Source::kHasHalves, half, words);
      MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
        sums->Set(r, v, hn::MulAdd(offsets[v], x_sum, sums->Get(r, v)));
      }
    }
  }
}

inline constexpr int kHalfWords = kBlockWords / 2;
static_assert(kHalfWords == 2);

// Adds half a block to `dot`, and passes over it. `products`: of a whole block, if it has one sum.
template <int kRows, int kVectors, class Source>
HWY_INLINE void AddHalf(Source& codes, CodesRows<kRows>& x, QuadInts (&dot)[kRows][kVectors],
                        QuadSums (&products)[kRows][kVectors]) {
  constexpr bool kHasOwnSums = Source::kSumWords <= kHalfWords;
  if constexpr (kHasOwnSums) BeginProducts(dot, products);
  AddWord<0>(codes, x, products);
  if constexpr (Source::kSumWords == 1) {
    EndProducts(products, dot);
    BeginProducts(dot, products);
  }
  AddWord<1>(codes, x, products);
  if constexpr (kHasOwnSums) EndProducts(products, dot);
  codes.PassHalf();
  x.PassHalf();
}

// sums += a half of a block that is a step.
template <int kRows, int kVectors, class Source>
HWY_INLINE void AddHalfStep(Source& codes, CodesRows<kRows>& x, int half,
                            QuadInts (&dot)[kRows][kVectors], QuadSums (&products)[kRows][kVectors],
                            Sums<kRows, kVectors>* sums) {
  const int words = half * kRowHalfQuads;
  const StepFactors factors = codes.Factors(half);
  BeginDots<kRows, kVectors, Source>(factors, x, half, words, dot);
  AddHalf(codes, x, dot, products);
  AddDots<kRows, kVectors, Source>(factors, x, half, words + kRowHalfQuads, dot, sums);
}

// sums += x w^T of one block of kRows rows. Passes over the block.
template <int kRows, int kVectors, class Source>
HWY_INLINE void AddCodesBlock(Source& codes, CodesRows<kRows>& x, Sums<kRows, kVectors>* sums) {
  QuadInts dot[kRows][kVectors];
  QuadSums products[kRows][kVectors];
  if constexpr (Source::kHasHalves) {
    AddHalfStep(codes, x, 0, dot, products, sums);
    AddHalfStep(codes, x, 1, dot, products, sums);
  } else {
    const StepFactors factors = codes.Factors(0);
    BeginDots<kRows, kVectors, Source>(factors, x, 0, 0, dot);
    if constexpr (Source::kSumWords > kHalfWords) BeginProducts(dot, products);
    AddHalf(codes, x, dot, products);
    AddHalf(codes, x, dot, products);
    if constexpr (Source::kSumWords > kHalfWords) EndProducts(products, dot);
    AddDots<kRows, kVectors, Source>(factors, x, 0, 2 * kRowHalfQuads, dot, sums);
  }
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

// Calls Where::Multiply for `rows`. REQUIRES rows >= kRows.
template <class Where, int kRows>
HWY_INLINE void MultiplyPart(const CodesBlocks& b, int64_t rows) {
  if constexpr (kRows < kRegisterRows) {
    if (rows > kRows) return MultiplyPart<Where, kRows + 1>(b, rows);
  }
  Where::template Multiply<kRows>(b);
}

// How many rows read codes from memory: none, one that reads one panel after another, one, or up to
// kRegisterRows. All others read widened codes.
enum class RowsInMemory { kNone, kOneInTurn, kOne, kSome };

// Several rows read them in the forms that most weights have, and that bench_cpu_kernels has: int4
// and Q4_0; Q4_K; MXFP4 and NVFP4; Q6_K. These products take longer to compile than any others.
constexpr RowsInMemory RowsInMemoryOf(CodeForm form, bool has_halves) {
  if (kIsFallback) return RowsInMemory::kNone;
  if (form == CodeForm::kSigned) return RowsInMemory::kSome;
  if (form == CodeForm::kCounting6) return has_halves ? RowsInMemory::kSome : RowsInMemory::kOne;
  if (has_halves) return RowsInMemory::kOneInTurn;
  return form == CodeForm::kWithOffsets6 ? RowsInMemory::kOne : RowsInMemory::kSome;
}

// Multiplies the numbers of rows that RowsInMemoryOf() names (linear_codes_int8_memory.cc).
void MultiplyCodesInMemory(CodeForm form, bool has_halves, const CodesBlocks& b, int64_t num_rows);

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
