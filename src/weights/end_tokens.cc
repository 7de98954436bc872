#include "minisgl/weights/end_tokens.h"

#include <algorithm>

namespace minisgl {

std::vector<TokenId> EndTokens(const ModelConfig& config, const GenerationConfig& generation,
                               std::optional<TokenId> tokenizer_eos) {
  std::vector<TokenId> ids = config.eos_token_ids;
  ids.insert(ids.end(), generation.eos_token_ids.begin(), generation.eos_token_ids.end());
  if (tokenizer_eos) ids.push_back(*tokenizer_eos);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace minisgl
