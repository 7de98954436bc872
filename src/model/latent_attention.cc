// See latent_attention.h.
#include "model/latent_attention.h"

namespace minisgl::model {
namespace {

// The eps of latents' norms, whatever rms_norm_eps says.
constexpr float kLatentEps = 1e-6f;

void NormLatent(const DeviceArray<float>& weight, ActivationPtr x, int64_t width, int64_t stride,
                int64_t num_tokens, Ops* ops) {
  ops->Norm({.x = x,
             .residual = nullptr,
             .weight = weight.data(),
             .out = x,
             .num_tokens = num_tokens,
             .width = width,
             .eps = kLatentEps,
             .stride = stride});
}

}  // namespace

void ComputeLatentQueries(const ModelConfig& config, const LayerWeights& layer,
                          const Workspace& space, int64_t num_tokens, Ops* ops) {
  const LatentConfig& sizes = config.latent;
  const LatentWeights& latent = layer.latent;
  const int64_t key_width = int64_t{sizes.rotary_dim} + sizes.rank;
  const int64_t token_width = (int64_t{config.num_heads} + 1) * key_width;
  const ActivationPtr key = space.qkv.ptr().At(config.num_heads * key_width);
  const bool has_query_latent = sizes.query_rank > 0;
  ops->Linear({.x = space.hidden.ptr(),
               .weight = &layer.qkv,
               .bias = layer.qkv_bias.data(),
               .out = key,
               .num_tokens = num_tokens,
               .next = has_query_latent ? &latent.query_down : &latent.query,
               .out_stride = token_width});
  NormLatent(latent.norm, key.At(sizes.rotary_dim), sizes.rank, token_width, num_tokens, ops);
  ConstActivationPtr x = space.hidden.ptr();
  if (has_query_latent) {
    const ActivationPtr down = space.query_latent.ptr();
    ops->Linear({.x = x,
                 .weight = &latent.query_down,
                 .bias = latent.query_down_bias.data(),
                 .out = down,
                 .num_tokens = num_tokens,
                 .next = &latent.query});
    NormLatent(latent.query_norm, down, sizes.query_rank, sizes.query_rank, num_tokens, ops);
    x = down;
  }
  ops->Linear({.x = x,
               .weight = &latent.query,
               .bias = nullptr,
               .out = space.latent_heads.ptr(),
               .num_tokens = num_tokens,
               .next = &layer.attention_output});
  ops->HeadLinear({.x = space.latent_heads.ptr(),
                   .weights = &latent.absorbed_keys,
                   .out = space.qkv.ptr(),
                   .num_tokens = num_tokens,
                   .num_copied = sizes.rotary_dim,
                   .out_stride = token_width});
}

ConstActivationPtr ExpandLatentValues(const LayerWeights& layer, const Workspace& space,
                                      int64_t num_tokens, Ops* ops) {
  ops->HeadLinear({.x = space.attention.ptr(),
                   .weights = &layer.latent.values,
                   .out = space.latent_heads.ptr(),
                   .num_tokens = num_tokens});
  return space.latent_heads.ptr();
}

}  // namespace minisgl::model
