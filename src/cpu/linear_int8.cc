// out = x w^T + bias of int8 weights in blocks (weight_format.h), packed as packed_matrix.h says.
//
// x is quantized once for all outputs. Weights are kept as q + 128, so that the instructions that
// multiply unsigned by signed bytes apply; what that adds, 128 times the sum of a block's x, is
// taken off by beginning each block's sum with -128 sum(x).
//
// Order of summation of every output, whatever the number of rows: a block's products as whole
// numbers, exact; times the product of the two scales; blocks added in order, one multiply-add
// after another; then the bias. Every target computes the same whole numbers.
//
// Four inputs ("a quad") of an output are the four bytes of a 32-bit lane. With VNNI one
// instruction adds their products to the lane. Without, weights are widened in registers to two
// vectors of 16-bit numbers, inputs 0 and 2 of a quad and inputs 1 and 3, and x is kept as such
// pairs.
#define MINISGL_NEEDS_VNNI
#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/linear_int8.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/kernels.h"
#include "cpu/simd-inl.h"
#include "tensor/quantize.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET == HWY_AVX3_DL
// Ended, like the target itself, by HWY_AFTER_NAMESPACE. The library names the target for other
// instructions; every processor that has it has this one too.
#pragma GCC target("avx512vnni")
#endif
namespace minisgl {
namespace HWY_NAMESPACE {
namespace {  // linear.cc has its own of some names

using Ints = hn::Vec<hn::RebindToSigned<F32>>;

inline constexpr int64_t kQuads = kQuantBlock / 4;  // of a block
inline constexpr int64_t kQuadBytes = kPanelWidth * 4;
inline constexpr int64_t kOffset = 128;  // of the weights
// How far ahead weights are fetched. A group's panels lie one after another, so that past the end
// of a panel comes its like of the next group.
inline constexpr int64_t kBlocksAhead = 4;
inline constexpr int64_t kOtherPanels = kGroupWidth / kPanelWidth - 1;
// Up to this many rows read the weights once, as they lie. More pass over a part that stays in the
// first-level cache: 256 inputs x 64 outputs are 16 KiB.
inline constexpr int64_t kRowsStreamedMax = 12;
inline constexpr int64_t kCachedBlocks = 8;

#if HWY_TARGET == HWY_AVX3_DL
inline constexpr int64_t kInputBytes = 1;
inline constexpr int kRegisterRows = 6;
// All of a block: of a loop that is left, GCC stores every sum each time.
inline constexpr int kQuadsUnrolled = kQuads;
#else
inline constexpr int64_t kInputBytes = 2;
inline constexpr int kRegisterRows = 4;
inline constexpr int kQuadsUnrolled = 2;
#endif

// Vectors of outputs that share a read of x. With 32 registers those of all four panels of a group;
// with 16 as many as hold their sums, but one row reads four panels at once where it can: the
// processor fetches several streams ahead at a time.
template <int kRows>
constexpr int ColumnVectors() {
#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3
  return 4;
#else
  return kRows == 1 ? 8 : kRows == 2 ? 4 : 2;
#endif
}

// A row of x: [blocks] f32 scales, [blocks] int32 -128 sum(q), then the q's, quads one after
// another; where kInputBytes is 2 in the order 0, 2, 1, 3 of each quad.
struct RowLayout {
  explicit RowLayout(int64_t num_in)
      : num_blocks((num_in + kQuantBlock - 1) / kQuantBlock), q_offset(8 * num_blocks) {}
  int64_t bytes() const { return q_offset + num_blocks * kQuantBlock * kInputBytes; }
  int64_t num_blocks;
  int64_t q_offset;
};

int64_t RowBytes(int64_t num_in) { return RowLayout(num_in).bytes(); }

// The q's of one block of 32 values, its scale, and the sum of the q's (the rules: quantize.h).
HWY_INLINE float QuantizeBlock(const float* x, int32_t* HWY_RESTRICT q, int32_t* sum) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  // Magnitudes as whole numbers, so that a NaN counts as the largest.
  Ints largest = hn::Zero(di);
  for (int64_t i = 0; i < kQuantBlock; i += kLanes) {
    const auto bits = hn::BitCast(di, hn::LoadU(d, x + i));
    largest = hn::Max(largest, hn::And(bits, hn::Set(di, 0x7FFFFFFF)));
  }
  HWY_ALIGN int32_t lanes[kLanes];
  hn::Store(largest, di, lanes);
  int32_t largest_bits = 0;
  for (int i = 0; i < kLanes; ++i) largest_bits = MaxOf(largest_bits, lanes[i]);
  const float magnitude = hn::GetLane(hn::BitCast(d, hn::Set(di, largest_bits)));
  const bool finite = largest_bits < 0x7F800000;
  *sum = 0;
  if (!finite || magnitude < kQuantSmallest) {
    for (int64_t i = 0; i < kQuantBlock; ++i) q[i] = 0;
    return finite ? 0.0f : hn::GetLane(hn::BitCast(d, hn::Set(di, 0x7FC00000)));
  }
  const Floats inverse = hn::Set(d, 127.0f / magnitude);
  Ints total = hn::Zero(di);
  for (int64_t i = 0; i < kQuantBlock; i += kLanes) {
    const Ints rounded = hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), inverse));
    hn::Store(rounded, di, q + i);
    total = hn::Add(total, rounded);
  }
  hn::Store(total, di, lanes);
  for (int i = 0; i < kLanes; ++i) *sum += lanes[i];
  return magnitude / 127.0f;
}

