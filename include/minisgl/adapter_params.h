// The parameters of the operation of adapters: products of low rank beside a product of the model.
// Letters as in ops_params.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "minisgl/ops_params.h"

namespace minisgl {

// Outputs of a low-rank part that stand together in memory.
inline constexpr int64_t kLowRankTile = 16;

// Outputs [first_out, first_out + num_out) of a product, by rows [first_rank, first_rank + rank) of
// the adapter's first matrix.
struct LowRankPart {
  int64_t first_out = 0;
  int64_t num_out = 0;
  int32_t first_rank = 0;
  int32_t rank = 0;
  float scale = 1;
  const void* b = nullptr;  // [ceil(num_out / tile)][rank][tile], zeros behind the last output
};

// What an adapter has beside one product of the model. Parts do not overlap.
struct LowRankMatrices {
  int64_t num_in = 0;
  int64_t num_out = 0;  // of the product
  int32_t num_ranks = 0;
  DType dtype = DType::kF32;  // of a and b: kF32 or kBF16
  const void* a = nullptr;    // [num_ranks, num_in]
  std::span<const LowRankPart> parts;
  const float* factor = nullptr;  // [num_out] or null: 1
  const float* offset = nullptr;  // [num_out] or null: 0
};

// Where the rows of a product by heads are (HeadLinear): row r is head r / num_tokens of token
// r % num_tokens, and strides are in elements.
struct HeadRows {
  int64_t num_tokens = 0;  // 0: rows stand one after another
  int64_t x_token = 0, x_head = 0;
  int64_t out_token = 0, out_head = 0;
};

// Rows of the product that go through one adapter.
struct LowRankGroup {
  const LowRankMatrices* matrices = nullptr;
  std::span<const int32_t> rows;  // of `out`; no row is in two groups
};

// For each row r of a group, with u[k] = sum_i a[k, i] * x[r / rows_per_input, i]:
//   out[r, o] = out[r, o] * factor[o] + offset[o] + sum_k b[o, k] * (scale * u[k])
// where the last sum and `scale` are of the part that has output o, if there is one. The order of
// each sum is fixed: it depends on the adapter alone, not on other rows or groups.
struct LowRankParams {
  ConstActivationPtr x;  // [inputs, in]; null: `inner` holds u already
  ActivationPtr out;     // rows are `out_stride` elements apart
  std::span<const LowRankGroup> groups;
  float* inner = nullptr;      // memory for u: [rows, num_ranks] of each group, one after another
  int64_t out_stride = 0;      // 0: num_out
  int64_t rows_per_input = 1;  // of `out`, which stand one after another
  HeadRows heads;              // in place of the two above
};

// --- adapters in slots ---------------------------------------------------------------------------
// A device has adapters in slots of one size, and reads in its own memory which slot a token's
// adapter is in, so that operations recorded once serve steps with any adapters. A slot begins with
// the products of its adapter, as many and in the same order in every slot. Places in a slot are in
// bytes from its begin, 16-byte aligned; 0: there is none.

// LowRankPart.
struct SlotPart {
  int64_t b = 0;
  int32_t first_out = 0, num_out = 0;
  int32_t first_rank = 0, rank = 0;
  float scale = 1;
  int32_t unused = 0;
};

// Weights [num_out, in] in place of the model's.
struct SlotWhole {
  int64_t weights = 0;
  int32_t first_out = 0, num_out = 0;
  int32_t is_bf16 = 0;  // 0: f32, as for the others
  int32_t unused = 0;
};

// LowRankMatrices, and what is in place of the product's own weights.
struct SlotProduct {
  int64_t a = 0;
  int64_t parts = 0;  // SlotPart [num_parts], in order of outputs
  int64_t whole = 0;  // SlotWhole [num_whole]
  int64_t factor = 0, offset = 0;
  int32_t num_parts = 0, num_whole = 0, num_ranks = 0;
  int32_t is_bf16 = 0;  // a and b

  MINISGL_HOST_DEVICE bool changes() const {
    return (factor | offset | num_parts | num_whole | num_ranks) != 0;
  }
};

// What is looked up in place of rows of the vocabulary's table, or beside them.
struct SlotEmbedding {
  int64_t whole = 0;    // [V, width]
  int64_t rows = 0;     // [tokens, width] of single tokens, before `whole`
  int64_t row_of = 0;   // i32 [V] which of `rows`; -1: none
  int64_t a = 0;        // [rank, V]
  int64_t num_ids = 0;  // V
  int32_t rank = 0;
  int32_t whole_is_bf16 = 0, rows_are_bf16 = 0, a_is_bf16 = 0;
};

struct AdapterSlots {
  const std::byte* memory = nullptr;  // [slots][slot_bytes]
  int64_t slot_bytes = 0;
  const int32_t* slot_of = nullptr;  // [T] of each token of the step; -1: none
};

// LowRank of rows whose adapters are in slots. With experts an adapter has a product for each, in
// the order of experts. An adapter with weights in place of the model's first sets
//   out[r, o] = sum_i weights[o, i] * x[r / rows_per_input, i]
// A row's results depend on its adapter and its own input alone. Rows without an adapter, and those
// whose adapter changes nothing of the product, stay as they are.
struct SlotLowRankParams {
  ConstActivationPtr x;  // [inputs, in]; null: `inner` holds u already
  ActivationPtr out;     // rows are `out_stride` elements apart
  AdapterSlots slots;
  int64_t first_product = 0;         // of the slot's
  const int32_t* tokens = nullptr;   // [rows] token of each row; null: r / rows_per_token
  const int32_t* experts = nullptr;  // [rows] expert of each row; null: the product has none
  HeadRows heads;                    // of a product by heads, which stand for experts
  int64_t num_rows = 0, num_in = 0, num_out = 0;
  int64_t out_stride = 0;      // 0: num_out
  int64_t rows_per_input = 1;  // of `out`, which stand one after another
  int64_t rows_per_token = 1;  // likewise
  int32_t max_ranks = 0;       // the most of any adapter
  bool has_whole = false;      // an adapter may have weights in place of the model's
  float* inner = nullptr;      // memory for u: [rows, max_ranks]
};

// For each token whose adapter has an embedding: the row that is in place of the model's, times
// `scale`, to out (zeros if the rank is not the first), and inner[t, k] = a[k, id] * scale.
struct SlotEmbeddingParams {
  const int32_t* ids = nullptr;  // [T]
  float* out = nullptr;          // [T, width]
  float* inner = nullptr;        // [T, max_ranks]; null: not wanted
  AdapterSlots slots;
  int64_t embedding = 0;  // of SlotEmbedding in each slot
  int64_t num_tokens = 0, width = 0;
  int32_t max_ranks = 0;
  float scale = 1;
  bool is_first_rank = true;
};

}  // namespace minisgl
