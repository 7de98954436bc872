// out = x w^T + bias: matrix products with packed weights (packed_matrix.h), widened to f32.
//
// Order of summation of every output, whatever the number of rows: inputs in blocks of
// kBlockInputs, one multiply-add after another within a block, blocks added in order, then the
// bias. Vectors run over outputs, so a row's sum is never split.
//
// Rows are processed in parts. If there are few rows, every part reads the packed weights and
// widens them in registers. If there are many, the first part stores a block's widened weights in
// scratch, in the first-level cache, for the other parts. (The fallback has one way, for one row.)
#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/linear.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/linear_output-inl.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {

constexpr size_t kCacheLine = 64;
// Maximum number of rows of x in a part: they share one widening of the weights in registers.
constexpr int64_t kPartRowsMax = HWY_TARGET == HWY_AVX3 ? 12 : kIsFallback ? 1 : kRowsMax;

// Up to this many rows, storing widened weights takes longer than widening them for each part.
constexpr int64_t kFewRowsMax = kIsFallback ? kLinearRowsMax : 3 * kRowsMax;

// Prefetch distance within a panel for one row that passes over all four panels at once: the memory
// latency (AVX2, all matrices of Qwen3-0.6B, one thread: f32 107 to 95 ms, f16 60 to 55, bf16 56 to
// 54). Rows that take one panel after another need a whole block: with 1 KiB four of them take
// twice as long.
constexpr int64_t kBytesAhead = 1024;
constexpr bool kReadsGroupAtOnce = VectorsPerRow<1>() * kLanes == kGroupWidth;

// What an operand prefetches while weights are multiplied. kAhead: the memory `bytes_ahead` past
// the weights it reads. kNone: nothing; the caller prefetches.
enum class Fetch { kAhead, kNone };

template <Fetch kFetch>
HWY_INLINE void FetchPair(const void* from, int64_t bytes_ahead, int v) {
  if (kFetch == Fetch::kAhead && v * kLanes % kPanelWidth == 0) {
    PrefetchStream(static_cast<const std::byte*>(from) + bytes_ahead);
  }
}

// Operands of MultiplyAccumulate (simd-inl.h).

// bf16 in pairs of inputs: 16 words of (even input, odd input) are a cache line.
template <int kVectors, Fetch kFetch>
struct Bf16Operand {
  const uint32_t* start[kVectors];
  int64_t bytes_ahead;
  HWY_INLINE void Advance(size_t num_inputs) {
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) start[v] += num_inputs / 2 * kPanelWidth;
  }
  template <int kHalf>
  HWY_INLINE Floats Load(size_t k, int v) const {
    const uint32_t* const from = start[v] + k / 2 * kPanelWidth;
    if (kHalf == 0) FetchPair<kFetch>(from, bytes_ahead, v);
    return WidenHalves<kHalf>(from);
  }
};

template <int kVectors, Fetch kFetch>
struct F32Operand {
  const float* start[kVectors];
  int64_t bytes_ahead;
  HWY_INLINE void Advance(size_t num_inputs) {
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) start[v] += num_inputs * kPanelWidth;
  }
  template <int kHalf>
  HWY_INLINE Floats Load(size_t k, int v) const {
    const float* const from = start[v] + (k + kHalf) * kPanelWidth;
    if (kHalf == 0) FetchPair<kFetch>(from, bytes_ahead, v);
    return hn::LoadU(F32(), from);
  }
};

template <int kVectors, Fetch kFetch>
struct F16Operand {
  const hwy::float16_t* start[kVectors];
  int64_t bytes_ahead;
  HWY_INLINE void Advance(size_t num_inputs) {
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) start[v] += num_inputs * kPanelWidth;
  }
  template <int kHalf>
  HWY_INLINE Floats Load(size_t k, int v) const {
    const hn::Rebind<hwy::float16_t, F32> d16;
    const hwy::float16_t* const from = start[v] + (k + kHalf) * kPanelWidth;
    if (kHalf == 0) FetchPair<kFetch>(from, bytes_ahead, v);
    return hn::PromoteTo(F32(), hn::LoadU(d16, from));
  }
};

// Four panels from `base` on, `stride` elements apart; `base` is at the current block of inputs.
// The last group may have fewer panels; missing ones alias the last panel, and their outputs are
// discarded.
struct Group {
  const std::byte* base;
  int64_t stride;
  int64_t num_panels;
  template <typename T>
  HWY_INLINE const T* Panel(int64_t index) const {
    return reinterpret_cast<const T*>(base) + MinOf(index, num_panels - 1) * stride;
  }
};

// The dtypes of weights: the word that holds a weight (bf16: two weights), and the operand.
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

