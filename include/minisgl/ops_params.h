// The parameters of each operation, one plain struct for all implementations (CPU, CUDA, the naive
// oracle).
//
// Letters:
//   T tokens, R rows (requests) of the step
//   D hidden size, H query heads, HKV key/value heads, I feed-forward size
//   E head_dim, the width of a head of queries and keys; EV value_dim, the width of one of values
//   V vocabulary size, P page size
// Arrays are dense and row-major unless a stride is given. Pointers are to device memory of the
// implementation, or to host memory if stated; the caller owns it and keeps it valid until the
// operation has run. Outputs do not overlap inputs unless stated.
//
// Activations are f32 on the CPU. On CUDA they are all bf16 or all f16, except the residual stream
// and the logits, which are f32. Sums have at least the precision of f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "minisgl/base/host_device.h"
#include "minisgl/model_kinds.h"
#include "minisgl/row_result.h"
#include "minisgl/sampling_params.h"
#include "minisgl/tensor/dtype.h"
#include "minisgl/tensor/weight_format.h"

namespace minisgl {

class WeightTensor;

// A pointer to activations, whose element type is known at run time.
struct ActivationPtr {
  void* data = nullptr;
  DType dtype = DType::kF32;

  ActivationPtr() = default;
  ActivationPtr(std::nullptr_t) {}                // NOLINT: reads as a pointer
  ActivationPtr(float* floats) : data(floats) {}  // NOLINT
  ActivationPtr(void* p, DType type) : data(p), dtype(type) {}
  MINISGL_HOST_DEVICE bool operator==(std::nullptr_t) const { return data == nullptr; }
  template <typename T>
  MINISGL_HOST_DEVICE T* as() const {
    return static_cast<T*>(data);
  }
  float* f32() const { return as<float>(); }  // REQUIRES dtype kF32
  // The pointer advanced by `count` elements.
  ActivationPtr At(int64_t count) const {
    return {static_cast<char*>(data) + count * static_cast<int64_t>(DTypeBytes(dtype)), dtype};
  }
};

struct ConstActivationPtr {
  const void* data = nullptr;
  DType dtype = DType::kF32;