void QuantizeRow(const float* x, int64_t num_in, std::byte* row) {
  const RowLayout layout(num_in);
  auto* const scales = reinterpret_cast<float*>(row);
  auto* const corrections = reinterpret_cast<int32_t*>(row) + layout.num_blocks;
  std::byte* to = row + layout.q_offset;
  for (int64_t block = 0; block < layout.num_blocks; ++block) {
    const int64_t first = block * kQuantBlock;
    HWY_ALIGN float last[kQuantBlock];
    const float* from = x + first;
    if (first + kQuantBlock > num_in) {
      for (int64_t i = 0; i < kQuantBlock; ++i) last[i] = first + i < num_in ? x[first + i] : 0.0f;
      from = last;
    }
    HWY_ALIGN int32_t q[kQuantBlock];
    int32_t sum = 0;
    scales[block] = QuantizeBlock(from, q, &sum);
    corrections[block] = static_cast<int32_t>(-kOffset) * sum;
    if constexpr (kInputBytes == 1) {
      auto* const bytes = reinterpret_cast<int8_t*>(to);
      for (int64_t i = 0; i < kQuantBlock; ++i) bytes[i] = static_cast<int8_t>(q[i]);
    } else {
      auto* const words = reinterpret_cast<int16_t*>(to);
      for (int64_t i = 0; i < kQuantBlock; i += 4) {
        words[i] = static_cast<int16_t>(q[i]);
        words[i + 1] = static_cast<int16_t>(q[i + 2]);
        words[i + 2] = static_cast<int16_t>(q[i + 1]);
        words[i + 3] = static_cast<int16_t>(q[i + 3]);
      }
    }
    to += kQuantBlock * kInputBytes;
  }
}

// One quad of weights of a vector of outputs, as the multiplication wants it.
struct QuadWeights {
#if HWY_TARGET == HWY_AVX3_DL
  HWY_INLINE void Load(const uint8_t* from) {
    all = hn::BitCast(hn::RebindToSigned<F32>(), hn::LoadU(hn::Repartition<uint8_t, F32>(), from));
  }
  // sum += the products with the quad of a row of x.
  HWY_INLINE void MultiplyAdd(const std::byte* x, Ints* sum) const {
    const hn::RebindToSigned<F32> di;
    const auto quad = hn::Set(di, *reinterpret_cast<const int32_t*>(x));
    // Not by its intrinsic, which GCC 12 takes for three operands: a copy and a store of every sum.
    asm("vpdpbusd %2, %1, %0" : "+v"(sum->raw) : "v"(all.raw), "v"(quad.raw));
  }
  Ints all;
#elif HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
  using Words = hn::Repartition<int16_t, F32>;
  HWY_INLINE void Load(const uint8_t* from) {
    const hn::Repartition<uint16_t, F32> du;
    const auto both = hn::BitCast(du, hn::LoadU(hn::Repartition<uint8_t, F32>(), from));
    even = hn::BitCast(Words(), hn::And(both, hn::Set(du, 0x00FF)));
    odd = hn::BitCast(Words(), hn::ShiftRight<8>(both));
  }
  HWY_INLINE void MultiplyAdd(const std::byte* x, Ints* sum) const {
    const hn::RebindToSigned<F32> di;
    const auto* const pairs = reinterpret_cast<const int32_t*>(x);
    // (The second sum stays 0 on x86, where a lane gets its own two products.)
    Ints unused = hn::Zero(di);
    const auto x_even = hn::BitCast(Words(), hn::Set(di, pairs[0]));
    const auto x_odd = hn::BitCast(Words(), hn::Set(di, pairs[1]));
    *sum = hn::ReorderWidenMulAccumulate(di, even, x_even, *sum, unused);
    *sum = hn::ReorderWidenMulAccumulate(di, odd, x_odd, *sum, unused);
    // Keeps the compiler from adding the products of several quads in another order, for which the
    // registers do not suffice.
    asm("" : "+v"(sum->raw));
  }
  hn::Vec<Words> even, odd;
#else
  HWY_INLINE void Load(const uint8_t* from) {
    const hn::RebindToSigned<F32> di;
    const auto all = hn::LoadU(di, reinterpret_cast<const int32_t*>(from));
    const auto byte = hn::Set(di, 0xFF);
    w[0] = hn::And(all, byte);
    w[2] = hn::And(hn::ShiftRight<8>(all), byte);
    w[1] = hn::And(hn::ShiftRight<16>(all), byte);
    w[3] = hn::And(hn::ShiftRight<24>(all), byte);
  }
  HWY_INLINE void MultiplyAdd(const std::byte* x, Ints* sum) const {
    const hn::RebindToSigned<F32> di;
    const auto* const words = reinterpret_cast<const int16_t*>(x);
    MINISGL_UNROLL for (int i = 0; i < 4; ++i) {
      *sum = hn::Add(*sum, hn::Mul(w[i], hn::Set(di, words[i])));
    }
  }
  Ints w[4];  // in the order of x
#endif
};

