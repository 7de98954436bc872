// out = x w^T + bias for weights of 8-bit integers in CodeOrder::kQuads (coded_matrix.h), whose
// groups are whole blocks of 32 inputs.
//
// x is quantized once for all outputs, as weight_format.h says.
//
// Order of summation of every output, whatever the number of rows: a block's products as integers,
// exact; times the product of the two scales; blocks added in order, one multiply-add after
// another; then the bias. Every target computes the same integers.
//
// Four inputs ("a quad") of an output are the four bytes of a 32-bit lane. With VNNI one
// instruction adds their products to the lane. It multiplies unsigned by signed bytes: 128 is added
// to the weights, and each block's sum begins with -128 sum(x), which cancels it. Without VNNI, x
// is stored as 16-bit integers (inputs 0 and 2 of a quad, then 1 and 3), and weights are widened to
// two vectors of such pairs: in registers if there are few rows, once for all rows if there are
// many.
#define MINISGL_NEEDS_VNNI
#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/linear_int8.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <bit>

#include "cpu/kernels/code_factors-inl.h"
#include "cpu/kernels/int8_row-inl.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/linear_output-inl.h"
#include "cpu/kernels/simd-inl.h"

MINISGL_BEFORE_NAMESPACE_WITH_VNNI();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {
namespace {

inline constexpr int64_t kQuads = kQuantBlock / 4;  // quads of a block
inline constexpr int64_t kQuadBytes = kPanelWidth * 4;
inline constexpr int64_t kBlockBytes = kQuads * kQuadBytes;  // of a panel
// Prefetch distance. kOtherPanels: a group's panels follow one another, so the same panel of the
// next group begins three panels past the end of a panel.
inline constexpr int64_t kBlocksAhead = 4;
inline constexpr int64_t kOtherPanels = kGroupWidth / kPanelWidth - 1;
// Up to this many rows pass over all weights at once. More rows pass over kCachedBlocks blocks at a
// time, which stay in the first-level cache: 256 inputs x 64 outputs are 16 KiB. (If weights are
// widened once for all rows, the limit is kPartRowsMax.)
inline constexpr int64_t kRowsStreamedMax = 12;
inline constexpr int64_t kCachedBlocks = 8;

#if HWY_TARGET == HWY_AVX3_DL
inline constexpr int kRegisterRows = 6;
// All of a block: if a loop is left, GCC stores every sum in each iteration.
inline constexpr int kQuadsUnrolled = kQuads;
#else
inline constexpr int kRegisterRows = kIsFallback ? 1 : 4;
inline constexpr int kQuadsUnrolled = 2;
#endif

// Vectors of outputs that share a read of x. With 32 registers: all four panels of a group. With
// 16: as many as the registers hold sums for; one row reads four panels at once if it can, as the
// hardware prefetcher follows several streams.
template <int kRows>
constexpr int ColumnVectors() {
#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3
  return 4;
#else
  return kIsFallback ? 2 : kRows == 1 ? 8 : kRows == 2 ? 4 : 2;
#endif
}

#ifdef MINISGL_INT8_PAIRS
using Words = hn::Repartition<int16_t, F32>;

// sum += the products of pairs of weights with one pair of x.
HWY_INLINE void AddPairs(hn::Vec<Words> w, int32_t pair, Ints* sum) {
  const hn::RebindToSigned<F32> di;
  // The second sum stays 0 on x86, where a lane gets its own two products.
  Ints unused = hn::Zero(di);
  *sum =
      hn::ReorderWidenMulAccumulate(di, w, hn::BitCast(Words(), hn::Set(di, pair)), *sum, unused);
  // Keeps the compiler from reordering the additions, which would need more registers than there
  // are.
  asm("" : "+v"(sum->raw));
}
#endif

// One quad of weights for a vector of outputs, in the form that the multiplication takes.
struct QuadWeights {
#if HWY_TARGET == HWY_AVX3_DL
  HWY_INLINE void Load(const std::byte* from) {
    const hn::RebindToSigned<F32> di;
    const Ints codes = hn::LoadU(di, reinterpret_cast<const int32_t*>(from));
    all = hn::Xor(codes, hn::Set(di, static_cast<int32_t>(0x80808080)));
  }
  // sum += the products with the quad of a row of x.
  HWY_INLINE void MultiplyAdd(const std::byte* x, Ints* sum) const {
    const hn::RebindToSigned<F32> di;
    const auto quad = hn::Set(di, *reinterpret_cast<const int32_t*>(x));
    // Assembler, because GCC 12 compiles the intrinsic to a copy and a store of every sum.
    asm("vpdpbusd %2, %1, %0" : "+v"(sum->raw) : "v"(all.raw), "v"(quad.raw));
  }
  Ints all;
#elif defined(MINISGL_INT8_PAIRS)
  HWY_INLINE void Load(const std::byte* from) {
    const auto both = hn::LoadU(Words(), reinterpret_cast<const int16_t*>(from));
    even = hn::ShiftLeft<8>(both);
    odd = hn::And(both, hn::Set(Words(), static_cast<int16_t>(0xFF00)));
  }
  HWY_INLINE void MultiplyAdd(const std::byte* x, Ints* sum) const {
    const auto* const pairs = reinterpret_cast<const int32_t*>(x);
    AddPairs(even, pairs[0], sum);
    AddPairs(odd, pairs[1], sum);
  }
  hn::Vec<Words> even, odd;  // 256 times the weights
#else
  HWY_INLINE void Load(const std::byte* from) {
    const auto all = hn::LoadU(hn::RebindToSigned<F32>(), reinterpret_cast<const int32_t*>(from));
    // Each byte at the top, and down again with its sign.
    w[0] = hn::ShiftRight<24>(hn::ShiftLeft<24>(all));
    w[2] = hn::ShiftRight<24>(hn::ShiftLeft<16>(all));
    w[1] = hn::ShiftRight<24>(hn::ShiftLeft<8>(all));
    w[3] = hn::ShiftRight<24>(all);
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

// The layout of a matrix, computed once for all blocks.
struct QuadsLayout {
  explicit QuadsLayout(const CodedMatrix& m)
      : codes(m.codes(0)),
        panel_bytes(m.panel_bytes()),
        last_panel(m.num_panels() - 1),
        num_blocks(Int8RowLayout(m.num_in).num_blocks),
        factors(m),
        scale_type(factors.HasSteps() ? DType::kF32 : factors.type),
        // All blocks are in the first group if there is one.
        group_shift(m.num_groups() == 1 ? 62 : std::countr_zero(BlocksOfGroup(m))) {}
  static uint64_t BlocksOfGroup(const CodedMatrix& m) {
    return static_cast<uint64_t>(m.group_inputs / kQuantBlock);
  }
  HWY_INLINE int64_t GroupOf(int64_t block) const { return block >> group_shift; }

  const std::byte* codes;
  int64_t panel_bytes;
  int64_t last_panel;
  int64_t num_blocks;
  FactorLayout factors;
  DType scale_type;  // kF32 if scales have steps
  int group_shift;   // log2 of the blocks of a group
};

// Blocks [block_begin, block_end) for some rows and the group's outputs.
struct RowBlocks {
  const std::byte* x;
  int64_t x_stride;
  const QuadsLayout* weight;
  int64_t first_panel;
  int64_t block_begin, block_end;
  float* sums;  // [rows, kGroupWidth]
  int64_t num_columns;
};

// kVectors vectors of outputs, from `column` of the group on. The last group may have fewer panels;
// missing ones alias the last panel, and their outputs are discarded.
template <int kVectors>
struct Columns {
  HWY_INLINE Columns(const QuadsLayout& weight, int64_t first_panel, int64_t column) {
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      const int64_t at = column + v * kLanes;
      const int64_t panel = MinOf(first_panel + at / kPanelWidth, weight.last_panel);
      q[v] = weight.codes + panel * weight.panel_bytes + at % kPanelWidth * 4;
      scales[v] = weight.factors.scales_of(panel);
    }
  }
  const std::byte* q[kVectors];       // of the vector's first output
  const std::byte* scales[kVectors];  // of its panel
};

// The scales of the weights of a group, for a vector of outputs from `lane` of a panel on. kType:
// their type; kF32: any, with or without steps.
template <DType kType>
HWY_INLINE Floats WeightScales(const FactorLayout& layout, const std::byte* of_panel, int64_t group,
                               int64_t lane) {
  if constexpr (kType == DType::kF32) return FactorsAt(layout, of_panel, group, lane);
  return WidenFactors<kType>(of_panel, group * kPanelWidth + lane);
}

// sums[r] += the integers of dot[r] times the block's two scales, for vector `v` of outputs.
// `x_scales` points at the block's scales of x.
template <int kRows, int kVectors>
HWY_INLINE void AddScaled(const Ints (&dot)[kRows][kVectors], int v, Floats w_scale,
                          const RowPointers<kRows>& x_scales, float* HWY_RESTRICT sums,
                          int64_t sums_stride) {
  const F32 d;
  MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
    float* const sum = sums + r * sums_stride + v * kLanes;
    const Floats scale = hn::Mul(w_scale, hn::Set(d, x_scales.At(r, 0)));
    const Floats integers = hn::ConvertTo(d, hn::ShiftRight<kWeightShift>(dot[r][v]));
    hn::Store(hn::MulAdd(integers, scale, hn::Load(d, sum)), d, sum);
  }
}

// sums += x w^T for kRows rows and the outputs from `column` of the group on. Sums are in memory
// between blocks, which leaves the registers to the integers.
template <DType kType, int kRows, int kVectors>
HWY_INLINE void MultiplyColumns(const RowBlocks& of, int64_t column) {
  // A copy, so that no store of sums can alias it.
  const RowBlocks b = of;
  const QuadsLayout weight = *of.weight;
  float* const HWY_RESTRICT sums = b.sums + column;
  const Columns<kVectors> columns(weight, b.first_panel, column);
  const hn::RebindToSigned<F32> di;
  const Int8RowLayout layout(weight.num_blocks * kQuantBlock);
  const auto x_stride = static_cast<size_t>(b.x_stride) / sizeof(float);
  for (int64_t block = b.block_begin; block < b.block_end; ++block) {
    Ints dot[kRows][kVectors];
    MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
      const auto* const corrections =
          reinterpret_cast<const int32_t*>(b.x + r * b.x_stride) + layout.num_blocks;
      const Ints first = kWeightOffset == 0 ? hn::Zero(di) : hn::Set(di, corrections[block]);
      MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) dot[r][v] = first;
    }
    const std::byte* const x = b.x + layout.q_offset + block * kQuantBlock * kInputBytes;
    const bool ends = block + kBlocksAhead >= layout.num_blocks;
    const int64_t ahead =
        kBlocksAhead * kBlockBytes + (ends ? kOtherPanels * weight.panel_bytes : 0);
#pragma GCC unroll kQuadsUnrolled
    for (int64_t quad = 0; quad < kQuads; ++quad) {
      const std::byte* const of_quad = x + quad * 4 * kInputBytes;
      const auto load = [&](int v) {
        const std::byte* const from = columns.q[v] + block * kBlockBytes + quad * kQuadBytes;
        if (v * kLanes % kPanelWidth == 0) PrefetchStream(from + ahead);
        QuadWeights weights;
        weights.Load(from);
        return weights;
      };
      if constexpr (kRows == 1) {
        // One after another, because the registers may not hold all of them.
        MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) load(v).MultiplyAdd(of_quad, &dot[0][v]);
        continue;
      }
      QuadWeights w[kVectors];
      MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) w[v] = load(v);
      MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
        MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
          w[v].MultiplyAdd(of_quad + r * b.x_stride, &dot[r][v]);
        }
      }
    }
    const RowPointers<kRows> x_scales(reinterpret_cast<const float*>(b.x) + block, x_stride);
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      const Floats scale =
          WeightScales<kType>(weight.factors, columns.scales[v], weight.GroupOf(block),
                              (column + v * kLanes) % kPanelWidth);
      AddScaled(dot, v, scale, x_scales, sums, kGroupWidth);
    }
  }
}