  ConstActivationPtr() = default;
  ConstActivationPtr(std::nullptr_t) {}                      // NOLINT
  ConstActivationPtr(const float* floats) : data(floats) {}  // NOLINT
  ConstActivationPtr(const void* p, DType type) : data(p), dtype(type) {}
  ConstActivationPtr(ActivationPtr other) : data(other.data), dtype(other.dtype) {}  // NOLINT
  MINISGL_HOST_DEVICE bool operator==(std::nullptr_t) const { return data == nullptr; }
  template <typename T>
  MINISGL_HOST_DEVICE const T* as() const {
    return static_cast<const T*>(data);
  }
  const float* f32() const { return as<float>(); }  // REQUIRES dtype kF32
  // The pointer advanced by `count` elements.
  ConstActivationPtr At(int64_t count) const {
    return {static_cast<const char*>(data) + count * static_cast<int64_t>(DTypeBytes(dtype)),
            dtype};
  }
};

// A weight matrix [out, in] in the element order that an implementation's kernels read. Made by
// Ops::PackMatrix.
struct Matrix {
  int64_t num_out = 0;
  int64_t num_in = 0;
  DType dtype = DType::kF32;
  std::shared_ptr<const void> storage;  // private to the implementation
  Quantization quantization = Quantization::kNone;
};

// out[t, :] = table[ids[t] - first_id, :] * scale; zeros if the table has no such row
struct EmbeddingParams {
  const int32_t* ids;   // [T], each in [0, V)
  const Matrix* table;  // [V, D], made by Ops::PackEmbedding; null: `stored`
  float scale;
  float* out;  // [T, D] the residual stream
  int64_t num_tokens;
  // The table as its file holds it, in host memory; only the rows of `ids` are read. CPU only.
  const WeightTensor* stored = nullptr;
  // The id of the table's first row. With one rank 0, and the table has a row for every id.
  int64_t first_id = 0;
};

// With a residual: residual += x_scale * x (nothing is added if x is null), then residual *=
// residual_factor, and v = residual. Without: v = x. Each group of group_width consecutive
// features of v is normalised separately:
//   kRms:   out = weight * v / sqrt(mean(v^2) + eps) + bias
//   kLayer: the same with v - mean(v) in place of v
struct NormParams {
  ConstActivationPtr x;  // [T, D]; consecutive tokens are `stride` elements apart
  float* residual;       // [T, D] or null
  const float* weight;   // [D]; null: out = v
  ActivationPtr out;     // shape and stride of x; may equal x; null: only the residual is written
  int64_t num_tokens;
  int64_t width;  // D
  float eps;
  NormKind kind = NormKind::kRms;
  const float* bias = nullptr;  // [D] or null
  float x_scale = 1;
  int64_t group_width = 0;  // a divisor of D; 0: D
  int64_t stride = 0;       // 0: D. Any other REQUIRES residual == null
  float residual_factor = 1;
  // [T] the mean of v^2 over the whole vectors, of which each rank has a part (MeanSquaresParams);
  // null: it is computed here. REQUIRES kRms, one group and no residual.
  const float* mean_squares = nullptr;
};

// Matrices of the products behind the attention that follows a product, or null: a hint. Their
// weights may be fetched into a cache while attention runs; results do not change.
struct BehindAttention {
  const Matrix* output = nullptr;  // the first
  const Matrix* next = nullptr;    // the one after it
  bool next_is_gated = false;      // its rows are gates, and then what they multiply
};

// out[t, o] = sum_i x[t, i] * w[o, i] + bias[o]. The order of summation of an output element is
// fixed, independent of T. If the weights are quantized, x is quantized too (weight_format.h).
struct LinearParams {
  ConstActivationPtr x;  // [T, in]
  const Matrix* weight;  // [out, in]
  const float* bias;     // [out] or null
  ActivationPtr out;     // [T, out]; f32 for logits; tokens are `out_stride` elements apart
  int64_t num_tokens;
  // The matrix of the next product of this step or the next, or null: a hint. Its weights may be
  // fetched into a cache; results do not change.
  const Matrix* next = nullptr;
  int64_t out_stride = 0;  // 0: out
  BehindAttention behind_attention = {};
};

// The KV cache of one layer. Element e of head h of slot s (page s / P, offset s % P):
//   k: base + page * page_stride + offset * slot_stride + h * head_stride + e
//   v: base + page * page_stride + v_offset + offset * v_slot_stride + h * v_head_stride + e
// Only RopeKvWrite and Attention access it. If a head's keys of a page are contiguous (slot_stride
// == head_dim, the fast layout of the CPU), or its values (v_slot_stride == value_dim), an
// implementation may choose the order of elements within that block. `base` has the dtype of
// activations, or bf16 on the CPU (KvDType), in which case queries and softmax weights may be
// rounded to bf16 before they are multiplied.
//
// A base of kE4M3 has codes (IsCodedLayer), which attention multiplies by a power of two of each
// head of a slot, exactly: byte h * P + offset behind k_scales or v_scales (tensor/e4m3_scale.h).
//
// With values_in_keys, the value of a slot is the last elements of its key, and nothing else is
// stored: v_offset is the number of elements before them, values have the strides of keys, and
// elements are in the order above.
struct KvLayer {
  ActivationPtr base;
  int64_t page_stride;  // in elements, like all strides
  int64_t slot_stride;
  int64_t head_stride;
  int64_t v_offset;
  int32_t page_size;
  int64_t v_slot_stride = 0;  // 0: slot_stride
  int64_t v_head_stride = 0;  // 0: head_stride
  bool values_in_keys = false;
  int64_t k_scales = 0, v_scales = 0;  // of codes only; bytes from the page's begin

