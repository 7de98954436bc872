// The norms over the hidden size, and additions to the residual stream.
#pragma once

#include <cstdint>

#include "minisgl/ops.h"
#include "minisgl/weights/model_config.h"
#include "model/model_weights.h"
#include "model/workspace.h"

namespace minisgl::model {

class StreamNorms {
 public:
  // All must outlive it.
  StreamNorms(const ModelConfig& config, const Workspace& space, Ops* ops)
      : config_(config), space_(space), ops_(ops) {}

  // The parameters common to all norms over the hidden size.
  NormParams Params(const NormWeights& weights, int64_t num_tokens) const;
  // Adds `x` (if not null), times `scale` (0: residual_scale), to the residual stream, multiplies
  // that by `factor`, and writes the norm of the stream to `hidden`; if the architecture has no
  // norm here, writes the stream itself.
  NormParams AddAndNorm(ConstActivationPtr x, const NormWeights& norm, int64_t num_tokens,
                        float factor = 1, double scale = 0) const;
  // The sum that an encoder's part ends with (NormPlacement::kAfterSum): adds `hidden` to the
  // residual stream, normalises that in place, and leaves it in `hidden`, too.
  void NormSum(const NormWeights& norm, int64_t num_tokens) const;
  // Normalises the residual stream in place, and leaves it in `hidden`, too.
  void NormStream(const NormWeights& norm, int64_t num_tokens) const;
  // The same of the stream and `x`.
  void NormStreamAnd(ConstActivationPtr x, const NormWeights& norm, int64_t num_tokens) const {
    Add(x, num_tokens);
    NormStream(norm, num_tokens);
  }
  // Writes the norm of the residual stream to `out`.
  void NormTo(const NormWeights& norm, ActivationPtr out, int64_t num_tokens) const;
  // Normalises the residual stream in place, without weights.
  void NormEmbedding(const DeviceArray<float>& ones, int64_t num_tokens) const;
  // Adds `x`, times `scale` (0: residual_scale), to the residual stream.
  void Add(ConstActivationPtr x, int64_t num_tokens, double scale = 0) const;
  // The norm of `hidden` in place, of an architecture with norms after its parts.
  NormParams OutputNorm(const NormWeights& norm, int64_t num_tokens) const;
  // Adds what the last layer left in `hidden` to the residual stream, multiplies that by `factor`,
  // and writes the norm of tokens `wanted` [num_rows] of it to the workspace's `wanted_hidden`;
  // null: of the first num_rows, to `hidden`. Returns where it wrote.
  ActivationPtr NormWanted(const NormWeights& norm, const int32_t* wanted, int64_t num_rows,
                           float factor) const;
  // Writes the streams that NormWanted has left of tokens `wanted`, without the norm, over what it
  // returned: `normed`.
  ActivationPtr CopyWanted(ActivationPtr normed, int64_t num_rows) const;

 private:
  const ModelConfig& config_;
  const Workspace& space_;
  Ops* const ops_;
};

}  // namespace minisgl::model
