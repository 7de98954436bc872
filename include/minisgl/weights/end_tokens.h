// The tokens that end an answer.
#pragma once

#include <optional>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/weights/model_config.h"

namespace minisgl {

// The union of the end tokens of config.json, of generation_config.json and of the tokenizer,
// sorted and without duplicates.
std::vector<TokenId> EndTokens(const ModelConfig& config, const GenerationConfig& generation,
                               std::optional<TokenId> tokenizer_eos);

}  // namespace minisgl
