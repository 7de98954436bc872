// The part of linear_codes_int8.cc for codes of 4 bits with offsets.
#define MINISGL_NEEDS_VNNI
#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/linear_codes_int8_offsets.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/kernels/codes_product-inl.h"
#include "cpu/kernels/simd-inl.h"

MINISGL_BEFORE_NAMESPACE_WITH_VNNI();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {

void MultiplyWithOffsets(const CodesBlocks& b, int64_t num_rows) {
  MultiplyForm<CodeForm::kWithOffsets>(b, num_rows);
}

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();
