// Whether a GPU can be used, found before anything is loaded: ProbeCuda (device_ops.h) over any
// table of CUDA's calls.
#pragma once

#include <string_view>

#include "cuda_api.h"
#include "minisgl/device_ops.h"

namespace minisgl {

// Whether code made for `architectures` runs on a GPU of compute capability major.minor. They are
// as gpu_archs of the build has them, with spaces between: "sm_80 sm_90a sm_120". Code for sm_XY
// runs on X.Y and on later minor versions, with an "a" on X.Y alone; the last is there as PTX too,
// which (without an "a") runs on everything later.
bool RunsOn(std::string_view architectures, int major, int minor);

// kUnavailable: what is missing, with CUDA's words, and what to do. Makes device `index` current.
Result<CudaDevice> ProbeCudaOver(CudaApi* api, int index, std::string_view architectures);

}  // namespace minisgl
