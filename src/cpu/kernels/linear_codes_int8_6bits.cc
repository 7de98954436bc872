// The part of linear_codes_int8.cc for codes of 6 bits.
#define MINISGL_NEEDS_VNNI
#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/linear_codes_int8_6bits.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/kernels/codes_product-inl.h"
#include "cpu/kernels/simd-inl.h"

MINISGL_BEFORE_NAMESPACE_WITH_VNNI();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {

void MultiplyOf6Bits(const CodesBlocks& b, bool has_offsets, int64_t num_rows) {
  if (has_offsets) return MultiplyForm<CodeForm::kWithOffsets6>(b, num_rows);
  MultiplyForm<CodeForm::kCounting6>(b, num_rows);
}

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();