// The operand of kVectors vectors from `column` of the group on.
template <class Weights, int kVectors, Fetch kFetch>
HWY_INLINE auto MakeOperand(const Group& group, int64_t column) {
  typename Weights::template Operand<kVectors, kFetch> operand;
  operand.bytes_ahead = 0;
  MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
    const int64_t first = column + v * kLanes;
    operand.start[v] =
        group.Panel<typename Weights::Word>(first / kPanelWidth) + first % kPanelWidth;
  }
  return operand;
}

// The layout of a dtype's weights in a panel.
struct PackedLayout {
  int64_t words_per_input_pair;
  int64_t word_bytes;
  HWY_INLINE int64_t PanelWords(const PackedMatrix& w) const {
    return w.panel_stride() / 2 / kPanelWidth * words_per_input_pair;
  }
  HWY_INLINE int64_t PanelBytes(const PackedMatrix& w) const { return PanelWords(w) * word_bytes; }
  // Bytes of the first `num_inputs` inputs of a panel. REQUIRES an even number.
  HWY_INLINE int64_t InputBytes(int64_t num_inputs) const {
    return num_inputs / 2 * words_per_input_pair * word_bytes;
  }
};

// The block's group of outputs, from `input` on.
HWY_INLINE Group GroupAt(const LinearBlock& linear, const PackedLayout& layout, int64_t input) {
  const PackedMatrix& w = *linear.weight;
  const int64_t first = linear.group * kGroupWidth;
  const int64_t num_columns = MinOf(kGroupWidth, w.num_out - first);
  return {w.panel(first / kPanelWidth) + layout.InputBytes(input), layout.PanelWords(w),
          (num_columns + kPanelWidth - 1) / kPanelWidth};
}

// --- few rows ------------------------------------------------------------------------------------

// One block of inputs for some rows and the group's outputs.
struct RowBlock {
  const float* x;
  int64_t x_stride;
  size_t num_inputs;
  SummedOutputs outputs;  // of the group
  // Prefetch distances for the first `num_first` inputs (an even number) and for the others.
  size_t num_first;
  int64_t bytes_ahead[2];
};

template <int kRows, class Weights>
HWY_NOINLINE void MultiplyRows(const RowBlock& b, const Group& group) {
  constexpr int kVectors = VectorsPerRow<kRows>();
  const auto x_stride = static_cast<size_t>(b.x_stride);
  for (int64_t column = 0; column < b.outputs.num_columns; column += kVectors * kLanes) {
    Floats sum[kRows][kVectors];
    SetZero(sum);
    auto operand = MakeOperand<Weights, kVectors, Fetch::kAhead>(group, column);
    const size_t begin[] = {0, b.num_first, b.num_inputs};
    for (int part = 0; part < 2; ++part) {
      operand.Advance(begin[part]);
      operand.bytes_ahead = b.bytes_ahead[part];
      MultiplyAccumulate(b.x + begin[part], x_stride, operand, begin[part + 1] - begin[part], sum);
    }
    StoreSums(b.outputs, sum, column);
  }
}

// Calls MultiplyRows for `rows`. REQUIRES rows >= kRows.
template <class Weights, int kRows>
HWY_INLINE void MultiplyPart(const RowBlock& b, const Group& group, int64_t rows) {
  if constexpr (kRows < kPartRowsMax) {
    if (rows > kRows) return MultiplyPart<Weights, kRows + 1>(b, group, rows);
  }
  MultiplyRows<kRows, Weights>(b, group);
}

// Multiplies rows in even parts of at most kPartRowsMax.
template <class Weights>
HWY_INLINE void MultiplyParts(RowBlock b, const Group& group, int64_t num_rows) {
  for (int64_t parts = (num_rows + kPartRowsMax - 1) / kPartRowsMax; parts > 0; --parts) {
    const int64_t rows = (num_rows + parts - 1) / parts;
    MultiplyPart<Weights, 1>(b, group, rows);
    b.x += rows * b.x_stride;
    b.outputs.out += rows * b.outputs.out_stride;
    num_rows -= rows;
  }
}

