// A tile's keys and values as operands of MultiplyAccumulate. Compiled once for each instruction
// set (simd-inl.h).
#if defined(MINISGL_CPU_ATTENTION_OPERANDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINISGL_CPU_ATTENTION_OPERANDS_INL_H_
#undef MINISGL_CPU_ATTENTION_OPERANDS_INL_H_
#else
#define MINISGL_CPU_ATTENTION_OPERANDS_INL_H_
#endif

#include <hwy/cache_control.h>

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {

// These operands of MultiplyAccumulate prefetch the data that is needed next, a line for each line
// that they read. (The hardware prefetcher starts anew in every page.)

// The keys of a tile. `fetch`: the value of the first key of the same panel.
template <int kVectors>
struct FetchingKeys : StridedOperand<kVectors> {
  const float* fetch[kVectors];
  template <int kHalf>
  HWY_INLINE Floats Load(size_t k, int v) const {
    if (v * kLanes % kPanelWidth == 0) hwy::Prefetch(fetch[v] + (k + kHalf) * kPanelWidth);
    return StridedOperand<kVectors>::template Load<kHalf>(k, v);
  }
};

// The values of a tile. `fetch`: the same panel of the next tile's keys.
template <int kVectors>
struct FetchingValues : ScatteredOperand<kVectors> {
  const float* fetch[kVectors];
  size_t fetch_stride;
  template <int kHalf>
  HWY_INLINE Floats Load(size_t k, int v) const {
    if (v * kLanes % kPanelWidth == 0) hwy::Prefetch(fetch[v] + (k + kHalf) * fetch_stride);
    return ScatteredOperand<kVectors>::template Load<kHalf>(k, v);
  }
};

// The keys of a tile as pairs of their elements, rows of pairs `stride` apart. `fetch`: the next
// tile's pairs.
template <int kVectors>
struct PairedKeys {
  const uint32_t* start[kVectors];
  const uint32_t* fetch[kVectors];
  size_t stride;
  template <int kHalf>
  HWY_INLINE Floats Load(size_t k, int v) const {
    const size_t pair = k / 2 * stride;
    if (kHalf == 0 && v * kLanes % kPanelWidth == 0) PrefetchStream(fetch[v] + pair);
    return WidenHalves<kHalf>(start[v] + pair);
  }
};

// The values of a tile as pairs of keys, from an even key on. `fetch`: the next tile's pairs.
template <int kVectors>
struct PairedValues {
  const uint32_t* const* rows;
  const uint32_t* const* fetch;
  size_t column;
  template <int kHalf>
  HWY_INLINE Floats Load(size_t k, int v) const {
    const size_t at = column + static_cast<size_t>(v) * kLanes;
    if (kHalf == 0 && v * kLanes % kPanelWidth == 0) PrefetchStream(fetch[k / 2] + at);
    return WidenHalves<kHalf>(rows[k / 2] + at);
  }
};

// How a tile's keys and values are read. Every block of rows that reads pairs fetches the next
// tile: the second one finds its lines in the cache.
enum class Read { kFloats, kFetchingFloats, kPairs };

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
