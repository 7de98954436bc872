// The prompt of a row to score: its prompt and its text as one text, of which only the second is
// scored.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <utility>

#include "batch/row_prompt.h"

namespace minisgl::batch {

std::optional<RowError> PromptBuilder::EncodeRaw(const Row& row, RawPrompt raw,
                                                 const std::atomic<bool>* cancelled,
                                                 EncodedPrompt* encoded) const {
  Conversation conversation;
  conversation.raw = std::move(raw);
  Result<RenderedPrompt> rendered = RenderPrompt(*text_, std::move(conversation), cancelled);
  return Encode(row, std::move(rendered).value(), cancelled, encoded);
}

// Spaces at the end of the prompt belong to the text: tokenizers put a space in one token with the
// word after it.
std::optional<RowError> PromptBuilder::BuildScored(Row* row, std::vector<Prompt>* prompts,
                                                   const std::atomic<bool>* cancelled) const {
  const size_t last = row->prompt.find_last_not_of(" \t\n\v\f\r");
  const size_t kept = last == std::string::npos ? 0 : last + 1;
  RawPrompt raw;
  raw.text = row->prompt + std::exchange(row->scored_text, std::string());
  raw.adds_prefix = row->add_special_tokens;
  const int64_t num_added = raw.adds_prefix ? std::ssize(text_->tokenizer->Prefix()) : 0;
  row->prompt.resize(kept);
  EncodedPrompt whole, alone;
  if (auto error = EncodeRaw(*row, std::move(raw), cancelled, &whole)) return error;
  if (auto error = CheckLength(*row, whole)) return error;
  if (kept > 0) {
    RawPrompt before;
    before.text = row->prompt;
    if (auto error = EncodeRaw(*row, std::move(before), cancelled, &alone)) return error;
  }
  // Tokens of the prompt alone that begin the whole; those after them are scored.
  const auto text_begin = whole.ids.begin() + num_added;
  const auto common =
      std::mismatch(alone.ids.begin(), alone.ids.end(), text_begin, whole.ids.end()).first -
      alone.ids.begin();
  const int64_t begin = std::max<int64_t>(num_added + common, 1);
  if (begin >= whole.total) {
    return InvalidRow(whole.total - num_added == 1 && kept == 0
                          ? "text is one token, and none stands before it; give a prompt"
                          : "text adds no token to score",
                      "text");
  }
  if (common < std::ssize(alone.ids)) {
    row->warnings.push_back(
        "a token spans the end of the prompt and the beginning of the text; it is scored");
  }
  Prompt prompt;
  prompt.ids = std::move(whole.ids);
  prompt.max_tokens = 0;
  const int32_t num_logprobs = options_.defaults.sampling.num_logprobs;
  if (num_logprobs >= 0) row->num_logprobs = num_logprobs;
  prompt.sampling.num_prompt_logprobs = std::max(num_logprobs, 0);
  prompt.sampling.prompt_logprobs_begin = static_cast<int32_t>(begin);
  prompt.priority = row->priority;
  if (row->timeout_s) prompt.timeout = std::chrono::duration<double>(*row->timeout_s);
  prompts->push_back(std::move(prompt));
  return std::nullopt;
}

}  // namespace minisgl::batch
