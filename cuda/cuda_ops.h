// DeviceOps over a table of CUDA's calls and a library of matrix products, so that a test can give
// emulated ones, or ones that fail. MakeCudaOps (device_ops.h) gives the real ones.
#pragma once

#include <functional>
#include <memory>

#include "cuda_api.h"
#include "minisgl/device_ops.h"

namespace minisgl {

// Of matrix products, in bytes: what NVIDIA recommends for cuBLAS on its largest GPUs.
inline constexpr size_t kMatmulWorkspaceBytes = size_t{32} << 20;

// As LoadCublasLt: (api, workspace, workspace_bytes, deterministic).
using MatmulLibraryFactory =
    std::function<Result<std::unique_ptr<MatmulLibrary>>(CudaApi*, void*, size_t, bool)>;

// Memory, events and graphs that these operations gave out keep `api` alive; the library of matrix
// products dies with the operations.
Result<std::unique_ptr<DeviceOps>> MakeCudaOpsOver(std::shared_ptr<CudaApi> api,
                                                   MatmulLibraryFactory make_matmul,
                                                   const CudaOpsConfig& config);

}  // namespace minisgl
