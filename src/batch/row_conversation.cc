#include "batch/row_conversation.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "batch/row_prompt.h"
#include "load/model_loader.h"
#include "minisgl/text/chat_template.h"

namespace minisgl::batch {

namespace {

constexpr const char* kEffort = "reasoning_effort";
constexpr const char* kVerbosity = "verbosity";
constexpr const char* kMedium = "medium";
constexpr const char* kTools = "tools";
constexpr const char* kDocuments = "documents";

// Turns the reasoning of a template without levels on or off.
void TurnReasoning(const ChatTemplate& chat, const std::string& effort, Row* row) {
  for (const char* name : kReasoningSwitches) {
    if (!chat.Reads(name) || row->template_kwargs.Find(name) != nullptr) continue;
    row->template_kwargs.Set(name, effort != "none");
  }
  if (effort == "none") return;
  row->warnings.push_back(
      "reasoning_effort: the chat template has no levels of it; reasoning is on");
}

}  // namespace

std::optional<RowError> PromptBuilder::Take(Row* row, SaidSoFar* said,
                                            Conversation* conversation) const {
  if (auto error = CheckIds(*row)) return error;
  if (options_.chat && IsRawPrompt(*row)) AskInChat(row, said == nullptr || said->empty());
  row->hide_reasoning = row->hide_reasoning || options_.hide_reasoning;
  row->with_metrics = options_.row_metrics;
  if (row->echo && row->kind == PromptKind::kMessages) {
    return InvalidRow("echo is not for a prompt that --chat puts through the template", "echo");
  }
  if (row->echo) row->shown.text = row->prompt;
  if (said != nullptr) return TakeNext(row, said, conversation);
  AddPrefill(row);
  conversation->reasoning = reasoning_;
  constexpr size_t kAll = std::numeric_limits<size_t>::max();
  if (auto error = TakeImages(*text_, image_reader_, *row, 0, kAll, &conversation->images)) {
    return error;
  }
  return TakeConversation(*text_, row, conversation);
}

std::optional<RowError> PromptBuilder::TakeNext(Row* row, SaidSoFar* said,
                                                Conversation* conversation) const {
  if (auto error = said->CheckNext(*row)) return error;
  if (row->kind != PromptKind::kMessages) {
    if (said->empty()) return TakeConversation(*text_, row, conversation);
    if (auto error = CheckControlIds(*text_, *row)) return error;
    *conversation = said->AddPrompt(row);
    return std::nullopt;
  }
  if (auto error = ApplySwitches(*text_, row)) return error;
  // They are in template_kwargs, also for the next turn.
  row->reasoning_effort.clear();
  row->verbosity.clear();
  if (auto error = CheckTemplate(*text_)) return error;
  std::vector<ConversationImage> images;
  const size_t end = SaidSoFar::EndOfTurn(*row);
  if (auto error = TakeImages(*text_, image_reader_, *row, row->next_message, end, &images)) {
    return error;
  }
  *conversation =
      said->AddMessages(row, std::move(images), options_.prefill ? &*options_.prefill : nullptr);
  return std::nullopt;
}

void PromptBuilder::AskInChat(Row* row, bool begins) const {
  row->kind = PromptKind::kMessages;
  row->messages = ChatMessages(begins ? options_.system : std::nullopt, std::move(row->prompt));
  row->prompt.clear();
}

void PromptBuilder::AddPrefill(Row* row) const {
  if (!options_.prefill || row->kind != PromptKind::kMessages) return;
  if (row->start != AnswerStart::kNewMessage) return;
  Json message;
  message.Set("role", "assistant").Set("content", *options_.prefill);
  row->messages.Append(std::move(message));
  row->start = AnswerStart::kContinue;
}

std::optional<RowError> PromptBuilder::CheckIds(const Row& row) const {
  const auto check = [this](const std::vector<TokenId>& ids,
                            const char* field) -> std::optional<RowError> {
    for (TokenId id : ids) {
      if (id < vocab_size_) continue;
      return InvalidRow(
          fmt::format("{} holds an id outside the vocabulary (found {}; the model has {})", field,
                      id, vocab_size_),
          field);
    }
    return std::nullopt;
  };
  if (auto error = check(row.prompt_token_ids, "prompt_token_ids")) return error;
  if (auto error = check(row.stop_token_ids, "stop_token_ids")) return error;
  if (auto error = check(row.allowed_token_ids, "allowed_token_ids")) return error;
  std::vector<TokenId> biased;
  for (const auto& [id, bias] : row.logit_bias) biased.push_back(id);
  return check(biased, "logit_bias");
}

std::optional<RowError> TakeConversation(const TextModel& text, Row* row,
                                         Conversation* conversation) {
  // The effort of a prompt without messages (`reasoning`) has no effect, but is noted.
  if (row->kind != PromptKind::kTokenIds) {
    if (auto error = ApplySwitches(text, row)) return error;
  }
  if (row->kind != PromptKind::kMessages) {
    if (auto error = CheckControlIds(text, *row)) return error;
    RawPrompt& raw = conversation->raw;
    raw.text = std::move(row->prompt);
    raw.after = std::move(row->prompt_token_ids);
    raw.adds_prefix = raw.adds_suffix = row->kind == PromptKind::kText && row->add_special_tokens;
    return std::nullopt;
  }
  if (auto error = CheckTemplate(text)) return error;
  conversation->messages = std::move(row->messages);
  conversation->kwargs = std::move(row->template_kwargs);
  conversation->tools = std::move(row->tools);
  conversation->documents = std::move(row->documents);
  conversation->start = row->start;
  return std::nullopt;
}

std::optional<RowError> TakeImages(const TextModel& text, const ImageReader& reader, const Row& row,
                                   size_t begin, size_t end,
                                   std::vector<ConversationImage>* images) {
  uint64_t num_bytes = 0;
  std::set<const std::string*> known;
  for (const RowImage& image : row.images) {
    if (image.message < begin || image.message >= end) continue;
    if (!text.images) {
      return RowError{
          "unsupported_field",
          text.images_status.ok() ? "the model reads no images" : text.images_status.message(),
          image.field};
    }
    Result<ConversationImage> taken = reader.Take(image, text);
    if (!taken.ok()) return BadImage(taken.status().message(), image.field);
    if (known.insert(taken->bytes.get()).second) num_bytes += taken->bytes->size();
    if (num_bytes > kRowImageBytesMax) {
      return BadImage(fmt::format("the pictures of the row have more than {} bytes together",
                                  kRowImageBytesMax),
                      image.field);
    }
    images->push_back(std::move(taken).value());
  }
  return std::nullopt;
}

std::optional<RowError> CheckTemplate(const TextModel& text) {
  const Status status = load::CheckHasTemplate(text);
  if (status.ok()) return std::nullopt;
  return RowError{"template_error", status.message(), "messages"};
}

std::string MissingSwitch(const TextModel& text, const std::string& field) {
  if (text.chat_template == nullptr || text.chat_template->Reads(field)) return "";
  if (field == kTools || field == kDocuments) {
    return field + ": the chat template does not read them";
  }
  if (field == kEffort) {
    for (const char* name : kReasoningSwitches) {
      if (text.chat_template->Reads(name)) return "";
    }
  }
  return field + ": the chat template has no switch for it";
}

std::optional<RowError> ApplySwitches(const TextModel& text, Row* row) {
  if (text.chat_template == nullptr) return std::nullopt;
  const struct {
    const char* field;
    const std::string& value;
  } given[] = {{kEffort, row->reasoning_effort}, {kVerbosity, row->verbosity}};
  for (const auto& [field, value] : given) {
    if (value.empty()) continue;
    if (row->template_kwargs.Find(field) != nullptr) {
      return InvalidRow(fmt::format("{} is given in chat_template_kwargs as well", field), field);
    }
    if (text.chat_template->Reads(field)) {
      row->template_kwargs.Set(field, value);
    } else if (const std::string missing = MissingSwitch(text, field); !missing.empty()) {
      if (value == kMedium) continue;  // the default of clients that write every field
      row->notes.push_back({LogLevel::kWarning, missing + " (it was ignored)"});
    } else {
      TurnReasoning(*text.chat_template, value, row);
    }
  }
  // The output row has the warning, too: its text does not show what the template left out.
  for (const char* field : {kTools, kDocuments}) {
    const Json& given_list = field == kTools ? row->tools : row->documents;
    const bool is_given = given_list.is_array() && !given_list.as_array().empty();
    const std::string missing = is_given ? MissingSwitch(text, field) : "";
    if (missing.empty() || row->answer_number() > 0) continue;
    row->notes.push_back({LogLevel::kWarning, missing + " (they were ignored)"});
    row->warnings.push_back(missing);
  }
  return std::nullopt;
}

Json ChatMessages(const std::optional<std::string>& system, std::string text, size_t num_images) {
  Json messages = Json(Json::Array());
  const auto add = [&messages](const char* role, Json content) {
    Json message = Json(Json::Object());
    message.Set("role", role).Set("content", std::move(content));
    messages.Append(std::move(message));
  };
  if (system) add("system", *system);
  if (num_images == 0) {
    add("user", std::move(text));
    return messages;
  }
  Json::Array parts;
  for (size_t i = 0; i < num_images; ++i) parts.push_back(Json(Json::Object{{"type", "image"}}));
  if (!text.empty()) {
    parts.push_back(Json(Json::Object{{"type", "text"}, {"text", std::move(text)}}));
  }
  add("user", Json(std::move(parts)));
  return messages;
}

// A completions row of an OpenAI file is not one of them: its URL states the intent.
bool IsRawPrompt(const Row& row) {
  return row.kind == PromptKind::kText && row.format == RowFormat::kOwn && !row.append;
}

std::string RawPromptsWarning(const std::string& file, std::optional<int64_t> count) {
  const std::string rows = !count        ? "rows that hold prompt are"
                           : *count == 1 ? "1 row that holds prompt is"
                                         : fmt::format("{} rows that hold prompt are", *count);
  return fmt::format(
      "{}: {} completed without the model's chat template; --chat applies it, --raw silences "
      "this warning",
      file, rows);
}

std::optional<RowError> CheckControlIds(const TextModel& text, const Row& row) {
  if (!text.no_parse_special) return std::nullopt;
  std::span<const TokenId> ids = row.prompt_token_ids;
  const std::vector<TokenId> prefix = text.tokenizer->Prefix();
  if (ids.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), ids.begin())) {
    ids = ids.subspan(prefix.size());  // a prefix that starts every text is allowed
  }
  for (const TokenId id : ids) {
    if (!text.tokenizer->IsSpecial(id)) continue;
    return InvalidRow(
        fmt::format("prompt_token_ids holds the control token {}, which --no-parse-special refuses",
                    id),
        "prompt_token_ids");
  }
  return std::nullopt;
}

}  // namespace minisgl::batch
