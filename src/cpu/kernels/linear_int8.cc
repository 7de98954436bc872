// out = x w^T + bias for int8 weights in blocks (weight_format.h), packed as in packed_matrix.h.
//
// x is quantized once for all outputs. Weights are stored as q + 128 for the instructions that
// multiply unsigned by signed bytes. Each block's sum begins with -128 sum(x), which cancels the
// offset.
//
// Order of summation of every output, whatever the number of rows: a block's products as integers,
// exact; times the product of the two scales; blocks added in order, one multiply-add after
// another; then the bias. Every target computes the same integers.
//
// Four inputs ("a quad") of an output are the four bytes of a 32-bit lane. With VNNI one
// instruction adds their products to the lane. Without VNNI, x is stored as 16-bit integers (inputs
// 0 and 2 of a quad, then 1 and 3), and weights are widened to two vectors of such pairs: in
// registers if there are few rows, once for all rows if there are many.
#define MINISGL_NEEDS_VNNI
#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/linear_int8.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/linear_output-inl.h"
#include "cpu/kernels/quantize_block-inl.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET == HWY_AVX3_DL
// HWY_AFTER_NAMESPACE ends this, like the target itself. The library defines the target by other
// instructions; every processor that has those has VNNI too.
#pragma GCC target("avx512vnni")
#endif
namespace minisgl::cpu {
namespace HWY_NAMESPACE {
namespace {

inline constexpr int64_t kQuads = kQuantBlock / 4;  // quads of a block
inline constexpr int64_t kQuadBytes = kPanelWidth * 4;
inline constexpr int64_t kOffset = 128;  // added to the weights
// Prefetch distance. kOtherPanels: a group's panels follow one another, so the same panel of the
// next group begins three panels past the end of a panel.
inline constexpr int64_t kBlocksAhead = 4;
inline constexpr int64_t kOtherPanels = kGroupWidth / kPanelWidth - 1;
// Up to this many rows pass over all weights at once. More rows pass over kCachedBlocks blocks at a
// time, which stay in the first-level cache: 256 inputs x 64 outputs are 16 KiB. (If weights are
// widened once for all rows, the limit is kPartRowsMax.)
inline constexpr int64_t kRowsStreamedMax = 12;
inline constexpr int64_t kCachedBlocks = 8;

// Targets that multiply pairs of 16-bit integers and add the two products.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
#define MINISGL_INT8_PAIRS 1
#endif

#if HWY_TARGET == HWY_AVX3_DL
inline constexpr int64_t kInputBytes = 1;
inline constexpr int kRegisterRows = 6;
// All of a block: if a loop is left, GCC stores every sum in each iteration.
inline constexpr int kQuadsUnrolled = kQuads;
#else
inline constexpr int64_t kInputBytes = 2;
inline constexpr int kRegisterRows = 4;
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
  return kRows == 1 ? 8 : kRows == 2 ? 4 : 2;
#endif
}

// A quantized row of x: [blocks] f32 scales, [blocks] int32 -128 sum(q), then the q's quad by quad;
// if kInputBytes is 2, in the order 0, 2, 1, 3 within a quad.
struct RowLayout {
  explicit RowLayout(int64_t num_in)
      : num_blocks((num_in + kQuantBlock - 1) / kQuantBlock), q_offset(8 * num_blocks) {}
  int64_t bytes() const { return q_offset + num_blocks * kQuantBlock * kInputBytes; }
  int64_t num_blocks;
  int64_t q_offset;
};

int64_t RowBytes(int64_t num_in) { return RowLayout(num_in).bytes(); }

#ifdef MINISGL_INT8_PAIRS
// The pairs of 16-bit words (0, 2) and (1, 3) of every quad of q's, in the first half of the quad's
// lanes.
HWY_INLINE auto PairQuads(const int32_t* q) {
  const hn::RebindToSigned<F32> di;
  const Ints quads = hn::Load(di, q);
  const Ints pairs =
      hn::Or(hn::And(quads, hn::Set(di, 0xFFFF)), hn::ShiftLeft<16>(hn::Shuffle1032(quads)));
  return hn::BitCast(hn::Repartition<int64_t, F32>(), pairs);
}
#endif

// Stores a block's q's as 16-bit words, in the order 0, 2, 1, 3 within each quad.
HWY_INLINE void StoreWords(const int32_t* HWY_RESTRICT q, int16_t* HWY_RESTRICT words) {
#ifdef MINISGL_INT8_PAIRS
  const hn::Repartition<int64_t, F32> d64;
  for (int64_t i = 0; i < kQuantBlock; i += 2 * kLanes) {
    const auto both = hn::ConcatEven(d64, PairQuads(q + i + kLanes), PairQuads(q + i));
    hn::StoreU(both, d64, reinterpret_cast<int64_t*>(words + i));
  }
#else
  constexpr int kOrder[] = {0, 2, 1, 3};
  for (int64_t i = 0; i < kQuantBlock; ++i) {
    words[i] = static_cast<int16_t>(q[i / 4 * 4 + kOrder[i % 4]]);
  }
#endif
}

void QuantizeRow(const float* x, int64_t num_in, std::byte* row) {
  const RowLayout layout(num_in);
  auto* const scales = reinterpret_cast<float*>(row);
  auto* const corrections = reinterpret_cast<int32_t*>(row) + layout.num_blocks;
  std::byte* to = row + layout.q_offset;
  for (int64_t block = 0; block < layout.num_blocks; ++block) {
    HWY_ALIGN int32_t q[kQuantBlock];
    scales[block] = QuantizeBlockOf(x, num_in, block, q);
    int32_t sum = 0;
    for (int64_t i = 0; i < kQuantBlock; ++i) sum += q[i];
    corrections[block] = static_cast<int32_t>(-kOffset) * sum;
    if constexpr (kInputBytes == 1) {
      auto* const bytes = reinterpret_cast<int8_t*>(to);
      for (int64_t i = 0; i < kQuantBlock; ++i) bytes[i] = static_cast<int8_t>(q[i]);
    } else {
      StoreWords(q, reinterpret_cast<int16_t*>(to));
    }
    to += kQuantBlock * kInputBytes;
  }
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
  HWY_INLINE void Load(const uint8_t* from) {
    all = hn::BitCast(hn::RebindToSigned<F32>(), hn::LoadU(hn::Repartition<uint8_t, F32>(), from));
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
  HWY_INLINE void Load(const uint8_t* from) {
    const hn::Repartition<uint16_t, F32> du;
    const auto both = hn::BitCast(du, hn::LoadU(hn::Repartition<uint8_t, F32>(), from));
    even = hn::BitCast(Words(), hn::And(both, hn::Set(du, 0x00FF)));
    odd = hn::BitCast(Words(), hn::ShiftRight<8>(both));
  }
  HWY_INLINE void MultiplyAdd(const std::byte* x, Ints* sum) const {
    const auto* const pairs = reinterpret_cast<const int32_t*>(x);
    AddPairs(even, pairs[0], sum);
    AddPairs(odd, pairs[1], sum);
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

// kVectors vectors of outputs, from `column` of the group on. The last group may have fewer panels;
// missing ones alias the last panel, and their outputs are discarded.
template <int kVectors>
struct Columns {
  HWY_INLINE Columns(const PackedMatrix& weight, int64_t first_panel, int64_t column) {
    const int64_t last = (weight.num_out - 1) / kPanelWidth;
    MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
      const int64_t at = column + v * kLanes;
      const int64_t panel = MinOf(first_panel + at / kPanelWidth, last);
      q[v] = weight.int8_panel(panel) + at % kPanelWidth * 4;
      scales[v] = weight.int8_scales(panel) + at % kPanelWidth;
    }
  }
  const uint8_t* q[kVectors];
  const uint16_t* scales[kVectors];
};

// sums[r] += dot[r] times the block's two scales. `w_scales`: the weights' scales, a pointer for
// each vector; `x_scales` points at the block's scales of x.
template <int kRows, int kVectors>
HWY_INLINE void AddBlock(const Ints (&dot)[kRows][kVectors],
                         const uint16_t* const (&w_scales)[kVectors], int64_t block,
                         const RowPointers<kRows>& x_scales, float* HWY_RESTRICT sums,
                         int64_t sums_stride) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  const hn::Rebind<uint16_t, F32> du16;
  MINISGL_UNROLL for (int v = 0; v < kVectors; ++v) {
    const auto bits = hn::LoadU(du16, w_scales[v] + block * kPanelWidth);
    const Floats w_scale = hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
    MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
      float* const sum = sums + r * sums_stride + v * kLanes;
      const Floats scale = hn::Mul(w_scale, hn::Set(d, x_scales.At(r, 0)));
      hn::Store(hn::MulAdd(hn::ConvertTo(d, dot[r][v]), scale, hn::Load(d, sum)), d, sum);
    }
  }
}

// sums += x w^T for kRows rows and the outputs from `column` of the group on. Sums are in memory
// between blocks, which leaves the registers to the integers.
template <int kRows, int kVectors>
HWY_INLINE void MultiplyColumns(const RowBlocks& of, int64_t column) {
  // A copy, so that no store of sums can alias it.
  const RowBlocks b = of;
  float* const HWY_RESTRICT sums = b.sums + column;
  const Columns<kVectors> columns(*b.weight, b.first_panel, column);
  const hn::RebindToSigned<F32> di;
  const RowLayout layout(b.weight->num_in);
  const auto x_stride = static_cast<size_t>(b.x_stride) / sizeof(float);
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
    AddBlock(dot, columns.scales, block,
             RowPointers<kRows>(reinterpret_cast<const float*>(b.x) + block, x_stride), sums,
             kGroupWidth);
  }
}

template <int kRows>
HWY_NOINLINE void MultiplyRows(const RowBlocks& b) {
  constexpr int kVectors = ColumnVectors<kRows>();
  for (int64_t column = 0; column < b.num_columns; column += kVectors * kLanes) {
    MultiplyColumns<kRows, kVectors>(b, column);
  }
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

// A column of outputs, two vectors, at a time over all inputs. The weights of some blocks are
// widened once, the offset subtracted, and stored in scratch, in the first-level cache, while all
// rows pass over them. Without the offset there is nothing to correct, and without widening more
// registers are free for rows.
constexpr int kColumnVectors = 2;
constexpr int64_t kColumnWidth = int64_t{kColumnVectors} * kLanes;
// Panels that a column reads.
constexpr int64_t kColumnPanels = kColumnWidth > kPanelWidth ? kColumnWidth / kPanelWidth : 1;
// Maximum number of rows that share a read of the widened weights, with 32 or 16 registers.
constexpr int kPartRowsMax = HWY_TARGET == HWY_AVX3 ? 12 : 6;
constexpr int64_t kPairs = kQuantBlock / 2;  // pairs of a block
constexpr int64_t kWidenedBytes = kCachedBlocks * kQuantBlock * kColumnWidth * 2;
static_assert(kColumnWidth <= kColumnWidthMax);
static_assert(kWidenedBytes / 4 + kColumnWidth * kLinearRowsMax <= kLinearScratchFloats);

// Some blocks for some rows and a column of outputs.
struct ColumnBlocks {
  const std::byte* x;
  int64_t x_stride;
  int64_t num_blocks;  // blocks of a whole row
  int64_t block_begin, block_end;
  const std::byte* widened;  // [pairs of these blocks, kColumnVectors] vectors
  const uint16_t* scales[kColumnVectors];
  float* sums;  // [rows, kColumnWidth]
  // The weights of the next blocks: a piece is prefetched with each part of the rows.
  const uint8_t* next[kColumnPanels];
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

// Stores the widened weights of some blocks of the column in `to`.
HWY_INLINE void WidenBlocks(const Columns<kColumnVectors>& columns, int64_t block_begin,
                            int64_t block_end, std::byte* to) {
  const auto offset = hn::Set(Words(), static_cast<int16_t>(kOffset));
  auto* words = reinterpret_cast<int16_t*>(to);
  constexpr int64_t kWords = kLanes * 2;  // words of a vector
  for (int64_t quad = block_begin * kQuads; quad < block_end * kQuads; ++quad) {
    MINISGL_UNROLL for (int v = 0; v < kColumnVectors; ++v) {
      QuadWeights w;
      w.Load(columns.q[v] + quad * kQuadBytes);
      hn::Store(hn::Sub(w.even, offset), Words(), words + v * kWords);
      hn::Store(hn::Sub(w.odd, offset), Words(), words + (kColumnVectors + v) * kWords);
    }
    words += 2 * kColumnVectors * kWords;
  }
}

template <int kRows>
HWY_NOINLINE void MultiplyWidened(const ColumnBlocks& of) {
  const ColumnBlocks b = of;
  float* const HWY_RESTRICT sums = b.sums;
  const hn::RebindToSigned<F32> di;
  const RowLayout layout(b.num_blocks * kQuantBlock);
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
    AddBlock(dot, b.scales, block, x_scales, sums, kColumnWidth);
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

void RunManyRows(const LinearBlock& linear) {
  const PackedMatrix& w = *linear.weight;
  const int64_t first = linear.group * kGroupWidth;
  const int64_t num_columns = MinOf(kGroupWidth, w.num_out - first);
  auto* const widened = reinterpret_cast<std::byte*>(linear.scratch);
  float* const sums = linear.scratch + kWidenedBytes / 4;
  for (int64_t column = 0; column < num_columns; column += kColumnWidth) {
    const F32 d;
    for (int64_t i = 0; i < linear.num_rows * kColumnWidth; i += kLanes) {
      hn::Store(hn::Zero(d), d, sums + i);
    }
    const Columns<kColumnVectors> columns(w, first / kPanelWidth, column);
    for (int64_t block = 0; block < w.num_blocks(); block += kCachedBlocks) {
      const int64_t end = MinOf(w.num_blocks(), block + kCachedBlocks);
      WidenBlocks(columns, block, end, widened);
      ColumnBlocks blocks = {.x = linear.x,
                             .x_stride = linear.x_stride,
                             .num_blocks = w.num_blocks(),
                             .block_begin = block,
                             .block_end = end,
                             .widened = widened,
                             .scales = {columns.scales[0], columns.scales[1]},
                             .sums = sums,
                             .next = {},
                             .piece = 0};
      // After a column the next column's panels begin. (After the last column, and if a column is
      // half a panel, whose other half is already in the cache, the prefetch has no use.)
      const int64_t ends = end == w.num_blocks() ? (kColumnPanels - 1) * w.num_blocks() : 0;
      for (int64_t panel = 0; panel < kColumnPanels; ++panel) {
        blocks.next[panel] =
            columns.q[panel * kPanelWidth / kLanes] + (end + ends) * kQuads * kQuadBytes;
      }
      MultiplyWidenedRows(blocks, linear.num_rows,
                          end == w.num_blocks() ? linear.out + column : nullptr, linear.out_stride);
    }
    StoreOutputs(linear, sums, kColumnWidth, column, MinOf(kColumnWidth, num_columns - column));
  }
}
#endif

void RunInt8(const LinearBlock& linear) {
#ifdef MINISGL_INT8_PAIRS
  if (linear.num_rows > kPartRowsMax) return RunManyRows(linear);
#endif
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
  StoreOutputs(linear, linear.scratch, kGroupWidth, 0, num_columns);
}

}  // namespace

LinearKernel GetInt8() {
  return {.multiply = RunInt8, .prepare = QuantizeRow, .row_bytes = RowBytes};
}

}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();
#undef MINISGL_INT8_PAIRS

#if HWY_ONCE
namespace minisgl::cpu {

const PerTarget<GetLinearKernel>& Int8LinearKernels() {
  static constexpr PerTarget<GetLinearKernel> kTable = MINISGL_PER_TARGET(GetInt8);
  return kTable;
}

}  // namespace minisgl::cpu
#endif
