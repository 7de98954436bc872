// The prompts of a row whose texts become vectors: one for each text.
//
// A text that is longer than the model's bound is cut, and keeps the tokens that its tokenizer puts
// before and after every text: the state of the last one may be the vector.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "batch/row_conversation.h"
#include "batch/row_prompt.h"
#include "minisgl/plan/row_extras.h"
#include "minisgl/text/lower_case.h"

namespace minisgl::batch {
namespace {

// Queries and documents alike become vectors: the queries stand before the others.
std::optional<RowError> PutQueriesFirst(const RankDefaults& defaults, Row* row) {
  if (auto error = CheckNoInstruction(defaults, *row)) return error;
  std::vector<EmbeddedText> texts;
  for (std::string& query : QueriesOf(defaults, *row)) texts.push_back({std::move(query), {}});
  row->num_query_prompts = texts.size();
  for (EmbeddedText& text : row->texts) texts.push_back(std::move(text));
  row->texts = std::move(texts);
  return std::nullopt;
}

}  // namespace

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
  if (options_.embedding.pipeline->lowercases) {
    conversation.raw.text = LowerCase(conversation.raw.text);
  }
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

// The parts of a template around documents are encoded by themselves, as its authors do.
PromptBuilder::TextFrame PromptBuilder::FrameOf(const Row& row) const {
  TextFrame frame;
  if (row.add_special_tokens) frame = {text_->tokenizer->Prefix(), text_->tokenizer->Suffix()};
  const RerankTemplate* const form = options_.embedding.form;
  if (form == nullptr || !IsRankedFormat(row.format)) return frame;
  const auto encode = [this](std::string_view part) {
    Conversation conversation;
    conversation.raw.text = part;
    Result<RenderedPrompt> rendered = RenderPrompt(*text_, std::move(conversation), nullptr);
    Result<EncodedPrompt> encoded = EncodePrompt(*text_, std::move(rendered).value(), {});
    return encoded.ok() ? std::move(encoded->ids) : std::vector<TokenId>();
  };
  std::vector<TokenId> before = encode(form->before);
  before.insert(before.end(), frame.before.begin(), frame.before.end());
  const std::vector<TokenId> after = encode(form->after);
  frame.after.insert(frame.after.end(), after.begin(), after.end());
  return {std::move(before), std::move(frame.after)};
}

std::optional<RowError> PromptBuilder::EncodeMessages(Row* row, const std::atomic<bool>* cancelled,
                                                      std::vector<TokenId>* ids) const {
  Conversation conversation;
  if (auto error = TakeConversation(*text_, row, &conversation)) return error;
  Result<RenderedPrompt> rendered = RenderPrompt(*text_, std::move(conversation), cancelled);
  if (!rendered.ok()) return RowError{"template_error", rendered.status().message(), "messages"};
  EncodedPrompt encoded;
  if (auto error = Encode(*row, std::move(rendered).value(), cancelled, &encoded)) return error;
  if (auto error = CheckLength(*row, encoded)) return error;
  *ids = std::move(encoded.ids);
  return std::nullopt;
}

int64_t PromptBuilder::TextMax() const {
  return std::min(options_.embedding.pipeline->max_tokens.value_or(capacity_), capacity_);
}

Prompt PromptBuilder::BeginEmbedded(const Row& row) const {
  Prompt prompt;
  RowExtras extras;
  extras.pooling = options_.embedding.pipeline->pooling;
  prompt.extras = std::make_shared<RowExtras>(extras);
  prompt.max_tokens = 0;
  prompt.priority = row.priority;
  if (row.timeout_s) prompt.timeout = std::chrono::duration<double>(*row.timeout_s);
  return prompt;
}

// sentence-transformers encodes the prompt by itself: its last token may be another one than before
// a text. A special token at the end is not counted.
int64_t PromptBuilder::PromptLength(const TextFrame& frame, int64_t most) const {
  if (options_.embedding.pipeline->pools_prompt || options_.embedding.prompt.empty()) return 0;
  std::vector<TokenId> ids;
  if (EncodeText({}, nullptr, &ids)) return 0;
  const auto num_added = std::ssize(frame.before) + std::ssize(frame.after);
  const auto length = std::min(std::ssize(ids) + num_added, most);
  if (length == 0) return 0;
  const TokenId last = frame.after.empty() ? ids.back() : frame.after.back();
  return length - (text_->tokenizer->IsSpecial(last) ? 1 : 0);
}

std::optional<RowError> PromptBuilder::BuildEmbedded(Row* row, std::vector<Prompt>* prompts,
                                                     const std::atomic<bool>* cancelled) const {
  const EmbeddingOptions& embedding = options_.embedding;
  if (IsRankedFormat(row->format)) {
    if (auto error = CheckRanking(embedding.rank, *row)) return error;
    if (embedding.pair != nullptr) return BuildPairs(row, prompts, cancelled);
    if (embedding.form == nullptr) {
      if (auto error = PutQueriesFirst(embedding.rank, row)) return error;
    }
  }
  if (embedding.width && row->dimensions.value_or(*embedding.width) != *embedding.width) {
    return InvalidRow(
        fmt::format("dimensions must be {}, as of all vectors of an array (found {}); --dimensions "
                    "is for all rows",
                    *embedding.width, *row->dimensions),
        "dimensions");
  }
  if (!row->second_texts.empty()) {
    if (embedding.pair != nullptr) return BuildPairs(row, prompts, cancelled);
    return RowError{"unsupported_field",
                    "text_pair: the model reads single texts; encoders read two, if their "
                    "tokenizer.json says what stands between them",
                    "text_pair"};
  }
  const bool has_messages = row->kind == PromptKind::kMessages;
  if (has_messages) {
    row->max_tokens = 0;
    if (auto error = EncodeMessages(row, cancelled, &row->texts.front().ids)) return error;
  }
  const TextFrame frame = FrameOf(*row);
  const auto num_added = static_cast<int64_t>(frame.before.size() + frame.after.size());
  const int64_t most = TextMax();
  if (num_added > most) {
    return RowError{"length_exceeded",
                    fmt::format("what stands around the text has {} tokens; the context holds {}",
                                num_added, most),
                    ""};
  }
  Prompt prompt = BeginEmbedded(*row);
  if (auto error = SetAdapter(*row, &prompt)) return error;
  RowExtras extras = *prompt.extras;
  extras.pooled_from = PromptLength(frame, most);
  const auto behind_prompt = std::make_shared<RowExtras>(extras);
  for (EmbeddedText& text : row->texts) {
    const bool is_text = text.ids.empty();
    std::vector<TokenId> ids;
    if (embedding.form != nullptr) {
      text.text = RankedTextOf(*embedding.form, embedding.rank, *row, prompts->size());
    }
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
      ids.insert(ids.begin(), frame.before.begin(), frame.before.end());
      ids.insert(ids.end(), frame.after.begin(), frame.after.end());
    }
    while (ids.size() > 1 && embedding.pad_id == ids.back()) ids.pop_back();
    if (ids.empty()) return InvalidRow("the text is empty: it has no tokens", "text");
    prompts->push_back(prompt);
    if (is_text) prompts->back().extras = behind_prompt;
    if (is_text && extras.pooled_from >= std::ssize(ids)) {
      return InvalidRow(
          "no token of the text is left: those of the prompt do not count (include_prompt)",
          "text");
    }
    prompts->back().ids = std::move(ids);
  }
  return std::nullopt;
}

}  // namespace minisgl::batch
