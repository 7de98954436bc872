// Replaces the operations of the engines in fuzz targets for parts of the command line. These
// targets load no model, and clang++ would take a quarter of an hour to compile the kernels with
// all checks.
#include "minisgl/ops.h"

namespace minisgl {

Result<std::unique_ptr<Ops>> MakeCpuOps(const CpuOpsConfig&) {
  return MakeStatus(StatusCode::kUnavailable, "this fuzz target has no CPU engine");
}

std::optional<uint64_t> CpuScratchBytes(const CpuScratchLimits&) { return 0; }

std::optional<uint64_t> CpuSegmentAttentionBytes(int, int64_t, int64_t, int64_t, int64_t) {
  return 0;
}

bool CpuRoundsInputsOfCodes(const std::string&, const WeightFormat&) { return false; }
bool CpuPacks6Bits(const std::string&) { return false; }

bool CpuRoundsInputsOfIntegers(const std::string&, const WeightFormat&) { return false; }

bool CpuRoundsInt8Inputs(const std::string&, const WeightFormat&) { return false; }

std::string CpuTargetForFewRows(const WeightFormat&) { return ""; }

std::unique_ptr<Ops> MakeNaiveOps(DType, const HostRank&) { return nullptr; }

}  // namespace minisgl
