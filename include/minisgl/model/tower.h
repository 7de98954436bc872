// The tower of a multimodal model: a picture's values to the embeddings that stand in the place of
// its placeholder tokens. Written once over Ops, for every family, as the table of features in
// minisgl/weights/tower_config.h says.
//
// The workspace has room for 4,096 patches, or for a tile that has more. Tiles of a picture are
// encoded as many at a time as fit, a larger picture without tiles takes the memory that it needs
// while it is encoded. Activations have the dtype of the Ops; the residual stream and embeddings
// are f32.
//
// Used by one thread, that of the Ops.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "minisgl/base/status.h"
#include "minisgl/model/decoder.h"
#include "minisgl/model/model_list.h"
#include "minisgl/ops.h"
#include "minisgl/plan/encoder_input.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/tower_config.h"

namespace minisgl {

// A picture that is encoded, in as many pieces as its user wants: the tower's layers are run piece
// by piece. Between them nothing else is encoded by its tower.
class TowerEncoding {
 public:
  virtual ~TowerEncoding() = default;
  // Goes on until `done` parts of `parts` of the work are done, at least one layer's attention or
  // feed-forward part of some of its tiles. After done == parts the embeddings are in their place.
  // The result does not depend on the pieces. After an error it cannot go on. kOutOfMemory.
  virtual Status Advance(int64_t done, int64_t parts) = 0;
};

// What an engine has loaded of a tower.
class Tower : public RankModel {
 public:
  // Floats of one embedding: the hidden size of the text model, and as many again for each layer of
  // the text to whose output the picture's vectors are added (deepstack), in order of the layers.
  virtual int64_t embedding_width() const = 0;
  // Begins to write the embeddings [content's num_tokens, embedding_width()], f32, to `out`, which
  // is in the memory of the Ops. REQUIRES an ImageContent whose values have the shape of its
  // layout. The result is a function of the content and the weights alone. The tower, the content
  // and `out` outlive what is returned. kBadInput: the layout is not one of this tower's pictures,
  // since the processor's files contradict config.json. kOutOfMemory.
  virtual Result<std::unique_ptr<TowerEncoding>> Begin(const EncoderContent& content,
                                                       float* out) = 0;
  // Likewise, in one piece.
  Status Encode(const EncoderContent& content, float* out);
};

// kBadInput, with the name of the tensor, if `checkpoint` lacks one of the tower, or has it in
// another shape or as codes. Reads no weights.
Status CheckTowerTensors(const TowerConfig& config, const Checkpoint& checkpoint);

// A tower of the list (model_list.h). `dir`: where its weights are; "": in the target's files.
std::shared_ptr<const ListedModel> MakeTowerModel(TowerConfig config, std::string dir = "");

}  // namespace minisgl
