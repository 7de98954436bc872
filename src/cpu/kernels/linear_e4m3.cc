// out = x w^T + bias for few rows and codes of type e4m3 in CodeOrder::kWords, widened to f32 in
// registers. Every output has the bits of the product with the expanded weights (expand_codes.cc,
// linear.cc): the same weights, a number times its scale, added in the same order.
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

// Operand of MultiplyAccumulate (simd-inl.h): kVectors vectors of outputs of panels that lie beside
// each other, and the scales of one group of inputs.
template <int kVectors>
struct E4M3Operand {
  const uint8_t* codes;  // of the first panel
  int64_t panel_bytes;
  int64_t bytes_ahead;
  Floats scales[kVectors];  // times kE4M3Factor
  template <int kHalf>
  HWY_INLINE Floats Load(size_t k, int v) const {
    const int lane = v * kLanes % static_cast<int>(kPanelWidth);
    const uint8_t* const from = codes + v * kLanes / kPanelWidth * panel_bytes +
                                static_cast<int64_t>(k + kHalf) * kPanelWidth;
    if (kHalf == 0 && lane == 0) PrefetchStream(from + bytes_ahead);
    return hn::Mul(E4M3Halves(from, lane), scales[v]);
  }
};

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
        panel_((first_ + column) / kPanelWidth) {}

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
    E4M3Operand<kVectors> operand;
    operand.panel_bytes = m_.panel_bytes();
    operand.codes = reinterpret_cast<const uint8_t*>(m_.codes(panel_)) + begin * kPanelWidth;
    // After the last inputs, the next panels begin.
    constexpr int64_t kPanels = kVectors * kLanes / kPanelWidth;
    const bool ends = end * kPanelWidth + kBytesAhead > operand.panel_bytes;
    operand.bytes_ahead = kBytesAhead + (ends ? (kPanels - 1) * operand.panel_bytes : 0);
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      const int64_t panel = panel_ + v * kLanes / kPanelWidth;
      operand.scales[v] =
          hn::Mul(FactorsAt(factors_, factors_.scales_of(panel), group, v * kLanes % kPanelWidth),
                  hn::Set(F32(), kE4M3Factor));
    }
    const auto* const x = reinterpret_cast<const float*>(linear_.x) + begin;
    MultiplyAccumulate(x, static_cast<size_t>(linear_.x_stride) / sizeof(float), operand,
                       static_cast<size_t>(end - begin), sum);
  }

  const LinearBlock& linear_;
  const CodedMatrix& m_;
  FactorLayout factors_;
  int64_t column_, first_, panel_;
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

void RunE4M3(const LinearBlock& linear) {
  static_assert(kE4M3RowsMax == 4);
  if (linear.num_rows == 1) return MultiplyRows<1>(linear);
  if (linear.num_rows == 2) return MultiplyRows<2>(linear);
  if (linear.num_rows == 3) return MultiplyRows<3>(linear);
  MultiplyRows<4>(linear);
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