template <DType kType, int kRows>
HWY_NOINLINE void MultiplyRowsOf(const RowBlocks& b) {
  constexpr int kVectors = ColumnVectors<kRows>();
  for (int64_t column = 0; column < b.num_columns; column += kVectors * kLanes) {
    MultiplyColumns<kType, kRows, kVectors>(b, column);
  }
}

template <int kRows>
HWY_INLINE void MultiplyRows(const RowBlocks& b) {
  if constexpr (!kIsFallback) {
    if (b.weight->scale_type == DType::kBF16) return MultiplyRowsOf<DType::kBF16, kRows>(b);
    if (b.weight->scale_type == DType::kF16) return MultiplyRowsOf<DType::kF16, kRows>(b);
  }
  MultiplyRowsOf<DType::kF32, kRows>(b);
}

// Calls MultiplyRows for `rows`. REQUIRES rows >= kRows.
template <int kRows>
HWY_INLINE void MultiplyPart(const RowBlocks& b, int64_t rows) {
  if constexpr (kRows < kRegisterRows) {
    if (rows > kRows) return MultiplyPart<kRows + 1>(b, rows);
  }
  MultiplyRows<kRows>(b);
}

// Multiplies rows in even parts of at most kRegisterRows.
HWY_INLINE void MultiplyAllRows(RowBlocks b, int64_t num_rows) {
  for (int64_t parts = (num_rows + kRegisterRows - 1) / kRegisterRows; parts > 0; --parts) {
    const int64_t rows = (num_rows + parts - 1) / parts;
    MultiplyPart<1>(b, rows);
    b.x += rows * b.x_stride;
    b.sums += rows * kGroupWidth;
    num_rows -= rows;
  }
}

