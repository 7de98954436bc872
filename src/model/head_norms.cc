// See head_norms.h.
#include "model/head_norms.h"

#include <span>

#include "model/rank_norms.h"

namespace minisgl::model {

int32_t HeadNorms::OwnKvHeads(size_t index) const {
  return config_.layers[index].kv_layer < 0 ? shapes_[index].num_kv_heads : 0;
}

int64_t HeadNorms::TokenWidth(size_t index) const {
  const LayerShape& shape = shapes_[index];
  return QkvWidth(shape.num_heads, OwnKvHeads(index), shape.head_dim,
                  shape.values_in_keys ? 0 : shape.value_dim);
}

void HeadNorms::NormQueriesAndKeys(size_t index, int64_t num_tokens) const {
  if (config_.qk_norm != QkNorm::kWhole && config_.qk_norm != QkNorm::kHeadOwn) return;
  const LayerWeights& layer = weights_.layers[index];
  const int32_t heads = shapes_[index].num_heads, kv_heads = OwnKvHeads(index);
  NormParams norms[] = {
      NormOfHeads(index, layer.query_norm, layer.query_norm_bias, 0, heads, num_tokens),
      NormOfHeads(index, layer.key_norm, layer.key_norm_bias, heads, kv_heads, num_tokens)};
  const std::span<NormParams> own(norms, kv_heads > 0 ? 2 : 1);
  if (num_ranks_ > 1 && config_.qk_norm == QkNorm::kWhole) {
    NormOverRanks(own, num_ranks_, space_.mean_squares.data(), ops_);
  } else {
    for (const NormParams& norm : own) ops_->Norm(norm);
  }
}

NormParams HeadNorms::NormOfHeads(size_t index, const DeviceArray<float>& weight,
                                  const DeviceArray<float>& bias, int64_t first, int64_t count,
                                  int64_t num_tokens) const {
  const int64_t head_dim = shapes_[index].head_dim;
  const ActivationPtr heads = space_.qkv.ptr().At(first * head_dim);
  return {.x = heads,
          .residual = nullptr,
          .weight = weight.data(),
          .out = heads,
          .num_tokens = num_tokens,
          .width = count * head_dim,
          .eps = static_cast<float>(config_.norm_eps),
          .kind = config_.norm_kind,
          .bias = bias.data(),
          .group_width = config_.qk_norm == QkNorm::kHeadOwn ? head_dim : count * head_dim,
          .stride = TokenWidth(index)};
}

void HeadNorms::NormValues(size_t index, int64_t num_tokens) const {
  const LayerShape& shape = shapes_[index];
  const int64_t count = OwnKvHeads(index);
  if (!config_.value_norm || count == 0) return;
  const ActivationPtr values =
      space_.qkv.ptr().At((int64_t{shape.num_heads} + count) * shape.head_dim);
  ops_->Norm({.x = values,
              .residual = nullptr,
              .weight = weights_.value_norm.data(),
              .out = values,
              .num_tokens = num_tokens,
              .width = count * shape.value_dim,
              .eps = static_cast<float>(config_.norm_eps),
              .group_width = shape.value_dim,
              .stride = TokenWidth(index)});
}

}  // namespace minisgl::model
