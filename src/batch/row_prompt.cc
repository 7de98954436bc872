#include "batch/row_prompt.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "batch/row_limits.h"
#include "minisgl/base/random.h"
#include "minisgl/text/continue_message.h"

namespace minisgl::batch {

namespace {

constexpr const char* kEffort = "reasoning_effort";
constexpr const char* kVerbosity = "verbosity";
constexpr const char* kTools = "tools";
constexpr const char* kDocuments = "documents";

// The field that a text which cannot be encoded came from.
const char* FieldOfPrompt(const Row& row) {
  if (row.format == RowFormat::kScore) return "text";
  return row.kind == PromptKind::kMessages ? "messages" : "prompt";
}

// The text of the last message, if the answer continues it.
std::string ContinuedText(const Row& row) {
  if (row.start != AnswerStart::kContinue) return "";
  const Json* const content = row.messages.as_array().back().Find("content");
  return content != nullptr && content->is_string() ? content->as_string() : "";
}

// Asks for no log-probabilities of the prompt. Without an answer they are those of no token, so
// that the request wants something.
void ScoreNothing(Prompt* prompt) {
  SamplingParams& sampling = prompt->sampling;
  sampling.num_prompt_logprobs = prompt->max_tokens == 0 ? 0 : -1;
  if (prompt->max_tokens == 0) {
    sampling.prompt_logprobs_begin = static_cast<int32_t>(prompt->ids.size());
  }
}

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
    if (missing.empty() || row->turn > 0) continue;
    row->notes.push_back({LogLevel::kWarning, missing + " (they were ignored)"});
    row->warnings.push_back(missing);
  }
  return std::nullopt;
}

