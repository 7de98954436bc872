// out = x w^T + bias: matrix products with packed weights (packed_matrix.h).
//
// Order of summation of every output, whatever the number of rows: inputs in blocks of
// kBlockInputs, in a block one multiply-add after another, blocks added in order, then the bias.
// Vectors run over outputs, so a row is never split.
//
// Weights are widened in registers as they pass, again for each part of the rows. With AVX-512 a
// part has 12 rows, so that this is a twelfth of the work. Elsewhere it has six; there, where many
// rows pass, a block of weights is widened once into scratch that stays in the cache. (With AVX-512
// the scratch costs more: it drives everything else out of the first-level cache.)
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
// Rows of x that share one widening of the weights in registers.
constexpr int64_t kPartRowsMax = HWY_TARGET == HWY_AVX3 ? 12 : kRowsMax;
constexpr bool kWidensBlocks = HWY_TARGET != HWY_AVX3;

// What is fetched while weights are multiplied. kStream: what comes 2 KiB behind them, where all
// rows pass at once. kNextBlock: where several parts of the rows pass over one block of inputs,
// each of them some of the next block.
enum class Fetch { kStream, kNextBlock };

// For each pair of inputs a line of the cache: what a panel of 16 bits has of one.
template <Fetch kFetch>
HWY_INLINE void FetchPair(const std::byte* next, const void* from, size_t k, int v) {
  if (kFetch == Fetch::kNextBlock) {
    if (v == 0) __builtin_prefetch(next + k / 2 * kCacheLine);
  } else if (v * kLanes % kPanelWidth == 0) {
    PrefetchStream(from);
  }
}

// Operands of MultiplyAccumulate (simd-inl.h).

// bf16 in pairs of inputs: 16 words of (even input, odd input), a line of the cache.
template <int kVectors, Fetch kFetch>
struct Bf16Operand {
  const uint32_t* start[kVectors];
  const std::byte* next;
  template <int kHalf>
  HWY_INLINE Floats Load(size_t k, int v) const {
    const F32 d;
    const hn::RebindToUnsigned<F32> du;
    const uint32_t* const from = start[v] + k / 2 * kPanelWidth;
    if (kHalf == 0) FetchPair<kFetch>(next, from, k, v);
    const auto pair = hn::LoadU(du, from);
    if constexpr (kHalf == 0) return hn::BitCast(d, hn::ShiftLeft<16>(pair));
    return hn::BitCast(d, hn::And(pair, hn::Set(du, 0xFFFF0000u)));
  }
};

template <int kVectors, Fetch kFetch>
struct F32Operand {
  const float* start[kVectors];
  const std::byte* next;
  template <int kHalf>
  HWY_INLINE Floats Load(size_t k, int v) const {
    const float* const from = start[v] + (k + kHalf) * kPanelWidth;
    if (kHalf == 0) FetchPair<kFetch>(next, from, k, v);
    return hn::LoadU(F32(), from);
  }
};

template <int kVectors, Fetch kFetch>
struct F16Operand {
  const hwy::float16_t* start[kVectors];
  const std::byte* next;
  template <int kHalf>
  HWY_INLINE Floats Load(size_t k, int v) const {
    const hn::Rebind<hwy::float16_t, F32> d16;
    const hwy::float16_t* const from = start[v] + (k + kHalf) * kPanelWidth;
    if (kHalf == 0) FetchPair<kFetch>(next, from, k, v);
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
  int64_t next_panel = 0;
  template <typename T>
  HWY_INLINE const T* Panel(int64_t index) const {
    return reinterpret_cast<const T*>(base) + MinOf(index, num_panels - 1) * stride;
  }
};

// The dtypes of weights: what a weight (of bf16: two) is kept in, and its operand.
struct Bf16Weights {
  using Word = uint32_t;
  template <int kVectors, Fetch kFetch>
  using Operand = Bf16Operand<kVectors, kFetch>;
};
struct F32Weights {
  using Word = float;
  template <int kVectors, Fetch kFetch>
  using Operand = F32Operand<kVectors, kFetch>;
};
struct F16Weights {
  using Word = hwy::float16_t;
  template <int kVectors, Fetch kFetch>
  using Operand = F16Operand<kVectors, kFetch>;
};

// The operand of kVectors vectors from `column` of the group on. Each one made fetches the next
// block of another panel.
template <class Weights, int kVectors, Fetch kFetch>
HWY_INLINE auto MakeOperand(Group* group, int64_t column) {
  typename Weights::template Operand<kVectors, kFetch> operand;
  MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
    const int64_t first = column + v * kLanes;
    operand.start[v] =
        group->Panel<typename Weights::Word>(first / kPanelWidth) + first % kPanelWidth;
  }
  operand.next = group->next + group->next_panel * group->next_stride;
  group->next_panel = (group->next_panel + 1) % group->num_panels;
  return operand;
}

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

