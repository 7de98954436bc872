// One plain struct for each operation, shared by every implementation (CPU, CUDA, the naive
// oracle).
//
// Letters: T tokens, R rows (requests) of the step, D hidden width, H query heads, HKV key/value
// heads, E head_dim, I feed-forward width, V vocabulary, P page size. All arrays are dense and
// row-major unless a stride is given. Pointers are to memory of the implementation's device (or of
// the host, where that is said), owned by the caller, and must stay valid until the operation has
// run. Outputs never overlap inputs unless said.
//
// Activations are f32 on the CPU; on CUDA they are bf16 or f16, one of the two in the whole model,
// but for the residual stream and the logits, which are f32. Sums are f32 or better everywhere.
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

// Activations of an element type known at run time.
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
  // `count` elements further on.
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
};

// A weight matrix [out, in] in the order an implementation's kernels read. Made by Ops::PackMatrix.
struct Matrix {
  int64_t num_out = 0;
  int64_t num_in = 0;
  DType dtype = DType::kF32;
  std::shared_ptr<const void> storage;  // what an implementation keeps
  Quantization quantization = Quantization::kNone;
};

// out[t, :] = table[ids[t], :] * scale
struct EmbeddingParams {
  const int32_t* ids;   // [T], each in [0, V)
  const Matrix* table;  // [V, D], made by Ops::PackEmbedding
  float scale;
  float* out;  // [T, D] the residual stream
  int64_t num_tokens;
};

// v = residual += x_scale * x (where residual is given; x may be null, then nothing is added), else
// v = x. Each run of group_width features of v is normalised on its own:
//   kRms:   out = weight * v / sqrt(mean(v^2) + eps) + bias
//   kLayer: the same of v - mean(v)
struct NormParams {
  ConstActivationPtr x;  // [T, D], a token every `stride` elements
  float* residual;       // [T, D] or null
  const float* weight;   // [D]; null: out = v
  ActivationPtr out;     // like x; may equal x; null: only the residual is written
  int64_t num_tokens;
  int64_t width;  // D
  float eps;
  NormKind kind = NormKind::kRms;
  const float* bias = nullptr;  // [D] or null
  float x_scale = 1;
  int64_t group_width = 0;  // a divisor of D; 0: D
  int64_t stride = 0;       // 0: D. REQUIRES residual null where it is another
};

// out[t, o] = sum_i x[t, i] * w[o, i] + bias[o]; each output element is summed in one fixed order
// whatever T is. Where the weights are quantized x is quantized too (weight_format.h).
struct LinearParams {
  ConstActivationPtr x;  // [T, in]
  const Matrix* weight;  // [out, in]
  const float* bias;     // [out] or null
  ActivationPtr out;     // [T, out]; f32 for logits
  int64_t num_tokens;
};

// The KV storage of one layer. Element e of head h of slot s (page s / P, offset s % P):
//   k: base + page * page_stride + offset * slot_stride + h * head_stride + e
//   v: the same + v_offset
// Only RopeKvWrite and Attention touch it. Where a head's keys of a page are one block (slot_stride
// == head_dim, the fast layout of the CPU), an implementation may order what is in the block as it
// likes. `base` is of the activations' dtype, or on the CPU bf16 (KvDType): then queries and
// softmax weights may be rounded to bf16 too where they are multiplied.
struct KvLayer {
  ActivationPtr base;
  int64_t page_stride;  // in elements, like all strides
  int64_t slot_stride;
  int64_t head_stride;
  int64_t v_offset;
  int32_t page_size;
};

// What keys and values are kept as: what activations are; but bf16 where those are f32 (the CPU)
// and the model's weights bf16 or quantized from it, for half the memory and half of what attention
// reads.
inline DType KvDType(DType activation_dtype, DType weight_dtype) {
  return activation_dtype == DType::kF32 && weight_dtype == DType::kBF16 ? DType::kBF16
                                                                         : activation_dtype;
}

// Rotates q and k by position and writes k and v to their slots. Rotary, "half" form: pair (i, i +
// rot/2) for i < rot/2 is turned by angle position * inverse_frequency[i]; features past rot stay.
// q and k scaled by attention_factor where rotated (longrope, yarn). Order: norm, rotation,
// query_scale; norm_last puts the norm behind the rotation.
struct RopeKvWriteParams {
  // [T, (H + 2 HKV) * E]: q, k, v of a token side by side; q rotated in place, k and v undefined
  // afterwards
  ActivationPtr qkv;
  const int32_t* positions;  // [T]
  const int64_t* slots;      // [T]
  const float* cos;          // [max_seq_len, rot/2], attention_factor multiplied in; null: rot is 0
  const float* sin;          // [max_seq_len, rot/2]
  KvLayer kv;
  int64_t num_tokens;
  int32_t num_heads, num_kv_heads, head_dim, rotary_dim;
  // [E] each, or null: q and k are first RMS-normalised head by head with these weights (QK-norm).
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  float norm_eps = 0;
  bool norm_last = false;
  const float* query_scale =
      nullptr;  // [max_seq_len] what q at a position is multiplied by, or null
};

