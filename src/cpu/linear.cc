// out = x w^T + bias: matrix products with packed weights (packed_matrix.h).
//
// Order of summation of every output, whatever the number of rows: inputs in blocks of
// kBlockInputs, in a block one multiply-add after another, blocks added in order, then the bias.
// Vectors run over outputs, so a row is never split.
//
// Few rows: weights are widened in registers as they stream by (bytes moved: the matrix once). Many
// rows: a block of weights is widened once into scratch that stays in the cache, then read for
// every six rows.
#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/linear.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/kernels.h"
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl {
namespace HWY_NAMESPACE {

constexpr int64_t kGroupPanels = kGroupWidth / kPanelWidth;
constexpr size_t kCacheLine = 64;

// bf16 in pairs of inputs: 16 words of (even input, odd input), a line of the cache.
template <int kVectors, bool kAhead>
struct Bf16Operand {
  const uint32_t* start[kVectors];
  template <int kHalf>
  HWY_INLINE Floats Load(size_t k, int v) const {
    const F32 d;
    const hn::RebindToUnsigned<F32> du;
    const uint32_t* const from = start[v] + k / 2 * kPanelWidth;
    if (kAhead && kHalf == 0 && v * kLanes % kPanelWidth == 0) PrefetchStream(from);
    const auto pair = hn::LoadU(du, from);
    if constexpr (kHalf == 0) return hn::BitCast(d, hn::ShiftLeft<16>(pair));
    return hn::BitCast(d, hn::And(pair, hn::Set(du, 0xFFFF0000u)));
  }
};

template <int kVectors, bool kAhead>
struct F32Operand {
  const float* start[kVectors];
  const std::byte* next = nullptr;  // a line of it is fetched for each pair of inputs
  template <int kHalf>
  HWY_INLINE Floats Load(size_t k, int v) const {
    if (kHalf == 0 && v == 0) __builtin_prefetch(next + k / 2 * kCacheLine);
    return hn::LoadU(F32(), start[v] + (k + kHalf) * kPanelWidth);
  }
};

template <int kVectors, bool kAhead>
struct F16Operand {
  const hwy::float16_t* start[kVectors];
  template <int kHalf>
  HWY_INLINE Floats Load(size_t k, int v) const {
    const hn::Rebind<hwy::float16_t, F32> d16;
    const hwy::float16_t* const from = start[v] + (k + kHalf) * kPanelWidth;
    if (kAhead && kHalf == 0 && v * kLanes % kPanelWidth == 0) PrefetchStream(from);
    return hn::PromoteTo(F32(), hn::LoadU(d16, from));
  }
};

// Four panels from `base` on, `stride` elements apart; weights before the current block of inputs
// left out. The last group of a matrix has fewer: then the last one stands for those missing, and
// their outputs are not stored.
struct Group {
  const std::byte* base;
  int64_t stride;
  int64_t num_panels;
  // The next block of inputs, packed, of panel `i` at next + i * next_stride: fetched while rows
  // pass over this one.
  const std::byte* next = nullptr;
  int64_t next_stride = 0;
  template <typename T>
  HWY_INLINE const T* Panel(int64_t index) const {
    return reinterpret_cast<const T*>(base) + MinOf(index, num_panels - 1) * stride;
  }
};

// The operand of kVectors vectors from `column` of the group on. Words: what a weight (of bf16:
// two) is kept in.
template <class Operand, int kVectors, typename Word>
HWY_INLINE Operand MakeOperand(const Group& group, int64_t column) {
  Operand operand;
  MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
    const int64_t first = column + v * kLanes;
    operand.start[v] = group.Panel<Word>(first / kPanelWidth) + first % kPanelWidth;
  }
  return operand;
}

struct F32Weights {
  static constexpr bool kStreamed = false;  // where many rows pass, from the scratch
  template <int kVectors, bool kAhead = false>
  static HWY_INLINE F32Operand<kVectors, kAhead> At(const Group& group, int64_t column) {
    auto operand = MakeOperand<F32Operand<kVectors, kAhead>, kVectors, float>(group, column);
    operand.next = group.next;
    return operand;
  }
};
struct Bf16Weights {
  static constexpr bool kStreamed = true;
  template <int kVectors, bool kAhead = false>
  static HWY_INLINE Bf16Operand<kVectors, kAhead> At(const Group& group, int64_t column) {
    return MakeOperand<Bf16Operand<kVectors, kAhead>, kVectors, uint32_t>(group, column);
  }
};
struct F16Weights {
  static constexpr bool kStreamed = true;
  template <int kVectors, bool kAhead = false>
  static HWY_INLINE F16Operand<kVectors, kAhead> At(const Group& group, int64_t column) {
    return MakeOperand<F16Operand<kVectors, kAhead>, kVectors, hwy::float16_t>(group, column);
  }
};

// One block of inputs for some rows and the group's outputs.
struct RowBlock {
  const float* x;
  int64_t x_stride;
  size_t num_inputs;
  float* out;
  int64_t out_stride;
  int64_t num_columns;  // outputs of the group, at most 64
  bool adds;            // not the first block of inputs: add to what is there
  const float* bias;    // of the group; only with the last block of inputs
};

// Outputs of one row from `column` on, fewer than a vector: out = (out) + sums (+ bias).
HWY_NOINLINE void StoreSome(const RowBlock& b, const float* sums, float* out, int64_t column) {
  for (int64_t i = 0; column + i < b.num_columns; ++i) {
    float value = sums[i];
    if (b.adds) value = out[column + i] + value;
    if (b.bias != nullptr) value += b.bias[column + i];
    out[column + i] = value;
  }
}

template <int kRows, int kVectors>
HWY_INLINE void StoreSums(const RowBlock& b, const Floats (&sum)[kRows][kVectors], int64_t column) {
  const F32 d;
  MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
    const int64_t at = column + v * kLanes;
    if (HWY_UNLIKELY(at + kLanes > b.num_columns)) {
      HWY_ALIGN float lanes[kRows][kLanes];
      MINISGL_UNROLL for (int r = 0; r < kRows; ++r) hn::Store(sum[r][v], d, lanes[r]);
      for (int r = 0; r < kRows; ++r) StoreSome(b, lanes[r], b.out + r * b.out_stride, at);
      continue;
    }
    const Floats bias = b.bias == nullptr ? hn::Zero(d) : hn::LoadU(d, b.bias + at);
    MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
      float* const to = b.out + r * b.out_stride + at;
      const Floats before = b.adds ? hn::LoadU(d, to) : hn::Zero(d);
      hn::StoreU(hn::Add(hn::Add(before, sum[r][v]), bias), d, to);
    }
  }
}