template <int kRows, class Weights, Fetch kFetch>
HWY_NOINLINE void MultiplyRows(const RowBlock& b, Group* group) {
  constexpr int kVectors = VectorsPerRow<kRows>();
  for (int64_t column = 0; column < b.num_columns; column += kVectors * kLanes) {
    Floats sum[kRows][kVectors];
    SetZero(sum);
    const auto operand = MakeOperand<Weights, kVectors, kFetch>(group, column);
    MultiplyAccumulate(b.x, static_cast<size_t>(b.x_stride), operand, b.num_inputs, sum);
    StoreSums(b, sum, column);
  }
}

// The function for `rows`, from kRows on.
template <class Weights, Fetch kFetch, int kRows>
HWY_INLINE void MultiplyPart(const RowBlock& b, Group* group, int64_t rows) {
  if constexpr (kRows < kPartRowsMax) {
    if (rows > kRows) return MultiplyPart<Weights, kFetch, kRows + 1>(b, group, rows);
  }
  MultiplyRows<kRows, Weights, kFetch>(b, group);
}

// Rows in even parts of at most kPartRowsMax: 16 as eight and eight, not twelve and four.
template <class Weights>
HWY_NOINLINE void MultiplyBlock(RowBlock b, Group group, int64_t num_rows) {
  if (num_rows <= kPartRowsMax) {
    return MultiplyPart<Weights, Fetch::kStream, 1>(b, &group, num_rows);
  }
  for (int64_t parts = (num_rows + kPartRowsMax - 1) / kPartRowsMax; parts > 0; --parts) {
    const int64_t rows = (num_rows + parts - 1) / parts;
    // Of even parts none has fewer rows than half of the most.
    MultiplyPart<Weights, Fetch::kNextBlock, kPartRowsMax / 2>(b, &group, rows);
    b.x += rows * b.x_stride;
    b.out += rows * b.out_stride;
    num_rows -= rows;
  }
}

// The group's weights of one block of inputs as f32 panels in `scratch`.
template <class Weights>
HWY_NOINLINE Group WidenBlock(Group group, int64_t num_inputs, float* scratch) {
  const F32 d;
  constexpr int kVectors = static_cast<int>(kPanelWidth) / kLanes;
  for (int64_t panel = 0; panel < group.num_panels; ++panel) {
    const auto operand =
        MakeOperand<Weights, kVectors, Fetch::kStream>(&group, panel * kPanelWidth);
    float* to = scratch + panel * kBlockInputs * kPanelWidth;
    for (int64_t k = 0; k < num_inputs; k += 2) {
      MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
        hn::Store(operand.template Load<0>(k, v), d, to + k * kPanelWidth + v * kLanes);
        // Past an odd number of inputs there is a zero in the matrix and room in the scratch.
        hn::Store(operand.template Load<1>(k, v), d, to + (k + 1) * kPanelWidth + v * kLanes);
      }
    }
  }
  group.base = reinterpret_cast<const std::byte*>(scratch);
  group.stride = kBlockInputs * kPanelWidth;
  group.next_panel = 0;
  return group;
}

template <class Weights>
HWY_INLINE void MultiplyGroup(const LinearBlock& linear, int64_t words_per_input_pair,
                              int64_t word_bytes) {
  const PackedMatrix& w = *linear.weight;
  const int64_t first = linear.group * kGroupWidth;
  const int64_t num_columns = MinOf(kGroupWidth, w.num_out - first);
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
    if (kWidensBlocks && w.format.dtype != DType::kF32 && linear.num_rows > kRowsStreamedMax) {
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
