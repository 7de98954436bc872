// The part of linear_codes_int8.cc for codes that are read from memory.
#define MINISGL_NEEDS_VNNI
#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/linear_codes_int8_memory.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/kernels/code_sources-inl.h"
#include "cpu/kernels/codes_product-inl.h"
#include "cpu/kernels/simd-inl.h"

MINISGL_BEFORE_NAMESPACE_WITH_VNNI();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {
namespace {

// Reads the codes from memory. REQUIRES whole blocks, and a group of all its panels unless kVectors
// are those of one.
template <int kRows, int kVectors, CodeForm kForm, bool kHalves>
HWY_NOINLINE void MultiplyInMemory(const CodesBlocks& of) {
  // Copies, so that no store of sums can alias them.
  const CodesBlocks b = of;
  const CodesLayout layout = *of.weight;
  HWY_ALIGN float scales[kVectors * kLanes];
  HWY_ALIGN int32_t shifts[kVectors * kLanes];
  for (int64_t column = 0; column < b.num_columns; column += kVectors * kLanes) {
    CodesInMemory<kVectors, kForm, kHalves> codes(layout, b.first_panel, column, b.block_begin,
                                                  b.num_blocks, {scales, shifts});
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

template <CodeForm kForm, bool kHalves>
struct InMemory {
  template <int kRows>
  HWY_INLINE static void Multiply(const CodesBlocks& b) {
    MultiplyInMemory<kRows, MemoryVectors<kRows>(), kForm, kHalves>(b);
  }
};

// REQUIRES as many rows as RowsInMemoryOf() says.
template <CodeForm kForm, bool kHalves>
HWY_INLINE void MultiplyFormInMemory(const CodesBlocks& b, int64_t num_rows) {
  constexpr RowsInMemory kRows = RowsInMemoryOf(kForm, kHalves);
  if constexpr (kRows == RowsInMemory::kSome) {
    if (num_rows > 1) return MultiplyPart<InMemory<kForm, kHalves>, 2>(b, num_rows);
  }
  if constexpr (kRows >= RowsInMemory::kOne) {
    if (!b.panels_in_turn) return InMemory<kForm, kHalves>::template Multiply<1>(b);
  }
  if constexpr (kRows != RowsInMemory::kNone) {
    MultiplyInMemory<1, kPanelVectors, kForm, kHalves>(b);
  }
}

template <CodeForm kForm>
HWY_INLINE void MultiplyForm(bool has_halves, const CodesBlocks& b, int64_t num_rows) {
  if (has_halves) return MultiplyFormInMemory<kForm, true>(b, num_rows);
  MultiplyFormInMemory<kForm, false>(b, num_rows);
}

}  // namespace

void MultiplyCodesInMemory(CodeForm form, bool has_halves, const CodesBlocks& b, int64_t num_rows) {
  switch (form) {
    case CodeForm::kCounting:
      return MultiplyForm<CodeForm::kCounting>(has_halves, b, num_rows);
    case CodeForm::kWithOffsets:
      return MultiplyForm<CodeForm::kWithOffsets>(has_halves, b, num_rows);
    case CodeForm::kSigned:
      return MultiplyForm<CodeForm::kSigned>(has_halves, b, num_rows);
    case CodeForm::kCounting6:
      return MultiplyForm<CodeForm::kCounting6>(has_halves, b, num_rows);
    case CodeForm::kWithOffsets6:
      return MultiplyForm<CodeForm::kWithOffsets6>(has_halves, b, num_rows);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();