template <int kRows, class Weights>
HWY_NOINLINE void MultiplyRows(const RowBlock& b, const Group& group) {
  constexpr int kVectors = VectorsPerRow<kRows>();
  for (int64_t column = 0; column < b.num_columns; column += kVectors * kLanes) {
    Floats sum[kRows][kVectors];
    SetZero(sum);
    const auto operand = Weights::template At<kVectors, Weights::kStreamed>(group, column);
    MultiplyAccumulate(b.x, static_cast<size_t>(b.x_stride), operand, b.num_inputs, sum);
    StoreSums(b, sum, column);
  }
}

// Rows in even parts of at most kRowsMax: eight as four and four, not six and two.
template <class Weights>
HWY_NOINLINE void MultiplyBlock(RowBlock b, Group group, int64_t num_rows) {
  const std::byte* const next = group.next;
  int64_t part = 0;
#if HWY_TARGET == HWY_AVX3
  // With 32 registers weights need not be widened again for a seventh and eighth row.
  if (Weights::kStreamed && num_rows == 7) return MultiplyRows<7, Weights>(b, group);
  if (Weights::kStreamed && num_rows == 8) return MultiplyRows<8, Weights>(b, group);
#endif
  for (int64_t parts = (num_rows + kRowsMax - 1) / kRowsMax; parts > 0; --parts) {
    const int64_t rows = (num_rows + parts - 1) / parts;
    // Each part of the rows fetches one of the next block's panels.
    group.next = next + part++ % group.num_panels * group.next_stride;
    switch (rows) {
      case 1:
        MultiplyRows<1, Weights>(b, group);
        break;
      case 2:
        MultiplyRows<2, Weights>(b, group);
        break;
      case 3:
        MultiplyRows<3, Weights>(b, group);
        break;
      case 4:
        MultiplyRows<4, Weights>(b, group);
        break;
      case 5:
        MultiplyRows<5, Weights>(b, group);
        break;
      default:
        MultiplyRows<6, Weights>(b, group);
        break;
    }
    b.x += rows * b.x_stride;
    b.out += rows * b.out_stride;
    num_rows -= rows;
  }
}

