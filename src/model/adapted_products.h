// The adapters of one decoder, and the operations that apply them.
#pragma once

#include <memory>

#include "minisgl/model/decoder.h"
#include "model/model_weights.h"

namespace minisgl::model {

// The configuration of the whole model, of which a rank has a part, and its files.
struct WholeModel {
  const ModelConfig& config;
  const Checkpoint& checkpoint;
};

class AdaptedProducts : public DecoderAdapters {
 public:
  // The operations that the decoder runs.
  virtual Ops* ops() = 0;
  // Before the layers, and before the output head.
  virtual void BeginTokens(const ForwardInput& input) = 0;
  virtual void BeginRows(const ForwardInput& input) = 0;
};

// Null unless options.takes_adapters.
std::unique_ptr<AdaptedProducts> MakeAdapters(const WholeModel& whole,
                                              const DecoderOptions& options,
                                              const ModelWeights& weights, Ops* ops);

}  // namespace minisgl::model
