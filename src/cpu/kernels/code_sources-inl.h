// Where products of integers with codes of 4 and 6 bits take them from (linear_codes_int8.cc): from
// memory, widened in registers, or from scratch, widened before. Compiled once for each instruction
// set (simd-inl.h).
#if defined(MINISGL_CPU_CODE_SOURCES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINISGL_CPU_CODE_SOURCES_INL_H_
#undef MINISGL_CPU_CODE_SOURCES_INL_H_
#else
#define MINISGL_CPU_CODE_SOURCES_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/code_quads-inl.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/simd-inl.h"

MINISGL_BEFORE_NAMESPACE_WITH_VNNI();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {

inline constexpr int kBlockQuads = kQuantBlock / 4;
inline constexpr int64_t kGroupPanels = kGroupWidth / kPanelWidth;
inline constexpr int64_t kOtherPanels = kGroupPanels - 1;
// Blocks that several rows pass over at a time: 256 inputs x 64 outputs, widened, are 16 KiB.
inline constexpr int64_t kCachedBlocks = 8;
// Prefetch distances: in blocks of a panel where panels are read beside each other; in bytes where
// they are read in turn, into the next panel, too: the prefetcher of the hardware stops at the end
// of a page. Scales and offsets are far fewer bytes than codes.
inline constexpr int64_t kBlocksAhead = 8;
inline constexpr int64_t kBytesAhead = 4096;
inline constexpr int64_t kFactorBytesAhead = 2048;

// Fetches a line into the first-level cache.
HWY_INLINE void FetchLine(const std::byte* from) {
  __builtin_prefetch(from, /*rw=*/0, /*locality=*/3);
}

// How the products of a form's blocks are added, which is all that there is to know of codes that
// are widened. kHasHalves: a step is half a block. kSumWords: as many words of a step are summed in
// one sum, which is of 16 bits where there are no dot products.
template <bool kOffsets, bool kHalves, int kWords>
struct BlockSteps {
  static constexpr bool kHasOffsets = kOffsets;
  static constexpr bool kHasHalves = kHalves;
  static constexpr int kSumWords = kWords;
};
template <CodeForm kForm, bool kHalves>
constexpr int SumWords() {
  constexpr int kStepWords = kHalves ? kBlockWords / 2 : kBlockWords;
#if defined(MINISGL_CODE_PAIRS)
  return IsOf6Bits(kForm) ? 1 : kForm == CodeForm::kSigned || kHalves ? 2 : kStepWords;
#else
  return kStepWords;
#endif
}
template <CodeForm kForm, bool kHalves>
using StepsOf = BlockSteps<HasOffsets(kForm), kHalves, SumWords<kForm, kHalves>()>;

// The scales and shifts (ScalesAt, ShiftsAt) of a step for some vectors of outputs.
struct StepFactors {
  float* scales;
  int32_t* shifts;
};

// Sources of codes, for kVectors vectors of outputs, are read half a block at a time, which
// PassHalf() passes; Advance() goes to the next block after two of them. Word<word>(v): two quads
// of vector v, of the next half. Factors(half): of a half of the block, until the next call.

template <int kVectors, CodeForm kForm, bool kHalves>
struct CodesInMemory : StepsOf<kForm, kHalves> {
  // Reads panels that lie beside each other, from block `block` of `of_blocks` on.
  HWY_INLINE CodesInMemory(const CodesLayout& of, int64_t first_panel, int64_t column,
                           int64_t block, int64_t of_blocks, StepFactors memory)
      : layout(of),
        first(of.At(first_panel + column / kPanelWidth, column % kPanelWidth)),
        words(first.words + block * BlockBytes(kForm) / 4),
        ahead(reinterpret_cast<const std::byte*>(words)),
        num_blocks(of_blocks),
        next_block(block),
        scale_bytes(
            (kAreBeside && of.factors.HasSteps() ? of.factors.step_bytes : of.factors.panel_bytes) /
            of_blocks),
        factor_bytes((of.factors.panel_bytes - of.factors.step_bytes) / of_blocks),
        zero_bytes(of.factors.panel_zeros / of_blocks),
        factors(memory) {
    // Without zero points they are the same in every step.
    if (!kShiftsVary && first.zeros == nullptr) StoreShifts(0);
  }
  HWY_INLINE void PassVector(PanelCodes* at) const {
    at->lane += kLanes;
    if (at->lane < kPanelWidth) return;
    at->lane = 0;
    const FactorLayout& of = layout.factors;
    at->scales += of.panel_bytes;
    if (kShiftsVary) at->offsets += of.panel_bytes;
    if (!kShiftsVary && at->zeros != nullptr) at->zeros += of.panel_zeros;
  }
  HWY_INLINE void StoreShifts(int64_t group) {
    PanelCodes at = first;
#pragma GCC unroll 1
    for (int64_t lane = 0; lane < kVectors * kLanes; lane += kLanes) {
      hn::Store(ShiftsAt<kForm>(layout, at, group), hn::RebindToSigned<F32>(),
                factors.shifts + lane);
      PassVector(&at);
    }
  }
  template <int kWord>
  HWY_INLINE QuadPair Word(int v) const {
    const int64_t panel = v * kLanes / kPanelWidth, lane = v * kLanes % kPanelWidth;
    const int64_t offset = panel * layout.panel_bytes;
    if (lane == 0) {
      FetchLine(ahead + offset + kWord * kWordBytes);
      // Two words of 6 bits have three lines.
      if (IsOf6Bits(kForm) && kWord == 1) FetchLine(ahead + offset + 2 * kWordBytes);
    }
    const auto* const from = reinterpret_cast<const std::byte*>(words) + offset;
    return WidenWord<kForm, kWord>(reinterpret_cast<const uint32_t*>(from) + lane);
  }
  HWY_INLINE StepFactors Factors(int half) {
    const int64_t group = half == 0 ? groups[0] : groups[1];
    StoreFactors<kVectors>(layout.factors, first.scales, group, first.lane, factors.scales);
    if (kForm == CodeForm::kSigned) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors * kLanes; v += kLanes) {
        float* const scale = factors.scales + v;
        hn::Store(hn::Mul(hn::Load(F32(), scale), hn::Set(F32(), 0.5f)), F32(), scale);
      }
    }
    if (kShiftsVary || first.zeros != nullptr) StoreShifts(group);
    return factors;
  }
  HWY_INLINE void PassHalf() {
    words += BlockBytes(kForm) / 8;
    ahead += BlockBytes(kForm) / 2;
  }
  HWY_INLINE void Advance() {
    ++next_block;
    // The next group of outputs begins within kBlocksAhead blocks.
    const bool ends = kAreBeside && next_block + kBlocksAhead >= num_blocks;
    const int64_t other_panels = ends ? kOtherPanels : 0;
    ahead = reinterpret_cast<const std::byte*>(words) +
            (kAreBeside ? kBlocksAhead * BlockBytes(kForm) + other_panels * layout.panel_bytes
                        : kBytesAhead);
    const FactorLayout& of = layout.factors;
    const bool has_factors = kAreBeside && of.HasSteps();
    const int64_t panels = ends ? kGroupPanels : 0;
    const int64_t block =
        kAreBeside ? next_block + kBlocksAhead - (ends ? num_blocks : 0) : next_block;
    const int64_t more = kAreBeside ? 0 : kFactorBytesAhead;
    const int64_t scales_at = panels * of.panel_bytes + block * scale_bytes + more;
    const int64_t factors_at = panels * of.panel_bytes + of.step_bytes + block * factor_bytes;
    const int64_t zeros_at = panels * of.panel_zeros + block * zero_bytes + more;
    for (int64_t panel = 0; panel * kPanelWidth < kVectors * kLanes; ++panel) {
      FetchLine(first.scales + panel * of.panel_bytes + scales_at);
      if (has_factors) FetchLine(first.scales + panel * of.panel_bytes + factors_at);
      if (HasOffsets(kForm)) {
        FetchLine(first.offsets + panel * of.panel_bytes + scales_at);
        if (has_factors) FetchLine(first.offsets + panel * of.panel_bytes + factors_at);
      }
      if (!HasOffsets(kForm) && first.zeros != nullptr) {
        FetchLine(reinterpret_cast<const std::byte*>(first.zeros) + panel * of.panel_zeros +
                  zeros_at);
      }
    }
  }

  static constexpr bool kAreBeside = kVectors * kLanes > kPanelWidth;
  static constexpr bool kShiftsVary = HasOffsets(kForm);
  CodesLayout layout;
  PanelCodes first;
  const uint32_t* words;   // of the next half
  const std::byte* ahead;  // of what is fetched while it is read
  int64_t num_blocks, next_block;
  // Bytes of a panel and a block, about. Where panels are read in turn, scales are steps and
  // factors.
  int64_t scale_bytes, factor_bytes, zero_bytes;
  int64_t groups[2] = {0, 0};  // of the halves of the block
  StepFactors factors;         // memory for kVectors vectors of each
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

template <class Steps>
struct CodesInCache : Steps {
  template <int kWord>
  HWY_INLINE QuadPair Word(int v) const {
    const uint32_t* const from = quads + 2 * kWord * kGroupWidth + v * kLanes;
    return {hn::Load(QuadTag(), from), hn::Load(QuadTag(), from + kGroupWidth)};
  }
  HWY_INLINE StepFactors Factors(int half) const {
    return {scales + half * kGroupWidth, shifts + half * kGroupWidth};
  }
  HWY_INLINE void PassHalf() { quads += kBlockQuads / 2 * kGroupWidth; }
  HWY_INLINE void Advance() {
    scales += 2 * kGroupWidth;
    shifts += 2 * kGroupWidth;
  }

  HWY_INLINE CodesInCache(const WidenedCodes& from, int64_t column)
      : quads(from.quads + column), scales(from.scales + column), shifts(from.shifts + column) {}
  const uint32_t* quads;
  float* scales;
  int32_t* shifts;
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

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
