// Heads that draft from states of several layers of a target: EAGLE-3, as SpecForge, SGLang and
// speculators write them, DFlash and DSpark. Each has a directory of its own.
#pragma once

#include <string>

#include "minisgl/base/status.h"
#include "minisgl/weights/model_config.h"

namespace minisgl {

// True if config.json in `dir` names a head that drafts, of a kind that is run or of another. False
// if it cannot be read: LoadModelConfig says why.
bool IsDraftHead(const std::string& dir);

// The configuration of the head in `dir`: ModelConfig::prediction is kEagle or kBlock. kBadInput if
// it is of another kind, its files are wrong, or it does not fit `target`. Reads the directory's
// configuration, the headers of its tensors, and the ids of its rows.
Result<ModelConfig> LoadDraftHead(const std::string& dir, const ModelConfig& target);

}  // namespace minisgl
