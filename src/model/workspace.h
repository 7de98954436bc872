// The arrays a forward pass works in, made once for the largest step.
//
// T tokens (max_step_tokens), N rows of logits (max_logit_rows), K experts of a token. The residual
// stream, the logits and what chooses experts are f32, whatever the device computes with. Arrays
// that the model does not need are null.
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

struct Workspace {
  DeviceArray<float> residual;         // [T, D] the stream
  ActivationArray hidden;              // [T, D] into and out of each part of a block
  ActivationArray branch;              // [T, D] attention's part beside the feed-forward's
  ActivationArray qkv;                 // [T, (H + 2 HKV) * E]
  ActivationArray attention;           // [T, H * E]
  ActivationArray gate_up;             // [T, 2 I]
  ActivationArray gated;               // [T, I]
  DeviceArray<float> wanted_residual;  // [N, D]
  ActivationArray wanted_hidden;       // [N, D]
  DeviceArray<float> logits;           // [N, V]

  DeviceArray<float> router_logits;  // [T, X]
  DeviceArray<int32_t> experts;      // [T, K]
  DeviceArray<float> shares;         // [T, K]
  ActivationArray expert_gate_up;    // [T * K, 2 J]
  ActivationArray expert_gated;      // [T * K, J]
  ActivationArray expert_out;        // [T * K, D]
  DeviceArray<float> shared_share;   // [T]

  std::vector<RotaryTable> rotary;  // of each of ModelConfig::ropes
  DeviceArray<float> query_scales;  // [max_seq_len]
};

Result<Workspace> MakeWorkspace(const ModelConfig& config, const DecoderOptions& options, Ops* ops);

// What MakeWorkspace takes. Nothing where that is past 2^64.
std::optional<uint64_t> WorkspaceBytes(const ModelConfig& config, const DecoderOptions& options);

// Features that come in and go out of a feed-forward part's activation: of layers without experts,
// or the part that experts share, whichever is wider.
int64_t GatedWidth(const ModelConfig& config);

}  // namespace minisgl::model
