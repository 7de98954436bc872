// Keys of mixtures of experts that several families share.
#pragma once

#include <cstdint>

#include "minisgl/weights/model_config.h"
#include "weights/field_reader.h"

namespace minisgl::weights {

// The range of a number of stored layers that draft tokens.
inline constexpr IntRange kPredictionLayersRange = {0, 64};

// Reads the number of experts and the number chosen for each token, for all layers. `key`: the
// first name of the number of experts; num_local_experts is the other. `chosen_key`: of the number
// chosen; null: that is `num_chosen`.
void ReadExperts(FieldReader* reader, int64_t num_experts, int64_t num_chosen, ModelConfig* config,
                 const char* key = "num_experts", const char* chosen_key = "num_experts_per_tok");

// Reads how experts are chosen by groups. REQUIRES num_experts, num_chosen and
// routing.best_of_group.
void ReadExpertGroups(FieldReader* reader, ExpertsConfig* experts, int64_t num_groups = 1,
                      int64_t num_chosen_groups = 1);

// Defaults of absent keys.
struct SigmoidDefaults {
  double factor = 1;       // of the shares
  const char* shared_key;  // of the number of shared experts
  int64_t shared_min = 1;  // of that number
  int64_t num_dense = 1;   // first layers without experts
  int64_t num_groups = 1, num_chosen_groups = 1;
};
// Scores are sigmoids of each logit, with a bias for the choice; groups, a factor, layers without
// experts first. REQUIRES experts that were read.
void ReadBiasedSigmoids(FieldReader* reader, const SigmoidDefaults& defaults, ModelConfig* config);

// Reads mlp_layer_types, if there is such a list: the layers with experts.
void ReadMlpLayerTypes(FieldReader* reader, ModelConfig* config);

}  // namespace minisgl::weights