Json ChatMessages(const std::optional<std::string>& system, std::string text) {
  Json messages = Json(Json::Array());
  const auto add = [&messages](const char* role, std::string content) {
    Json message = Json(Json::Object());
    message.Set("role", role).Set("content", std::move(content));
    messages.Append(std::move(message));
  };
  if (system) add("system", *system);
  add("user", std::move(text));
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

int64_t ContextCapacity(const EngineLimits& limits) {
  // The last token of an answer is never an input of the model, so it needs no slot in the pool.
  return std::min<int64_t>(limits.max_seq_len, int64_t{limits.num_pages} * limits.page_size + 1);
}

PromptBuilder::PromptBuilder(const TextModel* text, const EngineLimits& limits,
                             PromptBuilderOptions options)
    : text_(text),
      vocab_size_(limits.vocab_size),
      capacity_(ContextCapacity(limits)),
      options_(std::move(options)) {
  if (text->chat_template != nullptr) {
    reasoning_ = FindReasoningTags(*text->chat_template, *text->tokenizer, &kept_special_ids_);
  }
}

std::optional<RowError> PromptBuilder::Build(Row* row, std::vector<Prompt>* prompts,
                                             const std::atomic<bool>* cancelled,
                                             Conversation* conversation) const {
  prompts->clear();
  if (!row->timeout_s) row->timeout_s = options_.timeout_s;
  if (row->format == RowFormat::kScore) return BuildScored(row, prompts, cancelled);
  if (auto error = CheckIds(*row)) return error;
  if (options_.chat && IsRawPrompt(*row)) {
    AskInChat(row, conversation == nullptr || conversation->empty());
  }
  row->hide_reasoning = row->hide_reasoning || options_.hide_reasoning;
  row->with_metrics = options_.row_metrics;
  if (row->echo && row->kind == PromptKind::kMessages) {
    return InvalidRow("echo is not for a prompt that --chat puts through the template", "echo");
  }
  if (row->echo) row->shown.text = row->prompt;
  if (conversation == nullptr) AddPrefill(row);
  Ids ids;
  if (auto error = conversation == nullptr ? PromptIds(row, cancelled, &ids)
                                           : ConversationIds(row, cancelled, conversation, &ids)) {
    return error;
  }
  if (ids.total == 0 && row->kind == PromptKind::kMessages) {
    return InvalidRow("the chat template renders nothing: the prompt has no tokens", "messages");
  }
  if (ids.total == 0) return InvalidRow("the prompt is empty: it has no tokens", "prompt");
  load::AnswerSettings settings = SettingsOf(*row);
  const int64_t whole_len = ids.total;
  if (options_.truncate_left) Truncate(row, settings.max_tokens, &ids);
  // Check before the prompt is copied n times.
  if (auto error = CheckLength(*row, ids.total, ids.is_whole)) return error;
  if (auto error = CheckMinTokens(*row, settings)) return error;
  Prompt prompt;
  prompt.ids = std::move(ids.last);
  load::SetAnswerSettings(std::move(settings), &prompt);
  SetGrammar(row, &prompt);
  CheckThoughtBudget(row, &prompt);
  prompt.stop_token_ids = row->stop_token_ids;
  prompt.include_stop = row->include_stop;
  prompt.keep_special = row->keep_special;
  if (!row->reasoning.none()) prompt.kept_special_ids = kept_special_ids_;
  prompt.priority = row->priority;
  if (row->timeout_s) prompt.timeout = std::chrono::duration<double>(*row->timeout_s);
  load::SetEndTokens(options_.eos_ids, &prompt);
  if (auto error = SetTokenLimits(*text_, row, &prompt)) return error;
  if (row->echo || row->num_prompt_logprobs >= 0) {
    ShowPrompt(row, prompt.ids, ids.total < whole_len, &prompt);
  }
  if (conversation != nullptr) conversation->Keep(*row, prompt);
  const uint64_t seed = prompt.sampling.seed;
  for (int32_t answer = 1; answer < row->n; ++answer) {
    prompts->push_back(prompt);
    ScoreNothing(&prompt);  // the log-probabilities of the prompt are the same for all answers
    prompt.sampling.seed = AnswerSeed(seed, static_cast<uint64_t>(answer));
  }
  prompts->push_back(std::move(prompt));
  notes_.Say(row->notes);
  return std::nullopt;
}

void PromptBuilder::AddPrefill(Row* row) const {
  if (!options_.prefill || row->kind != PromptKind::kMessages) return;
  if (row->start != AnswerStart::kNewMessage) return;
  Json message;
  message.Set("role", "assistant").Set("content", *options_.prefill);
  row->messages.Append(std::move(message));
  row->start = AnswerStart::kContinue;
}

bool PromptBuilder::LimitsByModel(const Row& row) const {
  return !row.max_tokens && options_.defaults.max_tokens_origin == load::kGenerationConfig;
}

// A schema is shared with the rows that have the same; nothing constrains an answer of no token.
void PromptBuilder::SetGrammar(Row* row, Prompt* prompt) const {
  if (prompt->max_tokens == 0) prompt->grammar = nullptr;
  if (row->grammar && prompt->grammar != nullptr) {
    const std::shared_ptr<const GrammarText> own = std::move(prompt->grammar);
    prompt->grammar = grammar_texts_.Share(own);
    if (prompt->grammar != own) row->shared_bytes = own->text.size();
  }
  if (!row->all_turns) row->grammar.reset();
  prompt->reasoning = row->reasoning;
}

// Warns if the row has a budget for reasoning that its answer cannot have.
void PromptBuilder::CheckThoughtBudget(Row* row, Prompt* prompt) const {
  if (!row->reasoning.none()) return;
  prompt->thought_budget = -1;
  if (row->thought_budget.value_or(-1) < 0) return;
  row->warnings.push_back(
      !reasoning_.none() && row->kind == PromptKind::kMessages
          ? "thinking_token_budget: the answer continues a text after its reasoning; it was ignored"
      : row->kind == PromptKind::kMessages
          ? "thinking_token_budget: the chat template marks no reasoning; it was ignored"
          : "thinking_token_budget: a prompt without the chat template has no reasoning; it was "
            "ignored");
}

// Keeps what the answer shows of the prompt, and asks for the log-probabilities of its tokens.
void PromptBuilder::ShowPrompt(Row* row, const std::vector<TokenId>& ids, bool is_cut,
                               Prompt* prompt) const {
  ShownPrompt& shown = row->shown;
  SamplingParams& sampling = prompt->sampling;
  shown.ids = ids;
  shown.num_logprobs = sampling.num_logprobs;
  if (row->echo && (is_cut || row->kind == PromptKind::kTokenIds)) {
    shown.text = text_->tokenizer->Decode(ids, /*keep_special=*/false);
  }
  sampling.num_prompt_logprobs = row->num_prompt_logprobs;
  if (row->echo) {
    sampling.num_prompt_logprobs = std::max(sampling.num_prompt_logprobs, sampling.num_logprobs);
  }
  if (sampling.num_prompt_logprobs < 0) ScoreNothing(prompt);
}

// Spaces at the end of the prompt belong to the text: tokenizers put a space in one token with the
// word after it.
std::optional<RowError> PromptBuilder::BuildScored(Row* row, std::vector<Prompt>* prompts,
                                                   const std::atomic<bool>* cancelled) const {
  const size_t last = row->prompt.find_last_not_of(" \t\n\v\f\r");
  const size_t kept = last == std::string::npos ? 0 : last + 1;
  const std::string whole_text = row->prompt + std::exchange(row->scored_text, std::string());
  row->prompt.resize(kept);
  Ids whole, alone;
  if (row->add_special_tokens) Add(text_->tokenizer->Prefix(), &whole);
  const int64_t num_added = whole.total;
  if (auto error = EncodePieces(*row, RawPieces(*text_, whole_text), cancelled, &whole)) {
    return error;
  }
  if (auto error = CheckLength(*row, whole.total, whole.is_whole)) return error;
  if (kept > 0) {
    if (auto error = EncodePieces(*row, RawPieces(*text_, row->prompt), cancelled, &alone)) {
      return error;
    }
  }
  // Tokens of the prompt alone that begin the whole; those after them are scored.
  const auto text_begin = whole.last.begin() + num_added;
  const auto common =
      std::mismatch(alone.last.begin(), alone.last.end(), text_begin, whole.last.end()).first -
      alone.last.begin();
  const int64_t begin = std::max<int64_t>(num_added + common, 1);
  if (begin >= whole.total) {
    return InvalidRow(whole.total - num_added == 1 && kept == 0
                          ? "text is one token, and none stands before it; give a prompt"
                          : "text adds no token to score",
                      "text");
  }
  if (common < std::ssize(alone.last)) {
    row->warnings.push_back(
        "a token spans the end of the prompt and the beginning of the text; it is scored");
  }
  Prompt prompt;
  prompt.ids = std::move(whole.last);
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

void PromptBuilder::AskInChat(Row* row, bool begins) const {
  row->kind = PromptKind::kMessages;
  row->messages = ChatMessages(begins ? options_.system : std::nullopt, std::move(row->prompt));
  row->prompt.clear();
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

// One of the two values may be a default. (ParseRow rejects a row that gives conflicting values for
// both.)
std::optional<RowError> PromptBuilder::CheckMinTokens(const Row& row,
                                                      const load::AnswerSettings& settings) const {
  const int32_t min_tokens = settings.sampling.min_tokens;
  if (settings.max_tokens < 0 || min_tokens <= settings.max_tokens) return std::nullopt;
  const load::SamplingDefaults& defaults = options_.defaults;
  const auto from = [](bool of_row, const std::string& origin) {
    return of_row || origin.empty() ? "" : " of " + origin;
  };
  return InvalidRow(
      fmt::format("min_tokens is more than max_tokens (found {}{} and {}{})", min_tokens,
                  from(row.min_tokens.has_value(), defaults.min_tokens_origin), settings.max_tokens,
                  from(row.max_tokens.has_value(), defaults.max_tokens_origin)),
      "min_tokens");
}

std::optional<RowError> PromptBuilder::CheckLength(const Row& row, int64_t length,
                                                   bool is_whole) const {
  const int64_t most = PromptMax(row);
  if (length <= most) return std::nullopt;
  const std::string counted = fmt::format(
      "{} {}{} tokens", row.format == RowFormat::kScore ? "prompt and text have" : "the prompt has",
      is_whole ? "" : "at least ", length);
  return RowError{"length_exceeded",
                  most == capacity_
                      ? fmt::format("{}; the context holds {}", counted, most)
                      : fmt::format("{}; at most {} leave room for an answer", counted, most),
                  ""};
}

int64_t PromptBuilder::PromptMax(const Row& row) const {
  return row.format == RowFormat::kScore || row.max_tokens == 0 ? capacity_ : capacity_ - 1;
}

void PromptBuilder::Add(std::span<const TokenId> ids, Ids* to) const {
  if (ids.empty()) return;
  if (!to->first) to->first = ids.front();
  to->total += static_cast<int64_t>(ids.size());
  std::vector<TokenId>& last = to->last;
  last.insert(last.end(), ids.begin(), ids.end());
  const auto keep = static_cast<size_t>(capacity_);
  if (last.size() <= 2 * keep) return;
  last.erase(last.begin(), last.end() - static_cast<std::ptrdiff_t>(keep));
}

std::optional<RowError> PromptBuilder::PromptIds(Row* row, const std::atomic<bool>* cancelled,
                                                 Ids* ids) const {
  if (row->kind == PromptKind::kTokenIds) {
    if (auto error = CheckControlIds(*text_, *row)) return error;
    Add(row->prompt_token_ids, ids);
    return std::nullopt;
  }
  if (auto error = ApplySwitches(*text_, row)) return error;
  const bool is_completed = row->kind == PromptKind::kText && row->add_special_tokens;
  Result<std::vector<TextPiece>> pieces = Pieces(row, cancelled);
  if (!pieces.ok()) return RowError{"template_error", pieces.status().message(), "messages"};
  if (is_completed) Add(text_->tokenizer->Prefix(), ids);
  if (auto error = EncodePieces(*row, std::move(pieces).value(), cancelled, ids)) return error;
  if (is_completed) Add(text_->tokenizer->Suffix(), ids);
  return std::nullopt;
}

std::optional<RowError> PromptBuilder::ConversationIds(Row* row, const std::atomic<bool>* cancelled,
                                                       Conversation* conversation, Ids* ids) const {
  if (auto error = conversation->CheckNext(*row)) return error;
  if (row->kind != PromptKind::kMessages) {
    if (conversation->empty()) return PromptIds(row, cancelled, ids);
    if (auto error = CheckControlIds(*text_, *row)) return error;
    const Result<std::vector<TokenId>> whole = conversation->AddPrompt(row);
    if (!whole.ok()) return InvalidRow(whole.status().message(), FieldOfPrompt(*row));
    Add(*whole, ids);
    return std::nullopt;
  }
  if (auto error = ApplySwitches(*text_, row)) return error;
  // They are in template_kwargs, also for the next turn.
  row->reasoning_effort.clear();
  row->verbosity.clear();
  const Result<ConversationPrompt> prompt =
      conversation->AddMessages(row, cancelled, options_.prefill ? &*options_.prefill : nullptr);
  if (!prompt.ok()) return RowError{"template_error", prompt.status().message(), "messages"};
  row->reasoning = prompt->continued ? WithContinued(reasoning_, prompt->pieces, *prompt->continued)
                                     : WithPrompt(reasoning_, prompt->pieces);
  Add(prompt->ids, ids);
  return std::nullopt;
}

// A text that is far too long is not tokenized to its end just to report its length.
std::optional<RowError> PromptBuilder::EncodePieces(const Row& row, std::vector<TextPiece> pieces,
                                                    const std::atomic<bool>* cancelled,
                                                    Ids* ids) const {
  constexpr size_t kCountedBytes = size_t{1} << 20;
  size_t bytes = 0;
  for (const TextPiece& piece : pieces) bytes += piece.text.size();
  const bool counts = options_.truncate_left || bytes <= kCountedBytes;
  if (const int64_t least = text_->tokenizer->MinTokens(pieces);
      !counts && least > PromptMax(row)) {
    return CheckLength(row, least, /*is_whole=*/false);
  }
  const auto sink = [&](std::span<const TokenId> more) {
    Add(more, ids);
    ids->is_whole = counts || ids->total <= PromptMax(row);
    return ids->is_whole && (cancelled == nullptr || !cancelled->load());
  };
  const Status status = EncodeRenderedTo(*text_, std::move(pieces), sink);
  if (cancelled != nullptr && cancelled->load()) {
    return RowError{"cancelled", "the run was stopped before this row was asked", ""};
  }
  if (status.ok()) return std::nullopt;
  return InvalidRow(status.message(), FieldOfPrompt(row));
}

// A text prompt is completed as it is: its answer is not a turn of a template and has no reasoning.
Result<std::vector<TextPiece>> PromptBuilder::Pieces(Row* row,
                                                     const std::atomic<bool>* cancelled) const {
  std::vector<TextPiece> pieces;
  if (row->kind == PromptKind::kText) return RawPieces(*text_, std::move(row->prompt));
  MINISGL_RETURN_IF_ERROR(load::CheckHasTemplate(*text_));
  const std::string continued = ContinuedText(*row);
  MINISGL_ASSIGN_OR_RETURN(
      pieces, RenderChat(*text_, std::move(row->messages), std::move(row->template_kwargs),
                         std::move(row->tools), std::move(row->documents), cancelled, row->start));
  row->reasoning = row->start == AnswerStart::kContinue
                       ? WithContinued(reasoning_, pieces, continued)
                       : WithPrompt(reasoning_, pieces);
  return pieces;
}

// Keeps the end of the prompt, and the token that starts every text if there was one. Leaves room
// for the answer, but at most a quarter of the context, so that a generous max_tokens does not
// consume the prompt.
void PromptBuilder::Truncate(Row* row, int64_t max_tokens, Ids* ids) const {
  const int64_t length = ids->total;
  if (length <= PromptMax(*row)) return;
  const int64_t quarter = std::max<int64_t>(capacity_ / 4, 1);
  const int64_t room = max_tokens < 0 ? quarter : std::min(max_tokens, quarter);
  const int64_t keep = std::max<int64_t>(capacity_ - room, 1);
  std::vector<TokenId>& last = ids->last;
  last.erase(last.begin(), last.end() - keep);
  if (keep > 1 && text_->tokenizer->bos_id() == ids->first) last.front() = *ids->first;
  ids->total = keep;
  row->warnings.push_back(
      fmt::format("the prompt was cut from {} tokens to its last {}", length, keep));
}

load::AnswerSettings PromptBuilder::SettingsOf(const Row& row) const {
  load::AnswerSettings settings = Apply(options_.defaults, row);
  if (!row.seed) {
    const uint64_t seed = options_.defaults.sampling.seed;
    settings.sampling.seed = DeriveSeed(seed, static_cast<uint64_t>(row.index));
  }
  if (row.turn > 0) {
    settings.sampling.seed = AnswerSeed(settings.sampling.seed, static_cast<uint64_t>(row.turn));
  }
  return settings;
}

}  // namespace minisgl::batch
