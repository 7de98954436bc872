// Heads of encoders' classes ...ForSequenceClassification, which also judge pairs of texts (cross
// encoders). Files are untrusted.
//
//   BERT, NomicBERT              tanh(pooler.dense h[0]), classifier
//   RoBERTa and its kin, MPNet   tanh(classifier.dense h[0]), classifier.out_proj
//   DistilBERT                   relu(pre_classifier h[0]), classifier
//   ModernBERT                   norm(act(head.dense h)), classifier; h is h[0] or the mean
#pragma once

#include <optional>

#include "minisgl/base/status.h"
#include "minisgl/weights/checkpoint.h"
#include "minisgl/weights/model_config.h"
#include "minisgl/weights/score_head.h"
#include "weights/field_reader.h"

namespace minisgl::weights {

// True if the files have such a head.
bool HasEncoderHead(const Checkpoint& checkpoint, const ModelConfig& config);

// Reads the layers of the head, and how states are pooled for it. `reader`: of config.json, for the
// keys of ModernBERT; its errors are the caller's. kBadInput for tensors that do not fit.
Status LoadEncoderLayers(const Checkpoint& checkpoint, const ModelConfig& config,
                         FieldReader* reader, ScoreHead* head);

// The product `layer` of an input of `num_in` elements. How many it gives, its file says.
// `needs_bias`: else there may be none.
Result<DenseModule> ReadProduct(const Checkpoint& checkpoint, const std::string& layer,
                                int64_t num_in, bool needs_bias);

// What sentence-transformers makes of the numbers of a head for a pair of texts, by the name of an
// activation in the files ("torch.nn.modules.linear.Identity"): unset if they name none.
Result<std::optional<ScoreHead::Scale>> StatedPairScale(const std::string& model_dir);

}  // namespace minisgl::weights
