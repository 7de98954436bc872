// Which part of each tensor a rank has (minisgl/model/ranks.h).
#pragma once

#include <cstdint>
#include <vector>

#include "minisgl/model/ranks.h"
#include "minisgl/tensor/weight_tensor.h"
#include "minisgl/weights/model_config.h"
#include "weights/architectures.h"

namespace minisgl::model {

struct Span {
  int64_t first = 0, count = 0;
  bool operator==(const Span&) const = default;
};

// The part of a tensor in the decoder's order of outputs (model_weights.h).
struct TensorCut {
  enum class Axis : uint8_t {
    kWhole,
    kOutputs,    // rows, or elements of a vector
    kInputs,     // of a matrix; `spans` has one
    kFirstRank,  // all of it on the first rank, nothing on others: it is added to a sum over ranks
  };
  Axis axis = Axis::kWhole;
  std::vector<Span> spans;  // one after another
};

// The cut of the tensor, or of the tensors of all heads, with `role` in layer `layer` (-1: outside
// the layers). Of the queries of ModelConfig::gate_in_query: of the queries alone. Of the fused
// products before a state: of StateParts::input and StateParts::scalars.
TensorCut CutOf(const ModelConfig& config, int32_t layer, weights::TensorRole role,
                const Rank& rank);

// What the rank has of a matrix, or of a vector (or rows of `columns` elements), in the decoder's
// order.
WeightTensor CutMatrix(const WeightTensor& matrix, const TensorCut& cut);
std::vector<float> CutVector(std::vector<float> all, const TensorCut& cut, const Rank& rank,
                             int64_t columns = 1);

// A rank's spans of StateParts::input, the channels of the convolution; of StateParts::gate; and of
// StateParts::scalars, which are `num_scalars` of all heads.
std::vector<Span> StateChannelSpans(const ModelConfig& config, Mixer mixer, const Rank& rank);
std::vector<Span> StateGateSpans(const StateConfig& states, const Rank& rank);
std::vector<Span> StateScalarSpans(const StateConfig& states, int64_t num_scalars,
                                   const Rank& rank);

// The heads of `num_heads` that a rank has. Of fewer heads than ranks it has one.
Span HeadSpan(int64_t num_heads, const Rank& rank);

// Inputs that codes cannot be cut between without being expanded, because they share a scale or a
// factor of it; 0: they may be cut anywhere.
int64_t GroupOfCodes(const QuantScheme& scheme);

// Consecutive features of `width`: nearly the same number on each rank. Their bounds are multiples
// of the groups of quantized inputs, or of kQuantBlock, if `width` is one and has enough of them.
Span FeatureSpan(const ModelConfig& config, int64_t width, const Rank& rank);
// [ranks + 1] where they begin and end.
std::vector<int64_t> FeatureBounds(const ModelConfig& config, int64_t width, int32_t num_ranks);

// The numbers first, first + 1, ... of each span, and the rows that stand at them.
std::vector<int64_t> Numbers(const std::vector<Span>& spans);
std::vector<int64_t> TakeSpans(const std::vector<int64_t>& rows, const std::vector<Span>& spans);

}  // namespace minisgl::model
