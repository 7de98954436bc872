// The transformer, written once over Ops: embedding, layers, final norm, output head.
//
// Holds packed weights and workspace for at most `max_step_tokens` tokens; no KV (the caller's) and
// no state between calls. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/ops.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"

namespace minisgl {

// What one forward pass works on. Arrays are in device memory (on the CPU plain memory), laid out
// as BatchPlan says.
struct ForwardInput {
  int32_t num_tokens = 0;               // T
  int32_t num_rows = 0;                 // R
  int32_t num_decode_rows = 0;          // the first rows that have one token each: a hint
  const int32_t* token_ids = nullptr;   // [T]
  const int32_t* positions = nullptr;   // [T]
  const int64_t* slots = nullptr;       // [T]
  const int32_t* table_row = nullptr;   // [R]
  const int32_t* row_begin = nullptr;   // [R + 1]
  const int32_t* kv_len = nullptr;      // [R]
  const int32_t* page_table = nullptr;  // [*, page_table_stride]
  int64_t page_table_stride = 0;
  // Of layers with a sliding window, where their keys and values lie apart (EngineLimits); null:
  // they lie where all others do.
  const int32_t* window_page_table = nullptr;  // like page_table
  const int64_t* window_slots = nullptr;       // [T]
  std::span<const KvLayer> kv;                 // [layers], on the host
  const int32_t* logit_tokens = nullptr;       // [N] tokens of the step whose logits are wanted
  int32_t num_logit_tokens = 0;                // N
  // A number that no other pass over these Ops has, where all arrays are on the host
  // (AttentionParams); 0: none.
  uint64_t step = 0;
};

struct DecoderOptions {
  WeightFormat weight_format;
  DType activation_dtype = DType::kF32;  // of the Ops
  int64_t max_step_tokens = 0;
  int64_t max_logit_rows = 0;
  int64_t max_seq_len = 0;  // length of the rotary tables
};

class Decoder {
 public:
  // Checks that every tensor the architecture needs is there in the shape that `config` says, that
  // none is there that it does not know, and packs them. Loading says its progress through
  // base/log.h.
  static Result<std::unique_ptr<Decoder>> Load(const ModelConfig& config,
                                               const Checkpoint& checkpoint,
                                               const DecoderOptions& options, Ops* ops);
  virtual ~Decoder() = default;

  // [N, V] logits in the decoder's workspace, valid until the next call.
  virtual float* Forward(const ForwardInput& input) = 0;

  virtual const ModelConfig& config() const = 0;
  // Bytes of packed weights (but for what fills up the last rows of a packed matrix) and of
  // workspace.
  virtual uint64_t weight_bytes() const = 0;
  virtual uint64_t workspace_bytes() const = 0;
};

// What a decoder will take, by its configuration alone: the same numbers as weight_bytes() and
// workspace_bytes(). Nothing where that is past 2^64.
struct DecoderBytes {
  std::optional<uint64_t> weights;
  std::optional<uint64_t> workspace;
};
DecoderBytes CountDecoderBytes(const ModelConfig& config, const DecoderOptions& options);

// cos and sin tables [max_seq_len, rope.dim / 2] of `rope`, computed in double and multiplied by
// its attention_factor. Where the rule depends on the length of a sequence, `max_seq_len` is taken
// for it.
void MakeRotaryTables(const RopeConfig& rope, int64_t max_seq_len, std::vector<float>* cos,
                      std::vector<float>* sin);

// [max_seq_len] what queries are multiplied by at each position (ModelConfig::query_scale_beta).
std::vector<float> MakeQueryScales(double beta, int64_t length, int64_t max_seq_len);

}  // namespace minisgl