template <class Weights>
HWY_INLINE void MultiplyFewRows(const LinearBlock& linear, const PackedLayout& layout) {
  const PackedMatrix& w = *linear.weight;
  const int64_t first = linear.group * kGroupWidth;
  constexpr int64_t kOtherPanels = kGroupWidth / kPanelWidth - 1;
  const bool is_near = kReadsGroupAtOnce && linear.num_rows == 1;
  const int64_t inputs_ahead = kBytesAhead / layout.InputBytes(2) * 2;
  for (int64_t input = 0; input < w.num_in; input += kBlockInputs) {
    const int64_t num_inputs = MinOf(kBlockInputs, w.num_in - input);
    const bool is_last = input + num_inputs == w.num_in;
    const int64_t even_inputs = num_inputs + num_inputs % 2;
    const int64_t ahead = is_near ? MinOf(inputs_ahead, even_inputs) : even_inputs;
    const int64_t num_first = even_inputs - ahead;
    // After the last block the next group begins, four panels further.
    const int64_t next =
        layout.InputBytes(even_inputs) + (is_last ? kOtherPanels * layout.PanelBytes(w) : 0);
    const RowBlock block = {
        .x = reinterpret_cast<const float*>(linear.x) + input,
        .x_stride = linear.x_stride / static_cast<int64_t>(sizeof(float)),
        .num_inputs = static_cast<size_t>(num_inputs),
        .outputs = {.out = linear.out,
                    .out_stride = linear.out_stride,
                    .num_columns = MinOf(kGroupWidth, w.num_out - first),
                    .adds = input > 0,
                    .bias = is_last && linear.bias != nullptr ? linear.bias + first : nullptr},
        .num_first = static_cast<size_t>(num_first),
        .bytes_ahead = {layout.InputBytes(ahead), next - layout.InputBytes(num_first)},
    };
    MultiplyParts<Weights>(block, GroupAt(linear, layout, input), linear.num_rows);
  }
}

// --- many rows -----------------------------------------------------------------------------------

// A column of outputs at a time, two vectors (NEON: four), over all inputs. For each block of
// inputs the first part of the rows widens the weights in registers and stores them in scratch for
// the other parts. Sums are also kept in scratch until they are complete: in `out`, where rows are
// often a power of two apart, they would evict each other from the first-level cache.
constexpr int kColumnVectors = VectorsPerRow<kPartRowsMax>();
constexpr int64_t kColumnWidth = int64_t{kColumnVectors} * kLanes;
static_assert(kColumnWidth <= kColumnWidthMax);
// Panels that a column reads.
constexpr int64_t kColumnPanels = kColumnWidth > kPanelWidth ? kColumnWidth / kPanelWidth : 1;

// Reads weights, and stores the widened weights in scratch.
template <class Operand>
struct LeavingOperand {
  Operand from;
  float* scratch;
  template <int kHalf>
  HWY_INLINE Floats Load(size_t k, int v) const {
    const Floats w = from.template Load<kHalf>(k, v);
    hn::Store(w, F32(), scratch + (k + kHalf) * kColumnWidth + v * kLanes);
    return w;
  }
};

// Reads widened weights from scratch. Prefetches the weights needed next, a cache line for each
// pair of inputs, into the second-level cache: the first is full of the scratch.
struct ScratchOperand {
  const float* scratch;
  const std::byte* next;
  template <int kHalf>
  HWY_INLINE Floats Load(size_t k, int v) const {
    if (kHalf == 0 && v == 0) PrefetchStream(next + k * (kCacheLine / 2));
    return hn::Load(F32(), scratch + (k + kHalf) * kColumnWidth + v * kLanes);
  }
};

// The next block's weights, which are prefetched while rows pass over a block: a piece with each
// part of the rows except the first. (After the last group the prefetch has no use.)
constexpr int64_t kPieceBytes = kBlockInputs / 2 * static_cast<int64_t>(kCacheLine);
struct NextWeights {
  const std::byte* first;
  int64_t panel_bytes;
  int64_t pieces_per_panel;
  HWY_INLINE const std::byte* Piece(int64_t part) const {
    const int64_t piece = part % (kColumnPanels * pieces_per_panel);
    return first + piece / pieces_per_panel * panel_bytes + piece % pieces_per_panel * kPieceBytes;
  }
};

// One block of inputs for some rows and the outputs of a column.
struct ColumnBlock {
  const float* x;
  size_t x_stride;
  size_t num_inputs;
  bool adds;    // not the first block of inputs
  float* sums;  // [rows, kColumnWidth]
};

template <int kRows, class Operand>
HWY_NOINLINE void MultiplyColumnRows(const ColumnBlock& b, const Operand& at) {
  // A copy, so that the compiler keeps it in registers.
  const Operand operand = at;
  const F32 d;
  Floats sum[kRows][kColumnVectors];
  SetZero(sum);
  MultiplyAccumulate(b.x, b.x_stride, operand, b.num_inputs, sum);
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    MINISGL_UNROLL for (int v = 0; v < kColumnVectors; ++v) {
      float* const to = b.sums + r * kColumnWidth + v * kLanes;
      const Floats before = b.adds ? hn::Load(d, to) : hn::Zero(d);
      hn::Store(hn::Add(before, sum[r][v]), d, to);
    }
  }
}

// Calls MultiplyColumnRows for `rows`. REQUIRES rows >= kRows.
template <int kRows, class Operand>
HWY_INLINE void MultiplyColumnPart(const ColumnBlock& b, const Operand& operand, int64_t rows) {
  if constexpr (kRows < kPartRowsMax) {
    if (rows > kRows) return MultiplyColumnPart<kRows + 1>(b, operand, rows);
  }
  MultiplyColumnRows<kRows>(b, operand);
}

