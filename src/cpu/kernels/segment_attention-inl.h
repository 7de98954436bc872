// Attention in both directions of one head, with an online softmax. Compiled once for each
// instruction set (kernel_tables.cc).
//
// Order of every sum, whatever other queries a query is computed with: a score over head_dim, one
// multiply-add after another; a tile's weighted values key by key, then added to the running sum.
#if defined(MINISGL_CPU_SEGMENT_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINISGL_CPU_SEGMENT_ATTENTION_INL_H_
#undef MINISGL_CPU_SEGMENT_ATTENTION_INL_H_
#else
#define MINISGL_CPU_SEGMENT_ATTENTION_INL_H_
#endif

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {
namespace segment_attention {

// Queries that pass over a tile together.
constexpr int kBlock = kIsFallback ? 1 : 6;
constexpr int kBlockVectors = VectorsPerRow<kBlock>();
static_assert(kSegmentQueriesMax % kBlock == 0);
static_assert(kSegmentTileKeys % (kBlockVectors * kLanes) == 0);

constexpr float kLowest = -__builtin_inff();

// Keys that do not exist are zeros, so that their scores are numbers before they are masked.
void ArrangeTile(const SegmentKeys& p, float* tile) {
  for (int64_t e = 0; e < p.head_dim; ++e) {
    float* const to = tile + e * kSegmentTileKeys;
    for (int64_t key = 0; key < p.count; ++key) to[key] = p.k[key * p.k_stride + e];
    for (int64_t key = p.count; key < kSegmentTileKeys; ++key) to[key] = 0;
  }
  const int64_t width = SegmentValueWidth(p.head_dim);
  float* to = tile + kSegmentTileKeys * p.head_dim;
  for (int64_t key = 0; key < p.count; ++key, to += width) {
    for (int64_t e = 0; e < p.head_dim; ++e) to[e] = p.v[key * p.v_stride + e];
    for (int64_t e = p.head_dim; e < width; ++e) to[e] = 0;
  }
}

// An item's queries, times the scale, and their running softmaxes.
struct Running {
  HWY_INLINE Running(int64_t head_dim, float* scratch)
      : sums(scratch),
        q(sums + kSegmentQueriesMax * SegmentValueWidth(head_dim)),
        maximum(q + kSegmentQueriesMax * head_dim),
        weight_sum(maximum + kSegmentQueriesMax) {}
  float* sums;        // [queries, width] weighted values relative to the maximum
  float* q;           // [queries, head_dim]
  float* maximum;     // [queries] the largest score
  float* weight_sum;  // [queries] sum of exp(score - largest)
};

HWY_INLINE void ScoreBlock(const float* q, int64_t head_dim, const float* keys, float* scores) {
  for (int64_t column = 0; column < kSegmentTileKeys; column += kBlockVectors * kLanes) {
    Floats sum[kBlock][kBlockVectors];
    SetZero(sum);
    StridedOperand<kBlockVectors> operand;
    operand.stride = kSegmentTileKeys;
    MINISGL_UNROLL for (int v = 0; v < kBlockVectors; ++v) {
      operand.start[v] = keys + column + v * kLanes;
    }
    MultiplyAccumulate(q, static_cast<size_t>(head_dim), operand, static_cast<size_t>(head_dim),
                       sum);
    MINISGL_UNROLL for (int r = 0; r < kBlock; ++r) {
      MINISGL_UNROLL for (int v = 0; v < kBlockVectors; ++v) {
        hn::StoreU(sum[r][v], F32(), scores + r * kSegmentTileKeys + column + v * kLanes);
      }
    }
  }
}

// Replaces a row of scores, of which `count` are of keys, by weights relative to the new maximum.
// Returns what earlier sums are multiplied by.
HWY_INLINE float SoftmaxRow(int64_t count, float* scores, float* maximum, float* weight_sum) {
  const F32 d;
  for (int64_t i = count; i < kSegmentTileKeys; ++i) scores[i] = kLowest;
  Floats largest = hn::LoadU(d, scores);
  for (int64_t i = kLanes; i < kSegmentTileKeys; i += kLanes) {
    largest = hn::Max(largest, hn::LoadU(d, scores + i));
  }
  const float top = MaxOf(*maximum, hn::GetLane(hn::MaxOfLanes(d, largest)));
  const float rescale = hn::GetLane(Exp(hn::Set(d, *maximum - top)));
  Floats sum = hn::Zero(d);
  for (int64_t i = 0; i < kSegmentTileKeys; i += kLanes) {
    const Floats weight = Exp(hn::Sub(hn::LoadU(d, scores + i), hn::Set(d, top)));
    sum = hn::Add(sum, weight);
    hn::StoreU(weight, d, scores + i);
  }
  *maximum = top;
  *weight_sum = *weight_sum * rescale + hn::GetLane(hn::SumOfLanes(d, sum));
  return rescale;
}

// sums[r] = sums[r] * rescale[r] + sum over `count` keys of weights[r][key] * value[key], for
// kVectors vectors from `column` on.
template <int kVectors>
HWY_INLINE void AddColumns(const float* weights, int64_t count, const float* values, int64_t width,
                           int64_t column, const float* rescale, float* sums) {
  const F32 d;
  Floats sum[kBlock][kVectors];
  SetZero(sum);
  StridedOperand<kVectors> operand;
  operand.stride = static_cast<size_t>(width);
  MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
    operand.start[v] = values + column + v * kLanes;
  }
  MultiplyAccumulate(weights, size_t{kSegmentTileKeys}, operand, static_cast<size_t>(count), sum);
  MINISGL_UNROLL for (int r = 0; r < kBlock; ++r) {
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      float* const to = sums + r * width + column + v * kLanes;
      hn::StoreU(hn::MulAdd(hn::LoadU(d, to), hn::Set(d, rescale[r]), sum[r][v]), d, to);
    }
  }
}

