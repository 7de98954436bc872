// The interface between cpu_ops.cc, which is compiled once, and the kernels, which are compiled for
// each instruction set. Kernels take plain structs, allocate nothing and start no threads. Each
// kernel file exports its functions as a table by target.
//
// A kernel's result for one token does not depend on the other tokens of the call: the order of
// every sum follows from the operation's shape alone.
#pragma once

#include <cstdint>

#include "cpu/code_lines.h"
#include "cpu/coded_matrix.h"
#include "cpu/packed_matrix.h"
#include "cpu/targets.h"
#include "minisgl/adapter_params.h"
#include "minisgl/ops_params.h"
#include "minisgl/tower_params.h"

namespace minisgl::cpu {

// --- linear.cc -----------------------------------------------------------------------------------

// Outputs are computed in groups of four panels. Inputs are summed block by block, and the block
// sums are added.
inline constexpr int64_t kGroupWidth = 64;
// Bounds the length of a chain of rounding errors, and the part of the weights that stays in the
// first-level cache while rows pass over it: 256 inputs x 16 outputs, widened, are 16 KiB (AVX2;
// AVX-512: 32 KiB). With 128 inputs, storing and adding sums costs 2 % of the speed.
inline constexpr int64_t kBlockInputs = 256;
// Maximum number of rows that share one read of the weights into registers.
inline constexpr int64_t kRowsMax = 6;
// Maximum number of rows of a LinearBlock for kernels with LinearKernel::rows_max of this.
inline constexpr int64_t kLinearRowsMax = 21 * kRowsMax;
// Bytes of rows of x in a chunk of a matrix product: half of a small second-level cache (512 KiB).
inline constexpr int64_t kLinearChunkBytes = 256 * 1024;
// Maximum number of outputs computed together for many rows, and the scratch for them: one block of
// their weights, and a sum for each row.
inline constexpr int64_t kColumnWidthMax = 32;
inline constexpr int64_t kColumnScratchFloats = kColumnWidthMax * (kBlockInputs + kLinearRowsMax);
// Upper bounds on LinearKernel::rows_max and chunk_bytes, and the scratch of any kernel: the above,
// or a sum for each row and output of a group.
inline constexpr int64_t kAnyLinearRowsMax = 512;
inline constexpr int64_t kAnyLinearChunkBytes = int64_t{1} << 20;
inline constexpr int64_t kLinearScratchFloats = kAnyLinearRowsMax * kGroupWidth;
static_assert(kColumnScratchFloats <= kLinearScratchFloats);

struct LinearBlock {
  const std::byte* x;  // [num_rows] rows in the form of LinearKernel::prepare
  int64_t x_stride;    // bytes
  const PackedMatrix* weight;
  const float* bias;  // [out] or null
  // [num_rows, 64] the group's outputs, rows `out_stride` apart; none is written past num_out
  float* out;
  int64_t out_stride;
  int64_t num_rows;  // at most LinearKernel::rows_max
  int64_t group;
  float* scratch;  // kLinearScratchFloats
};
using MultiplyCodes = void (*)(const LinearBlock&);
struct LinearKernel {
  void (*multiply)(const LinearBlock&) = nullptr;
  // The same for a matrix of codes in `codes_order`, of at most `codes_rows_max` rows. Null and 0:
  // there is none. If `multiply` is null, for any number of rows.
  MultiplyCodes multiply_codes = nullptr;
  CodeOrder codes_order = CodeOrder::kLines;
  int64_t codes_rows_max = 0;
  // Converts a row of x to the form that `multiply` reads, and the bytes of that form. Both null if
  // `multiply` reads the f32 row itself. Done once for all outputs of a product.
  void (*prepare)(const float* x, int64_t num_in, std::byte* row) = nullptr;
  int64_t (*row_bytes)(int64_t num_in) = nullptr;
  // A product is cut into chunks of rows: of at most rows_max, and of about chunk_bytes in the form
  // that `multiply` reads, but of enough that reading a block of weights is cheap. All but the last
  // have a multiple of rows_multiple.
  int64_t rows_max = kLinearRowsMax;
  int64_t rows_multiple = kRowsMax;
  int64_t chunk_bytes = kLinearChunkBytes;
};
// Rows of x in the form that a kernel reads.
struct LinearInput {
  const std::byte* rows;
  int64_t stride;  // bytes
};

// The kernel for weights of `dtype` that are not kept as codes, or for codes that are expanded.
LinearKernel FindLinearKernel(CpuTarget target, DType dtype);

// The kernels of each file:
using GetLinearKernel = LinearKernel (*)();
// linear.cc: weights of any dtype, widened; x is f32.
const PerTarget<GetLinearKernel>& WidenedLinearKernels();
// linear_int8.cc: integers of 8 bits in CodeOrder::kQuads, without zero points, in groups of blocks
// of kQuantBlock inputs (HasIntegerBlocks) or in one group; x quantized to int8. Upper bound on its
// bytes of a row of x.
const PerTarget<GetLinearKernel>& Int8LinearKernels();
constexpr int64_t Int8RowBytesMax(int64_t num_in) {
  return (num_in + kQuantBlock - 1) / kQuantBlock * (2 * kQuantBlock + 8);
}
// linear_codes_int8.cc: codes of 4 and 6 bits in CodeOrder::kWords, x quantized to int8.
const PerTarget<GetLinearKernel>& CodesInt8LinearKernels();
// Upper bound on its bytes of a row of x.
constexpr int64_t CodesInt8RowBytesMax(int64_t num_in) {
  return (num_in + kQuantBlock - 1) / kQuantBlock * (kQuantBlock + 12);
}
// linear_amx.cc: bf16 weights with the tiles of AMX, x rounded to bf16. Runs on CpuTarget::kAmx
// only.
LinearKernel AmxLinearKernel();
// The same bits without the tiles, slowly: for tests. Runs anywhere.
LinearKernel AmxStandInLinearKernel();
// linear_codes_amx.cc: LinearKernel::multiply_codes of these two, for at most kCodesRowsMax rows.
inline constexpr int64_t kCodesRowsMax = 16;
void MultiplyCodesByTiles(const LinearBlock& linear);
void MultiplyCodesByStandIn(const LinearBlock& linear);
// linear_bytes_amx.cc: 8-bit integers in CodeOrder::kQuads with tiles, x quantized to int8, where
// HasTiles(); the same bits without them; and the bytes of a row of x.
LinearKernel BytesAmxLinearKernel();
LinearKernel BytesStandInLinearKernel();
int64_t BytesRowBytes(int64_t num_in);
// RoundRowToBf16 without its instruction. Runs anywhere.
void RoundRowInSoftware(const float* x, int64_t count, std::byte* row);
// LinearKernel::multiply_codes of codes of type e4m3, without zeros, for at most kE4M3RowsMax rows,
// with the bits of expanded weights. Null: this target has none.
//   linear_e4m3-inl.h, for weights that are expanded to f32: CodedMatrix::moves_bits, in
//   CodeOrder::kSplitQuads, in one group or in groups of a multiple of four inputs.
//   linear_e4m3_bf16.cc, for weights that are expanded to bf16 on CpuTarget::kAvx512Bf16: in
//   CodeOrder::kWords, in one group or in groups of an even number of inputs.
MultiplyCodes FindE4M3Multiply(CpuTarget target, DType expanded_type);
using GetMultiplyCodes = MultiplyCodes (*)();
const PerTarget<GetMultiplyCodes>& E4M3Multiplies();
MultiplyCodes E4M3Bf16Multiply();
// Rows that share one read of the codes, and the upper bound of rows: reading the codes twice takes
// less time than expanding them.
inline constexpr int64_t kE4M3Rows = 4;
inline constexpr int64_t kE4M3RowsMax = 2 * kE4M3Rows;
// Calls `multiply`, which takes at most kE4M3Rows rows, for all rows of the block at once or for
// each half.
void MultiplyE4M3Rows(const LinearBlock& linear, MultiplyCodes multiply);
// linear_bf16.cc: bf16 weights with the dot-product instruction, x rounded to bf16. Runs on
// CpuTarget::kAvx512Bf16 and kAmx only.
LinearKernel Bf16DotLinearKernel();
// Inputs whose products it sums before they are added to an output. The weights of a block, 64 KiB,
// come from the second-level cache while rows pass over them: 256 bytes for 24 products, which take
// as long. Smaller blocks stay in the first-level cache but lose more to storing and adding sums
// (128 inputs: 88 % of the peak at 32 rows, 256: 91, 512: 94, 1024: 94).
inline constexpr int64_t kDotBlockInputs = 512;
// The rounding of a row by that instruction, which takes subnormal numbers as 0; appends a zero if
// `count` is odd. Runs on the same processors only.
void RoundRowToBf16(const float* x, int64_t count, std::byte* row);

// --- expand_codes-inl.h --------------------------------------------------------------------------

// Writes panel `panel` of a quantized matrix, expanded, to `out`: a panel of a dense matrix of
// `dtype` (packed_matrix.h). The last outputs of the last panel are of any value.
using ExpandPanel = void (*)(const CodedMatrix& matrix, int64_t panel, DType dtype, std::byte* out);
ExpandPanel FindExpandPanel(CpuTarget target, CodeOrder order, DType dtype);

using ExpandPanelGetter = ExpandPanel (*)();
const PerTarget<ExpandPanelGetter>& ExpandPanelGetters();
// expand_codes_bf16.cc: to panels of bf16. Runs on CpuTarget::kAvx512Bf16 and kAmx only.
ExpandPanel Bf16ExpandPanel();
// Expand a matrix in CodeOrder::kLines to a panel of bf16. The first: expand_lines.cc, anywhere;
// the second: expand_lines_bf16.cc, on CpuTarget::kAmx only.
void ExpandLinedPanelInSoftware(const CodedMatrix& matrix, int64_t panel, DType dtype,
                                std::byte* out);
void ExpandLinedPanel(const CodedMatrix& matrix, int64_t panel, DType dtype, std::byte* out);
// Expands a matrix in CodeOrder::kQuads, slowly: only experts need it, if others have other codes.
void ExpandQuadsPanel(const CodedMatrix& matrix, int64_t panel, DType dtype, std::byte* out);

// --- expand_lines.cc, expand_lines_bf16.cc -------------------------------------------------------

// What products of few rows with lines of codes (code_lines.h) are made of.
struct LineKernels {
  // Writes the weights of line `line` of a panel's outputs, rounded to bf16, to `tiles`:
  // [kLineInputs / 32][16 outputs][32 inputs]; 0 past the last input.
  void (*expand)(const CodeLines& lines, int64_t panel, int64_t line, std::byte* tiles);
  // to[i][r] = from[r][i], of 16 x 16 words of 32 bits. `to` has rows of 64 bytes.
  void (*transpose)(const std::byte* from, int64_t from_stride, std::byte* to);
};
LineKernels LineKernelsInSoftware();  // runs anywhere
LineKernels Bf16LineKernels();        // runs on CpuTarget::kAmx only

// --- elementwise-inl.h ---------------------------------------------------------------------------

// Writes k and v of a token to the KV storage. RopeKvWriteParams::qkv holds their final values.
using WriteKv = void (*)(const RopeKvWriteParams&, int64_t token);
struct ElementwiseKernels {
  // Each over tokens [begin, end).
  void (*norm)(const NormParams&, int64_t begin, int64_t end);
  void (*activate)(const ActivateParams&, int64_t begin, int64_t end);
  void (*rope_kv_write)(const RopeKvWriteParams&, WriteKv write, int64_t begin, int64_t end);
  void (*softcap)(const SoftcapParams&, int64_t begin, int64_t end);  // over values
  void (*combine_experts)(const CombineExpertsParams&, int64_t begin, int64_t end);
  void (*mean_squares)(const MeanSquaresParams&, int64_t begin, int64_t end);
  void (*mix_rows)(const MixRowsParams&, int64_t begin, int64_t end);
  void (*clamp)(const ClampParams&, int64_t begin, int64_t end);  // over values
};
using GetElementwiseKernels = ElementwiseKernels (*)();
const PerTarget<GetElementwiseKernels>& ElementwiseKernelGetters();

// --- states-inl.h --------------------------------------------------------------------------------

// Tokens of one head that follow each other (RecurrenceParams).
struct HeadTokens {
  const float* query;  // [count] rows of N
  const float* key;    // [count] rows of N
  const float* value;  // [count] rows of P
  int64_t stride;      // elements from row to row of these
  const float* decay;  // [count] a
  const float* gain;   // [count] b, or the step d
  float skip;
  float* state;  // of the head
  float* out;    // [count] rows of P
  int64_t out_stride;
  int64_t count;
  int64_t key_dim, value_dim;  // N, P
};
struct StateKernels {
  // Tokens [begin, end) of segment `segment`. Writes no state.
  void (*short_conv)(const ShortConvParams&, int32_t segment, int64_t begin, int64_t end);
  void (*delta)(const HeadTokens&);
  void (*mamba2)(const HeadTokens&);
};
using GetStateKernels = StateKernels (*)();
const PerTarget<GetStateKernels>& StateKernelGetters();

// --- the KV storage: written by kv_write-inl.h, read by attention.cc and attention_bf16.cc -------

// The layout of f32 keys in the KV storage. If a head's keys of a page form one block (slot_stride
// == head_dim), they are transposed, [head_dim][page_size], so that vectors run over keys without
// shuffles. Otherwise the strides of KvLayer apply.
struct KeyLayout {
  explicit KeyLayout(const KvLayer& kv, int32_t head_dim)
      : transposed(kv.slot_stride == head_dim && !kv.values_in_keys),
        slot_stride(transposed ? 1 : kv.slot_stride),
        element_stride(transposed ? kv.page_size : 1) {}
  bool transposed;
  int64_t slot_stride;
  int64_t element_stride;
};

// True if keys and values are stored as pairs of bf16, the first of a pair in the low half. Each
// block of a head and a page holds
//   keys    [head_dim / 2][page_size]: elements 2p and 2p + 1 of one key;
//   values  [page_size / 2][value_dim]: one element of the values of slots 2p and 2p + 1.
// The dot-product instruction takes this form, and a shift or a mask widens it. Other bf16 keys and
// values follow the strides of KvLayer.
inline bool KeepsPairs(const KvLayer& kv, int32_t head_dim, int32_t value_dim) {
  return kv.base.dtype == DType::kBF16 && !kv.values_in_keys && kv.slot_stride == head_dim &&
         kv.value_slot_stride() == value_dim && kv.page_size % kPanelWidth == 0 &&
         head_dim % kPanelWidth == 0 && value_dim % kPanelWidth == 0;
}

// True if keys and values are codes, in blocks as KeepsPairs says, with a byte in place of each
// bf16. Other codes follow the strides of KvLayer.
inline bool KeepsCodePairs(const KvLayer& kv, int32_t head_dim, int32_t value_dim) {
  return kv.has_codes() && !kv.values_in_keys && kv.slot_stride == head_dim &&
         kv.value_slot_stride() == value_dim && kv.page_size % kPanelWidth == 0 &&
         head_dim % kPanelWidth == 0 && value_dim % kPanelWidth == 0;
}

// --- segment_attention-inl.h ---------------------------------------------------------------------

// Keys of a segment are read in tiles of this many.
inline constexpr int64_t kSegmentTileKeys = 64;
// Maximum number of queries that pass over a tile while it is in the first-level cache, whose
// queries and sums stay in the second: a multiple of the rows of a block of a product.
inline constexpr int64_t kSegmentQueriesMax = 96;

// Elements of a tile's values, each filled up with zeros to whole vectors.
constexpr int64_t SegmentValueWidth(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }
// Floats of a tile: keys [head_dim, kSegmentTileKeys], then values [kSegmentTileKeys, width].
constexpr int64_t SegmentTileFloats(int64_t head_dim) {
  return kSegmentTileKeys * (head_dim + SegmentValueWidth(head_dim));
}
// Floats of scratch of an item: queries, sums, and two numbers for each query.
constexpr int64_t SegmentScratchFloats(int64_t head_dim) {
  return kSegmentQueriesMax * (head_dim + 15 + SegmentValueWidth(head_dim) + 2);
}

// Up to kSegmentTileKeys keys and values of one head, as the operation has them.
struct SegmentKeys {
  const float* k;
  const float* v;
  int64_t k_stride, v_stride;
  int64_t count, head_dim;
};
// Some queries of one head against the tiles of their segment.
struct SegmentQueries {
  const float* q;  // [num_rows] rows of head_dim
  float* out;      // likewise
  int64_t q_stride, out_stride;
  int64_t num_rows;    // at most kSegmentQueriesMax
  const float* tiles;  // SegmentTileFloats each
  int64_t num_keys;
  int64_t head_dim;
  float scale;
};
struct SegmentKernels {
  void (*arrange)(const SegmentKeys&, float* tile);
  void (*attend)(const SegmentQueries&, float* scratch);
};
using GetSegmentKernels = SegmentKernels (*)();
const PerTarget<GetSegmentKernels>& SegmentKernelGetters();

// --- low_rank-inl.h ------------------------------------------------------------------------------

// u[r][first_rank + k] = sum_i a[k, i] * x[r][i].
struct LowRankShrink {
  const void* a;  // [num_ranks, num_in]
  bool is_bf16;   // else f32
  int64_t num_in, num_ranks, first_rank;
  int64_t num_rows;
  const float* const* x;  // [num_rows]
  float* const* u;        // [num_rows]
};
// Tiles [first_tile, end_tile) of one LowRankPart, of which factor and offset begin at its first
// output.
struct LowRankExpand {
  const void* b;
  bool is_bf16;
  int64_t num_out, rank, first_rank, first_out;
  float scale;
  int64_t first_tile, end_tile;
  int64_t num_rows;
  const float* const* u;  // [num_rows]
  float* const* out;      // [num_rows]
  const float* factor;
  const float* offset;
};
struct LowRankKernels {
  void (*shrink)(const LowRankShrink&);
  void (*expand)(const LowRankExpand&);
};
using GetLowRankKernels = LowRankKernels (*)();
const PerTarget<GetLowRankKernels>& LowRankKernelGetters();

// kv_write-inl.h
using GetWriteKv = WriteKv (*)();
const PerTarget<GetWriteKv>& WriteKvGetters();

}  // namespace minisgl::cpu
