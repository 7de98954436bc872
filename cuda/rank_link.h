// The link between the operations of one rank and the other ranks of this process: memory that all
// reach, and an alarm that ends every wait once a rank has failed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda_api.h"
#include "kernels/rank_exchange.h"
#include "minisgl/device_ops.h"
#include "nccl_ranks.h"

namespace minisgl::cuda {

// Shared by graphs and kernels of a rank, and kept by its operations. Its memory is freed with the
// last rank's link, when no other rank can still write to it.
struct RankLink {
  RankExchange exchange;
  std::vector<std::shared_ptr<void>> memory;
  bool through_host = false;                  // exchanges use memory of the host
  std::shared_ptr<NcclRanks> nccl = nullptr;  // null: all sums are the kernels' here
  int64_t nccl_bytes_min = 0;                 // NCCL's sums have more bytes

  // Returns the exchange of this rank with itself. It has a count of its own, so that exchanges
  // with the other ranks keep their numbers.
  RankExchange Alone() const;
  // Any thread may call these two.
  void RaiseAlarm() const;
  bool IsAlarmed() const;
  // After the alarm: the error of the device `name`. `by_others`: it only ended with other ranks.
  Status Failure(std::string_view name, bool* by_others) const;
};

// A device of a rank, before it is linked.
struct RankDevice {
  int index = 0;
  CudaApi* api = nullptr;
  DeviceOps* ops = nullptr;
};

// Links `ranks`, on each of which nothing runs. Where not every device can use the memory of every
// other one, or with `through_host`, they exchange through memory of the host. Memory is zeroed
// when this returns.
Result<std::vector<RankLink>> LinkRanks(std::span<const RankDevice> ranks,
                                        const CudaRanksConfig& config, bool through_host);

}  // namespace minisgl::cuda
