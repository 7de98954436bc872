// The arrays of a forward pass, allocated once for the largest step.
//
// Letters: T tokens (max_step_tokens), N rows of logits (max_logit_rows), K experts of a token.
// Sizes that differ from layer to layer are those of the layer that needs most. The
// residual stream, the logits and the routing of experts are f32 on every device. Arrays that the
// model does not need are null.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/device_array.h"
#include "minisgl/model/decoder.h"
#include "minisgl/ops.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::model {

struct RotaryTable {
  DeviceArray<float> cos, sin;  // [max_seq_len, dim / 2]
};

inline constexpr int64_t kTransitionRows = 8;

struct Workspace {
  DeviceArray<float> residual;  // [T, D] residual stream
  ActivationArray hidden;       // [T, D] input and output of each part of a block
  // [T, D] embeddings of positions, then of types, of an encoder, and what entered its layer
  DeviceArray<float> placed;
  DeviceArray<int32_t> zero_types;  // [T] zeros
  // [C, T, D] of C layers the residual stream that enters each (DecoderOptions::kept_layers)
  ActivationArray entering;
  // [T, D] output of attention in parallel blocks; experts beside dense; products of states
  ActivationArray branch;
  ActivationArray qkv;        // [T, H * E + HKV * (E + EV)]
  ActivationArray state_qkv;  // likewise: kEagle's part of it that states decide
  // An assistant's embeddings of the target, the states it hands on, and scores of clusters.
  DeviceArray<float> target_embedding;  // [T, B]
  ActivationArray embedding_input;      // [T, B] the same
  ActivationArray target_state;         // [N, B]
  DeviceArray<float> cluster_scores;    // [N, CT]
  // The transitions of a head, of at most kTransitionRows drafts at once.
  DeviceArray<float> transition_floats;  // [TN, TR]
  ActivationArray transition_states;     // [TN, TR]
  DeviceArray<float> transition_logits;  // [TN, V of the whole model]
  ActivationArray attention;             // [T, H * EV]
  ActivationArray attention_gate;        // [T, H * EV]
  // Latent attention: queries before they are multiplied by keys' matrices, and values after what
  // attention returns is multiplied by theirs: the wider of the two. Then the latent of queries.
  ActivationArray latent_heads;        // [T, H * (ER + EN)] or [T, H * EO]
  ActivationArray query_latent;        // [T, RQ]
  ActivationArray gate_up;             // [T, 2 I]
  ActivationArray gated;               // [T, I]
  DeviceArray<float> wanted_residual;  // [N, D]
  ActivationArray wanted_hidden;       // [N, D]
  DeviceArray<float> logits;           // [N, V]
  DeviceArray<float> all_logits;       // [N, V of the whole model], on ranks that gather them

  // Mean squares of queries, then of keys, or of the output of a state, over all of several ranks.
  DeviceArray<float> mean_squares;  // [2, T]

  DeviceArray<float> router_logits;  // [T, X]
  DeviceArray<int32_t> experts;      // [T, K]
  DeviceArray<float> shares;         // [T, K]
  ActivationArray expert_gate_up;    // [T * K, 2 J]
  ActivationArray expert_gated;      // [T * K, J]
  ActivationArray expert_out;        // [T * K, D], or [T * K, latent_size]
  ActivationArray latent;            // [T, latent_size]
  DeviceArray<float> shared_share;   // [T]; zeros, whose sigmoid is 1/2, if nothing writes it
  DeviceArray<float> ones;           // [T] shares of a sum of two, or [T, K]

  // Layers with a state:
  ActivationArray state_in;          // [T, C]; of gated convolutions [T, 3 C]
  ActivationArray state_conv;        // [T, C]
  ActivationArray state_gate;        // [T, inner_width]
  ActivationArray state_out;         // [T, inner_width]
  DeviceArray<float> state_scalars;  // [T, 2 H]

  // Per-layer embeddings: of all layers, then of one.
  DeviceArray<float> per_layer_sum;  // [T, L*P]
  ActivationArray per_layer;         // [T, L*P]
  ActivationArray per_layer_gate;    // [T, P]
  ActivationArray per_layer_gated;   // [T, P]

  std::vector<RotaryTable> rotary;  // one for each of ModelConfig::ropes
  // Positions of three parts: the tables of a step's tokens, and the numbers 0, 1, 2, ...
  DeviceArray<float> mixed_cos, mixed_sin;  // [T, dim / 2]
  DeviceArray<int32_t> token_indices;       // [T]
  DeviceArray<float> query_scales;          // [max_seq_len]
};

// `config`: of the rank; `whole_vocab_size`: of the whole model.
Result<Workspace> MakeWorkspace(const ModelConfig& config, const DecoderOptions& options,
                                int64_t whole_vocab_size, Ops* ops);

// Bytes that MakeWorkspace allocates; nullopt if 2^64 or more.
std::optional<uint64_t> WorkspaceBytes(const ModelConfig& config, const DecoderOptions& options,
                                       int64_t whole_vocab_size);

// The arrays of experts alone, in f32, for `num_tokens` tokens, and their bytes.
Result<Workspace> MakeExpertSpace(const ModelConfig& config, int64_t num_tokens, Ops* ops);
std::optional<uint64_t> ExpertSpaceBytes(const ModelConfig& config, int64_t num_tokens);

// Width of the activation of dense feed-forward parts: the larger of that of layers without experts
// and that of the shared expert.
int64_t GatedWidth(const ModelConfig& config);

}  // namespace minisgl::model
