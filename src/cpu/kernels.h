// The doors between cpu_ops.cc, which is compiled once, and the kernels, which are compiled for
// each instruction set: plain structs in, no allocation, no threads. Each kernel file exports its
// functions as a table by target.
//
// A kernel's result for one token does not depend on which tokens it is computed with: every sum is
// taken in an order that follows from the operation's shape alone.
#pragma once

#include <cstdint>

#include "cpu/packed_matrix.h"
#include "cpu/targets.h"
#include "minisgl/ops_params.h"

namespace minisgl {

// --- linear.cc -----------------------------------------------------------------------------------

// Outputs are computed in groups of four panels, inputs in blocks that are summed on their own and
// then added.
inline constexpr int64_t kGroupWidth = 64;
// 128 inputs x 64 outputs of widened weights are 32 KiB: they stay in the first-level cache while
// rows pass by. Also what bounds the length of a chain of rounding errors.
inline constexpr int64_t kBlockInputs = 128;
inline constexpr int64_t kLinearScratchFloats = kGroupWidth * kBlockInputs;
// Rows that share one read of the weights in registers.
inline constexpr int64_t kRowsMax = 6;
// Above this many rows it pays to bring a block of weights into the first-level cache (and to widen
// it) before they pass.
inline constexpr int64_t kRowsStreamedMax = 2 * kRowsMax;

struct LinearBlock {
  const std::byte* x;  // [num_rows] rows as LinearKernel says
  int64_t x_stride;    // bytes
  const PackedMatrix* weight;
  const float* bias;  // [out] or null
  // [num_rows, 64] the group's outputs, a row every `out_stride`; past num_out none is written
  float* out;
  int64_t out_stride;
  int64_t num_rows;
  int64_t group;
  float* scratch;  // kLinearScratchFloats
};
struct LinearKernel {
  void (*multiply)(const LinearBlock&) = nullptr;
  // What `multiply` wants a row of x as, and the bytes of that; null where it is the f32 row
  // itself. Made once for all outputs of a product.
  void (*prepare)(const float* x, int64_t num_in, std::byte* row) = nullptr;
  int64_t (*row_bytes)(int64_t num_in) = nullptr;
};
// Rows of x as a kernel wants them.
struct LinearInput {
  const std::byte* rows;
  int64_t stride;  // bytes
};

// The kernel for weights of `format`.
LinearKernel FindLinearKernel(CpuTarget target, const WeightFormat& format);

// Each file's part of it:
using GetLinearKernel = LinearKernel (*)();
// linear.cc: weights of any dtype, widened; x is f32.
const PerTarget<GetLinearKernel>& WidenedLinearKernels();
// linear_int8.cc
const PerTarget<GetLinearKernel>& Int8LinearKernels();
// linear_bf16.cc: bf16 weights with the dot-product instruction, x rounded to bf16. Runs on
// CpuTarget::kAvx512Bf16 only.
LinearKernel Bf16DotLinearKernel();

// --- elementwise.cc ------------------------------------------------------------------------------

struct ElementwiseKernels {
  // Each over tokens [begin, end).
  void (*norm)(const NormParams&, int64_t begin, int64_t end);
  void (*activate)(const ActivateParams&, int64_t begin, int64_t end);
  void (*rope_kv_write)(const RopeKvWriteParams&, int64_t begin, int64_t end);
  void (*softcap)(const SoftcapParams&, int64_t begin, int64_t end);  // over values
  void (*combine_experts)(const CombineExpertsParams&, int64_t begin, int64_t end);
};
using GetElementwiseKernels = ElementwiseKernels (*)();
const PerTarget<GetElementwiseKernels>& ElementwiseKernelGetters();

// --- attention.cc --------------------------------------------------------------------------------

// Keys are taken in tiles of 64 positions, aligned to multiples of 64; splits of 512 positions are
// summed on their own and then merged in order, so that one long row can be shared among threads.
inline constexpr int64_t kTileKeys = 64;
inline constexpr int64_t kSplitKeys = 512;
// Query rows (tokens x heads of one KV head) that pass over a tile of keys while it is in the
// cache.
inline constexpr int64_t kQueryRowsMax = 48;

// Some tokens of one row against splits [split_begin, split_end) of its keys, for the query heads
// of one KV head.
struct AttentionItem {
  int32_t row;
  int32_t kv_head;
  int32_t token_begin, token_end;  // of the step's tokens
  int64_t split_begin, split_end;
  float* states =
      nullptr;  // null: merge and write the output; else AttentionStateFloats for each split
};

struct AttentionKernels {
  void (*attend)(const AttentionParams&, const AttentionItem&, float* scratch);
  // Merges item.states of splits [split_begin, split_end) and writes the output.
  void (*merge)(const AttentionParams&, const AttentionItem&, float* scratch);
};
using GetAttentionKernels = AttentionKernels (*)();
const PerTarget<GetAttentionKernels>& AttentionKernelGetters();

// Floats of scratch for items of up to `num_query_rows` rows (tokens x heads), and of one split's
// states.
int64_t AttentionScratchFloats(int64_t num_query_rows, int64_t head_dim);
int64_t AttentionStateFloats(int64_t num_query_rows, int64_t head_dim);

// How keys lie in the KV storage. Where a head's keys of a page are one block (slot_stride ==
// head_dim) they are kept transposed, [head_dim][page_size], so that vectors run over keys without
// shuffles; else as the strides say.
struct KeyLayout {
  explicit KeyLayout(const KvLayer& kv, int32_t head_dim)
      : transposed(kv.slot_stride == head_dim),
        slot_stride(transposed ? 1 : kv.slot_stride),
        element_stride(transposed ? kv.page_size : 1) {}
  bool transposed;
  int64_t slot_stride;
  int64_t element_stride;
};

}  // namespace minisgl
