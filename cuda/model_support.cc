// See model_support.h.
#include "model_support.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "kernels/kernels.h"

namespace minisgl::cuda {

Status CheckModelSupported(const ModelShape& shape) {
  constexpr int32_t kHeadDims[] = {64, 80, 96, 128, 256};
  if (shape.has_states) {
    return Status(StatusCode::kUnavailable, "no CUDA kernels for layers with a state");
  }
  if (!shape.has_uniform_attention) {
    return Status(
        StatusCode::kUnavailable,
        "no CUDA attention for layers of different shapes or with shared keys and values");
  }
  if (shape.has_layer_extras) {
    return Status(StatusCode::kUnavailable,
                  "no CUDA kernels for per-layer embeddings, normalised values, factors of layers, "
                  "gates of attention and experts beside a dense part");
  }
  if (shape.has_latent_attention) {
    return Status(StatusCode::kUnavailable, "no CUDA kernels for latent attention");
  }
  const auto refuse = [](std::string_view what, int64_t size, auto supported) {
    return MakeStatus(StatusCode::kUnavailable, "no CUDA {} {} ({})", what, size, supported);
  };
  if (std::find(std::begin(kHeadDims), std::end(kHeadDims), shape.head_dim) ==
      std::end(kHeadDims)) {
    return refuse("attention for a head_dim of", shape.head_dim,
                  fmt::format("supported: {}", fmt::join(kHeadDims, ", ")));
  }
  if (shape.value_dim != 0 && shape.value_dim != shape.head_dim) {
    return refuse("attention for values of a width of", shape.value_dim,
                  fmt::format("supported: head_dim, {}", shape.head_dim));
  }
  const auto at_most = [&](int64_t size, int64_t limit, std::string_view what) {
    return size <= limit ? Status() : refuse(what, size, fmt::format("at most {}", limit));
  };
  MINISGL_RETURN_IF_ERROR(at_most(shape.hidden_size, kNormWidthMax, "norm for a hidden_size of"));
  MINISGL_RETURN_IF_ERROR(
      at_most(shape.qk_norm_width, kNormWidthMax, "norm of all queries as one for a width of"));
  MINISGL_RETURN_IF_ERROR(
      at_most(shape.vocab_size, kSampleVocabMax, "sampling for a vocabulary of"));
  MINISGL_RETURN_IF_ERROR(
      at_most(shape.num_experts, kExpertsMax, "routing to a number of experts of"));
  return at_most(shape.num_expert_groups, kExpertGroupsMax,
                 "routing to a number of expert groups of");
}

}  // namespace minisgl::cuda