HWY_NOINLINE void AttendBlock(const Running& rows, int64_t first, int64_t head_dim, int64_t count,
                              const float* tile) {
  HWY_ALIGN float scores[kBlock * kSegmentTileKeys];
  float rescale[kBlock];
  const int64_t width = SegmentValueWidth(head_dim);
  ScoreBlock(rows.q + first * head_dim, head_dim, tile, scores);
  for (int r = 0; r < kBlock; ++r) {
    rescale[r] = SoftmaxRow(count, scores + r * kSegmentTileKeys, rows.maximum + first + r,
                            rows.weight_sum + first + r);
  }
  const float* const values = tile + kSegmentTileKeys * head_dim;
  float* const sums = rows.sums + first * width;
  int64_t column = 0;
  for (; column + kBlockVectors * kLanes <= width; column += kBlockVectors * kLanes) {
    AddColumns<kBlockVectors>(scores, count, values, width, column, rescale, sums);
  }
  for (; column < width; column += kLanes) {
    AddColumns<1>(scores, count, values, width, column, rescale, sums);
  }
}

// Copies the queries, and zeros up to a whole block.
HWY_INLINE void BeginRows(const SegmentQueries& p, int64_t num_rows, const Running& rows) {
  const int64_t width = SegmentValueWidth(p.head_dim);
  for (int64_t r = 0; r < num_rows; ++r) {
    float* const q = rows.q + r * p.head_dim;
    for (int64_t e = 0; e < p.head_dim; ++e) {
      q[e] = r < p.num_rows ? p.scale * p.q[r * p.q_stride + e] : 0;
    }
    for (int64_t e = 0; e < width; ++e) rows.sums[r * width + e] = 0;
    rows.maximum[r] = kLowest;
    rows.weight_sum[r] = 0;
  }
}

void AttendQueries(const SegmentQueries& p, float* scratch) {
  const Running rows(p.head_dim, scratch);
  const int64_t num_rows = (p.num_rows + kBlock - 1) / kBlock * kBlock;
  const int64_t width = SegmentValueWidth(p.head_dim);
  BeginRows(p, num_rows, rows);
  const float* tile = p.tiles;
  for (int64_t key = 0; key < p.num_keys; key += kSegmentTileKeys) {
    const int64_t count = MinOf(kSegmentTileKeys, p.num_keys - key);
    for (int64_t r = 0; r < num_rows; r += kBlock) AttendBlock(rows, r, p.head_dim, count, tile);
    tile += SegmentTileFloats(p.head_dim);
  }
  for (int64_t r = 0; r < p.num_rows; ++r) {
    float* const out = p.out + r * p.out_stride;
    for (int64_t e = 0; e < p.head_dim; ++e) {
      out[e] = rows.sums[r * width + e] / rows.weight_sum[r];
    }
  }
}

SegmentKernels GetSegments() { return {ArrangeTile, AttendQueries}; }

}  // namespace segment_attention
}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