  bool has_codes() const { return base.dtype == DType::kE4M3; }
  int64_t value_slot_stride() const { return v_slot_stride == 0 ? slot_stride : v_slot_stride; }
  int64_t value_head_stride() const { return v_head_stride == 0 ? head_stride : v_head_stride; }
};

// The order in which one head's keys, or values, of a page are stored, where KvLayer leaves it to
// the implementation. P: page size; D: elements of a token.
enum class KvOrder : uint8_t {
  kRows,         // [P][D]
  kColumns,      // [D][P]
  kColumnPairs,  // [D / 2][P][2]: elements 2i and 2i + 1 of one token
  kRowPairs,     // [P / 2][D][2]: one element of tokens 2i and 2i + 1
};
struct KvOrders {
  KvOrder keys = KvOrder::kRows, values = KvOrder::kRows;
};

// Width of a token's queries, keys and values, concatenated.
inline int64_t QkvWidth(int64_t num_heads, int64_t num_kv_heads, int64_t head_dim,
                        int64_t value_dim) {
  return num_heads * head_dim + num_kv_heads * (head_dim + value_dim);
}

// The dtype of the KV cache: bf16 if activations are f32 (the CPU) and weights are bf16 or
// quantized from it, which halves the memory and the reads of attention; otherwise the dtype of
// activations.
inline DType KvDType(DType activation_dtype, DType weight_dtype) {
  return activation_dtype == DType::kF32 && weight_dtype == DType::kBF16 ? DType::kBF16
                                                                         : activation_dtype;
}

// Rotates q and k by position, and writes k and v to their slots. Rotary embedding in its "half"
// form: pair (i, i + rot/2), i < rot/2, is rotated by position * inverse_frequency[i]; features
// from rot on are unchanged. Rotated features are multiplied by attention_factor (longrope, yarn).
// Order: norm, rotation, query_scale; with norm_last: rotation, norm, query_scale.
struct RopeKvWriteParams {
  // [T, H * E + HKV * (E + EV)]: q, k and v of each token, concatenated. q is rotated in place; k
  // and v are undefined afterwards. HKV 0: queries alone, and nothing is written to `kv` (a layer
  // that reads the keys and values of an earlier one). With KvLayer::values_in_keys, EV is 0 here.
  ActivationPtr qkv;
  const int32_t* positions;  // [T]
  const int64_t* slots;      // [T]
  const float* cos;          // [max_seq_len, rot/2], times attention_factor; null if rot is 0
  const float* sin;          // [max_seq_len, rot/2]
  KvLayer kv;
  int64_t num_tokens;
  int32_t num_heads, num_kv_heads, head_dim, rotary_dim;
  // [E] each, or null: weights of an RMS norm of each head of q and k (QK norm).
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  float norm_eps = 0;
  bool norm_last = false;
  const float* query_scale = nullptr;  // [max_seq_len] factor of q at each position, or null
  int32_t v_head_dim = 0;              // EV; 0: E

  int32_t value_dim() const {
    return kv.values_in_keys ? 0 : v_head_dim == 0 ? head_dim : v_head_dim;
  }
  int64_t token_width() const { return QkvWidth(num_heads, num_kv_heads, head_dim, value_dim()); }
};

// How exactly a call states the rows of its step. Captured operations serve many steps, and have
// upper bounds in place of num_rows and num_decode_rows. The rows after a step's last are then
// empty: their row_begin is the end of the tokens. The number of decode rows is in device memory
// (AttentionPlanParams). Results are the same.
enum class RowsKnown : uint8_t {
  kExactly,
  kBoundsShort,  // bounds, for any rows
  kBoundsLong,   // bounds, for steps whose rows that extend are long (HasLongRows in device_ops.h)
};

// Causal attention through the page table: a token of row r at position p attends to keys 0..p of
// that row, or to those that key_end says. Keys are processed in position order in tiles of a
// constant size, so results do not depend on page size, chunking or other rows.
struct AttentionParams {
  ConstActivationPtr qkv;  // [T, qkv_stride]; of each token only q, the first H * E, is read
  ActivationPtr out;       // [T, H * EV]
  KvLayer kv;
  const int32_t* page_table;  // [rows of the table, page_table_stride]
  int64_t page_table_stride;
  const int32_t* table_row;  // [R]
  const int32_t* row_begin;  // [R + 1]
  const int32_t* kv_len;     // [R] keys of the row, including its tokens of this step
  int32_t num_rows;
  // Rows 0 .. num_decode_rows - 1 have one token each: a hint for dividing the work.
  int32_t num_decode_rows = 0;
  RowsKnown rows_known = RowsKnown::kExactly;  // others: on a device only
  int64_t num_tokens;
  int32_t num_heads, num_kv_heads, head_dim;
  float scale;             // scores are q.k * scale
  int32_t sliding_window;  // 0: none; w: only keys p-w+1..p
  float logit_softcap;     // 0: none; c: s -> c * tanh(s / c)
  // [H] or null: an extra logit in the softmax of each head, without a value
  const float* sinks;
  // Calls with the same number (the layers of a step) have equal rows, lengths and page table
  // contents, so that a plan of the work can be reused. 0: unknown.
  uint64_t step = 0;
  int32_t v_head_dim = 0;  // EV; 0: E
  int64_t qkv_stride = 0;  // elements from token to token; 0: H * E + HKV * (E + EV)
  // [T] or null: token t attends to the row's keys before key_end[t]. REQUIRES that it is more than
  // the token's position, at most kv_len, and never less than that of an earlier token of the row.
  // A sliding window hides keys before the token alone. On a device REQUIRES rows_known kExactly.
  const int32_t* key_end = nullptr;
  // Keys before this one are seen by no token. REQUIRES that each token sees a key, and on a
  // device, if it is not 0, key_end and no num_decode_rows.
  int32_t first_key = 0;
  // [H, distance_stride] or null: a score of head h is q.k * scale + distance_bias[h *
  // distance_stride + distance_origin + p - q] for the key at position p and the token at q.
  // REQUIRES kKeysPast elements more behind the largest distance, and no softcap; on a device also
  // key_end, and that the row of a decode row's token has no other key.
  const float* distance_bias = nullptr;
  int64_t distance_stride = 0, distance_origin = 0;
  static constexpr int64_t kKeysPast = 64;

