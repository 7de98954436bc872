// The prompts of a row whose texts become vectors: one for each text.
//
// A text that is longer than the model's bound is cut, and keeps the tokens that its tokenizer puts
// before and after every text: the state of the last one may be the vector.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <utility>

#include "batch/row_prompt.h"
#include "minisgl/plan/row_extras.h"

namespace minisgl::batch {

std::optional<RowError> PromptBuilder::EncodeText(EmbeddedText text,
                                                  const std::atomic<bool>* cancelled,
                                                  std::vector<TokenId>* ids) const {
  if (!text.ids.empty()) {
    for (const TokenId id : text.ids) {
      if (id < vocab_size_) continue;
      return InvalidRow(fmt::format("input holds an id outside the vocabulary (found {}; the model "
                                    "has {})",
                                    id, vocab_size_),
                        "input");
    }
    *ids = std::move(text.ids);
    return std::nullopt;
  }
  Conversation conversation;
  conversation.raw.text = options_.embedding.prompt + text.text;
  Result<RenderedPrompt> rendered = RenderPrompt(*text_, std::move(conversation), cancelled);
  EncodeBounds bounds;
  bounds.cancelled = cancelled;
  Result<EncodedPrompt> encoded = EncodePrompt(*text_, std::move(rendered).value(), bounds);
  if (cancelled != nullptr && cancelled->load()) {
    return RowError{"cancelled", "the run was stopped before this row was asked", ""};
  }
  if (!encoded.ok()) return InvalidRow(encoded.status().message(), "text");
  *ids = std::move(encoded->ids);
  return std::nullopt;
}

std::optional<RowError> PromptBuilder::BuildEmbedded(Row* row, std::vector<Prompt>* prompts,
                                                     const std::atomic<bool>* cancelled) const {
  const VectorPipeline& pipeline = *options_.embedding.pipeline;
  const bool adds = row->add_special_tokens;
  const std::vector<TokenId> prefix = adds ? text_->tokenizer->Prefix() : std::vector<TokenId>();
  const std::vector<TokenId> suffix = adds ? text_->tokenizer->Suffix() : std::vector<TokenId>();
  const auto num_added = static_cast<int64_t>(prefix.size() + suffix.size());
  const int64_t most = std::min(pipeline.max_tokens.value_or(capacity_), capacity_);
  Prompt prompt;
  auto extras = std::make_shared<RowExtras>();
  extras->pooling = pipeline.pooling;
  prompt.extras = std::move(extras);
  prompt.max_tokens = 0;
  prompt.priority = row->priority;
  if (row->timeout_s) prompt.timeout = std::chrono::duration<double>(*row->timeout_s);
  for (EmbeddedText& text : row->texts) {
    const bool is_text = text.ids.empty();
    std::vector<TokenId> ids;
    if (auto error = EncodeText(std::move(text), cancelled, &ids)) return error;
    const auto length = std::ssize(ids) + (is_text ? num_added : 0);
    if (length > most) {
      const std::string which =
          row->is_one_text ? "the text" : fmt::format("text {}", prompts->size());
      row->warnings.push_back(fmt::format(
          "{} was cut to {} of {} tokens, the most that the model takes", which, most, length));
      ids.resize(static_cast<size_t>(std::max<int64_t>(most - (is_text ? num_added : 0), 0)));
    }
    if (is_text) {
      ids.insert(ids.begin(), prefix.begin(), prefix.end());
      ids.insert(ids.end(), suffix.begin(), suffix.end());
    }
    if (ids.empty()) return InvalidRow("the text is empty: it has no tokens", "text");
    prompts->push_back(prompt);
    prompts->back().ids = std::move(ids);
  }
  return std::nullopt;
}

}  // namespace minisgl::batch
