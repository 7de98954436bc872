// The text that a reranker judges: a query and a document between what its model card puts around
// them. Without that text the scores of these models mean nothing.
#pragma once

#include <string>
#include <string_view>

namespace minisgl {

struct RerankTemplate {
  std::string_view before, after;  // encoded by themselves, and never cut
  std::string_view instruction;    // if the user gives none
  std::string_view yes, no;        // the tokens whose logits are the score
};

// The template of rerankers that are decoders of a type ("qwen3"); null if none is known.
const RerankTemplate* FindRerankTemplate(std::string_view model_type);

// What stands between `before` and `after`.
std::string RankedText(std::string_view instruction, std::string_view query,
                       std::string_view document);

}  // namespace minisgl