  int32_t value_dim() const { return v_head_dim == 0 ? head_dim : v_head_dim; }
  int64_t token_width() const {
    return qkv_stride != 0 ? qkv_stride : QkvWidth(num_heads, num_kv_heads, head_dim, value_dim());
  }
};

// With x > 0: positive x^2 + linear x. Else: negative (expm1(min(x, min)) - x) + linear x.
struct XieluParams {
  float positive = 0, negative = 0, linear = 0;
  float min = 0;  // below 0, and near it
};

// Gated: out[t, i] = act(gate_up[t, i]) * gate_up[t, I + i]. Else: out[t, i] = act(gate_up[t, i]),
// with `up` times up[t * up_stride + i].
struct ActivateParams {
  ConstActivationPtr gate_up;  // [T, 2 I]; [T, I] if not gated
  ActivationPtr out;           // [T, I]
  int64_t num_tokens;
  int64_t width;  // I
  Activation activation;
  bool gated = true;
  float limit = 0;  // of kClampedSwiglu
  // May equal out.
  ConstActivationPtr up = nullptr;  // null, or REQUIRES gated == false
  int64_t up_stride = 0;
  float gate_scale = 1;  // act(gate_scale * gate_up[t, i])
  XieluParams xielu;     // of kXielu, which REQUIRES gated == false and no up
};

// A product with the operations before and behind it: first `norm`, then `linear`, then
// `activation` or the addition
//   residual[t, o] += residual_scale * linear.out[t, o]
// Results are the same as if the parts ran one after another. Intermediate results (norm's out, and
// linear.out if a part follows it) are undefined afterwards.
struct FusedLinearParams {
  const NormParams* norm = nullptr;  // null, or REQUIRES norm->out == linear.x
  LinearParams linear;
  const ActivateParams* activation = nullptr;  // null, or REQUIRES gate_up == linear.out
  float* residual = nullptr;                   // [T, out] or null; REQUIRES no activation
  float residual_scale = 1;
};

// values[i] = cap * tanh(values[i] / cap)
struct SoftcapParams {
  float* values;
  int64_t count;
  float cap;
};

// --- layers with a state ------------------------------------------------------------------------
//
// A slot holds the states of one sequence at one position. Each layer has an array of slots.

// Consecutive tokens of a row, and the slots that are read and written.
struct StateSpan {
  int32_t begin;      // its first token
  int32_t row_first;  // the first span of the same row
  // Slot of the state before it; -1: all zero. Further spans of a row read the slot that the span
  // before them writes.
  int32_t read;
  int32_t write;
};

// A step's rows, cut into S spans (BatchPlan::state_segments). The first span of a row reads the
// state before the row from a slot; the state after the last token of each is written to one.
// REQUIRES distinct slots in `write`, none of which is in `read` of a row's first span.
struct StateSegments {
  const StateSpan* spans = nullptr;  // [S + 1]; spans[S].begin is the end of all tokens
  int32_t count = 0;                 // S; 0 on a device if only of_row has it
  // [rows + 1], on a device only: the first span of each row, and S. Rows of padding have no span,
  // and write nothing.
  const int32_t* of_row = nullptr;
  int32_t num_rows = 0;
};

// A causal convolution of each of C channels over the tokens of a row, with L weights:
//   u[t, c] = x[t, c] * x_factor[t, c]
//   y[t, c] = bias[c] + sum_{j < L} weight[j, c] * u[t - L + 1 + j, c]
//   out[t, c] = y[t, c] * out_factor[t, c], with `silu` silu(y[t, c]) * out_factor[t, c]
// A null factor is 1. The state holds u of the tokens before the row. Sums are in the order of j,
// so that results do not depend on how a sequence is cut.
struct ShortConvParams {
  ConstActivationPtr x;           // [T, C]; consecutive tokens are `stride` elements apart
  ConstActivationPtr x_factor;    // likewise, or null
  ConstActivationPtr out_factor;  // likewise, or null
  int64_t stride;
  const float* weight;  // [L, C]
  const float* bias;    // [C] or null
  float* states;        // [slots, L - 1, C] the last u, the oldest first
  ActivationPtr out;    // [T, C]
  StateSegments segments;
  int64_t num_tokens;
  int64_t width;   // C
  int32_t length;  // L, from 2 to kConvLengthMax
  bool silu;
};

// Linear attention with decay. Each head h has a matrix S [N, P], and reads the queries and keys of
// group g = h / (H / G). For each token of a row, in order:
//   kDelta (gated delta rule), with b = gain_factor * sigmoid(gain[h]):
//     d = softplus(s decay[h] + decay_bias[h]),  a = exp(-decay_rate[h] * d)
//     S = a S;  S = S + k (b (v - S^T k))^T;  out = S^T q
//   kMamba2 (selective state space, its C, B and x being q, k and v):
//     d = clamp(softplus(s decay[h] + decay_bias[h]), step_min, step_max)
//     a = exp(-decay_rate[h] d)
//     S = a S + k (d v)^T;  out = S^T q + skip[h] v
// Results do not depend on how a sequence is cut; on CUDA only with CudaOpsConfig::deterministic:
// without, prompts are computed by chunks of tokens and differ in the last bits.
enum class RecurrenceKind : uint8_t { kDelta, kMamba2 };

struct RecurrenceParams {
  RecurrenceKind kind;
  ConstActivationPtr query;  // [T, G, N]; consecutive tokens are `stride` elements apart
  ConstActivationPtr key;    // [T, G, N], likewise
  ConstActivationPtr value;  // [T, H, P], likewise
  int64_t stride;
  ConstActivationPtr decay;  // [T, H]; consecutive tokens are `scalar_stride` elements apart
  ConstActivationPtr gain;   // likewise; kDelta only
  int64_t scalar_stride;
  float decay_scale = 1;             // s
  const float* decay_bias;           // [H]
  const float* decay_rate;           // [H]
  const float* skip;                 // [H]; kMamba2 only
  float gain_factor = 1;             // kDelta
  float step_min = 0, step_max = 0;  // kMamba2
  float* states;      // [slots, RecurrenceStateFloats], in the order of RecurrenceStateAt
  ActivationPtr out;  // [T, H, P]
  StateSegments segments;
  int64_t num_tokens;
  int32_t num_heads;   // H
  int32_t num_groups;  // G, a divisor of H
  int32_t key_dim;     // N
  int32_t value_dim;   // P
};

// Columns of S that are stored together, as rows [N, 16]: as many as a thread's first-level cache
// holds while a row's tokens pass. The last columns of a head are filled up with zeros.
inline constexpr int64_t kStateColumns = 16;
constexpr int64_t StateHeadFloats(int64_t key_dim, int64_t value_dim) {
  return (value_dim + kStateColumns - 1) / kStateColumns * kStateColumns * key_dim;
}
constexpr int64_t RecurrenceStateFloats(int64_t num_heads, int64_t key_dim, int64_t value_dim) {
  return num_heads * StateHeadFloats(key_dim, value_dim);
}
// Index of S[n, p] in the state of a head.
constexpr int64_t RecurrenceStateAt(int64_t key_dim, int64_t n, int64_t p) {
  return (p / kStateColumns * key_dim + n) * kStateColumns + p % kStateColumns;
}

// --- mixture of experts: X experts, K of them for each token -------------------------------------

// Matrices [out, in] of equal shape, one for each expert. Made by Ops::PackExperts.
struct ExpertMatrices {
  int64_t num_experts = 0;
  int64_t num_out = 0;
  int64_t num_in = 0;
  DType dtype = DType::kF32;
  std::shared_ptr<const void> storage;
  Quantization quantization = Quantization::kNone;
};

// Chooses K experts for each token, and their weights in the sum:
//   score[e] = softmax(logits)[e], or sigmoid(logits[e])
//   value[e] = score[e] + bias[e]
//   A group's value is the sum of the best_of_group largest values of its experts. The
//   num_chosen_groups groups with the largest values are chosen, and among their experts the K with
//   the largest values, in descending order (ties: the lower index first, also of groups).
//   share[k] = factor * score[experts[k]], with `renormalize` divided by the sum of the K scores,
//   plus sum_eps (without it, K sigmoids of 0 give NaN) or at least sum_min; then times
//   expert_scale[experts[k]]
// Values are rounded to f32, so that sigmoids near 1 are equal for every implementation. If logits
// have the order of values (ChoosesByLogits), they decide, exactly. A NaN ranks before all
// numbers, so that it is chosen and the token's results are NaN.
struct RouteParams {
  const float* logits;  // [T, X]
  const float* bias;    // [X] or null: changes the choice, and not the shares
  int32_t* experts;     // [T, K]
  float* shares;        // [T, K]
  int64_t num_tokens;
  int32_t num_experts;
  int32_t num_chosen;  // K <= experts of num_chosen_groups groups
  // REQUIRES num_groups divides X, num_chosen_groups <= num_groups, and groups of at least
  // best_of_group experts.
  Routing routing;
  const float* expert_scale = nullptr;  // [X] or null
};

// True if logits have the order of values, and every group is chosen.
MINISGL_HOST_DEVICE inline bool ChoosesByLogits(const RouteParams& p) {
  return p.bias == nullptr && p.routing.num_chosen_groups == p.routing.num_groups;
}

// One matrix for each head of attention.
using HeadMatrices = ExpertMatrices;

// Multiplies each head of a token by a matrix of its own, after the first C elements of the head,
// which are copied:
//   out[t, h, c] = x[t, h, c] for c < C
//   out[t, h, C + o] = sum_i x[t, h, C + i] * w_h[o, i]
// The order of summation of an output element is fixed, independent of T.
struct HeadLinearParams {
  ConstActivationPtr x;         // [T, H, C + in]
  const HeadMatrices* weights;  // [H, out, in], not quantized
  ActivationPtr out;            // [T][H, C + out]; tokens are `out_stride` elements apart
  int64_t num_tokens;
  int64_t num_copied = 0;  // C
  int64_t out_stride = 0;  // 0: H * (C + out)
};

// out[t K + k, o] = sum_i x[t, i] * w_e[o, i] + bias[e, o] with e = experts[t, k]; with
// `x_per_choice`, x[t K + k, i] in place of x[t, i]. The order of summation of an output element is
// fixed, independent of T and of which other tokens chose e.
struct ExpertLinearParams {
  ConstActivationPtr x;  // [T, in], or [T * K, in]
  const ExpertMatrices* weights;
  const float* bias;       // [X, out] or null
  const int32_t* experts;  // [T, K], each in [0, X)
  ActivationPtr out;       // [T * K, out]
  int64_t num_tokens;
  int32_t num_chosen;  // K
  bool x_per_choice;
};

// out[t, :] = sum_k shares[t, k] * x[t K + k, :], in order of k, then, unless `shared` is null,
// + shared[t, :] * sigmoid(shared_gate[t]) (factor 1 if `shared_gate` is null).
struct CombineExpertsParams {
  ConstActivationPtr x;                // [T * K, D]
  const float* shares = nullptr;       // [T, K]
  ConstActivationPtr shared;           // [T, D] or null
  const float* shared_gate = nullptr;  // [T] or null
  ActivationPtr out;                   // [T, D]; may equal shared
  int64_t num_tokens = 0;
  int64_t width = 0;       // D
  int32_t num_chosen = 0;  // K
};

// out[i, :] = x[rows[i], :]
struct GatherRowsParams {
  ConstActivationPtr x;  // [*, D]
  const int32_t* rows;   // [N]
  ActivationPtr out;     // [N, D], dtype of x
  int64_t num_rows;
  int64_t width;
};

// --- several ranks (minisgl/model/ranks.h) -------------------------------------------------------
//
// All ranks call these operations in the same order with equal sizes. Results do not depend on
// which rank is first.

// x[i] = the sum over all ranks of x[i], in the order of ranks: ((x_0 + x_1) + x_2) + ..., with the
// precision of f32. Every rank gets the same bits.
struct AllReduceParams {
  ActivationPtr x;  // [count]
  int64_t count;
};

// A sum over ranks and the norm of its result, with the bits of the two operations. REQUIRES
// norm.x == sum.x; its contents are undefined afterwards unless it is norm.out.
struct AllReduceNormParams {
  AllReduceParams sum;
  NormParams norm;
};

// A rank's part of the mean squares of vectors, of which each rank has an equally wide piece:
// out[t] = share * mean(x[t, :]^2), with share = 1 / the number of ranks. AllReduce adds the parts.
struct MeanSquaresParams {
  ConstActivationPtr x;  // [T, width]; consecutive tokens are `stride` elements apart
  float* out;            // [T]
  int64_t num_tokens;    // T
  int64_t width;
  int64_t stride = 0;  // 0: width
  float share = 1;
};

// Joins the columns of all ranks: out[t, first + i] = x[t, i]. On devices all ranks get the result,
// so that all choose the same tokens; on the CPU only the first rank gets it.
struct GatherColumnsParams {
  const float* x;      // [T, width]
  float* out;          // [T, out_stride]; null on a rank that gets none
  int64_t num_tokens;  // T
  int64_t width;
  int64_t first;
  int64_t out_stride;
  // [ranks + 1] host memory: rank r has columns [bounds[r], bounds[r + 1]). REQUIRED on devices.
  const int64_t* bounds = nullptr;
};

// Chooses the next token of each of N rows. src/cpu/sampler.h has the exact order of steps and of
// the draw. Log-probabilities are of the raw logits. The outcome of a row is kNonFinite if its raw
// logits contain NaN or +infinity, or if its bans leave no token. REQUIRES ids in bias, bans and
// history in [0, V).
//
// With `given`, nothing is chosen: each row's token is the given one, and only num_logprobs of
// `sampling` counts. The outcome is kNonFinite also if that token's logit is not finite.
struct SampleParams {
  float* logits;       // [N, V]; overwritten
  int64_t num_rows;    // N
  int64_t vocab_size;  // V
  // Host arrays over the N rows:
  const SamplingParams* const* sampling;  // [N]
  const int32_t* const* history;          // [N] the row's tokens: prompt, then answer so far
  const int32_t* prompt_len;              // [N]
  // [N] tokens in `history`. history_len - prompt_len is the index of the random number.
  const int32_t* history_len;
  RowResult* results;              // [N]
  const TokenId* given = nullptr;  // [N], ids in [0, V); null: tokens are chosen
  // [N] the tokens among which a row chooses, a bit each ([ceil(V / 32)], StepMasks), or null: all.
  // SamplingParams::min_tokens bans nothing in a row with a mask: the mask has the end tokens that
  // the row may choose. Null: no row has a mask.
  const uint32_t* const* masks = nullptr;
};

}  // namespace minisgl
