// See model_support.h.
#include "model_support.h"

#include <string>

#include "kernels/kernels.h"

namespace minisgl::cuda {

Status CheckModelSupported(const ModelShape& shape) {
  const auto refuse = [](std::string_view what, int64_t size, auto supported) {
    return MakeStatus(StatusCode::kUnavailable, "no CUDA {} {} ({})", what, size, supported);
  };
  for (const AttentionHeads& heads : shape.heads) {
    if (HasAttention(heads.head_dim, heads.value_dim(), heads.values_in_keys)) continue;
    return MakeStatus(
        StatusCode::kUnavailable,
        "no CUDA attention for keys of {} elements{} values of {} (supported: "
        "multiples of 8 up to 512, or keys up to 576 with values of up to 512 in them)",
        heads.head_dim, heads.values_in_keys ? " with" : ",", heads.value_dim());
  }
  for (const AttentionHeads& heads : shape.heads) {
    if (!shape.adds_distances || HasDistances(heads.head_dim, heads.value_dim())) continue;
    return refuse("attention that adds numbers of distances, for heads of", heads.head_dim,
                  "64, or a size that is none of 80, 96, 128 and 256");
  }
  const auto at_most = [&](int64_t size, int64_t limit, std::string_view what) {
    return size <= limit ? Status() : refuse(what, size, fmt::format("at most {}", limit));
  };
  MINISGL_RETURN_IF_ERROR(at_most(shape.hidden_size, kNormWidthMax, "norm for a hidden_size of"));
  MINISGL_RETURN_IF_ERROR(
      at_most(shape.qk_norm_width, kNormWidthMax, "norm of all queries as one for a width of"));
  MINISGL_RETURN_IF_ERROR(at_most(shape.state_norm_width, kNormWidthMax,
                                  "norm of a recurrent layer's output for a width of"));
  MINISGL_RETURN_IF_ERROR(at_most(shape.state_key_dim, kStateKeysMax,
                                  "recurrence for states with a number of keys of"));
  MINISGL_RETURN_IF_ERROR(
      at_most(shape.tower_head_dim, kSegmentHeadDimMax, "attention of a tower for heads of"));
  MINISGL_RETURN_IF_ERROR(
      at_most(shape.tower_norm_width, kNormWidthMax, "norm of a tower for a width of"));
  MINISGL_RETURN_IF_ERROR(
      at_most(shape.vocab_size, kSampleVocabMax, "sampling for a vocabulary of"));
  MINISGL_RETURN_IF_ERROR(
      at_most(shape.num_experts, kExpertsMax, "routing to a number of experts of"));
  return at_most(shape.num_expert_groups, kExpertGroupsMax,
                 "routing to a number of expert groups of");
}

}  // namespace minisgl::cuda
