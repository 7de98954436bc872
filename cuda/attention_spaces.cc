// See attention_spaces.h.
#include "attention_spaces.h"

#include <algorithm>
#include <utility>

#include "minisgl/base/check.h"

namespace minisgl::cuda {
namespace {

// The limits with each kind of heads as the only one.
std::vector<DeviceLimits> LimitsOfHeads(const DeviceLimits& limits) {
  std::vector<DeviceLimits> all = {limits};
  all[0].other_heads.clear();
  for (const AttentionHeads& heads : limits.other_heads) {
    DeviceLimits own = all[0];
    own.num_heads = heads.num_heads;
    own.num_kv_heads = heads.num_kv_heads;
    own.head_dim = heads.head_dim;
    own.v_head_dim = heads.v_head_dim;
    own.values_in_keys = heads.values_in_keys;
    own.has_codes = heads.has_codes;
    all.push_back(own);
  }
  return all;
}

}  // namespace

uint64_t AttentionSpaces::CountBytes(const DeviceLimits& limits, int num_multiprocessors) {
  uint64_t num_bytes = 0;
  for (const DeviceLimits& own : LimitsOfHeads(limits)) {
    num_bytes += AttentionWorkspaceBytes(own, num_multiprocessors);
  }
  return num_bytes;
}

Status AttentionSpaces::Take(
    const DeviceLimits& limits, int num_multiprocessors,
    const std::function<Result<OwnedDeviceMemory>(size_t num_bytes)>& allocate) {
  for (const DeviceLimits& own : LimitsOfHeads(limits)) {
    const size_t num_bytes = AttentionWorkspaceBytes(own, num_multiprocessors);
    MINISGL_ASSIGN_OR_RETURN(OwnedDeviceMemory memory, allocate(num_bytes));
    workspaces_.push_back(
        {.memory = memory.get(), .limits = own, .num_multiprocessors = num_multiprocessors});
    memory_.push_back(std::move(memory));
  }
  return Status();
}

const AttentionWorkspace& AttentionSpaces::Of(const AttentionHeads& heads) const {
  const auto found =
      std::find_if(workspaces_.begin(), workspaces_.end(),
                   [&](const AttentionWorkspace& space) { return space.limits.heads() == heads; });
  MINISGL_CHECK(found != workspaces_.end(), "attention of heads that have no workspace");
  return *found;
}

}  // namespace minisgl::cuda
