// The instruction sets that the CPU kernels are compiled for. Every kernel file includes this
// before Highway, which compiles the file once for each.
//
// Not compiled: what the build leaves out (target_set.h); SSSE3 (every x86 machine of the last 15
// years has more); SVE; and AVX3_DL, which adds nothing to float arithmetic, unless the file
// defines MINISGL_NEEDS_VNNI.
#pragma once

#include "cpu/target_set.h"

#define MINISGL_UNUSED_TARGETS \
  (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
// A file without kernels of VNNI has kernels of AVX3 in their place.
#if defined(MINISGL_NEEDS_VNNI)
#define MINISGL_AVX3_BITS MINISGL_AVX512_BIT
#else
#define MINISGL_AVX3_BITS (MINISGL_AVX512_BIT | MINISGL_AVX512_VNNI_BIT)
#endif
#if defined(MINISGL_NEEDS_VNNI) && MINISGL_HAS_TARGET(MINISGL_AVX512_VNNI_BIT)
#define HWY_WANT_AVX3_DL 1
#define MINISGL_UNUSED_AVX3_DL 0
#else
#define MINISGL_UNUSED_AVX3_DL HWY_AVX3_DL
#endif
#define HWY_DISABLED_TARGETS                               \
  (MINISGL_UNUSED_TARGETS | MINISGL_UNUSED_AVX3_DL |       \
   (MINISGL_HAS_TARGET(MINISGL_SSE4_BIT) ? 0 : HWY_SSE4) | \
   (MINISGL_HAS_TARGET(MINISGL_AVX2_BIT) ? 0 : HWY_AVX2) | \
   (MINISGL_HAS_TARGET(MINISGL_AVX3_BITS) ? 0 : HWY_AVX3))

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"

namespace minisgl::cpu {

// kAvx512Vnni: AVX-512 with the extensions of Ice Lake, including the int8 dot product.
// kAvx512Bf16: kAvx512Vnni and the bf16 dot product. kAmx: kAvx512Bf16 and bf16 products of tiles.
// kAmxVnni: kAmx, but codes of 4 and 6 bits are multiplied as integers, without tiles: fewer rows
// are faster, and many slower.
// kAmxStandIn: its products computed without tiles, bit for bit, for tests on any machine.
enum class CpuTarget {
  kAmx,
  kAmxVnni,
  kAvx512Bf16,
  kAvx512Vnni,
  kAvx512,
  kAvx2,
  kSse4,
  kNeon,
  kScalar,
  kAmxStandIn
};
inline constexpr int kNumCpuTargets = 10;

const char* CpuTargetName(CpuTarget target);

// True if the target runs on the tile registers of the processor.
constexpr bool HasTiles(CpuTarget target) {
  return target == CpuTarget::kAmx || target == CpuTarget::kAmxVnni;
}

// True if the target's products with bf16 weights are those of tiles.
constexpr bool UsesTiles(CpuTarget target) {
  return HasTiles(target) || target == CpuTarget::kAmxStandIn;
}

// True if the target's products with bf16 weights round the other factor to bf16, too.
constexpr bool RoundsToBf16(CpuTarget target) {
  return UsesTiles(target) || target == CpuTarget::kAvx512Bf16;
}

// The targets that this build has kernels for and that this processor supports, the best first. The
// first call asks the system for the tile registers of AMX (a log line says if it refuses), which
// it lends to a whole process: call it before threads are started.
std::vector<CpuTarget> AvailableCpuTargets();

// Finds a target by name; "" is the best, and "amx_stand_in" is always found. kUsage, naming those
// available, if there is no such one; the message says so if the build lacks it.
Result<CpuTarget> FindCpuTarget(std::string_view name);

// The targets that the build was configured without (target_set.h), the best first.
std::vector<CpuTarget> CpuTargetsNotBuilt();

// True if the program was built for one machine (cpu_targets=native), and this is another one,
// which supports a better target than AvailableCpuTargets() has.
bool IsBuiltForAnotherMachine();

// True if one row of a product reads memory fastest panel by panel, because the processor's own
// prefetches follow one stream better than ours follow several: AMD's (Zen 5: 32 GB/s against 23 to
// 30). On Intel's several are 1.3 times as fast. The results are the same.
bool ReadsPanelsInTurn();

// One function for each target; null if it is not compiled in.
template <typename Function>
using PerTarget = std::array<Function, kNumCpuTargets>;

}  // namespace minisgl::cpu

// Use after HWY_ONCE: the PerTarget table of FUNC, a function in minisgl::cpu::HWY_NAMESPACE.
#ifdef MINISGL_NEEDS_VNNI
#define MINISGL_CHOOSE_VNNI HWY_CHOOSE_AVX3_DL
#else
#define MINISGL_CHOOSE_VNNI HWY_CHOOSE_AVX3
#endif
#define MINISGL_PER_TARGET(FUNC)                                                     \
  {                                                                                  \
    MINISGL_CHOOSE_VNNI(FUNC), MINISGL_CHOOSE_VNNI(FUNC), MINISGL_CHOOSE_VNNI(FUNC), \
        MINISGL_CHOOSE_VNNI(FUNC), HWY_CHOOSE_AVX3(FUNC), HWY_CHOOSE_AVX2(FUNC),     \
        HWY_CHOOSE_SSE4(FUNC), HWY_CHOOSE_NEON(FUNC), HWY_CHOOSE_FALLBACK(FUNC),     \
        HWY_CHOOSE_FALLBACK(FUNC)                                                    \
  }
