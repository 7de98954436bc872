// Mixture of experts except its matrix products: routing, and the weighted sum of the experts'
// outputs.
#include "kernels/chunk.h"
#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

using device::GridRelease;
using device::GridWait;
using device::kAllLanes;
using device::kWarpSize;

constexpr int kRouteThreads = 128;  // a warp for each token
constexpr int kLogitsOfLane = kExpertsMax / kWarpSize;
constexpr int kCombineThreads = 128;

// A key that orders logits as numbers, with -0 equal to 0 and NaN above all, so that any logits
// give a valid choice. Keys are above 0, which means none.
MINISGL_DEVICE uint32_t LogitKey(float logit) {
  if (!(logit == logit)) return 0xffffffffu;
  const uint32_t bits = __float_as_uint(logit == 0 ? 0.0f : logit);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// This lane's logits: those of experts lane, lane + 32, ...
struct LaneLogits {
  float logit[kLogitsOfLane];
  uint32_t key[kLogitsOfLane];  // 0: already chosen, or past the last expert
};

struct Choice {
  int expert;
  float logit;
};

// Removes and returns the largest remaining logit; the lowest expert among equal ones.
MINISGL_DEVICE Choice TakeLargest(int lane, LaneLogits& logits) {
  uint32_t key = 0;
  int expert = 0;
  float logit = 0;
#pragma unroll
  for (int i = 0; i < kLogitsOfLane; ++i) {
    if (logits.key[i] > key) {
      key = logits.key[i];
      expert = lane + i * kWarpSize;
      logit = logits.logit[i];
    }
  }
  const uint32_t largest = __reduce_max_sync(kAllLanes, key);
  const unsigned candidate = key == largest ? static_cast<unsigned>(expert) : ~0u;
  const int chosen = static_cast<int>(__reduce_min_sync(kAllLanes, candidate));
  logit = __shfl_sync(kAllLanes, logit, chosen % kWarpSize);
#pragma unroll
  for (int i = 0; i < kLogitsOfLane; ++i) {
    if (lane + i * kWarpSize == chosen) logits.key[i] = 0;
  }
  return {chosen, logit};
}

// Grid (T / 4), block 128: a warp for each token, with all logits in its registers. No shared
// memory. Traffic: T * (4 X + 8 K) bytes; about 60 operations of a lane for each chosen expert.
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kRouteThreads, 1) RouteKernel(RouteParams p) {
  GridRelease();
  GridWait();
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t token = (int64_t{blockIdx.x} * kRouteThreads + threadIdx.x) / kWarpSize;
  if (token >= p.num_tokens) return;
  LaneLogits logits;
#pragma unroll
  for (int i = 0; i < kLogitsOfLane; ++i) {
    const int expert = lane + i * kWarpSize;
    const bool exists = expert < p.num_experts;
    logits.logit[i] = exists ? p.logits[token * p.num_experts + expert] : 0;
    logits.key[i] = exists ? LogitKey(logits.logit[i]) : 0;
  }
  int32_t* const experts = p.experts + token * p.num_chosen;
  float* const shares = p.shares + token * p.num_chosen;

  float largest = 0, sum = 0;
  for (int k = 0; k < p.num_chosen; ++k) {
    const Choice choice = TakeLargest(lane, logits);
    if (k == 0) largest = choice.logit;
    const float weight = device::Exp(choice.logit - largest);
    sum += weight;
    if (lane != k % kWarpSize) continue;
    experts[k] = choice.expert;
    shares[k] = weight;
  }
  if (!p.over_chosen) {
    // Add the experts that were not chosen: their keys are not 0.
    float rest = 0;
#pragma unroll
    for (int i = 0; i < kLogitsOfLane; ++i) {
      if (logits.key[i] != 0) rest += device::Exp(logits.logit[i] - largest);
    }
    sum += device::WarpSum(rest);
  }
  // Each lane scales what it wrote.
  for (int k = lane; k < p.num_chosen; k += kWarpSize) shares[k] /= sum;
}

// Grid (T, D / 1,024), block 128, a thread for each chunk of 8 elements. Traffic: T * D * sizeof(T)
// * (K + 1) bytes, K + 2 with shared experts; 2 K operations for each element.
template <typename T>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kCombineThreads, 1)
    CombineExpertsKernel(CombineExpertsParams p, bool aligned) {
  GridRelease();
  GridWait();
  const int64_t first = (int64_t{blockIdx.y} * kCombineThreads + threadIdx.x) * kChunk;
  const int64_t count = p.width - first, token = blockIdx.x;
  if (count <= 0) return;
  float sum[kChunk] = {}, v[kChunk];
#pragma unroll 4  // several experts' loads in flight at once
  for (int k = 0; k < p.num_chosen; ++k) {
    const int64_t row = token * p.num_chosen + k;
    const float share = p.shares[row];
    LoadChunk(p.x.as<T>() + row * p.width + first, count, aligned, v);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) sum[i] = fmaf(share, v[i], sum[i]);
  }
  if (p.shared.data != nullptr) {
    float share = 1;
    if (p.shared_gate != nullptr) share = 1 / (1 + device::Exp(-p.shared_gate[token]));
    LoadChunk(p.shared.as<T>() + token * p.width + first, count, aligned, v);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) sum[i] = fmaf(share, v[i], sum[i]);
  }
  StoreChunk(p.out.as<T>() + token * p.width + first, count, aligned, sum);
}

}  // namespace

CudaError LaunchRoute(const LaunchContext& context, const RouteParams& params) {
  MINISGL_CHECK(params.num_experts <= kExpertsMax && params.num_chosen <= params.num_experts,
                "cannot route to {} of {} experts; at most {}", params.num_chosen,
                params.num_experts, kExpertsMax);
  const int64_t threads = params.num_tokens * kWarpSize;
  const LaunchShape shape = {
      .grid = {static_cast<unsigned>(CeilDiv<int64_t>(threads, kRouteThreads))},
      .block = {kRouteThreads},
      .programmatic = true};
  return Launch(context, shape, RouteKernel, params);
}

CudaError LaunchCombineExperts(const LaunchContext& context, const CombineExpertsParams& params) {
  const bool aligned = params.width % kChunk == 0 && IsAligned16(params.x.data) &&
                       IsAligned16(params.shared.data) && IsAligned16(params.out.data);
  const int64_t chunks = CeilDiv<int64_t>(params.width, kChunk);
  const LaunchShape shape = {
      .grid = {static_cast<unsigned>(params.num_tokens),
               static_cast<unsigned>(CeilDiv<int64_t>(chunks, kCombineThreads))},
      .block = {kCombineThreads},
      .programmatic = true};
  return DispatchHalf(params.out.dtype, [&]<typename T>() {
    return Launch(context, shape, CombineExpertsKernel<T>, params, aligned);
  });
}

}  // namespace minisgl::cuda
