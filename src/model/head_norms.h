// The norms of the heads of a layer's queries, keys and values, apart from the rotation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "minisgl/device_array.h"
#include "minisgl/ops.h"
#include "minisgl/weights/model_config.h"
#include "model/model_weights.h"
#include "model/workspace.h"

namespace minisgl::model {

class HeadNorms {
 public:
  // All must outlive it. `config`: of the rank.
  HeadNorms(const ModelConfig& config, const std::vector<LayerShape>& shapes,
            const ModelWeights& weights, const Workspace& space, int32_t num_ranks, Ops* ops)
      : config_(config),
        shapes_(shapes),
        weights_(weights),
        space_(space),
        num_ranks_(num_ranks),
        ops_(ops) {}

  // KV heads that layer `index` writes: none if it reads those of an earlier layer.
  int32_t OwnKvHeads(size_t index) const;
  // Elements of a token in the workspace's `qkv`.
  int64_t TokenWidth(size_t index) const;

  // Normalise queries and keys in place, each as one vector or head by head, and the values of each
  // head, without weights. The first does so only if the architecture has such norms.
  void NormQueriesAndKeys(size_t index, int64_t num_tokens) const;
  void NormValues(size_t index, int64_t num_tokens) const;

 private:
  // The norm of heads [first, first + count) of qkv.
  NormParams NormOfHeads(size_t index, const DeviceArray<float>& weight,
                         const DeviceArray<float>& bias, int64_t first, int64_t count,
                         int64_t num_tokens) const;

  const ModelConfig& config_;
  const std::vector<LayerShape>& shapes_;  // [layers]
  const ModelWeights& weights_;
  const Workspace& space_;
  const int32_t num_ranks_;
  Ops* const ops_;
};

}  // namespace minisgl::model
