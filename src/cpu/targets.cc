// See targets.h.
#include "cpu/targets.h"

#include <hwy/highway.h>
#include <hwy/targets.h>
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"

namespace minisgl::cpu {
namespace {

// True if this build has kernels for the target.
bool IsBuilt(CpuTarget target) {
  switch (target) {
    case CpuTarget::kAmx:
    case CpuTarget::kAmxVnni:
      return MINISGL_HAS_AMX;
    case CpuTarget::kAvx512Bf16:
      return MINISGL_HAS_BF16_DOT;
    case CpuTarget::kAvx512Vnni:
      return MINISGL_HAS_TARGET(MINISGL_AVX512_VNNI_BIT);
    case CpuTarget::kAvx512:
      return MINISGL_HAS_TARGET(MINISGL_AVX512_BIT);
    case CpuTarget::kAvx2:
      return MINISGL_HAS_TARGET(MINISGL_AVX2_BIT);
    case CpuTarget::kSse4:
      return MINISGL_HAS_TARGET(MINISGL_SSE4_BIT);
    case CpuTarget::kNeon:
    case CpuTarget::kScalar:
      return true;
    case CpuTarget::kAmxStandIn:
      return false;  // never chosen
  }
  return false;
}

// Highway's bit for what a processor needs to have for a target; 0 if the target is of another
// architecture. (AVX3_DL is compiled into the files that need it.)
int64_t HighwayBit(CpuTarget target) {
  constexpr int64_t kAvx3 = HWY_ARCH_X86 ? HWY_AVX3 : 0;
  constexpr int64_t kAvx3Dl = HWY_ARCH_X86 ? HWY_AVX3_DL : 0;
  switch (target) {
    case CpuTarget::kAmx:
    case CpuTarget::kAmxVnni:
    case CpuTarget::kAvx512Bf16:
    case CpuTarget::kAvx512Vnni:
      return kAvx3Dl;
    case CpuTarget::kAvx512:
      return kAvx3;
    case CpuTarget::kAvx2:
      return HWY_ARCH_X86 ? HWY_AVX2 : 0;
    case CpuTarget::kSse4:
      return HWY_ARCH_X86 ? HWY_SSE4 : 0;
    case CpuTarget::kNeon:
      return HWY_TARGETS & HWY_NEON;
    case CpuTarget::kScalar:
      return HWY_TARGETS & (HWY_SCALAR | HWY_EMU128);
    case CpuTarget::kAmxStandIn:
      return 0;  // never chosen
  }
  return 0;
}

bool HasBf16Dot() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

// Asks for the tile registers: their state is 8 KB, which the kernel saves for each thread that
// uses them, and lends only to processes that ask (arch_prctl(2), ARCH_REQ_XCOMP_PERM).
bool RequestTiles() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return true;
  Log(LogLevel::kVerbose,
      fmt::format("AMX is not used: the system refuses its registers ({})", std::strerror(errno)));
#endif
  return false;
}

bool HasAmx() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("amx-tile") != 0 &&
                          __builtin_cpu_supports("amx-bf16") != 0 &&
                          __builtin_cpu_supports("amx-int8") != 0 && HasBf16Dot() && RequestTiles();
  return has;
#else
  return false;
#endif
}

// True if the bf16 dot product is faster than multiply-adds. AMD's processors issue it as often as
// a multiply-add, for twice the work. Intel's issue it every other cycle on one of two ports, for
// half the work: they have AMX for such products. Measured: 86 GFLOP/s against 176 on Sapphire
// Rapids, 495 against 268 on Zen 5.
bool IsBf16DotFast() {
#if defined(__x86_64__)
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

// True if this processor, and the system, support the target.
bool IsSupported(CpuTarget target) {
  if ((HighwayBit(target) & hwy::SupportedTargets()) == 0) return false;
  if (HasTiles(target)) return HasAmx();
  return target != CpuTarget::kAvx512Bf16 || HasBf16Dot();
}

}  // namespace

const char* CpuTargetName(CpuTarget target) {
  switch (target) {
    case CpuTarget::kAmx:
      return "amx";
    case CpuTarget::kAmxVnni:
      return "amx_vnni";
    case CpuTarget::kAvx512Bf16:
      return "avx512_bf16";
    case CpuTarget::kAvx512Vnni:
      return "avx512_vnni";
    case CpuTarget::kAvx512:
      return "avx512";
    case CpuTarget::kAvx2:
      return "avx2";
    case CpuTarget::kSse4:
      return "sse4";
    case CpuTarget::kNeon:
      return "neon";
    case CpuTarget::kScalar:
      return "scalar";
    case CpuTarget::kAmxStandIn:
      return "amx_stand_in";
  }
  return "unknown";
}

std::vector<CpuTarget> AvailableCpuTargets() {
  std::vector<CpuTarget> available;
  for (int i = 0; i < kNumCpuTargets; ++i) {
    const auto target = static_cast<CpuTarget>(i);
    if (IsBuilt(target) && IsSupported(target)) available.push_back(target);
  }
  // If the dot product is not faster than multiply-adds, its target comes after the one without it.
  const auto dot = std::find(available.begin(), available.end(), CpuTarget::kAvx512Bf16);
  if (dot != available.end() && !IsBf16DotFast()) std::iter_swap(dot, dot + 1);
  return available;
}

bool ReadsPanelsInTurn() {
#if defined(__x86_64__)
  static const bool is_amd = [] {
    __builtin_cpu_init();
    return __builtin_cpu_is("amd") != 0;
  }();
  return is_amd;
#else
  return true;
#endif
}

Result<CpuTarget> FindCpuTarget(std::string_view name) {
  if (name == CpuTargetName(CpuTarget::kAmxStandIn)) return CpuTarget::kAmxStandIn;
  std::string names;
  for (CpuTarget target : AvailableCpuTargets()) {
    if (name.empty() || name == CpuTargetName(target)) return target;
    names += names.empty() ? "" : ", ";
    names += CpuTargetName(target);
  }
  for (CpuTarget target : CpuTargetsNotBuilt()) {
    if (name != CpuTargetName(target)) continue;
    return UsageError(
        "this build has no CPU kernels for '{}' (meson configure -Dcpu_targets=all builds them); "
        "choose one of: {}",
        name, names);
  }
  return UsageError("no CPU kernels for '{}' on this machine; choose one of: {}", Visible(name),
                    names);
}

std::vector<CpuTarget> CpuTargetsNotBuilt() {
  std::vector<CpuTarget> missing;
  for (int i = 0; i < kNumCpuTargets; ++i) {
    const auto target = static_cast<CpuTarget>(i);
    if (!IsBuilt(target) && HighwayBit(target) != 0) missing.push_back(target);
  }
  return missing;
}

bool IsBuiltForAnotherMachine() {
#if !defined(MINISGL_CPU_TARGETS_OF_ONE_MACHINE)
  return false;
#endif
  const CpuTarget best = AvailableCpuTargets().front();
  const std::vector<CpuTarget> missing = CpuTargetsNotBuilt();
  return std::any_of(missing.begin(), missing.end(), [&](CpuTarget target) {
    return target < best && target != CpuTarget::kAvx512Bf16 && IsSupported(target);
  });
}

}  // namespace minisgl::cpu
