// Operations of several ranks (cuda_ops.h): each is opened on its device, then all are linked.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "cuda_error.h"
#include "cuda_ops_class.h"
#include "minisgl/base/setting.h"

namespace minisgl::cuda {
namespace {

// Before the devices' memory is measured: NCCL takes some.
Status AddNccl(const CudaRanksConfig& config, const NcclLoader& load_nccl,
               const std::vector<RankDevice>& devices, std::vector<RankLink>* links) {
  MINISGL_ASSIGN_OR_RETURN(const NcclLibrary library, load_nccl());
  MINISGL_ASSIGN_OR_RETURN(
      const std::shared_ptr<NcclRanks> ranks,
      NcclRanks::Make(library, config.devices, config.wait_ms, (*links)[0].exchange.alarm));
  for (RankLink& link : *links) {
    link.nccl = ranks;
    link.nccl_bytes_min = link.through_host ? 0 : config.nccl_bytes_min;
  }
  for (const RankDevice& device : devices) {  // NCCL may have made another one current
    const CudaError error = device.api->SetDevice(device.index);
    if (error != kCudaSuccess) {
      return CudaStatus(device.api, error, "cudaSetDevice", device.ops->Name());
    }
  }
  return Status();
}

// NCCL waits for ever for two ranks on one device.
Status CheckDistinct(std::vector<int> devices) {
  std::sort(devices.begin(), devices.end());
  const auto twice = std::adjacent_find(devices.begin(), devices.end());
  if (twice == devices.end()) return Status();
  return UsageError("{} nccl: cuda:{} is named more than once, and NCCL has one rank on a GPU",
                    SettingName(Setting::kAllReduce), *twice);
}

}  // namespace

Result<std::vector<std::unique_ptr<DeviceOps>>> MakeCudaRanksOver(
    const CudaApiFactory& make_api, const MatmulLibraryFactory& make_matmul,
    const CudaRanksConfig& config, const DebugSwitches& debug, const NcclLoader& load_nccl) {
  if (config.nccl) MINISGL_RETURN_IF_ERROR(CheckDistinct(config.devices));
  DebugSwitches of_ranks = debug;
  // Products that all ranks compute alike must have the same bits on all of them.
  of_ranks.no_timed_plans = true;
  std::vector<std::unique_ptr<DeviceOps>> all;
  std::vector<RankDevice> devices;
  for (const int index : config.devices) {
    CudaOpsConfig own = config.ops;
    own.index = index;
    own.profile_rank = static_cast<int32_t>(all.size());
    std::shared_ptr<CudaApi> api = make_api();
    auto ops = std::make_unique<CudaOps>(api, make_matmul, own, of_ranks);
    MINISGL_RETURN_IF_ERROR(ops->Open());
    devices.push_back({index, api.get(), ops.get()});
    all.push_back(std::move(ops));
  }
  MINISGL_ASSIGN_OR_RETURN(std::vector<RankLink> links, LinkRanks(devices, config, debug.no_peers));
  if (config.nccl) MINISGL_RETURN_IF_ERROR(AddNccl(config, load_nccl, devices, &links));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    static_cast<CudaOps*>(all[rank].get())->Join(std::move(links[rank]));
  }
  return all;
}

}  // namespace minisgl::cuda
