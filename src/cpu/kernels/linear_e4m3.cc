// out = x w^T + bias for few rows and codes of type e4m3 in CodeOrder::kWords, widened to f32 on
// the way to registers. Every output has the bits of the product with the expanded weights
// (expand_codes.cc, linear.cc): the same weights, a number times its scale, added in the same
// order.
#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/linear_e4m3.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/kernels/code_factors-inl.h"
#include "cpu/kernels/e4m3-inl.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/linear_output-inl.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {
#if defined(MINISGL_E4M3_HALVES)
namespace {

// Prefetch distance within a panel.
constexpr int64_t kBytesAhead = 2048;

// Panels that lie beside each other, from the first one's codes of some input on.
struct E4M3Panels {
  const uint8_t* codes;
  int64_t panel_bytes;
  int64_t bytes_ahead;  // of what is fetched while they are read
};

// Operands of MultiplyAccumulate (simd-inl.h): kVectors vectors of outputs of such panels, of the
// inputs of one group.
#if HWY_TARGET == HWY_AVX2
// The codes pass through the first-level cache as f16, some inputs at a time: the conversion of f16
// takes less time from memory than from registers, above all from the upper half of one. (With
// AVX-512, where that half is not needed, it takes longer.)
constexpr int64_t kWidenedInputs = 64;
constexpr int64_t kWidenedPanel = kWidenedInputs * kPanelWidth;

template <int kVectors>
struct E4M3Operand {
  const int16_t* halves;    // [panels][kWidenedInputs][kPanelWidth]
  Floats scales[kVectors];  // of the group, times kE4M3Factor
  template <int kHalf>
  HWY_INLINE Floats Load(size_t k, int v) const {
    const hn::Rebind<int16_t, F32> d16;
    const hn::Rebind<hwy::float16_t, F32> df16;
    const int16_t* const from = halves + v * kLanes / kPanelWidth * kWidenedPanel +
                                static_cast<int64_t>(k + kHalf) * kPanelWidth +
                                v * kLanes % kPanelWidth;
    return hn::Mul(hn::PromoteTo(F32(), hn::BitCast(df16, hn::Load(d16, from))), scales[v]);
  }
};

// Widens `count` inputs, at most kWidenedInputs. Not inlined: sums of its callers would lose
// registers to it.
template <int64_t kPanels>
HWY_NOINLINE void WidenPanels(const uint8_t* codes, int64_t panel_bytes, int64_t bytes_ahead,
                              int64_t count, int16_t* HWY_RESTRICT halves) {
  constexpr int64_t kFetchedInputs = 64 / kPanelWidth;  // of a line of the cache
  const PanelHalvesTag d16;
  int64_t i = 0;
#pragma GCC unroll 1
  for (; i + kFetchedInputs <= count; i += kFetchedInputs) {
    MINISGL_UNROLL for (int64_t panel = 0; panel < kPanels; ++panel) {
      const uint8_t* const from = codes + panel * panel_bytes + i * kPanelWidth;
      PrefetchStream(from + bytes_ahead);
      MINISGL_UNROLL for (int64_t k = 0; k < kFetchedInputs; ++k) {
        hn::Store(HalvesOfE4M3(d16, from + k * kPanelWidth), d16,
                  halves + panel * kWidenedPanel + (i + k) * kPanelWidth);
      }
    }
  }
#pragma GCC unroll 1
  for (; i < count; ++i) {
    MINISGL_UNROLL for (int64_t panel = 0; panel < kPanels; ++panel) {
      hn::Store(HalvesOfE4M3(d16, codes + panel * panel_bytes + i * kPanelWidth), d16,
                halves + panel * kWidenedPanel + i * kPanelWidth);
    }
  }
}

// sum += x times `count` inputs of the panels.
template <int kRows, int kVectors>
HWY_INLINE void MultiplyPanels(const float* x, size_t x_stride, E4M3Panels panels, int64_t count,
                               const Floats (&scales)[kVectors], Floats (&sum)[kRows][kVectors]) {
  constexpr int64_t kPanels = kVectors * kLanes / kPanelWidth;
  HWY_ALIGN int16_t halves[kPanels * kWidenedPanel];
  E4M3Operand<kVectors> operand;
  operand.halves = halves;
  MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) operand.scales[v] = scales[v];
  while (count > 0) {
    const int64_t part = MinOf(kWidenedInputs, count);
    WidenPanels<kPanels>(panels.codes, panels.panel_bytes, panels.bytes_ahead, part, halves);
    MultiplyAccumulate(x, x_stride, operand, static_cast<size_t>(part), sum);
    x += part;
    panels.codes += part * kPanelWidth;
    count -= part;
  }
}
#else
// A vector has a panel's outputs.
static_assert(kLanes == kPanelWidth);

template <int kVectors>
struct E4M3Operand {
  E4M3Panels panels;
  Floats scales[kVectors];  // of the group, times kE4M3Factor
  template <int kHalf>
  HWY_INLINE Floats Load(size_t k, int v) const {
    const uint8_t* const from =
        panels.codes + v * panels.panel_bytes + static_cast<int64_t>(k + kHalf) * kPanelWidth;
    if (kHalf == 0) PrefetchStream(from + panels.bytes_ahead);
    return hn::Mul(E4M3Halves(from, /*lane=*/0), scales[v]);
  }
};

// sum += x times `count` inputs of the panels.
template <int kRows, int kVectors>
HWY_INLINE void MultiplyPanels(const float* x, size_t x_stride, const E4M3Panels& panels,
                               int64_t count, const Floats (&scales)[kVectors],
                               Floats (&sum)[kRows][kVectors]) {
  E4M3Operand<kVectors> operand;
  operand.panels = panels;
  MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) operand.scales[v] = scales[v];
  MultiplyAccumulate(x, x_stride, operand, static_cast<size_t>(count), sum);
}
#endif

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
    Floats scales[kVectors];
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      const int64_t panel = panel_ + v * kLanes / kPanelWidth;
      scales[v] =
          hn::Mul(FactorsAt(factors_, factors_.scales_of(panel), group, v * kLanes % kPanelWidth),
                  hn::Set(F32(), kE4M3Factor));
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
  constexpr int kVectors = VectorsPerRow<kRows>();
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

void RunE4M3(const LinearBlock& linear) {
  static_assert(E4M3RowsMax(DType::kF32) == 2 * kE4M3Rows);
  if (linear.num_rows <= kE4M3Rows) return MultiplyOnce(linear);
  LinearBlock part = linear;
  part.num_rows = (linear.num_rows + 1) / 2;
  MultiplyOnce(part);
  part.x += part.num_rows * part.x_stride;
  part.out += part.num_rows * part.out_stride;
  part.num_rows = linear.num_rows - part.num_rows;
  MultiplyOnce(part);
}

}  // namespace

MultiplyCodes GetE4M3() { return RunE4M3; }
#else
MultiplyCodes GetE4M3() { return nullptr; }
#endif

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace minisgl::cpu {

const PerTarget<GetMultiplyCodes>& E4M3Multiplies() {
  static constexpr PerTarget<GetMultiplyCodes> kTable = MINISGL_PER_TARGET(GetE4M3);
  return kTable;
}

}  // namespace minisgl::cpu
#endif
