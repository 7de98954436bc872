// The workspaces of attention: one for each kind of heads that a model's layers have, as each has a
// plan of its own in a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "cuda_handles.h"
#include "kernels/kernels.h"
#include "minisgl/base/status.h"
#include "minisgl/device_ops.h"

namespace minisgl::cuda {

class AttentionSpaces {
 public:
  static uint64_t CountBytes(const DeviceLimits& limits, int num_multiprocessors);

  // `allocate` returns zeroed memory.
  Status Take(const DeviceLimits& limits, int num_multiprocessors,
              const std::function<Result<OwnedDeviceMemory>(size_t num_bytes)>& allocate);

  bool empty() const { return workspaces_.empty(); }
  // REQUIRES heads of the limits that memory was taken for.
  const AttentionWorkspace& Of(const AttentionHeads& heads) const;

 private:
  std::vector<OwnedDeviceMemory> memory_;
  std::vector<AttentionWorkspace> workspaces_;
};

}  // namespace minisgl::cuda