// Blocks [block_begin, block_end) for some rows and the group's outputs.
struct RowBlocks {
  const std::byte* x;
  int64_t x_stride;
  const PackedMatrix* weight;
  int64_t first_panel;
  int64_t block_begin, block_end;
  float* sums;  // [rows, kGroupWidth]
  int64_t num_columns;
};

// The vectors of kVectors from `column` of the group on. The last group may have fewer panels: then
// its last stands for those missing, whose outputs are not stored.
template <int kVectors>
struct Columns {
  HWY_INLINE Columns(const RowBlocks& b, int64_t column) {
    const int64_t last = (b.weight->num_out - 1) / kPanelWidth;
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      const int64_t at = column + v * kLanes;
      const int64_t panel = MinOf(b.first_panel + at / kPanelWidth, last);
      q[v] = b.weight->int8_panel(panel) + at % kPanelWidth * 4;
      scales[v] = b.weight->int8_scales(panel) + at % kPanelWidth;
    }
  }
  const uint8_t* q[kVectors];
  const uint16_t* scales[kVectors];
};

// sums += x w^T of kRows rows and the outputs from `column` of the group on. Sums lie in memory
// between blocks, so that registers are left for the whole numbers.
template <int kRows, int kVectors>
HWY_INLINE void MultiplyColumns(const RowBlocks& of, int64_t column) {
  // Of its own, so that a store of sums changes nothing in it.
  const RowBlocks b = of;
  float* const HWY_RESTRICT sums = b.sums + column;
  const Columns<kVectors> columns(b, column);
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const hn::RebindToUnsigned<F32> du;
  const hn::Rebind<uint16_t, F32> du16;
  const RowLayout layout(b.weight->num_in);
  for (int64_t block = b.block_begin; block < b.block_end; ++block) {
    Ints dot[kRows][kVectors];
    MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
      const auto* const corrections =
          reinterpret_cast<const int32_t*>(b.x + r * b.x_stride) + layout.num_blocks;
      MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) dot[r][v] = hn::Set(di, corrections[block]);
    }
    const std::byte* const x = b.x + layout.q_offset + block * kQuantBlock * kInputBytes;
    const bool ends = block + kBlocksAhead >= layout.num_blocks;
    const int64_t ahead = kBlocksAhead + (ends ? kOtherPanels * layout.num_blocks : 0);
