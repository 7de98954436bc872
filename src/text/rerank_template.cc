// See rerank_template.h.
#include "minisgl/text/rerank_template.h"

#include <fmt/core.h>

namespace minisgl {
namespace {

// As the model card of Qwen3-Reranker has it.
constexpr RerankTemplate kQwen3 = {
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n",
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "Given a web search query, retrieve relevant passages that answer the query", "yes", "no"};

}  // namespace

const RerankTemplate* FindRerankTemplate(std::string_view model_type) {
  return model_type == "qwen3" ? &kQwen3 : nullptr;
}

std::string RankedText(std::string_view instruction, std::string_view query,
                       std::string_view document) {
  return fmt::format("<Instruct>: {}\n<Query>: {}\n<Document>: {}", instruction, query, document);
}

}  // namespace minisgl
