// See targets.h.
#include "cpu/targets.h"

#include <hwy/highway.h>
#include <hwy/targets.h>

#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

// The bit that Highway knows a target by; 0 where it is not compiled in.
int64_t HighwayBit(CpuTarget target) {
  switch (target) {
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

}  // namespace

const char* CpuTargetName(CpuTarget target) {
  switch (target) {
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
    if ((HighwayBit(target) & hwy::SupportedTargets()) != 0) available.push_back(target);
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

}  // namespace minisgl
