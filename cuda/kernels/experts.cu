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

// A key that orders logits (or values) as numbers, with -0 equal to 0 and NaN above all, so that
// any logits give a valid choice. Keys are above 0, which means none.
MINISGL_DEVICE uint32_t LogitKey(float logit) {
  if (!(logit == logit)) return 0xffffffffu;
  const uint32_t bits = __float_as_uint(logit == 0 ? 0.0f : logit);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The number of a key; 0xffffffff gives a NaN.
MINISGL_DEVICE float NumberOfKey(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

// This lane has the logits of experts lane, lane + 32, ...
struct LaneLogits {
  float logit[kLogitsOfLane];
  uint32_t key[kLogitsOfLane];  // 0: already chosen, or past the last expert
};

MINISGL_DEVICE LaneLogits LoadLogits(const RouteParams& p, int64_t token, int lane) {
  LaneLogits logits;
#pragma unroll
  for (int i = 0; i < kLogitsOfLane; ++i) {
    const int expert = lane + i * kWarpSize;
    const bool exists = expert < p.num_experts;
    logits.logit[i] = exists ? p.logits[token * p.num_experts + expert] : 0;
    logits.key[i] = exists ? LogitKey(logits.logit[i]) : 0;
  }
  return logits;
}

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

// Softmax routing by the logits alone (ChoosesByLogits, factor 1).
//
// Grid (T / 4), block 128: a warp for each token, with all logits in its registers. No shared
// memory. Traffic: T * (4 X + 8 K) bytes; about 60 operations of a lane for each chosen expert.
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kRouteThreads, 1) RouteKernel(RouteParams p) {
  GridRelease();
  GridWait();
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t token = (int64_t{blockIdx.x} * kRouteThreads + threadIdx.x) / kWarpSize;
  if (token >= p.num_tokens) return;
  LaneLogits logits = LoadLogits(p, token, lane);
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
  if (!p.routing.renormalize) {
    // Add the experts that were not chosen: their keys are not 0.
    float rest = 0;
#pragma unroll
    for (int i = 0; i < kLogitsOfLane; ++i) {
      if (logits.key[i] != 0) rest += device::Exp(logits.logit[i] - largest);
    }
    sum += device::WarpSum(rest);
  }
  // Each lane scales the shares that it wrote.
  for (int k = lane; k < p.num_chosen; k += kWarpSize) shares[k] /= sum;
}

// Replaces logits by scores, and the keys of logits by keys of RouteParams' values.
MINISGL_DEVICE void ScoreLogits(const RouteParams& p, int lane, LaneLogits& logits) {
  const bool is_softmax = p.routing.score == RouteScore::kSoftmax;
  float largest = __uint_as_float(0xff800000u), sum = 1;  // -infinity
  if (is_softmax) {
#pragma unroll
    for (int i = 0; i < kLogitsOfLane; ++i) {
      if (logits.key[i] != 0) largest = fmaxf(largest, logits.logit[i]);
    }
    largest = device::WarpMax(largest);
    sum = 0;
#pragma unroll
    for (int i = 0; i < kLogitsOfLane; ++i) {
      if (logits.key[i] != 0) sum += device::Exp(logits.logit[i] - largest);
    }
    sum = device::WarpSum(sum);
  }
#pragma unroll
  for (int i = 0; i < kLogitsOfLane; ++i) {
    if (logits.key[i] == 0) continue;
    const float logit = logits.logit[i];
    const float score =
        is_softmax ? device::Exp(logit - largest) / sum : 1 / (1 + device::Exp(-logit));
    const float bias = p.bias == nullptr ? 0 : p.bias[lane + i * kWarpSize];
    logits.logit[i] = score;
    if (!ChoosesByLogits(p)) logits.key[i] = LogitKey(score + bias);
  }
}

// The key of the value of the group of experts [begin, end).
MINISGL_DEVICE uint32_t GroupKey(const RouteParams& p, int lane, const LaneLogits& logits,
                                 int begin, int end) {
  uint32_t best = 0, second = 0;  // of this lane's experts
#pragma unroll
  for (int i = 0; i < kLogitsOfLane; ++i) {
    const int expert = lane + i * kWarpSize;
    const uint32_t key = expert >= begin && expert < end ? logits.key[i] : 0;
    second = max(second, min(best, key));
    best = max(best, key);
  }
  const uint32_t largest = __reduce_max_sync(kAllLanes, best);
  if (p.routing.best_of_group == 1) return largest;
  const unsigned candidate = best == largest ? static_cast<unsigned>(lane) : ~0u;
  const unsigned holder = __reduce_min_sync(kAllLanes, candidate);
  if (static_cast<unsigned>(lane) == holder) best = second;
  const uint32_t next = __reduce_max_sync(kAllLanes, best);
  return LogitKey(NumberOfKey(largest) + NumberOfKey(next));
}

// Clears the keys of the experts of all groups except the num_chosen_groups best.
MINISGL_DEVICE void KeepBestGroups(const RouteParams& p, int lane, LaneLogits& logits) {
  const int size = p.num_experts / p.routing.num_groups;
  uint32_t own = 0;  // key of group `lane`
  for (int group = 0; group < p.routing.num_groups; ++group) {
    const uint32_t key = GroupKey(p, lane, logits, group * size, (group + 1) * size);
    if (lane == group) own = key;
  }
  uint32_t chosen = 0;  // a bit for each group
  for (int i = 0; i < p.routing.num_chosen_groups; ++i) {
    const uint32_t largest = __reduce_max_sync(kAllLanes, own);
    const unsigned candidate = own == largest ? static_cast<unsigned>(lane) : ~0u;
    const unsigned group = __reduce_min_sync(kAllLanes, candidate);
    chosen |= 1u << group;
    if (static_cast<unsigned>(lane) == group) own = 0;
  }
#pragma unroll
  for (int i = 0; i < kLogitsOfLane; ++i) {
    const int expert = lane + i * kWarpSize;
    if (expert < p.num_experts && (chosen >> (expert / size) & 1u) == 0) logits.key[i] = 0;
  }
}

// Routing by values: sigmoids, a bias, groups, factors.
//
// Grid and traffic are RouteKernel's, and 4 X bytes of bias for each token; about 70 operations of
// a lane for each group if not all are chosen.
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kRouteThreads, 1) RouteByValueKernel(RouteParams p) {
  GridRelease();
  GridWait();
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t token = (int64_t{blockIdx.x} * kRouteThreads + threadIdx.x) / kWarpSize;
  if (token >= p.num_tokens) return;
  LaneLogits logits = LoadLogits(p, token, lane);
  ScoreLogits(p, lane, logits);
  if (p.routing.num_chosen_groups < p.routing.num_groups) KeepBestGroups(p, lane, logits);
  int32_t* const experts = p.experts + token * p.num_chosen;
  float* const shares = p.shares + token * p.num_chosen;
  float sum = p.routing.sum_eps;
  for (int k = 0; k < p.num_chosen; ++k) {
    const Choice choice = TakeLargest(lane, logits);
    sum += choice.logit;
    if (lane != k % kWarpSize) continue;
    experts[k] = choice.expert;
    shares[k] = choice.logit;
  }
  sum = sum < p.routing.sum_min ? p.routing.sum_min : sum;  // NaN stays
  const float divisor = p.routing.renormalize ? sum : 1;
  for (int k = lane; k < p.num_chosen; k += kWarpSize) {
    const float scale = p.expert_scale == nullptr ? 1 : p.expert_scale[experts[k]];
    shares[k] = p.routing.factor * (shares[k] / divisor) * scale;
  }
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
  const Routing& routing = params.routing;
  MINISGL_CHECK(
      routing.num_chosen_groups == routing.num_groups || routing.num_groups <= kExpertGroupsMax,
      "cannot choose among {} groups of experts; at most {}", routing.num_groups, kExpertGroupsMax);
  const int64_t threads = params.num_tokens * kWarpSize;
  const LaunchShape shape = {
      .grid = {static_cast<unsigned>(CeilDiv<int64_t>(threads, kRouteThreads))},
      .block = {kRouteThreads},
      .programmatic = true};
  const bool by_logits = ChoosesByLogits(params) && routing.score == RouteScore::kSoftmax &&
                         routing.factor == 1 && routing.sum_min == 0 &&
                         params.expert_scale == nullptr;
  return Launch(context, shape, by_logits ? RouteKernel : RouteByValueKernel, params);
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
