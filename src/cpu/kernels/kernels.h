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

namespace minisgl::cpu {

// --- linear.cc -----------------------------------------------------------------------------------

// Outputs are computed in groups of four panels, inputs in blocks that are summed on their own and
// then added.
inline constexpr int64_t kGroupWidth = 64;
// Bounds the length of a chain of rounding errors, and what of the weights is in the first-level
// cache while rows pass by: 256 inputs x 16 outputs, widened, are 16 KiB (AVX2; with AVX-512 twice
// that). 128 inputs lose 2 % of the speed to sums that are stored and added.
inline constexpr int64_t kBlockInputs = 256;
// Rows that share one read of the weights in registers.
inline constexpr int64_t kRowsMax = 6;
// Most rows of a LinearBlock.
inline constexpr int64_t kLinearRowsMax = 21 * kRowsMax;
// Outputs that are computed together where many rows pass, and what that takes of scratch: a block
// of their weights and a sum for each row.
inline constexpr int64_t kColumnWidthMax = 32;
inline constexpr int64_t kLinearScratchFloats = kColumnWidthMax * (kBlockInputs + kLinearRowsMax);

struct LinearBlock {
  const std::byte* x;  // [num_rows] rows as LinearKernel says
  int64_t x_stride;    // bytes
  const PackedMatrix* weight;
  const float* bias;  // [out] or null
  // [num_rows, 64] the group's outputs, a row every `out_stride`; past num_out none is written
  float* out;
  int64_t out_stride;
  int64_t num_rows;  // at most kLinearRowsMax
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
// Its rounding of a row, with a zero past an odd number. Of the same processors.
void RoundRowToBf16(const float* x, int64_t count, std::byte* row);

// --- elementwise.cc ------------------------------------------------------------------------------

// Writes k and v of a token, which RopeKvWriteParams::qkv holds as they are to be kept.
using WriteKv = void (*)(const RopeKvWriteParams&, int64_t token);
struct ElementwiseKernels {
  // Each over tokens [begin, end).
  void (*norm)(const NormParams&, int64_t begin, int64_t end);
  void (*activate)(const ActivateParams&, int64_t begin, int64_t end);
  void (*rope_kv_write)(const RopeKvWriteParams&, WriteKv write, int64_t begin, int64_t end);
  void (*softcap)(const SoftcapParams&, int64_t begin, int64_t end);  // over values
  void (*combine_experts)(const CombineExpertsParams&, int64_t begin, int64_t end);
};
using GetElementwiseKernels = ElementwiseKernels (*)();
const PerTarget<GetElementwiseKernels>& ElementwiseKernelGetters();

// --- the KV storage: written by kv_write.cc, read by attention.cc and attention_bf16.cc ----------

// How keys lie in the KV storage where they are floats. Where a head's keys of a page are one block
// (slot_stride == head_dim) they are kept transposed, [head_dim][page_size], so that vectors run
// over keys without shuffles; else as the strides say.
struct KeyLayout {
  explicit KeyLayout(const KvLayer& kv, int32_t head_dim)
      : transposed(kv.slot_stride == head_dim),
        slot_stride(transposed ? 1 : kv.slot_stride),
        element_stride(transposed ? kv.page_size : 1) {}
  bool transposed;
  int64_t slot_stride;
  int64_t element_stride;
};

// Whether keys and values are kept as pairs of bf16, the first of a pair in the lower half: in each
// block of a head and a page [head_dim / 2][page_size] elements 2p and 2p + 1 of keys, [page_size /
// 2][head_dim] an element of the values of slots 2p and 2p + 1. So the dot product instruction
// wants them, and a shift or a mask widens them. Other bf16 lies as the strides say.
inline bool KeepsPairs(const KvLayer& kv, int32_t head_dim) {
  return kv.base.dtype == DType::kBF16 && kv.slot_stride == head_dim &&
         kv.page_size % kPanelWidth == 0 && head_dim % kPanelWidth == 0;
}

// kv_write.cc
using GetWriteKv = WriteKv (*)();
const PerTarget<GetWriteKv>& WriteKvGetters();

}  // namespace minisgl::cpu