// --- many rows, by pairs of 16-bit numbers -------------------------------------------------------

#ifdef MINISGL_INT8_PAIRS

// A column of outputs, two vectors, at a time over all inputs. The weights and scales of some
// blocks are widened once and stored in scratch, in the first-level cache, while all rows pass over
// them. Without widening more registers are free for rows.
constexpr int kColumnVectors = 2;
constexpr int64_t kColumnWidth = int64_t{kColumnVectors} * kLanes;
// Panels that a column reads.
constexpr int64_t kColumnPanels = kColumnWidth > kPanelWidth ? kColumnWidth / kPanelWidth : 1;
// Maximum number of rows that share a read of the widened weights, with 32 or 16 registers.
constexpr int kPartRowsMax = HWY_TARGET == HWY_AVX3 ? 12 : 6;
constexpr int64_t kPairs = kQuantBlock / 2;  // pairs of a block
constexpr int64_t kWidenedBytes = kCachedBlocks * kQuantBlock * kColumnWidth * 2;
static_assert(kColumnWidth <= kColumnWidthMax);
constexpr int64_t kWidenedScales = kCachedBlocks * kColumnWidth;
static_assert(kWidenedBytes / 4 + kWidenedScales + kColumnWidth * kLinearRowsMax <=
              kLinearScratchFloats);

