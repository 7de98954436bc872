#include "batch/row_prompt.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace minisgl::batch {

namespace {

// Values and files of pictures that are kept for later rows: twenty of 1024 x 1024 pixels.
constexpr uint64_t kPreparedBytesMax = uint64_t{512} << 20;

// The field that a text which cannot be encoded came from.
const char* FieldOfPrompt(const Row& row) {
  if (row.kind == PromptKind::kMessages) return "messages";
  return row.format == RowFormat::kScore ? "text" : "prompt";
}

}  // namespace

int64_t ContextCapacity(const EngineLimits& limits) {
  // The last token of an answer is never an input of the model, so it needs no slot in the pool.
  return std::min<int64_t>(limits.max_seq_len, int64_t{limits.num_pages} * limits.page_size + 1);
}

PromptBuilder::PromptBuilder(const TextModel* text, const EngineLimits& limits,
                             PromptBuilderOptions options)
    : text_(text),
      vocab_size_(limits.vocab_size),
      capacity_(ContextCapacity(limits)),
      options_(std::move(options)),
      image_reader_(options_.images, options_.image_folder),
      prepared_(kPreparedBytesMax) {
  if (text->chat_template != nullptr) {
    reasoning_ = FindReasoningTags(*text->chat_template, *text->tokenizer, &kept_special_ids_);
    tool_dialect_ = ToolDialectOf(*text);
    call_ids_ = ToolCallTokens(tool_dialect_, *text->tokenizer);
  }
}

std::optional<RowError> PromptBuilder::Build(Row* row, std::vector<Prompt>* prompts,
                                             const std::atomic<bool>* cancelled,
                                             SaidSoFar* said) const {
  prompts->clear();
  if (!row->timeout_s) row->timeout_s = options_.timeout_s;
  if (row->format == RowFormat::kScore) return BuildScored(row, prompts, cancelled);
  if (IsEmbedFormat(row->format)) return BuildEmbedded(row, prompts, cancelled);
  if (auto error = SetCalls(row)) return error;
  Conversation conversation;
  if (auto error = Take(row, said, &conversation)) return error;
  const bool has_images = !conversation.images.empty();
  Result<RenderedPrompt> rendered = RenderPrompt(*text_, std::move(conversation), cancelled);
  if (!rendered.ok()) return RowError{"template_error", rendered.status().message(), "messages"};
  row->reasoning = rendered->reasoning;
  EncodedPrompt encoded;
  if (auto error = Encode(*row, std::move(rendered).value(), cancelled, &encoded)) return error;
  CheckedPrompt checked;
  if (auto error = Check(row, said != nullptr, has_images, std::move(encoded), &checked)) {
    return error;
  }
  PromptImages images;
  if (auto error = MakeImages(*row, checked.encoded, &images)) return error;
  if (auto error = SetSettings(row, std::move(checked), std::move(images), prompts)) return error;
  if (said != nullptr) said->Keep(*row, prompts->front());
  notes_.Say(row->notes);
  return std::nullopt;
}

std::optional<RowError> PromptBuilder::Encode(const Row& row, RenderedPrompt rendered,
                                              const std::atomic<bool>* cancelled,
                                              EncodedPrompt* encoded) const {
  EncodeBounds bounds;
  bounds.kept_max = static_cast<size_t>(capacity_);
  if (!options_.truncate_left) bounds.counted_max = PromptMax(row);
  bounds.cancelled = cancelled;
  Result<EncodedPrompt> result = EncodePrompt(*text_, std::move(rendered), bounds);
  if (cancelled != nullptr && cancelled->load()) {
    return RowError{"cancelled", "the run was stopped before this row was asked", ""};
  }
  if (!result.ok()) return InvalidRow(result.status().message(), FieldOfPrompt(row));
  *encoded = std::move(result).value();
  return std::nullopt;
}

std::optional<RowError> PromptBuilder::MakeImages(const Row& row, const EncodedPrompt& encoded,
                                                  PromptImages* images) const {
  if (options_.counts_only || encoded.images.empty()) return std::nullopt;
  Result<PromptImages> made = MakePromptImages(*text_, encoded, &prepared_);
  if (!made.ok()) return BadImage(made.status().message(), FieldOfPrompt(row));
  *images = std::move(made).value();
  return std::nullopt;
}

bool PromptBuilder::LimitsByModel(const Row& row) const {
  return !row.max_tokens && options_.defaults.max_tokens_origin == load::kGenerationConfig;
}

}  // namespace minisgl::batch