// Rows of the first part, which stores widened weights: only one number of them is compiled.
constexpr int kFirstRows = kPartRowsMax == kRowsMax ? kRowsMax : 10;

// Multiplies kFirstRows rows, then the others in even parts of at most kPartRowsMax. `out`: where
// their outputs are written after this block, for prefetching; null if this is not the last block.
// REQUIRES more than kFewRowsMax rows.
template <class Operand>
HWY_INLINE void MultiplyColumnBlock(ColumnBlock b, const Operand& weights, const NextWeights& next,
                                    int64_t num_rows, float* scratch, const float* out,
                                    int64_t out_stride) {
  // After a first part of 10, at least 9 rows are left, 13 after one of 6: no even part has fewer.
  constexpr int kRowsMin = kPartRowsMax == kRowsMax ? 4 : 6;
  const int64_t num_parts = 1 + (num_rows - kFirstRows + kPartRowsMax - 1) / kPartRowsMax;
  for (int64_t part = 0; part < num_parts; ++part) {
    const int64_t left = num_parts - part;
    const int64_t rows = part == 0 ? kFirstRows : (num_rows + left - 1) / left;
    if (out != nullptr) {
      FetchOutputs(out, out_stride, rows, kColumnWidth);
      out += rows * out_stride;
    }
    if (part == 0) {
      MultiplyColumnRows<kFirstRows>(b, LeavingOperand<Operand>{weights, scratch});
    } else {
      MultiplyColumnPart<kRowsMin>(b, ScratchOperand{scratch, next.Piece(part)}, rows);
    }
    b.x += static_cast<size_t>(rows) * b.x_stride;
    b.sums += rows * kColumnWidth;
    num_rows -= rows;
  }
}

template <class Weights>
HWY_INLINE void MultiplyManyRows(const LinearBlock& linear, const PackedLayout& layout) {
  const PackedMatrix& w = *linear.weight;
  const int64_t num_columns = MinOf(kGroupWidth, w.num_out - linear.group * kGroupWidth);
  float* const sums = linear.scratch + kBlockInputs * kColumnWidth;
  for (int64_t column = 0; column < num_columns; column += kColumnWidth) {
    for (int64_t input = 0; input < w.num_in; input += kBlockInputs) {
      const ColumnBlock block = {
          .x = reinterpret_cast<const float*>(linear.x) + input,
          .x_stride = static_cast<size_t>(linear.x_stride) / sizeof(float),
          .num_inputs = static_cast<size_t>(MinOf(kBlockInputs, w.num_in - input)),
          .adds = input > 0,
          .sums = sums,
      };
      const bool is_last = input + kBlockInputs >= w.num_in;
      const int64_t next_column = is_last ? column + kColumnWidth : column;
      const NextWeights next = {GroupAt(linear, layout, is_last ? 0 : input + kBlockInputs).base +
                                    next_column / kPanelWidth * layout.PanelBytes(w),
                                layout.PanelBytes(w),
                                layout.InputBytes(kBlockInputs) / kPieceBytes};
      MultiplyColumnBlock(block,
                          MakeOperand<Weights, kColumnVectors, Fetch::kNone>(
                              GroupAt(linear, layout, input), column),
                          next, linear.num_rows, linear.scratch,
                          is_last ? linear.out + column : nullptr, linear.out_stride);
    }
    StoreOutputs(linear, sums, kColumnWidth, column, MinOf(kColumnWidth, num_columns - column));
  }
}

template <class Weights>
HWY_INLINE void MultiplyGroup(const LinearBlock& linear, const PackedLayout& layout) {
  if constexpr (kFewRowsMax < kLinearRowsMax) {
    if (linear.num_rows > kFewRowsMax) return MultiplyManyRows<Weights>(linear, layout);
  }
  MultiplyFewRows<Weights>(linear, layout);
}

void RunLinear(const LinearBlock& linear) {
  switch (linear.weight->format.dtype) {
    case DType::kBF16:
      return MultiplyGroup<Bf16Weights>(linear, {kPanelWidth, 4});
    case DType::kF16:
      return MultiplyGroup<F16Weights>(linear, {2 * kPanelWidth, 2});
    default:
      return MultiplyGroup<F32Weights>(linear, {2 * kPanelWidth, 4});
  }
}

LinearKernel GetLinear() { return {.multiply = RunLinear}; }

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace minisgl::cpu {

const PerTarget<GetLinearKernel>& WidenedLinearKernels() {
  static constexpr PerTarget<GetLinearKernel> kTable = MINISGL_PER_TARGET(GetLinear);
  return kTable;
}

}  // namespace minisgl::cpu
#endif
