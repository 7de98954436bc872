// Kernels that need no integer dot product and compile fast, in one file: the headers that a file
// of kernels includes take 3 s for one instruction set and the fallback, as long as these kernels.
#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/kernel_tables.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstring>

#include "cpu/kernels/elementwise-inl.h"
#include "cpu/kernels/expand_codes-inl.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/kv_write-inl.h"
#include "cpu/kernels/linear_e4m3-inl.h"
#include "cpu/kernels/low_rank-inl.h"
#include "cpu/kernels/segment_attention-inl.h"
#include "cpu/kernels/states-inl.h"

#if HWY_ONCE
namespace minisgl::cpu {

const PerTarget<GetElementwiseKernels>& ElementwiseKernelGetters() {
  static constexpr PerTarget<GetElementwiseKernels> kTable =
      MINISGL_PER_TARGET(elementwise::GetElementwise);
  return kTable;
}
const PerTarget<ExpandPanelGetter>& ExpandPanelGetters() {
  static constexpr PerTarget<ExpandPanelGetter> kTable =
      MINISGL_PER_TARGET(expand_codes::GetExpandPanel);
  return kTable;
}
const PerTarget<GetWriteKv>& WriteKvGetters() {
  static constexpr PerTarget<GetWriteKv> kTable = MINISGL_PER_TARGET(kv_write::GetWrite);
  return kTable;
}
const PerTarget<GetMultiplyCodes>& E4M3Multiplies() {
  static constexpr PerTarget<GetMultiplyCodes> kTable = MINISGL_PER_TARGET(linear_e4m3::GetE4M3);
  return kTable;
}
const PerTarget<GetLowRankKernels>& LowRankKernelGetters() {
  static constexpr PerTarget<GetLowRankKernels> kTable = MINISGL_PER_TARGET(low_rank::GetLowRank);
  return kTable;
}
const PerTarget<GetSegmentKernels>& SegmentKernelGetters() {
  static constexpr PerTarget<GetSegmentKernels> kTable =
      MINISGL_PER_TARGET(segment_attention::GetSegments);
  return kTable;
}
const PerTarget<GetStateKernels>& StateKernelGetters() {
  static constexpr PerTarget<GetStateKernels> kTable = MINISGL_PER_TARGET(states::GetStates);
  return kTable;
}

}  // namespace minisgl::cpu
#endif
