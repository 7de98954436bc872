// Products of low rank. Compiled once for each instruction set (kernel_tables.cc).
//
// Order of every sum, whatever other rows it is computed with: of the first product one vector of
// partial sums, lane by lane over the inputs, whose lanes are added last; of the second one rank
// after another.
#if defined(MINISGL_CPU_LOW_RANK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINISGL_CPU_LOW_RANK_INL_H_
#undef MINISGL_CPU_LOW_RANK_INL_H_
#else
#define MINISGL_CPU_LOW_RANK_INL_H_
#endif

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {
namespace low_rank {

constexpr int64_t kTile = kLowRankTile;
constexpr int kTileVectors = static_cast<int>(kTile) / kLanes;

HWY_INLINE Floats LoadWeights(const float* from) { return hn::LoadU(F32(), from); }
HWY_INLINE Floats LoadWeights(const uint16_t* from) {
  const hn::Rebind<hwy::bfloat16_t, F32> d16;
  return hn::PromoteTo(F32(), hn::LoadU(d16, reinterpret_cast<const hwy::bfloat16_t*>(from)));
}
HWY_INLINE float WeightAt(const float* from) { return *from; }
HWY_INLINE float WeightAt(const uint16_t* from) {
  const uint32_t bits = static_cast<uint32_t>(*from) << 16;
  float value = 0;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// kRanks rows of a against kRows rows of x.
template <int kRows, int kRanks, typename Weight>
HWY_INLINE void ShrinkBlock(const Weight* a, int64_t num_in, const float* const* x,
                            float* const* u) {
  const F32 d;
  Floats sum[kRows][kRanks];
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    MINISGL_UNROLL for (int k = 0; k < kRanks; ++k) sum[r][k] = hn::Zero(d);
  }
  int64_t i = 0;
  for (; i + kLanes <= num_in; i += kLanes) {
    Floats weights[kRanks];
    MINISGL_UNROLL for (int k = 0; k < kRanks; ++k) weights[k] = LoadWeights(a + k * num_in + i);
    MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
      const Floats input = hn::LoadU(d, x[r] + i);
      MINISGL_UNROLL for (int k = 0; k < kRanks; ++k) {
        sum[r][k] = hn::MulAdd(weights[k], input, sum[r][k]);
      }
    }
  }
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    MINISGL_UNROLL for (int k = 0; k < kRanks; ++k) {
      float total = hn::GetLane(hn::SumOfLanes(d, sum[r][k]));
      for (int64_t j = i; j < num_in; ++j) total += WeightAt(a + k * num_in + j) * x[r][j];
      u[r][k] = total;
    }
  }
}

template <int kRows, typename Weight>
HWY_INLINE void ShrinkRows(const LowRankShrink& p, const Weight* a, const float* const* x,
                           float* const* u) {
  constexpr int kRanks = kIsFallback ? 1 : 4;
  int64_t k = 0;
  float* to[kRows];
  for (; k + kRanks <= p.num_ranks; k += kRanks) {
    for (int r = 0; r < kRows; ++r) to[r] = u[r] + p.first_rank + k;
    ShrinkBlock<kRows, kRanks>(a + k * p.num_in, p.num_in, x, to);
  }
  for (; k < p.num_ranks; ++k) {
    for (int r = 0; r < kRows; ++r) to[r] = u[r] + p.first_rank + k;
    ShrinkBlock<kRows, 1>(a + k * p.num_in, p.num_in, x, to);
  }
}

template <typename Weight>
HWY_INLINE void ShrinkAll(const LowRankShrink& p, const Weight* a) {
  constexpr int kRows = kIsFallback ? 1 : 4;
  int64_t r = 0;
  for (; r + kRows <= p.num_rows; r += kRows) ShrinkRows<kRows>(p, a, p.x + r, p.u + r);
  if constexpr (kRows > 2) {
    for (; r + 2 <= p.num_rows; r += 2) ShrinkRows<2>(p, a, p.x + r, p.u + r);
  }
  for (; r < p.num_rows; ++r) ShrinkRows<1>(p, a, p.x + r, p.u + r);
}

