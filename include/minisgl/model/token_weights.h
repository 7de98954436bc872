// How much of a model one token uses: the counts behind limits of speed, and behind what a step
// costs.
#pragma once

#include "minisgl/tensor/weight_format.h"
#include "minisgl/weights/model_config.h"

namespace minisgl {

// Elements of the matrices that one token is multiplied with. Norms, convolutions and gains are too
// small to matter.
struct TokenWeights {
  double layers = 0;          // of all layers, with the experts that the token chooses
  double chosen_experts = 0;  // of those, the experts that a router chose
  double head = 0;            // of the output head
  double pair_flops = 0;      // operations for one token and one key, in all layers
};
TokenWeights CountTokenWeights(const ModelConfig& config);

// Bytes of one element of a matrix whose rows are whole lines of codes. Routers, which are never
// quantized, are too small to matter.
double BytesPerWeight(const WeightFormat& format);

// Bytes of weights that a step of one row reads.
double StepWeightBytes(const TokenWeights& weights, const WeightFormat& format);

}  // namespace minisgl
