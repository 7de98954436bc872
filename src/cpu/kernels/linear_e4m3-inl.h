// out = x w^T + bias for few rows and codes of type e4m3 in CodeOrder::kSplitQuads, widened to f32
// in registers by moving their bits. Every output has the bits of the product with the expanded
// weights (expand_codes-inl.h, linear.cc): the same weights, a number times its scale, added in the
// same order. Compiled once for each instruction set (kernel_tables.cc).
#if defined(MINISGL_CPU_LINEAR_E4M3_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINISGL_CPU_LINEAR_E4M3_INL_H_
#undef MINISGL_CPU_LINEAR_E4M3_INL_H_
#else
#define MINISGL_CPU_LINEAR_E4M3_INL_H_
#endif

#include "cpu/kernels/code_factors-inl.h"
#include "cpu/kernels/e4m3-inl.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/linear_output-inl.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {
namespace linear_e4m3 {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
namespace {

// Prefetch distance within a panel.
constexpr int64_t kBytesAhead = 2048;
static_assert(kBlockInputs % kQuadInputs == 0);

// Panels that lie beside each other, from the first one's codes of some input on.
struct E4M3Panels {
  const uint8_t* codes;
  int64_t panel_bytes;
  int64_t bytes_ahead;  // of what is fetched while they are read
  HWY_INLINE const uint8_t* Vector(int64_t quad, int v) const {
    const int64_t lane = v * kLanes;
    return codes + lane / kPanelWidth * panel_bytes +
           (quad * kPanelWidth + lane % kPanelWidth) * kQuadInputs;
  }
};

// The scales of a group, times kMovedFactor, in memory: registers hold sums.
template <int kVectors>
struct GroupScales {
  HWY_INLINE Floats Load(int v) const { return hn::Load(F32(), of[v]); }
  HWY_ALIGN float of[kVectors][kLanes];
};

// The weights of the first two (kPair 0) or the last two (1) inputs of a quad.
template <int kPair, int kVectors>
HWY_INLINE InputPair LoadPair(const E4M3Panels& panels, int64_t quad, int v, PairMasks masks,
                              const GroupScales<kVectors>& scales) {
  const hn::RebindToUnsigned<F32> du;
  const uint8_t* const from = panels.Vector(quad, v);
  if (kPair == 0 && v * kLanes % kPanelWidth == 0) PrefetchStream(from + panels.bytes_ahead);
  const InputPair moved =
      MovePair<kPair>(hn::LoadU(du, reinterpret_cast<const uint32_t*>(from)), masks);
  const Floats scale = scales.Load(v);
  return {hn::Mul(moved.first, scale), hn::Mul(moved.second, scale)};
}

// Keeps the compiler from holding what it has loaded, which would take registers from sums: one sum
// in memory takes half of the speed.
template <int kVectors>
HWY_INLINE void ForgetLoads(const GroupScales<kVectors>& scales) {
  if constexpr (kFewRegisters) asm volatile("" : : "r"(&scales) : "memory");
}

// Where registers are scarce, the sums of three rows and four vectors would leave none for weights.
template <int kRows>
constexpr int VectorsOf() {
  return kFewRegisters && kRows == 3 ? 2 : VectorsPerRow<kRows>();
}

// sum += x times the first kInputs inputs of a pair. Two vectors share the loads of x, if there are
// two; of one row, all do.
template <int kPair, int kInputs, int kRows, int kVectors>
HWY_INLINE void MultiplyPair(const RowPointers<kRows>& x, const E4M3Panels& panels, int64_t quad,
                             PairMasks masks, const GroupScales<kVectors>& scales,
                             Floats (&sum)[kRows][kVectors]) {
  constexpr int kCount = kVectors == 1 ? 1 : 2;
  static_assert(kVectors % kCount == 0);
  MINISGL_UNROLL for (int begin = 0; begin < kVectors; begin += kCount) {
    Floats weights[2][kCount];
    MINISGL_UNROLL for (int i = 0; i < kCount; ++i) {
      const InputPair its = LoadPair<kPair>(panels, quad, begin + i, masks, scales);
      weights[0][i] = its.first;
      weights[1][i] = its.second;
    }
    MINISGL_UNROLL for (int k = 0; k < kInputs; ++k) {
      MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
        const Floats factor = hn::Set(F32(), x.At(r, 2 * kPair + k));
        MINISGL_UNROLL for (int i = 0; i < kCount; ++i) {
          sum[r][begin + i] = hn::MulAdd(factor, weights[k][i], sum[r][begin + i]);
        }
      }
    }
    ForgetLoads(scales);
  }
}
template <int kPair, int kInputs, int kVectors>
HWY_INLINE void MultiplyPair(const RowPointers<1>& x, const E4M3Panels& panels, int64_t quad,
                             PairMasks masks, const GroupScales<kVectors>& scales,
                             Floats (&sum)[1][kVectors]) {
  Floats factors[kInputs];
  MINISGL_UNROLL for (int k = 0; k < kInputs; ++k) {
    factors[k] = hn::Set(F32(), x.At(0, 2 * kPair + k));
  }
  MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
    const InputPair weights = LoadPair<kPair>(panels, quad, v, masks, scales);
    sum[0][v] = hn::MulAdd(factors[0], weights.first, sum[0][v]);
    if constexpr (kInputs == 2) sum[0][v] = hn::MulAdd(factors[1], weights.second, sum[0][v]);
    ForgetLoads(scales);
  }
}

