// See stream_norms.h.
#include "model/stream_norms.h"

namespace minisgl::model {

NormParams StreamNorms::Params(const NormWeights& weights, int64_t num_tokens) const {
  return {.x = nullptr,
          .residual = nullptr,
          .weight = weights.weight.data(),
          .out = nullptr,
          .num_tokens = num_tokens,
          .width = config_.hidden_size,
          .eps = static_cast<float>(config_.norm_eps),
          .kind = config_.norm_kind,
          .bias = weights.bias.data(),
          .x_scale = static_cast<float>(config_.residual_scale)};
}

NormParams StreamNorms::AddAndNorm(ConstActivationPtr x, const NormWeights& norm,
                                   int64_t num_tokens, float factor, double scale) const {
  NormParams params = Params(norm, num_tokens);
  if (scale != 0) params.x_scale = static_cast<float>(scale);
  params.x = x;
  params.residual = space_.residual.data();
  params.out = space_.hidden.ptr();
  params.residual_factor = factor;
  return params;
}

void StreamNorms::NormTo(const NormWeights& norm, ActivationPtr out, int64_t num_tokens) const {
  NormParams params = Params(norm, num_tokens);
  params.residual = space_.residual.data();
  params.out = out;
  ops_->Norm(params);
}

void StreamNorms::NormEmbedding(const DeviceArray<float>& ones, int64_t num_tokens) const {
  float* const stream = space_.residual.data();
  ops_->Norm({.x = stream,
              .residual = nullptr,
              .weight = ones.data(),
              .out = stream,
              .num_tokens = num_tokens,
              .width = config_.hidden_size,
              .eps = static_cast<float>(config_.norm_eps)});
}

void StreamNorms::Add(ConstActivationPtr x, int64_t num_tokens, double scale) const {
  NormParams params = Params(NormWeights(), num_tokens);
  if (scale != 0) params.x_scale = static_cast<float>(scale);
  params.x = x;
  params.residual = space_.residual.data();
  ops_->Norm(params);
}

NormParams StreamNorms::OutputNorm(const NormWeights& norm, int64_t num_tokens) const {
  NormParams params = Params(norm, num_tokens);
  params.x = space_.hidden.ptr();
  params.out = space_.hidden.ptr();
  if (config_.post_norm_eps > 0) params.eps = static_cast<float>(config_.post_norm_eps);
  return params;
}

}  // namespace minisgl::model
