// DeviceOps over a CudaApi and a MatmulLibrary, so that tests can pass emulated or failing ones.
// MakeCudaOps (device_ops.h) passes the real ones.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "cuda_api.h"
#include "debug_switches.h"
#include "minisgl/device_ops.h"
#include "nccl_library.h"

namespace minisgl::cuda {

// Workspace of matrix products: what NVIDIA recommends for cuBLAS on its largest GPUs.
inline constexpr size_t kMatmulWorkspaceBytes = size_t{32} << 20;

// Upper bound on the expanded rows of a matrix of codes that products read at once.
inline constexpr size_t kExpandBytesMax = size_t{64} << 20;
// Upper bound on the inputs that are rounded to e4m3 at once, and on outputs of the last tokens of
// such a product.
inline constexpr size_t kInputBytesMax = size_t{64} << 20;
inline constexpr size_t kLastOutputsBytesMax = size_t{8} << 20;

// A function like LoadCublasLt.
using MatmulLibraryFactory =
    std::function<Result<std::unique_ptr<MatmulLibrary>>(const MatmulSetup& setup)>;

// One api for each rank. NCCL is loaded if config.nccl.
using CudaApiFactory = std::function<std::shared_ptr<CudaApi>()>;
Result<std::vector<std::unique_ptr<DeviceOps>>> MakeCudaRanksOver(
    const CudaApiFactory& make_api, const MatmulLibraryFactory& make_matmul,
    const CudaRanksConfig& config, const DebugSwitches& debug = {},
    const NcclLoader& load_nccl = LoadNccl);

// Memory, events and graphs made by these operations keep `api` alive. The MatmulLibrary is
// destroyed with the operations.
Result<std::unique_ptr<DeviceOps>> MakeCudaOpsOver(std::shared_ptr<CudaApi> api,
                                                   MatmulLibraryFactory make_matmul,
                                                   const CudaOpsConfig& config,
                                                   const DebugSwitches& debug = {});

}  // namespace minisgl::cuda
