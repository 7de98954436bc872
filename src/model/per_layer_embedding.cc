// See per_layer_embedding.h.
#include "model/per_layer_embedding.h"

#include <numbers>

#include "minisgl/tensor/dtype.h"

namespace minisgl::model {

namespace {

// Returns `scale`, a factor of `config`.
float ScaleOf(const ModelConfig& config, double scale, DType dtype) {
  const auto exact = static_cast<float>(scale);
  if (!config.rounds_embedding_scales || dtype == DType::kF32) return exact;
  return dtype == DType::kBF16 ? Bf16ToFloat(FloatToBf16(exact)) : F16ToFloat(FloatToF16(exact));
}

}  // namespace

float EmbeddingScale(const ModelConfig& config, DType dtype) {
  return ScaleOf(config, config.embedding_scale, dtype);
}

void EmbedForLayers(const ModelConfig& config, const DecoderOptions& options,
                    const PerLayerTable& table, const Workspace& space, const ForwardInput& input,
                    Ops* ops) {
  const float scale = ScaleOf(config, config.per_layer_scale, options.weight_format.dtype);
  const int64_t num_tokens = input.num_tokens;
  ops->Embedding({.ids = input.per_layer_ids != nullptr ? input.per_layer_ids : input.token_ids,
                  .table = table.table ? nullptr : &table.device_table,
                  .scale = static_cast<float>(scale / std::numbers::sqrt2),
                  .out = space.per_layer_sum.data(),
                  .num_tokens = num_tokens,
                  .stored = table.table ? &*table.table : nullptr});
  // Copies the stream.
  ops->Norm({.x = nullptr,
             .residual = space.residual.data(),
             .weight = nullptr,
             .out = space.hidden.ptr(),
             .num_tokens = num_tokens,
             .width = config.hidden_size,
             .eps = static_cast<float>(config.norm_eps)});
  ops->Linear({.x = space.hidden.ptr(),
               .weight = &table.projection,
               .bias = nullptr,
               .out = space.per_layer.ptr(),
               .num_tokens = num_tokens});
  NormParams params = {
      .x = space.per_layer.ptr(),
      .residual = nullptr,
      .weight = table.norm.data(),
      .out = space.per_layer.ptr(),
      .num_tokens = num_tokens,
      .width = int64_t{config.num_layers} * config.per_layer_width,
      .eps = static_cast<float>(config.norm_eps * static_cast<double>(config.hidden_size)),
      .group_width = config.per_layer_width};
  ops->Norm(params);
  params.residual = space.per_layer_sum.data();
  params.weight = nullptr;
  ops->Norm(params);
}

void ApplyPerLayer(const ModelConfig& config, const PerLayerWeights& weights, size_t index,
                   const Workspace& space, int64_t num_tokens, const Matrix* next, Ops* ops) {
  const int64_t width = config.per_layer_width;
  ops->Linear({.x = space.hidden.ptr(),
               .weight = &weights.gate,
               .bias = nullptr,
               .out = space.per_layer_gate.ptr(),
               .num_tokens = num_tokens,
               .next = &weights.output});
  ops->Activate({.gate_up = space.per_layer_gate.ptr(),
                 .out = space.per_layer_gated.ptr(),
                 .num_tokens = num_tokens,
                 .width = width,
                 .activation = config.activation,
                 .gated = false,
                 .up = space.per_layer.ptr().At(static_cast<int64_t>(index) * width),
                 .up_stride = int64_t{config.num_layers} * width});
  ops->Linear({.x = space.per_layer_gated.ptr(),
               .weight = &weights.output,
               .bias = nullptr,
               .out = space.hidden.ptr(),
               .num_tokens = num_tokens,
               .next = next});
}

}  // namespace minisgl::model