void Shrink(const LowRankShrink& p) {
  if (p.is_bf16) return ShrinkAll(p, static_cast<const uint16_t*>(p.a));
  ShrinkAll(p, static_cast<const float*>(p.a));
}

// out * factor + offset + sum, of one vector.
HWY_INLINE Floats AddTo(Floats out, Floats sum, const float* factor, const float* offset) {
  const F32 d;
  if (factor != nullptr) out = hn::Mul(out, hn::LoadU(d, factor));
  if (offset != nullptr) out = hn::Add(out, hn::LoadU(d, offset));
  return hn::Add(out, sum);
}

// A tile of outputs of kRows rows. The last tile of a part may have fewer than kTile outputs.
template <int kRows, typename Weight>
HWY_INLINE void ExpandTile(const LowRankExpand& p, const Weight* b, int64_t tile,
                           const float* const* u, float* const* out) {
  const F32 d;
  Floats sum[kRows][kTileVectors];
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    MINISGL_UNROLL for (int v = 0; v < kTileVectors; ++v) sum[r][v] = hn::Zero(d);
  }
  const Weight* from = b + tile * p.rank * kTile;
  const float* inner[kRows];
  for (int r = 0; r < kRows; ++r) inner[r] = u[r] + p.first_rank;
  for (int64_t k = 0; k < p.rank; ++k, from += kTile) {
    MINISGL_UNROLL for (int v = 0; v < kTileVectors; ++v) {
      const Floats weights = LoadWeights(from + v * kLanes);
      MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
        sum[r][v] = hn::MulAdd(weights, hn::Set(d, p.scale * inner[r][k]), sum[r][v]);
      }
    }
  }
  const int64_t first = tile * kTile, count = MinOf(kTile, p.num_out - first);
  const float* const factor = p.factor == nullptr ? nullptr : p.factor + first;
  const float* const offset = p.offset == nullptr ? nullptr : p.offset + first;
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    float* const to = out[r] + p.first_out + first;
    if (count == kTile) {
      MINISGL_UNROLL for (int v = 0; v < kTileVectors; ++v) {
        const int64_t at = v * kLanes;
        hn::StoreU(AddTo(hn::LoadU(d, to + at), sum[r][v], factor ? factor + at : nullptr,
                         offset ? offset + at : nullptr),
                   d, to + at);
      }
      continue;
    }
    float sums[kTile];
    MINISGL_UNROLL for (int v = 0; v < kTileVectors; ++v) {
      hn::StoreU(sum[r][v], d, sums + v * kLanes);
    }
    for (int64_t o = 0; o < count; ++o) {
      float value = to[o];
      if (factor != nullptr) value *= factor[o];
      if (offset != nullptr) value += offset[o];
      to[o] = value + sums[o];
    }
  }
}

template <typename Weight>
HWY_INLINE void ExpandAll(const LowRankExpand& p, const Weight* b) {
  constexpr int kRows = kIsFallback ? 1 : 4;
  for (int64_t tile = p.first_tile; tile < p.end_tile; ++tile) {
    int64_t r = 0;
    for (; r + kRows <= p.num_rows; r += kRows) ExpandTile<kRows>(p, b, tile, p.u + r, p.out + r);
    if constexpr (kRows > 2) {
      for (; r + 2 <= p.num_rows; r += 2) ExpandTile<2>(p, b, tile, p.u + r, p.out + r);
    }
    for (; r < p.num_rows; ++r) ExpandTile<1>(p, b, tile, p.u + r, p.out + r);
  }
}

void Expand(const LowRankExpand& p) {
  if (p.is_bf16) return ExpandAll(p, static_cast<const uint16_t*>(p.b));
  ExpandAll(p, static_cast<const float*>(p.b));
}

LowRankKernels GetLowRank() { return {Shrink, Expand}; }

}  // namespace low_rank
}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
