// Facts about the CPU's targets (ops.h): which of them the build has, what their products round to
// int8, how they keep codes, and the target for few rows.
#include <algorithm>

#include "cpu/coded_product.h"
#include "minisgl/ops.h"

namespace minisgl {

bool CpuRoundsInputsOfCodes(const std::string& target, const WeightFormat& format) {
  const auto found = cpu::FindCpuTarget(target);
  if (!found.ok()) return false;
  if (format.quantization == Quantization::kInt8) return !cpu::WidensInt8(*found, format.dtype);
  return cpu::MayHaveCodes(format) && cpu::HasIntegerProductsOfType(*found, format.dtype);
}

bool CpuRoundsInputsOfIntegers(const std::string& target, const WeightFormat& format) {
  const auto found = cpu::FindCpuTarget(target);
  return found.ok() && format.quantization == Quantization::kStored &&
         cpu::CodeOrdersOf(*found, format.dtype).integers == cpu::CodeOrder::kQuads;
}

bool CpuRoundsInt8Inputs(const std::string& target, const WeightFormat& format) {
  const auto found = cpu::FindCpuTarget(target);
  return found.ok() && format.quantization == Quantization::kStored &&
         cpu::HasByteProductsOfType(*found, format.dtype);
}

bool CpuPacks6Bits(const std::string& target) {
  const auto found = cpu::FindCpuTarget(target);
  return found.ok() && cpu::CodeOrdersOf(*found, DType::kBF16).small == cpu::CodeOrder::kWords;
}

std::string CpuTargetForFewRows(const WeightFormat& format) {
  const std::vector<cpu::CpuTarget> targets = cpu::AvailableCpuTargets();
  const auto found = std::find(targets.begin(), targets.end(), cpu::CpuTarget::kAmxVnni);
  const bool helps = cpu::MayHaveCodes(format) && format.dtype == DType::kBF16;
  return helps && found != targets.end() ? cpu::CpuTargetName(*found) : "";
}

CpuKernels CpuKernelsOfBuild() {
  CpuKernels kernels;
  for (const cpu::CpuTarget target : cpu::AvailableCpuTargets()) {
    kernels.usable.emplace_back(cpu::CpuTargetName(target));
  }
  for (const cpu::CpuTarget target : cpu::CpuTargetsNotBuilt()) {
    kernels.not_built.emplace_back(cpu::CpuTargetName(target));
  }
  return kernels;
}

}  // namespace minisgl
