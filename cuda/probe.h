// Checks whether a GPU can be used, before anything is loaded: ProbeCuda (device_ops.h) over any
// CudaApi.
#pragma once

#include <string_view>

#include "cuda_api.h"
#include "minisgl/device_ops.h"

namespace minisgl::cuda {

// True if code for `architectures` runs on a GPU of compute capability major.minor.
// `architectures`: the build's gpu_archs, separated by spaces: "sm_80 sm_90a sm_120". Code for
// sm_XY runs on X.Y and later minor versions; with an "a", on X.Y only. The last one is also
// compiled to PTX, which (without an "a") runs on everything later.
bool RunsOn(std::string_view architectures, int major, int minor);

// Makes device `index` current and runs a test kernel. kUnavailable, with what is missing, CUDA's
// message and advice, if the device cannot be used.
Result<CudaDevice> ProbeCudaOver(CudaApi* api, int index, std::string_view architectures);

}  // namespace minisgl::cuda
