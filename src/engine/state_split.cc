// See state_split.h.
#include "engine/state_split.h"

#include <algorithm>

namespace minisgl::engine {
namespace {

// More prefixes than pages of any pool in use have ends worth keeping.
constexpr uint64_t kSnapshotsMax = 1 << 14;

}  // namespace

std::optional<StateSplit> SplitStates(uint64_t slot_bytes, uint64_t allowed,
                                      int32_t max_running_requests) {
  if (slot_bytes == 0) return StateSplit{max_running_requests, 0, 0};
  const uint64_t half = allowed / 2 / slot_bytes;
  if (half < kSnapshotsMin + kSlotsOfRequest) return std::nullopt;
  const uint64_t running = std::min<uint64_t>(static_cast<uint64_t>(max_running_requests),
                                              (half - kSnapshotsMin) / kSlotsOfRequest);
  const uint64_t snapshots =
      std::clamp<uint64_t>(allowed / 8 / slot_bytes, kSnapshotsMin, kSnapshotsMax);
  const uint64_t slots =
      std::min<uint64_t>(running * kSlotsOfRequest + snapshots, INT32_MAX);  // 3 * 2^31
  return StateSplit{static_cast<int32_t>(running), static_cast<int32_t>(slots), slots * slot_bytes};
}

}  // namespace minisgl::engine
