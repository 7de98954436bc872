// See launch_context.h.
#include "launch_context.h"

namespace minisgl::cuda {
namespace {

// Bytes of weights from which a product of few rows takes gemv_ring.cu, and may begin with a norm.
// On an H200 it gains in a model of 8 billion parameters, with 112 and 224 MiB in a matrix, and
// loses in one of a billion, with 32 and 64.
constexpr int64_t kRingBytesMin = int64_t{96} << 20;

// The part of the second-level cache that a kernel may fill for the next product: on an H100
// 8.7 MB, what memory delivers in 2 microseconds.
constexpr size_t kPrefetchShare = 6;

// The part that is fetched for products behind attention: on an H200 25 MB, what memory delivers in
// the 6 to 8 microseconds of attention of one row, and it stays until it is read.
constexpr size_t kFarShare = 2;

// The same for every kernel, so that neighbours can share a multiprocessor, and all of it: the
// kernels that decide a step's time keep tiles in shared memory and read global memory once.
constexpr int kSharedCarveout = 100;
// 1,024 keys: longer ones gain no more.
constexpr int32_t kSplitTimesMax = 4;

}  // namespace

LaunchContext MakeLaunchContext(CudaApi* api, CudaStream stream,
                                const CudaDeviceProperties& properties,
                                const DebugSwitches& debug) {
  const bool is_hopper = properties.compute_major >= 9;
  const bool prefetches = is_hopper && !debug.no_prefetch;
  return {
      .api = api,
      .stream = stream,
      .num_multiprocessors = properties.num_multiprocessors,
      .shared_bytes_max = properties.shared_bytes_per_block_max,
      .programmatic = is_hopper && !debug.no_dependent_launch,
      .shared_carveout = debug.no_carveout ? -1 : kSharedCarveout,
      .prefetch_bytes = prefetches ? static_cast<int64_t>(properties.l2_bytes / kPrefetchShare) : 0,
      .ring_bytes_min = debug.ring ? 0 : kRingBytesMin,
      .split_times_max = debug.short_splits ? 1 : kSplitTimesMax,
      .product_ends = debug.product_ends,
      .l2_hint = debug.l2_hint,
      .whole_lines = debug.whole_lines,
      .far_bytes =
          is_hopper && debug.fetch_far ? static_cast<int64_t>(properties.l2_bytes / kFarShare) : 0};
}

}  // namespace minisgl::cuda
