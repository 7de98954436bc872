// Operations of several ranks (cuda_ops.h): each is opened on its device, then all are linked.
#include <memory>
#include <utility>
#include <vector>

#include "cuda_ops_class.h"

namespace minisgl::cuda {

Result<std::vector<std::unique_ptr<DeviceOps>>> MakeCudaRanksOver(
    const CudaApiFactory& make_api, const MatmulLibraryFactory& make_matmul,
    const CudaRanksConfig& config, const DebugSwitches& debug) {
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
  for (size_t rank = 0; rank < all.size(); ++rank) {
    static_cast<CudaOps*>(all[rank].get())->Join(std::move(links[rank]));
  }
  return all;
}

}  // namespace minisgl::cuda