// sum += x times `count` inputs of the panels.
template <int kRows, int kVectors>
HWY_INLINE void MultiplyPanels(const float* HWY_RESTRICT x, size_t x_stride,
                               const E4M3Panels& panels, int64_t count,
                               const GroupScales<kVectors>& scales,
                               Floats (&sum)[kRows][kVectors]) {
  RowPointers<kRows> rows(x, x_stride);
  PairMasks masks;
  masks.KeepInRegisters();
  const int64_t num_quads = count / kQuadInputs;
#pragma GCC unroll 1
  for (int64_t quad = 0; quad < num_quads; ++quad) {
    MultiplyPair<0, 2>(rows, panels, quad, masks, scales, sum);
    MultiplyPair<1, 2>(rows, panels, quad, masks, scales, sum);
    rows.Advance(kQuadInputs);
  }
  // The last inputs of a matrix.
  const int64_t left = count % kQuadInputs;
  if (left == 1) MultiplyPair<0, 1>(rows, panels, num_quads, masks, scales, sum);
  if (left >= 2) MultiplyPair<0, 2>(rows, panels, num_quads, masks, scales, sum);
  if (left == 3) MultiplyPair<1, 1>(rows, panels, num_quads, masks, scales, sum);
}

// The rows of a LinearBlock and some vectors of its outputs.
template <int kRows, int kVectors>
class E4M3Product {
 public:
  HWY_INLINE E4M3Product(const LinearBlock& linear, int64_t column)
      : linear_(linear),
        m_(*linear.weight->coded),
        factors_(m_),
        column_(column),
        first_(linear.group * kGroupWidth),
        panel_((first_ + column) / kPanelWidth),
        codes_(reinterpret_cast<const uint8_t*>(m_.codes(panel_))),
        panel_bytes_(m_.panel_bytes()) {}

  HWY_INLINE void Run() {
    for (int64_t begin = 0; begin < m_.num_in; begin += kBlockInputs) {
      const int64_t end = MinOf(begin + kBlockInputs, m_.num_in);
      Floats sum[kRows][kVectors];
      SetZero(sum);
      for (int64_t input = begin; input < end;) {
        const int64_t group = input / m_.group_inputs;
        const int64_t stop = MinOf(end, (group + 1) * m_.group_inputs);
        AddGroup(group, input, stop, sum);
        input = stop;
      }
      const bool has_bias = end == m_.num_in && linear_.bias != nullptr;
      StoreSums({.out = linear_.out,
                 .out_stride = linear_.out_stride,
                 .num_columns = m_.num_out - first_,
                 .adds = begin > 0,
                 .bias = has_bias ? linear_.bias + first_ : nullptr},
                sum, column_);
    }
  }

 private:
  // The products of inputs [begin, end) of one group.
  HWY_INLINE void AddGroup(int64_t group, int64_t begin, int64_t end,
                           Floats (&sum)[kRows][kVectors]) const {
    GroupScales<kVectors> scales;
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      const int64_t panel = panel_ + v * kLanes / kPanelWidth;
      const Floats its =
          FactorsAt(factors_, factors_.scales_of(panel), group, v * kLanes % kPanelWidth);
      hn::Store(hn::Mul(its, hn::Set(F32(), kMovedFactor)), F32(), scales.of[v]);
    }
    // After the last inputs, the next panels begin.
    constexpr int64_t kPanels = kVectors * kLanes / kPanelWidth;
    const bool ends = end * kPanelWidth + kBytesAhead > panel_bytes_;
    const E4M3Panels panels = {
        .codes = codes_ + begin * kPanelWidth,
        .panel_bytes = panel_bytes_,
        .bytes_ahead = kBytesAhead + (ends ? (kPanels - 1) * panel_bytes_ : 0)};
    MultiplyPanels(reinterpret_cast<const float*>(linear_.x) + begin,
                   static_cast<size_t>(linear_.x_stride) / sizeof(float), panels, end - begin,
                   scales, sum);
  }

  const LinearBlock& linear_;
  const CodedMatrix& m_;
  FactorLayout factors_;
  int64_t column_, first_, panel_;
  const uint8_t* codes_;  // of the first panel
  int64_t panel_bytes_;
};

// Whole panels, whose codes are widened together.
template <int kRows>
HWY_NOINLINE void MultiplyRows(const LinearBlock& linear) {
  constexpr int kPanelVectors = static_cast<int>(kPanelWidth) / kLanes;
  constexpr int kVectors = VectorsOf<kRows>();
  static_assert(kVectors % kPanelVectors == 0);
  const int64_t left = linear.weight->num_out - linear.group * kGroupWidth;
  const int64_t width = MinOf(kGroupWidth, (left + kPanelWidth - 1) / kPanelWidth * kPanelWidth);
  int64_t column = 0;
  for (; column + kVectors * kLanes <= width; column += kVectors * kLanes) {
    E4M3Product<kRows, kVectors>(linear, column).Run();
  }
  // The last group may have fewer panels.
  for (; column < width; column += kPanelWidth) {
    E4M3Product<kRows, kPanelVectors>(linear, column).Run();
  }
}

void MultiplyOnce(const LinearBlock& linear) {
  static_assert(kE4M3Rows == 4);
  if (linear.num_rows == 1) return MultiplyRows<1>(linear);
  if (linear.num_rows == 2) return MultiplyRows<2>(linear);
  if (linear.num_rows == 3) return MultiplyRows<3>(linear);
  MultiplyRows<4>(linear);
}

void RunE4M3(const LinearBlock& linear) { MultiplyE4M3Rows(linear, MultiplyOnce); }

}  // namespace

MultiplyCodes GetE4M3() { return RunE4M3; }
#else
MultiplyCodes GetE4M3() { return nullptr; }
#endif

}  // namespace linear_e4m3
}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