// Some blocks for some rows and a column of outputs.
struct ColumnBlocks {
  const std::byte* x;
  int64_t x_stride;
  int64_t num_blocks;  // of a whole row
  int64_t block_begin, block_end;
  const std::byte* widened;  // [pairs of these blocks, kColumnVectors] vectors
  const float* scales;       // [these blocks, kColumnWidth]
  float* sums;               // [rows, kColumnWidth]
  // The weights of the next blocks: a piece is prefetched with each part of the rows.
  const std::byte* next[kColumnPanels];
  int64_t piece;
};
// The minimum number of parts.
constexpr int64_t kPieces = 2;
static_assert(kQuads % kPieces == 0);

// Prefetches the cache lines of one of the next blocks that belong to the piece.
HWY_INLINE void FetchPiece(const ColumnBlocks& b, int64_t block) {
  constexpr int64_t kLines = kQuads / kPieces;
  const int64_t first = (block - b.block_begin) * kQuads + b.piece * kLines;
  MINISGL_UNROLL for (int panel = 0; panel < kColumnPanels; ++panel) {
    MINISGL_UNROLL for (int64_t line = 0; line < kLines; ++line) {
      PrefetchStream(b.next[panel] + (first + line) * kQuadBytes);
    }
  }
}

// Stores the widened scales of some blocks of the column in `to`.
HWY_INLINE void WidenScales(const QuadsLayout& weight, const Columns<kColumnVectors>& columns,
                            int64_t column, int64_t block_begin, int64_t block_end, float* to) {
  for (int64_t block = block_begin; block < block_end; ++block) {
    const int64_t group = weight.GroupOf(block);
    MINISGL_UNROLL for (int v = 0; v < kColumnVectors; ++v, to += kLanes) {
      const int64_t lane = (column + v * kLanes) % kPanelWidth;
      hn::Store(FactorsAt(weight.factors, columns.scales[v], group, lane), F32(), to);
    }
  }
}

