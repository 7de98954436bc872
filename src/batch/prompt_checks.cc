// The fourth stage of a prompt's way: whether its ids leave room for the answer that is asked for.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "batch/row_prompt.h"

namespace minisgl::batch {

std::optional<RowError> PromptBuilder::Check(Row* row, bool goes_on, bool has_images,
                                             EncodedPrompt encoded, CheckedPrompt* checked) const {
  const bool has_messages = row->kind == PromptKind::kMessages;
  if (encoded.total == 0 && has_messages && goes_on) {
    return RowError{"template_error", "the chat template renders nothing for this conversation",
                    "messages"};
  }
  if (encoded.total == 0 && has_messages) {
    return InvalidRow("the chat template renders nothing: the prompt has no tokens", "messages");
  }
  if (encoded.total == 0) return InvalidRow("the prompt is empty: it has no tokens", "prompt");
  const load::SamplingDefaults& defaults = options_.defaults;
  const int64_t max_tokens = row->max_tokens.value_or(defaults.max_tokens);
  if (options_.truncate_left && !has_images) checked->is_cut = Truncate(row, max_tokens, &encoded);
  if (auto error = CheckLength(*row, encoded, has_images)) return error;
  if (auto error = CheckMinTokens(*row, max_tokens)) return error;
  checked->encoded = std::move(encoded);
  return std::nullopt;
}

// One of the two values may be a default. (ParseRow rejects a row that gives conflicting values for
// both.)
std::optional<RowError> PromptBuilder::CheckMinTokens(const Row& row, int64_t max_tokens) const {
  const load::SamplingDefaults& defaults = options_.defaults;
  const int32_t min_tokens = row.min_tokens.value_or(defaults.sampling.min_tokens);
  if (max_tokens < 0 || min_tokens <= max_tokens) return std::nullopt;
  const auto from = [](bool of_row, const std::string& origin) {
    return of_row || origin.empty() ? "" : " of " + origin;
  };
  return InvalidRow(
      fmt::format("min_tokens is more than max_tokens (found {}{} and {}{})", min_tokens,
                  from(row.min_tokens.has_value(), defaults.min_tokens_origin), max_tokens,
                  from(row.max_tokens.has_value(), defaults.max_tokens_origin)),
      "min_tokens");
}

std::optional<RowError> PromptBuilder::CheckLength(const Row& row, const EncodedPrompt& encoded,
                                                   bool has_images) const {
  const int64_t most = PromptMax(row);
  if (encoded.total <= most) return std::nullopt;
  const std::string counted = fmt::format(
      "{} {}{} tokens", row.format == RowFormat::kScore ? "prompt and text have" : "the prompt has",
      encoded.is_whole ? "" : "at least ", encoded.total);
  const char* const advice =
      !has_images ? ""
      : options_.truncate_left
          ? "; a prompt with pictures is not cut: --image-max-tokens makes them smaller"
          : " (--image-max-tokens makes pictures smaller)";
  return RowError{
      "length_exceeded",
      (most == capacity_ ? fmt::format("{}; the context holds {}", counted, most)
                         : fmt::format("{}; at most {} leave room for an answer", counted, most)) +
          advice,
      ""};
}

int64_t PromptBuilder::PromptMax(const Row& row) const {
  return row.format == RowFormat::kScore || row.max_tokens == 0 ? capacity_ : capacity_ - 1;
}

// Keeps the end of the prompt, and the token that starts every text if there was one. Leaves room
// for the answer, but at most a quarter of the context, so that a generous max_tokens does not
// consume the prompt. Returns true if it was too long.
bool PromptBuilder::Truncate(Row* row, int64_t max_tokens, EncodedPrompt* encoded) const {
  const int64_t length = encoded->total;
  if (length <= PromptMax(*row)) return false;
  const int64_t quarter = std::max<int64_t>(capacity_ / 4, 1);
  const int64_t room = max_tokens < 0 ? quarter : std::min(max_tokens, quarter);
  const int64_t keep = std::max<int64_t>(capacity_ - room, 1);
  std::vector<TokenId>& last = encoded->ids;
  last.erase(last.begin(), last.end() - keep);
  if (keep > 1 && text_->tokenizer->bos_id() == encoded->first) last.front() = *encoded->first;
  encoded->total = keep;
  row->warnings.push_back(
      fmt::format("the prompt was cut from {} tokens to its last {}", length, keep));
  return true;
}

}  // namespace minisgl::batch