#pragma GCC unroll kQuadsUnrolled
    for (int64_t quad = 0; quad < kQuads; ++quad) {
      QuadWeights w[kVectors];
      MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
        const uint8_t* const from = columns.q[v] + (block * kQuads + quad) * kQuadBytes;
        if (v * kLanes % kPanelWidth == 0) PrefetchStream(from + ahead * kQuads * kQuadBytes);
        w[v].Load(from);
      }
      MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
        MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
          w[v].MultiplyAdd(x + r * b.x_stride + quad * 4 * kInputBytes, &dot[r][v]);
        }
      }
    }
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      const auto bits = hn::LoadU(du16, columns.scales[v] + block * kPanelWidth);
      const Floats w_scale = hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
      MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
        const float x_scale = reinterpret_cast<const float*>(b.x + r * b.x_stride)[block];
        float* const sum = sums + r * kGroupWidth + v * kLanes;
        const Floats scale = hn::Mul(w_scale, hn::Set(d, x_scale));
        hn::Store(hn::MulAdd(hn::ConvertTo(d, dot[r][v]), scale, hn::Load(d, sum)), d, sum);
      }
    }
  }
}

template <int kRows>
HWY_NOINLINE void MultiplyRows(const RowBlocks& b) {
  constexpr int kVectors = ColumnVectors<kRows>();
  for (int64_t column = 0; column < b.num_columns; column += kVectors * kLanes) {
    MultiplyColumns<kRows, kVectors>(b, column);
  }
}

// Rows in even parts of at most kRegisterRows.
HWY_INLINE void MultiplyAllRows(RowBlocks b, int64_t num_rows) {
  for (int64_t parts = (num_rows + kRegisterRows - 1) / kRegisterRows; parts > 0; --parts) {
    const int64_t rows = (num_rows + parts - 1) / parts;
    switch (rows) {
      case 1:
        MultiplyRows<1>(b);
        break;
      case 2:
        MultiplyRows<2>(b);
        break;
      case 3:
        MultiplyRows<3>(b);
        break;
      case 4:
        MultiplyRows<4>(b);
        break;
#if HWY_TARGET == HWY_AVX3_DL
      case 5:
        MultiplyRows<5>(b);
        break;
      default:
        MultiplyRows<6>(b);
        break;
#endif
    }
    b.x += rows * b.x_stride;
    b.sums += rows * kGroupWidth;
    num_rows -= rows;
  }
}

// out = sums (+ bias) of the group.
void StoreSums(const LinearBlock& linear, int64_t num_columns) {
  const F32 d;
  const float* sums = linear.scratch;
  const float* const bias =
      linear.bias == nullptr ? nullptr : linear.bias + linear.group * kGroupWidth;
  for (int64_t r = 0; r < linear.num_rows; ++r, sums += kGroupWidth) {
    float* const to = linear.out + r * linear.out_stride;
    int64_t i = 0;
    for (; i + kLanes <= num_columns; i += kLanes) {
      const Floats sum = hn::Load(d, sums + i);
      hn::StoreU(bias == nullptr ? sum : hn::Add(sum, hn::LoadU(d, bias + i)), d, to + i);
    }
    for (; i < num_columns; ++i) to[i] = bias == nullptr ? sums[i] : sums[i] + bias[i];
  }
}

void RunInt8(const LinearBlock& linear) {
  const PackedMatrix& w = *linear.weight;
  const int64_t first = linear.group * kGroupWidth;
  const int64_t num_blocks = RowLayout(w.num_in).num_blocks;
  const int64_t num_columns = MinOf(kGroupWidth, w.num_out - first);
  static_assert(kLinearScratchFloats >= kGroupWidth * kLinearRowsMax);
  const F32 d;
  for (int64_t i = 0; i < linear.num_rows * kGroupWidth; i += kLanes) {
    hn::Store(hn::Zero(d), d, linear.scratch + i);
  }
  const int64_t step = linear.num_rows > kRowsStreamedMax ? kCachedBlocks : num_blocks;
  for (int64_t block = 0; block < num_blocks; block += step) {
    MultiplyAllRows({.x = linear.x,
                     .x_stride = linear.x_stride,
                     .weight = &w,
                     .first_panel = first / kPanelWidth,
                     .block_begin = block,
                     .block_end = MinOf(num_blocks, block + step),
                     .sums = linear.scratch,
                     .num_columns = num_columns},
                    linear.num_rows);
  }
  StoreSums(linear, num_columns);
}

}  // namespace

LinearKernel GetInt8() {
  return {.multiply = RunInt8, .prepare = QuantizeRow, .row_bytes = RowBytes};
}

}  // namespace HWY_NAMESPACE
}  // namespace minisgl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace minisgl {

const PerTarget<GetLinearKernel>& Int8LinearKernels() {
  static constexpr PerTarget<GetLinearKernel> kTable = MINISGL_PER_TARGET(GetInt8);
  return kTable;
}

}  // namespace minisgl
#endif
