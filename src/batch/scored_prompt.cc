// The prompt of a row to score: what stands before its text and the text, as one text of which only
// the second part is scored.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "batch/row_conversation.h"
#include "batch/row_prompt.h"

namespace minisgl::batch {

// Spaces at the end of a raw prompt belong to the text: tokenizers put a space in one token with
// the word after it.
std::optional<RowError> PromptBuilder::RenderScoredPrompt(const Row& row,
                                                          const std::atomic<bool>* cancelled,
                                                          ScoredPrompt* scored) const {
  const size_t last = row.prompt.find_last_not_of(" \t\n\v\f\r");
  const size_t kept = last == std::string::npos ? 0 : last + 1;
  Conversation conversation;
  conversation.raw.text = row.prompt.substr(0, kept);
  conversation.raw.adds_prefix = row.add_special_tokens;
  Result<RenderedPrompt> rendered = RenderPrompt(*text_, std::move(conversation), cancelled);
  scored->before = std::move(rendered).value();
  scored->text = row.prompt.substr(kept);
  return std::nullopt;
}

// Ends where an answer to the messages would begin.
std::optional<RowError> PromptBuilder::RenderScoredMessages(Row* row,
                                                            const std::atomic<bool>* cancelled,
                                                            ScoredPrompt* scored) const {
  Conversation conversation;
  conversation.reasoning = reasoning_;
  constexpr size_t kAll = std::numeric_limits<size_t>::max();
  if (auto error = TakeImages(*text_, image_reader_, *row, 0, kAll, &conversation.images)) {
    return error;
  }
  if (auto error = TakeConversation(*text_, row, &conversation)) return error;
  Result<RenderedPrompt> rendered = RenderPrompt(*text_, std::move(conversation), cancelled);
  if (!rendered.ok()) return RowError{"template_error", rendered.status().message(), "messages"};
  scored->before = std::move(rendered).value();
  return std::nullopt;
}

std::optional<RowError> PromptBuilder::EncodeScored(Row* row, ScoredPrompt scored,
                                                    const std::atomic<bool>* cancelled,
                                                    EncodedPrompt* whole, int64_t* begin) const {
  scored.before.adds_suffix = false;
  RenderedPrompt both = scored.before;
  const bool is_trusted = !text_->no_parse_special;
  if (!both.pieces.empty() && both.pieces.back().trusted == is_trusted) {
    both.pieces.back().text += scored.text;
  } else {
    both.pieces.push_back({std::move(scored.text), is_trusted});
  }
  EncodedPrompt before;
  if (auto error = Encode(*row, std::move(both), cancelled, whole)) return error;
  if (auto error = CheckLength(*row, *whole, !whole->images.empty())) return error;
  if (auto error = Encode(*row, std::move(scored.before), cancelled, &before)) return error;
  // Tokens of the prompt alone that begin the whole; those after them are scored.
  const int64_t common =
      std::mismatch(before.ids.begin(), before.ids.end(), whole->ids.begin(), whole->ids.end())
          .first -
      before.ids.begin();
  *begin = std::max<int64_t>(common, 1);
  if (*begin >= whole->total) {
    return InvalidRow(whole->total == 1 && before.total == 0
                          ? "text is one token, and none stands before it; give a prompt"
                          : "text adds no token to score",
                      "text");
  }
  if (common < before.total) {
    row->warnings.push_back(
        "a token spans the end of the prompt and the beginning of the text; it is scored");
  }
  return std::nullopt;
}

std::optional<RowError> PromptBuilder::BuildScored(Row* row, std::vector<Prompt>* prompts,
                                                   const std::atomic<bool>* cancelled) const {
  ScoredPrompt scored;
  if (auto error = row->kind == PromptKind::kMessages
                       ? RenderScoredMessages(row, cancelled, &scored)
                       : RenderScoredPrompt(*row, cancelled, &scored)) {
    return error;
  }
  scored.text += std::exchange(row->scored_text, std::string());
  EncodedPrompt whole;
  int64_t begin = 0;
  if (auto error = EncodeScored(row, std::move(scored), cancelled, &whole, &begin)) return error;
  PromptImages images;
  if (auto error = MakeImages(*row, whole, &images)) return error;
  Prompt prompt;
  prompt.ids = std::move(whole.ids);
  prompt.extras = std::move(images.extras);
  prompt.marks = std::move(images.marks);
  if (auto error = SetAdapter(*row, &prompt)) return error;
  prompt.max_tokens = 0;
  const int32_t num_logprobs = options_.defaults.sampling.num_logprobs;
  if (num_logprobs >= 0) row->num_logprobs = num_logprobs;
  prompt.sampling.num_prompt_logprobs = std::max(num_logprobs, 0);
  prompt.sampling.prompt_logprobs_begin = static_cast<int32_t>(begin);
  prompt.priority = row->priority;
  if (row->timeout_s) prompt.timeout = std::chrono::duration<double>(*row->timeout_s);
  prompts->push_back(std::move(prompt));
  notes_.Say(row->notes);
  return std::nullopt;
}

}  // namespace minisgl::batch
