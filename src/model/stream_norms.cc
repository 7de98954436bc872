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

void StreamNorms::NormSum(const NormWeights& norm, int64_t num_tokens) const {
  Add(space_.hidden.ptr(), num_tokens);
  NormStream(norm, num_tokens);
}

void StreamNorms::NormStream(const NormWeights& norm, int64_t num_tokens) const {
  NormParams params = Params(norm, num_tokens);
  params.x = space_.residual.data();
  params.out = space_.residual.data();
  ops_->Norm(params);
  NormTo(NormWeights(), space_.hidden.ptr(), num_tokens);
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

ActivationPtr StreamNorms::NormWanted(const NormWeights& weights, const int32_t* wanted,
                                      int64_t num_rows, float factor) const {
  ActivationPtr hidden = space_.hidden.ptr();
  float* residual = space_.residual.data();
  if (wanted != nullptr) {
    const auto gather = [&](ConstActivationPtr from, ActivationPtr to) {
      ops_->GatherRows({.x = from,
                        .rows = wanted,
                        .out = to,
                        .num_rows = num_rows,
                        .width = config_.hidden_size});
    };
    gather(hidden, space_.wanted_hidden.ptr());
    gather(residual, space_.wanted_residual.data());
    hidden = space_.wanted_hidden.ptr();
    residual = space_.wanted_residual.data();
  }
  NormParams norm = Params(weights, num_rows);
  // The parts of an encoder have added what they left.
  const bool has_added = config_.norm_placement == NormPlacement::kAfterSum;
  norm.x = has_added ? ConstActivationPtr() : ConstActivationPtr(hidden);
  norm.residual = residual;
  norm.out = hidden;
  norm.residual_factor = factor;
  ops_->Norm(norm);
  return hidden;
}

ActivationPtr StreamNorms::CopyWanted(ActivationPtr normed, int64_t num_rows) const {
  NormParams params = Params(NormWeights(), num_rows);
  params.residual = space_.wanted_residual.data();
  params.out = normed;
  ops_->Norm(params);
  return normed;
}

}  // namespace minisgl::model
