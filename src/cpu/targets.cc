// See targets.h.
#include "cpu/targets.h"

#include <hwy/highway.h>
#include <hwy/targets.h>

#include <utility>

#include "minisgl/base/utf8.h"

namespace minisgl::cpu {
namespace {

// Highway's bit for a target; 0 if it is not compiled in. (AVX3_DL is compiled into the files that
// need it if AVX3 is.)
int64_t HighwayBit(CpuTarget target) {
  switch (target) {
    case CpuTarget::kAvx512Bf16:
    case CpuTarget::kAvx512Vnni:
      return (HWY_TARGETS & HWY_AVX3) != 0 ? HWY_AVX3_DL : 0;
    case CpuTarget::kAvx512:
      return HWY_TARGETS & HWY_AVX3;
    case CpuTarget::kAvx2:
      return HWY_TARGETS & HWY_AVX2;
    case CpuTarget::kSse4:
      return HWY_TARGETS & HWY_SSE4;
    case CpuTarget::kNeon:
      return HWY_TARGETS & HWY_NEON;
    case CpuTarget::kScalar:
      return HWY_TARGETS & (HWY_SCALAR | HWY_EMU128);
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

}  // namespace

const char* CpuTargetName(CpuTarget target) {
  switch (target) {
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
  }
  return "unknown";
}

std::vector<CpuTarget> AvailableCpuTargets() {
  std::vector<CpuTarget> available;
  for (int i = 0; i < kNumCpuTargets; ++i) {
    const auto target = static_cast<CpuTarget>(i);
    if (target == CpuTarget::kAvx512Bf16 && !HasBf16Dot()) continue;
    if ((HighwayBit(target) & hwy::SupportedTargets()) != 0) available.push_back(target);
  }
  // If the dot product is not faster than multiply-adds, its target is available but not the best.
  if (available.size() > 1 && available[0] == CpuTarget::kAvx512Bf16 && !IsBf16DotFast()) {
    std::swap(available[0], available[1]);
  }
  return available;
}

Result<CpuTarget> FindCpuTarget(std::string_view name) {
  std::string names;
  for (CpuTarget target : AvailableCpuTargets()) {
    if (name.empty() || name == CpuTargetName(target)) return target;
    names += names.empty() ? "" : ", ";
    names += CpuTargetName(target);
  }
  return UsageError("no CPU kernels for '{}' on this machine; choose one of: {}", Visible(name),
                    names);
}

}  // namespace minisgl::cpu
