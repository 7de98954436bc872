// The instruction sets the CPU kernels are compiled for. Included by every kernel file before
// Highway, which compiles the file once for each.
//
// Left out: SSSE3 (no machine of the last 15 years stops there), SVE; and AVX3_DL, which adds
// nothing to float arithmetic, but where a file defines MINISGL_NEEDS_VNNI.
#pragma once

#define MINISGL_UNUSED_TARGETS \
  (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
// A build with -DMINISGL_FEW_TARGETS has AVX2 and the fallback alone: the others are the same
// source, and with sanitizers each takes a minute to compile.
#if defined(MINISGL_FEW_TARGETS)
#define HWY_DISABLED_TARGETS (MINISGL_UNUSED_TARGETS | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL)
#elif defined(MINISGL_NEEDS_VNNI)
#define HWY_WANT_AVX3_DL 1
#define HWY_DISABLED_TARGETS MINISGL_UNUSED_TARGETS
#else
#define HWY_DISABLED_TARGETS (MINISGL_UNUSED_TARGETS | HWY_AVX3_DL)
#endif

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"

namespace minisgl::cpu {

// kAvx512Vnni: AVX-512 with what Ice Lake has, the int8 dot product among it. kAvx512Bf16: besides
// that the bf16 dot product.
enum class CpuTarget { kAvx512Bf16, kAvx512Vnni, kAvx512, kAvx2, kSse4, kNeon, kScalar };
inline constexpr int kNumCpuTargets = 7;

const char* CpuTargetName(CpuTarget target);

// Those that are compiled in and that this processor has, the best first.
std::vector<CpuTarget> AvailableCpuTargets();

// "" is the best; kUsage naming what is available where `name` is not.
Result<CpuTarget> FindCpuTarget(std::string_view name);

// One function for each target, null where it is not compiled in.
template <typename Function>
using PerTarget = std::array<Function, kNumCpuTargets>;

}  // namespace minisgl::cpu

// After HWY_ONCE, the PerTarget table of FUNC, a function in HWY_NAMESPACE within minisgl.
#ifdef MINISGL_NEEDS_VNNI
#define MINISGL_CHOOSE_VNNI HWY_CHOOSE_AVX3_DL
#else
#define MINISGL_CHOOSE_VNNI HWY_CHOOSE_AVX3
#endif
#define MINISGL_PER_TARGET(FUNC)                                                 \
  {                                                                              \
    MINISGL_CHOOSE_VNNI(FUNC), MINISGL_CHOOSE_VNNI(FUNC), HWY_CHOOSE_AVX3(FUNC), \
        HWY_CHOOSE_AVX2(FUNC), HWY_CHOOSE_SSE4(FUNC), HWY_CHOOSE_NEON(FUNC),     \
        HWY_CHOOSE_FALLBACK(FUNC)                                                \
  }