// Stores the widened weights of some blocks of the column in `to`.
HWY_INLINE void WidenBlocks(const Columns<kColumnVectors>& columns, int64_t block_begin,
                            int64_t block_end, std::byte* to) {
  auto* words = reinterpret_cast<int16_t*>(to);
  constexpr int64_t kWords = kLanes * 2;  // words of a vector
  for (int64_t quad = block_begin * kQuads; quad < block_end * kQuads; ++quad) {
    MINISGL_UNROLL for (int v = 0; v < kColumnVectors; ++v) {
      QuadWeights w;
      w.Load(columns.q[v] + quad * kQuadBytes);
      hn::Store(w.even, Words(), words + v * kWords);
      hn::Store(w.odd, Words(), words + (kColumnVectors + v) * kWords);
    }
    words += 2 * kColumnVectors * kWords;
  }
}

template <int kRows>
HWY_NOINLINE void MultiplyWidened(const ColumnBlocks& of) {
  const ColumnBlocks b = of;
  float* const HWY_RESTRICT sums = b.sums;
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const Int8RowLayout layout(b.num_blocks * kQuantBlock);
  const float* scales = b.scales;
  const auto* weights = reinterpret_cast<const int16_t*>(b.widened);
  const auto x_stride = static_cast<size_t>(b.x_stride) / sizeof(float);
  RowPointers<kRows, int32_t> pairs(
      reinterpret_cast<const int32_t*>(b.x + layout.q_offset) + b.block_begin * kPairs, x_stride);
  RowPointers<kRows, float> x_scales(reinterpret_cast<const float*>(b.x) + b.block_begin, x_stride);
  for (int64_t block = b.block_begin; block < b.block_end; ++block) {
    Ints dot[kRows][kColumnVectors];
    MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
      MINISGL_UNROLL for (int v = 0; v < kColumnVectors; ++v) dot[r][v] = hn::Zero(di);
    }
    FetchPiece(b, block);
#pragma GCC unroll kPairs
    for (int64_t pair = 0; pair < kPairs; ++pair) {
      hn::Vec<Words> w[kColumnVectors];
      MINISGL_UNROLL for (int v = 0; v < kColumnVectors; ++v) {
        w[v] = hn::Load(Words(), weights + v * kLanes * 2);
      }
      MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
        MINISGL_UNROLL for (int v = 0; v < kColumnVectors; ++v) {
          AddPairs(w[v], pairs.At(r, 0), &dot[r][v]);
        }
      }
      weights += kColumnVectors * kLanes * 2;
      pairs.Advance(1);
    }
    MINISGL_UNROLL for (int v = 0; v < kColumnVectors; ++v, scales += kLanes) {
      AddScaled(dot, v, hn::Load(d, scales), x_scales, sums, kColumnWidth);
    }
    x_scales.Advance(1);
  }
}

// Calls MultiplyWidened for `rows`. REQUIRES rows >= kRows.
template <int kRows>
HWY_INLINE void MultiplyWidenedPart(const ColumnBlocks& b, int64_t rows) {
  if constexpr (kRows < kPartRowsMax) {
    if (rows > kRows) return MultiplyWidenedPart<kRows + 1>(b, rows);
  }
  MultiplyWidened<kRows>(b);
}

// Multiplies rows in even parts of at most kPartRowsMax. REQUIRES more rows than that, so that no
// part has fewer than half of it. `out`: where their outputs are written after these blocks, for
// prefetching; null if these are not the last blocks.
HWY_INLINE void MultiplyWidenedRows(ColumnBlocks b, int64_t num_rows, const float* out,
                                    int64_t out_stride) {
  for (int64_t parts = (num_rows + kPartRowsMax - 1) / kPartRowsMax; parts > 0; --parts) {
    const int64_t rows = (num_rows + parts - 1) / parts;
    if (out != nullptr) {
      FetchOutputs(out, out_stride, rows, kColumnWidth);
      out += rows * out_stride;
    }
    MultiplyWidenedPart<kPartRowsMax / 2>(b, rows);
    b.x += rows * b.x_stride;
    b.sums += rows * kColumnWidth;
    b.piece = (b.piece + 1) % kPieces;
    num_rows -= rows;
  }
}

