// The instruction sets the CPU kernels are compiled for. Included by every kernel file before
// Highway, which compiles the file once for each.
//
// Left out: SSSE3 (no machine of the last 15 years stops there), AVX3_DL (adds nothing to float
// arithmetic), SVE.
#pragma once

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"

namespace minisgl {

enum class CpuTarget { kAvx512, kAvx2, kSse4, kNeon, kScalar };
inline constexpr int kNumCpuTargets = 5;

const char* CpuTargetName(CpuTarget target);

// Those that are compiled in and that this processor has, the best first.
std::vector<CpuTarget> AvailableCpuTargets();

// "" is the best; kUsage naming what is available where `name` is not.
Result<CpuTarget> FindCpuTarget(std::string_view name);

// One function for each target, null where it is not compiled in.
template <typename Function>
using PerTarget = std::array<Function, kNumCpuTargets>;

}  // namespace minisgl

// After HWY_ONCE, the PerTarget table of FUNC, a function in HWY_NAMESPACE within minisgl.
#define MINISGL_PER_TARGET(FUNC)                                                                \
  {                                                                                             \
    HWY_CHOOSE_AVX3(FUNC), HWY_CHOOSE_AVX2(FUNC), HWY_CHOOSE_SSE4(FUNC), HWY_CHOOSE_NEON(FUNC), \
        HWY_CHOOSE_FALLBACK(FUNC)                                                               \
  }
