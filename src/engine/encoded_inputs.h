// The embeddings of pictures that plans read, from the plan that has them encoded to the one that
// drops them; and what a plan's pictures mean for a forward pass.
//
// Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/batch_plan.h"
#include "minisgl/device_array.h"
#include "minisgl/model/decoder.h"
#include "minisgl/model/tower.h"
#include "minisgl/ops.h"
#include "minisgl/weights/model_config.h"

namespace minisgl::engine {

class EncodedInputs {
 public:
  // `tower`: null if the model has none. Both outlive this.
  EncodedInputs(Tower* tower, Ops* ops) : tower_(tower), ops_(ops) {}

  // Drops what the plan wants, and encodes inputs and pieces of them. An input that is there is
  // encoded anew: the step that had it encoded may have failed. kOutOfMemory, and the errors of a
  // tower.
  Status Apply(const PlanExtras& extras);
  // Sets *placed to the embeddings of the plan's tokens, valid until the next Apply. kInternal: an
  // input was not encoded, because the step that should have done it failed.
  Status Place(const PlanExtras& extras, std::vector<PlacedEmbeddings>* placed) const;

 private:
  Status Encode(const EncoderRun& run);

  Tower* tower_;
  Ops* ops_;
  std::unordered_map<EmbeddingSource, DeviceArray<float>> inputs_;
  // The one that is encoded, if pieces of it are left.
  EmbeddingSource begun_ = 0;
  std::shared_ptr<const EncoderContent> content_;
  DeviceArray<float> embeddings_;
  std::unique_ptr<TowerEncoding> encoding_;
};

// What the pictures of a plan change beside embeddings: arrays of a ForwardInput. A null pointer
// means that nothing is changed. Kept from step to step for their memory.
class PictureTokens {
 public:
  // Fills in the arrays of `input` for `plan`, whose token ids are input->token_ids.
  void List(const BatchPlan& plan, const ModelConfig& config, ForwardInput* input);

 private:
  void ListPositions(const BatchPlan& plan);
  void ListKeyEnds(const BatchPlan& plan);

  std::vector<RopePosition> positions_;
  std::vector<int32_t> key_ends_;
  std::vector<TokenId> per_layer_ids_;
};

}  // namespace minisgl::engine