void RunManyRows(const LinearBlock& linear, const QuadsLayout& weight, int64_t num_columns) {
  const int64_t first_panel = linear.group * kGroupWidth / kPanelWidth;
  auto* const widened = reinterpret_cast<std::byte*>(linear.scratch);
  float* const scales = linear.scratch + kWidenedBytes / 4;
  float* const sums = scales + kWidenedScales;
  for (int64_t column = 0; column < num_columns; column += kColumnWidth) {
    const F32 d;
    for (int64_t i = 0; i < linear.num_rows * kColumnWidth; i += kLanes) {
      hn::Store(hn::Zero(d), d, sums + i);
    }
    const Columns<kColumnVectors> columns(weight, first_panel, column);
    for (int64_t block = 0; block < weight.num_blocks; block += kCachedBlocks) {
      const int64_t end = MinOf(weight.num_blocks, block + kCachedBlocks);
      WidenScales(weight, columns, column, block, end, scales);
      WidenBlocks(columns, block, end, widened);
      ColumnBlocks blocks = {.x = linear.x,
                             .x_stride = linear.x_stride,
                             .num_blocks = weight.num_blocks,
                             .block_begin = block,
                             .block_end = end,
                             .widened = widened,
                             .scales = scales,
                             .sums = sums,
                             .next = {},
                             .piece = 0};
      // After a column the next column's panels begin. (After the last column, and if a column is
      // half a panel, whose other half is already in the cache, the prefetch has no use.)
      const bool ends = end == weight.num_blocks;
      const int64_t next = ends ? kColumnPanels * weight.panel_bytes : end * kBlockBytes;
      for (int64_t panel = 0; panel < kColumnPanels; ++panel) {
        blocks.next[panel] = columns.q[panel * kPanelWidth / kLanes] + next;
      }
      MultiplyWidenedRows(blocks, linear.num_rows, ends ? linear.out + column : nullptr,
                          linear.out_stride);
    }
    StoreOutputs(linear, sums, kColumnWidth, column, MinOf(kColumnWidth, num_columns - column));
  }
}
#endif

void RunInt8(const LinearBlock& linear) {
  const CodedMatrix& m = *linear.weight->coded;
  const QuadsLayout weight(m);
  const int64_t first = linear.group * kGroupWidth;
  const int64_t num_columns = MinOf(kGroupWidth, m.num_out - first);
#ifdef MINISGL_INT8_PAIRS
  if (linear.num_rows > kPartRowsMax) return RunManyRows(linear, weight, num_columns);
#endif
  static_assert(kLinearScratchFloats >= kGroupWidth * kLinearRowsMax);
  const F32 d;
  for (int64_t i = 0; i < linear.num_rows * kGroupWidth; i += kLanes) {
    hn::Store(hn::Zero(d), d, linear.scratch + i);
  }
  const int64_t step = linear.num_rows > kRowsStreamedMax ? kCachedBlocks : weight.num_blocks;
  for (int64_t block = 0; block < weight.num_blocks; block += step) {
    MultiplyAllRows({.x = linear.x,
                     .x_stride = linear.x_stride,
                     .weight = &weight,
                     .first_panel = first / kPanelWidth,
                     .block_begin = block,
                     .block_end = MinOf(weight.num_blocks, block + step),
                     .sums = linear.scratch,
                     .num_columns = num_columns},
                    linear.num_rows);
  }
  StoreOutputs(linear, linear.scratch, kGroupWidth, 0, num_columns);
}

}  // namespace

LinearKernel GetInt8() {
  return {.multiply_codes = RunInt8,
          .codes_order = CodeOrder::kQuads,
          .codes_rows_max = kLinearRowsMax,
          .prepare = QuantizeInt8Row,
          .row_bytes = Int8RowBytes};
}

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace minisgl::cpu {

const PerTarget<GetLinearKernel>& Int8LinearKernels() {
  static constexpr PerTarget<GetLinearKernel> kTable = MINISGL_PER_TARGET(GetInt8);
  return kTable;
}

}  // namespace minisgl::cpu
#endif