// Causal attention through the page table: token t of row r at position p attends to keys 0..p of
// that row. Keys are taken in position order in tiles of a constant size, so a result does not
// depend on page size, chunking or batch-mates.
struct AttentionParams {
  ConstActivationPtr qkv;  // [T, (H + 2 HKV) * E]: q is read
  ActivationPtr out;       // [T, H * E]
  KvLayer kv;
  const int32_t* page_table;  // [rows of the table, page_table_stride]
  int64_t page_table_stride;
  const int32_t* table_row;  // [R]
  const int32_t* row_begin;  // [R + 1]
  const int32_t* kv_len;     // [R] >= extend length of the row
  int32_t num_rows;
  // Rows 0 .. num_decode_rows - 1 have one token each: a hint for how to divide the work.
  int32_t num_decode_rows = 0;
  int64_t num_tokens;
  int32_t num_heads, num_kv_heads, head_dim;
  float scale;             // scores are q.k * scale
  int32_t sliding_window;  // 0: none; w: keys p-w+1..p
  float logit_softcap;     // 0: none; c: s -> c * tanh(s / c)
  // [H] a logit that takes part in each head's softmax and carries no value; or null
  const float* sinks;
  // Calls of one number have the same rows, lengths and page table contents (the layers of a step
  // do), so that what is planned for one serves all; 0: nothing is known.
  uint64_t step = 0;
};

// out[t, i] = act(gate_up[t, i]) * gate_up[t, I + i]; not gated: out[t, i] = act(gate_up[t, i]).
struct ActivateParams {
  ConstActivationPtr gate_up;  // [T, 2 I]; [T, I] where not gated
  ActivationPtr out;           // [T, I]
  int64_t num_tokens;
  int64_t width;  // I
  Activation activation;
  bool gated = true;
  float limit = 0;  // kClampedSwiglu
};

// values[i] = cap * tanh(values[i] / cap)
struct SoftcapParams {
  float* values;
  int64_t count;
  float cap;
};

// --- mixture of experts: X experts, K of them for each token -------------------------------------

// Matrices [out, in] of one shape, one for each expert, made by Ops::PackExperts.
struct ExpertMatrices {
  int64_t num_experts = 0;
  int64_t num_out = 0;
  int64_t num_in = 0;
  DType dtype = DType::kF32;
  std::shared_ptr<const void> storage;
  Quantization quantization = Quantization::kNone;
};

// The K experts with the largest logits of each token, largest first (of equals the lower number),
// and their shares: softmax over the chosen (`over_chosen`), or over all experts.
struct RouteParams {
  const float* logits;  // [T, X]
  int32_t* experts;     // [T, K]
  float* shares;        // [T, K]
  int64_t num_tokens;
  int32_t num_experts;
  int32_t num_chosen;  // K <= X
  bool over_chosen;
};

// out[t K + k, o] = sum_i x[t, i] * w_e[o, i] + bias[e, o] with e = experts[t, k]; x[t K + k, i]
// where `x_per_choice`. Each output element is summed in one fixed order whatever T is, and whoever
// else chose e.
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

// out[t, :] = sum_k shares[t, k] * x[t K + k, :], in order of k, and after them shared[t, :] *
// sigmoid(shared_gate[t]) where shared is given (without a gate, * 1).
struct CombineExpertsParams {
  ConstActivationPtr x;       // [T * K, D]
  const float* shares;        // [T, K]
  ConstActivationPtr shared;  // [T, D] or null
  const float* shared_gate;   // [T] or null
  ActivationPtr out;          // [T, D]; may equal shared
  int64_t num_tokens;
  int64_t width;  // D
  int32_t num_chosen;
};

// out[i, :] = x[rows[i], :]
struct GatherRowsParams {
  ConstActivationPtr x;  // [*, D]
  const int32_t* rows;   // [N]
  ActivationPtr out;     // [N, D], of the dtype of x
  int64_t num_rows;
  int64_t width;
};

// Chooses the next token of each of N rows; the order of steps and of the draw is told in
// src/cpu/sampler.h. Log-probabilities are of the raw logits. A row whose raw logits hold NaN or
// +infinity, or whose bans leave no token, has the outcome kNonFinite. Ids in bias, bans and
// history are in [0, V).
struct SampleParams {
  float* logits;       // [N, V]; overwritten
  int64_t num_rows;    // N
  int64_t vocab_size;  // V
  // Host arrays over the N rows:
  const SamplingParams* const* sampling;  // [N]
  const int32_t* const* history;          // [N] the row's token pool (prompt, then answer so far)
  const int32_t* prompt_len;              // [N]
  // [N]; answer so far: history_len - prompt_len tokens, which is the index of the draw
  const int32_t* history_len;
  RowResult* results;  // [N]
};

}  // namespace minisgl