// The group's weights of one block of inputs as f32 panels in `scratch`.
template <class Weights>
HWY_NOINLINE Group WidenBlock(const Group& group, int64_t num_inputs, float* scratch) {
  const F32 d;
  constexpr int kVectors = static_cast<int>(kPanelWidth) / kLanes;
  for (int64_t panel = 0; panel < group.num_panels; ++panel) {
    const auto operand = Weights::template At<kVectors, true>(group, panel * kPanelWidth);
    float* to = scratch + panel * kBlockInputs * kPanelWidth;
    for (int64_t k = 0; k < num_inputs; k += 2) {
      MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
        hn::Store(operand.template Load<0>(k, v), d, to + k * kPanelWidth + v * kLanes);
        // Past an odd number of inputs there is a zero in the matrix and room in the scratch.
        hn::Store(operand.template Load<1>(k, v), d, to + (k + 1) * kPanelWidth + v * kLanes);
      }
    }
  }
  return {reinterpret_cast<const std::byte*>(scratch), kBlockInputs * kPanelWidth, group.num_panels,
          group.next, group.next_stride};
}

template <class Weights>
HWY_INLINE void MultiplyGroup(const LinearBlock& linear, int64_t words_per_input_pair,
                              int64_t word_bytes) {
  const PackedMatrix& w = *linear.weight;
  const int64_t first = linear.group * kGroupWidth;
  const int64_t num_columns = MinOf(kGroupWidth, w.num_out - first);
  const bool widens = w.format.dtype != DType::kF32 && linear.num_rows > kRowsStreamedMax;
  for (int64_t input = 0; input < w.num_in; input += kBlockInputs) {
    const int64_t num_inputs = MinOf(kBlockInputs, w.num_in - input);
    const bool is_last = input + num_inputs == w.num_in;
    Group group = {w.panel(first / kPanelWidth) + input / 2 * words_per_input_pair * word_bytes,
                   w.panel_stride() / 2 / kPanelWidth * words_per_input_pair,
                   (num_columns + kPanelWidth - 1) / kPanelWidth};
    group.next_stride = group.stride * word_bytes;
    // (Behind the last group there is nothing: it fetches in vain.)
    group.next = is_last ? w.panel(first / kPanelWidth) + kGroupPanels * group.next_stride
                         : group.base + kBlockInputs / 2 * words_per_input_pair * word_bytes;
    const RowBlock block = {
        .x = reinterpret_cast<const float*>(linear.x) + input,
        .x_stride = linear.x_stride / static_cast<int64_t>(sizeof(float)),
        .num_inputs = static_cast<size_t>(num_inputs),
        .out = linear.out,
        .out_stride = linear.out_stride,
        .num_columns = num_columns,
        .adds = input > 0,
        .bias = is_last && linear.bias != nullptr ? linear.bias + first : nullptr,
    };
    if (widens) {
      MultiplyBlock<F32Weights>(block, WidenBlock<Weights>(group, num_inputs, linear.scratch),
                                linear.num_rows);
    } else {
      MultiplyBlock<Weights>(block, group, linear.num_rows);
    }
  }
}

void RunLinear(const LinearBlock& linear) {
  switch (linear.weight->format.dtype) {
    case DType::kF32:
      return MultiplyGroup<F32Weights>(linear, 2 * kPanelWidth, 4);
    case DType::kBF16:
      return MultiplyGroup<Bf16Weights>(linear, kPanelWidth, 4);
    case DType::kF16:
      return MultiplyGroup<F16Weights>(linear, 2 * kPanelWidth, 2);
  }
}

LinearKernel GetLinear() { return {.multiply = RunLinear}; }

}  // namespace HWY_NAMESPACE
}  // namespace minisgl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace minisgl {

const PerTarget<GetLinearKernel>& WidenedLinearKernels() {
  static constexpr PerTarget<GetLinearKernel> kTable = MINISGL_PER_TARGET(GetLinear);
  return kTable;
}

}  // namespace minisgl
#endif
