#include "batch/row.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "batch/row_fields.h"
#include "batch/row_grammar.h"
#include "batch/row_text.h"
#include "batch/row_tools.h"
#include "batch/texts_row.h"
#include "minisgl/base/utf8.h"

namespace minisgl::batch {
namespace {

constexpr const char* kChatUrl = "/v1/chat/completions";
constexpr const char* kCompletionUrl = "/v1/completions";

bool TakeId(const char* name, Json id, RowDraft* draft) {
  return FindRowField(name, kAtTop)->take(id, draft);
}

void NoteSession(Json session, RowDraft* draft) {
  if (session.is_string()) FindRowField("session", kAtTop)->take(session, draft);
}

class RowParser {
 public:
  RowParser(RowDraft* draft, bool lenient) : draft_(*draft), lenient_(lenient) {}

  // A row of `minisgl score`.
  std::optional<RowError> ParseScored(Json json) {
    draft_.row.kind = PromptKind::kText;
    if (json.is_string()) {
      draft_.row.scored_text = std::move(json.as_string());
      return CheckScoredText();
    }
    if (!json.is_object()) {
      return InvalidRow(
          fmt::format("a row must be an object or a string (found {})", json.TypeName()));
    }
    TakeIdFirst(json);
    for (auto& [key, value] : json.as_object()) {
      if (auto error = TakeMember(key, value, kInScored)) return error;
    }
    if (Seen("messages")) {
      if (auto error = CheckScoredMessages()) return error;
    } else if (auto error = CheckScoredPrompt()) {
      return error;
    }
    return CheckScoredText();
  }

  // A row of `minisgl embed`, `classify` or `rerank`.
  std::optional<RowError> ParseTexts(Json json, RowPurpose purpose) {
    if (json.is_string()) {
      draft_.row.texts.push_back({std::move(json.as_string()), {}});
      draft_.row.is_one_text = true;
      return std::nullopt;
    }
    if (!json.is_object()) {
      return InvalidRow(
          fmt::format("a row must be an object or a string (found {})", json.TypeName()));
    }
    TakeIdFirst(json);
    Json* const body = purpose == RowPurpose::kClassify ? nullptr : json.Find("body");
    if (body != nullptr) {
      const TextsUrl url = TextsUrlOf(purpose, json.Find("url"));
      draft_.row.format = url.format;
      for (auto& [key, value] : json.as_object()) {
        if (auto error = TakeBatchMember(key, value, url.url, url.other)) return error;
      }
      if (!Seen("id")) {
        return InvalidRow("custom_id is missing; a row with a body needs one", "custom_id");
      }
    }
    const FieldFlags place = purpose == RowPurpose::kEmbed ? kInEmbedded : kInRanked;
    for (auto& [key, value] : (body != nullptr ? *body : json).as_object()) {
      if (auto error = TakeMember(key, value, place)) return error;
    }
    draft_.row.add_special_tokens = draft_.add_special_tokens.value_or(true);
    return CheckTexts(&draft_.row, purpose, seen_);
  }

  // Moves values out of `json`, because a row may be large.
  std::optional<RowError> Parse(Json json) {
    if (json.is_string()) {
      draft_.row.kind = PromptKind::kText;
      draft_.row.prompt = std::move(json.as_string());
      return std::nullopt;
    }
    if (!json.is_object()) {
      return InvalidRow(
          fmt::format("a row must be an object or a string (found {})", json.TypeName()));
    }
    TakeIdFirst(json);
    const bool is_batch =
        json.Find("body") != nullptr ||
        (json.Find("custom_id") != nullptr && (json.Find("url") || json.Find("method")));
    if (is_batch) return ParseBatch(&json);
    // If the row fails, its session does.
    if (const Json* session = json.Find("session")) NoteSession(*session, &draft_);
    for (auto& [key, value] : json.as_object()) {
      if (auto error = TakeMember(key, value, kAtTop)) return error;
    }
    return CheckWhole();
  }

 private:
  // Takes the id before all other fields, so that their errors carry it wherever it stands.
  void TakeIdFirst(const Json& json) {
    for (const char* name : {"custom_id", "id"}) {
      const Json* id = json.Find(name);
      if (id != nullptr && TakeId(name, *id, &draft_)) return;
    }
  }

  std::optional<RowError> ParseBatch(Json* json) {
    const Json* const url = json->Find("url");
    Json* const body = json->Find("body");
    const bool is_chat = url != nullptr && url->is_string()
                             ? *url != Json(kCompletionUrl)
                             : body == nullptr || body->Find("prompt") == nullptr;
    // Without a custom_id to match by, a line in the service's format would be less useful than our
    // own.
    const Json* id = json->Find("custom_id");
    if (id != nullptr && !id->is_null() && *id == draft_.row.id) {
      draft_.row.format = is_chat ? RowFormat::kBatchChat : RowFormat::kBatchCompletion;
    }
    for (auto& [key, value] : json->as_object()) {
      if (auto error = TakeBatchMember(key, value, kChatUrl, kCompletionUrl)) return error;
    }
    if (!Seen("id")) {
      return InvalidRow("custom_id is missing; a row with a body needs one", "custom_id");
    }
    if (body == nullptr) return InvalidRow("body is missing", "body");
    for (auto& [key, value] : body->as_object()) {
      if (auto error = TakeMember(key, value, is_chat ? kInChat : kInCompletion)) return error;
    }
    const char* prompt = is_chat ? "messages" : "prompt";
    if (!Seen(prompt)) return InvalidRow(fmt::format("{} is missing", prompt), prompt);
    return CheckWhole();
  }

  // Takes a member that stands beside the body. The URL is one of two.
  std::optional<RowError> TakeBatchMember(const std::string& key, Json& value, const char* url,
                                          const char* other_url = nullptr) {
    const auto must_be = [&](const char* what) {
      return InvalidRow(
          fmt::format("{} must be {} (found {})", key, what, Visible(value.Dump(), 60)), key);
    };
    if (key == "custom_id") return TakeMember(key, value, kAtTop);
    if (key == "body") {
      return value.is_object() ? std::nullopt : std::optional(must_be("an object"));
    }
    if (key == "method") {
      return value == Json("POST") ? std::nullopt : std::optional(must_be("POST"));
    }
    if (key == "url") {
      if (value == Json(url) || (other_url != nullptr && value == Json(other_url))) {
        return std::nullopt;
      }
      const std::string urls = other_url == nullptr ? url : fmt::format("{} or {}", url, other_url);
      return must_be((urls + CommandFor(value)).c_str());
    }
    const std::string shown = Visible(key);
    return Unsupported(shown, fmt::format("{} is not a known field beside a body", shown));
  }

  std::optional<RowError> TakeMember(const std::string& key, Json& value, FieldFlags place) {
    if (place == kAtTop && key == "sampling_params") return TakeSamplingParams(value);
    const std::string shown = (place == kInSamplingParams ? "sampling_params." : "") + Visible(key);
    const RowField* field = FindRowField(key, place);
    constexpr auto kAllPlaces =
        static_cast<FieldFlags>(kSampling | kInScored | kInEmbedded | kInRanked);
    if (field == nullptr) {
      const bool is_known = FindRowField(key, kAllPlaces) != nullptr;
      // Clients write null for fields of other requests, too.
      if (value.is_null() && is_known && place != kInScored) return std::nullopt;
      return Unsupported(shown, UnknownField(key, shown, place));
    }
    if (value.is_null() && field->name != std::string_view("metadata")) {
      return std::nullopt;  // null means not given: some clients write every field
    }
    if (auto error = NoteSeen(*field, shown)) return error;
    draft_.detail.clear();
    draft_.detail_field = shown;
    if (TakeValue(*field, value)) return RefuseUnknown();
    if (field->use == FieldUse::kNoted) {
      NoteIgnored(*field);
      return std::nullopt;
    }
    std::string message = draft_.detail;
    if (message.empty()) {
      message = fmt::format("{} must be {} (found {})", shown, Expects(*field),
                            Visible(value.Dump(), 60));
    }
    if ((field->flags & kUnsupported) != 0) return Unsupported(draft_.detail_field, message);
    return InvalidRow(std::move(message), draft_.detail_field);
  }

  bool TakeValue(const RowField& field, Json& value) {
    if (field.type == FieldType::kInteger && value.is_double()) {
      if (const auto exact = ExactInteger(value)) {
        Json integer(*exact);
        return TakeValue(field, integer);
      }
    }
    return InRange(field, value) && field.take(value, &draft_);
  }

  std::optional<RowError> RefuseUnknown() {
    for (const UnknownMember& member : std::exchange(draft_.unknown, {})) {
      auto error = Unsupported(
          member.name, fmt::format("{} is not a known field of {}", member.name, member.of));
      if (error) return error;
    }
    return std::nullopt;
  }

  static std::string UnknownField(const std::string& key, const std::string& shown,
                                  FieldFlags place) {
    std::string message = fmt::format("{} is not a known field", shown);
    if (place == kInChat) message += fmt::format(" of {}", kChatUrl);
    if (place == kInCompletion) message += fmt::format(" of {}", kCompletionUrl);
    if (place == kInScored) message += " of a row to score";
    if (place == kInEmbedded) message += " of a row for vectors";
    if (place == kInRanked) message += " of a row to rank or to classify";
    const std::string_view nearest = NearestField(key, place);
    if (!nearest.empty()) message += fmt::format("; did you mean {}?", nearest);
    return message;
  }

  std::optional<RowError> TakeSamplingParams(Json& value) {
    if (value.is_null()) return std::nullopt;
    if (!value.is_object()) {
      return InvalidRow(
          fmt::format("sampling_params must be an object (found {})", value.TypeName()),
          "sampling_params");
    }
    for (auto& [key, member] : value.as_object()) {
      if (auto error = TakeMember(key, member, kInSamplingParams)) return error;
    }
    return std::nullopt;
  }

  void NoteIgnored(const RowField& field) {
    draft_.row.notes.push_back(
        {LogLevel::kInfo,
         fmt::format("rows ask for {}, which is ignored: {}", field.name, field.expects)});
  }

  bool Seen(std::string_view name) const {
    return std::find(seen_.begin(), seen_.end(), name) != seen_.end();
  }

  // Rejects a value given under two spellings: one of them would be ignored.
  std::optional<RowError> NoteSeen(const RowField& field, const std::string& shown) {
    const std::string_view name = field.canonical_name();
    if (Seen(name)) {
      return InvalidRow(fmt::format("{} is given twice, under two spellings", name), shown);
    }
    seen_.push_back(name);
    return std::nullopt;
  }

  std::optional<RowError> Unsupported(const std::string& field, const std::string& message) {
    if (!lenient_) return RowError{"unsupported_field", message, field};
    draft_.row.warnings.push_back(message + " (it was ignored)");
    return std::nullopt;
  }

  std::optional<RowError> CheckScoredText() {
    Row& row = draft_.row;
    if (row.scored_text.empty()) return InvalidRow("text is empty: nothing to score", "text");
    row.add_special_tokens = draft_.add_special_tokens.value_or(true);
    return std::nullopt;
  }

  std::optional<RowError> CheckScoredPrompt() {
    if (!Seen("text")) return InvalidRow("text is missing: what is to be scored", "text");
    for (const char* name :
         {"tools", "documents", "chat_template_kwargs", "reasoning_effort", "verbosity"}) {
      if (Seen(name)) return OnlyForTemplate(name);
    }
    return std::nullopt;
  }

  // Without `text` the content of the last message is scored, which then is the assistant's. With
  // it such a message is the beginning of the answer.
  std::optional<RowError> CheckScoredMessages() {
    Row& row = draft_.row;
    if (Seen("prompt")) {
      return InvalidRow("a row to score has a prompt or messages before its text (found both)",
                        "messages");
    }
    if (draft_.add_special_tokens) {
      return InvalidRow("add_special_tokens is only for prompt; nothing is added to messages",
                        "add_special_tokens");
    }
    Json::Array& messages = row.messages.as_array();
    Json& last = messages.back();
    const bool is_answer = *last.Find("role") == Json("assistant");
    if (Seen("text") && !is_answer) return std::nullopt;
    Json* const content = last.Find("content");
    JoinTextParts(content);
    if (!is_answer || content == nullptr || !content->is_string()) {
      return InvalidRow(
          "text is missing: what is to be scored, unless the last message is the assistant's and "
          "its content is a text",
          Seen("text") ? "messages" : "text");
    }
    if (Seen("text")) {
      row.start = AnswerStart::kContinue;
      return std::nullopt;
    }
    for (const auto& [key, value] : last.as_object()) {
      if (key == "role" || key == "content") continue;
      return InvalidRow(
          fmt::format("only the content of the last message is scored, but it has {}; give the "
                      "whole answer as text",
                      Visible(key)),
          fmt::format("messages[{}].{}", messages.size() - 1, Visible(key)));
    }
    row.scored_text = std::move(content->as_string());
    messages.pop_back();
    if (!messages.empty()) return std::nullopt;
    return InvalidRow("messages has no message before the one that is scored", "messages");
  }

  static RowError OnlyForTemplate(const char* name) {
    return InvalidRow(
        fmt::format("{} is only for the chat template, but the row has no messages", name), name);
  }

  // Makes one string of a content that is a list of texts alone.
  static void JoinTextParts(Json* content) {
    if (content == nullptr || !content->is_array()) return;
    std::string joined;
    for (const Json& part : content->as_array()) {
      const Json* const text = part.Find("text");
      if (text == nullptr || !text->is_string()) return;
      joined += text->as_string();
    }
    *content = Json(std::move(joined));
  }

  // Checks the fields that say where the answer of messages begins.
  std::optional<RowError> CheckStart() {
    Row& row = draft_.row;
    if (row.start != AnswerStart::kContinue) {
      if (!draft_.add_generation_prompt.value_or(true)) row.start = AnswerStart::kNothing;
      return std::nullopt;
    }
    if (draft_.add_generation_prompt.value_or(false)) {
      return InvalidRow(
          "continue_final_message continues the last message, and add_generation_prompt begins "
          "another; give one",
          "continue_final_message");
    }
    Json& last = row.messages.as_array().back();
    Json* const content = last.Find("content");
    JoinTextParts(content);
    if (content != nullptr && content->is_string()) {
      const std::string& role = last.Find("role")->as_string();
      if (role != "assistant") {
        row.warnings.push_back(fmt::format(
            "the answer continues the last message, whose role is {}", Visible(role, 60)));
      }
      return std::nullopt;
    }
    return InvalidRow("continue_final_message needs a last message with a text as its content",
                      "continue_final_message");
  }

  // Checks fields that show the prompt, and fields of an answer without tokens.
  std::optional<RowError> CheckShown() {
    const Row& row = draft_.row;
    if (row.echo && row.kind == PromptKind::kMessages) {
      return InvalidRow("echo is only for prompt and prompt_token_ids, but the row has messages",
                        "echo");
    }
    if (row.max_tokens == 0 && !row.echo && row.num_prompt_logprobs < 0) {
      return InvalidRow(
          "max_tokens must be an integer from 1 to 2147483647, or -1 for no limit; 0 needs echo or "
          "prompt_logprobs (found 0)",
          "max_tokens");
    }
    return std::nullopt;
  }

  // Checks rows whose answers are part of later prompts.
  std::optional<RowError> CheckConversation() {
    Row& row = draft_.row;
    if (row.append && row.session.empty()) {
      return InvalidRow("append goes on with the earlier rows of a session; give session",
                        "append");
    }
    if (row.append && row.kind == PromptKind::kMessages) {
      return InvalidRow("append is only for prompt and prompt_token_ids, but the row has messages",
                        "append");
    }
    if (row.session.empty() && !row.all_turns) return std::nullopt;
    const char* const field = row.all_turns ? "answer_all_turns" : "session";
    if (row.n > 1) {
      return InvalidRow(
          fmt::format("n must be 1 with {}: the conversation goes on with one answer (found {})",
                      field, row.n),
          "n");
    }
    if (row.echo || row.num_prompt_logprobs >= 0) {
      return InvalidRow(
          fmt::format("{} is not for a row with {}", row.echo ? "echo" : "prompt_logprobs", field),
          row.echo ? "echo" : "prompt_logprobs");
    }
    if (row.start == AnswerStart::kNothing) {
      return InvalidRow(
          fmt::format("add_generation_prompt must be true with {}: each answer is a message",
                      field),
          "add_generation_prompt");
    }
    if (!row.session.empty()) row.return_token_ids = true;  // what --resume goes on from
    return row.all_turns ? CheckTurns() : std::nullopt;
  }

  std::optional<RowError> CheckTurns() {
    const Row& row = draft_.row;
    if (row.kind != PromptKind::kMessages) {
      return InvalidRow("answer_all_turns needs messages: the turns of the user",
                        "answer_all_turns");
    }
    std::string role;
    for (size_t i = 0; i < row.messages.as_array().size(); ++i) {
      role = row.messages.as_array()[i].Find("role")->as_string();
      if (role == "user" || role == "system" || role == "developer") continue;
      const std::string name = fmt::format("messages[{}].role", i);
      return InvalidRow(
          fmt::format("{} must be user, system or developer with answer_all_turns, which gives the "
                      "answers itself (found {})",
                      name, Visible(role, 60)),
          name);
    }
    if (role == "user") return std::nullopt;
    return InvalidRow("the last message must be the user's with answer_all_turns", "messages");
  }

  std::optional<RowError> CheckWhole() {
    Row& row = draft_.row;
    const int prompts = Seen("prompt") + Seen("messages") + Seen("prompt_token_ids");
    if (prompts != 1) {
      return InvalidRow(fmt::format(
          "a row needs exactly one of prompt, messages and prompt_token_ids (found {})", prompts));
    }
    if (row.kind != PromptKind::kMessages) {
      for (const char* name : {"tools", "documents", "chat_template_kwargs", "reasoning_effort",
                               "verbosity", "continue_final_message", "add_generation_prompt"}) {
        if (Seen(name)) return OnlyForTemplate(name);
      }
    }
    if (draft_.add_special_tokens) {
      // true is the default of requests for completions, of ids too.
      const bool is_default =
          row.kind == PromptKind::kTokenIds && row.format == RowFormat::kBatchCompletion;
      if (*draft_.add_special_tokens && row.kind != PromptKind::kText && !is_default) {
        return InvalidRow(
            "add_special_tokens is only for prompt; nothing is added to messages and ids",
            "add_special_tokens");
      }
      row.add_special_tokens = *draft_.add_special_tokens;
    }
    if (draft_.best_of && *draft_.best_of != row.n) {
      const std::string message =
          fmt::format("best_of must equal n (found {} and {}): all answers are returned",
                      *draft_.best_of, row.n);
      if (auto error = Unsupported("best_of", message)) return error;
    }
    if (auto error = CheckStart()) return error;
    if (auto error = CheckShown()) return error;
    if (auto error = CheckConversation()) return error;
    if (auto error = CheckTools(&row)) return error;
    const bool has_limit = row.max_tokens.value_or(-1) >= 0;
    if (row.min_tokens && has_limit && *row.min_tokens > *row.max_tokens) {
      return InvalidRow(fmt::format("min_tokens is more than max_tokens (found {} and {})",
                                    *row.min_tokens, *row.max_tokens),
                        "min_tokens");
    }
    return ResolveLogprobs();
  }

  std::optional<RowError> ResolveLogprobs() {
    const auto& [logprobs, top] = std::pair(draft_.logprobs, draft_.top_logprobs);
    if (logprobs && logprobs->is_int()) {
      if (top && *top != logprobs->as_int()) {
        return InvalidRow(fmt::format("logprobs and top_logprobs disagree (found {} and {})",
                                      logprobs->as_int(), *top),
                          "top_logprobs");
      }
      draft_.row.num_logprobs = static_cast<int32_t>(logprobs->as_int());
      return std::nullopt;
    }
    const bool wanted = logprobs && logprobs->as_bool();
    if (top && !wanted && *top > 0) {
      return InvalidRow("top_logprobs needs logprobs: true", "top_logprobs");
    }
    if (wanted) {
      draft_.row.num_logprobs = top.value_or(0);
    } else if (logprobs) {
      draft_.row.num_logprobs = -1;
    }
    return std::nullopt;
  }

  RowDraft& draft_;
  const bool lenient_;
  std::vector<std::string_view> seen_;
};

// For a row that is not valid JSON: takes its id and determines the format of its error row.
void TakeBeginning(const RowBeginning& beginning, RowDraft* draft) {
  if (TakeId("custom_id", beginning.custom_id, draft)) {
    if (!beginning.has_frame || draft->row.format != RowFormat::kOwn) return;
    draft->row.format =
        beginning.url == Json(kCompletionUrl) ? RowFormat::kBatchCompletion : RowFormat::kBatchChat;
    return;
  }
  TakeId("id", beginning.id, draft);
  if (!beginning.has_frame && draft->row.format == RowFormat::kOwn) {
    NoteSession(beginning.session, draft);
  }
}

}  // namespace

RowError InvalidRow(std::string message, std::string field) {
  return {"invalid_row", std::move(message), std::move(field)};
}

RowError BadImage(std::string message, std::string field) {
  return {"bad_image", std::move(message), std::move(field)};
}

ParsedRow ParseRow(std::string_view text, int64_t index, int64_t line, bool lenient,
                   RowPurpose purpose) {
  RowDraft draft;
  draft.row.format = FormatFor(purpose);
  draft.row.index = index;
  draft.row.line = line;
  ParsedRow parsed;
  JsonLimits limits;
  limits.memory_max = kRowJsonMemoryMax;
  if (Result<Json> json = ParseJson(text, limits); !json.ok()) {
    parsed.error = InvalidRow(json.status().message());
    TakeBeginning(ReadRowBeginning(text), &draft);
  } else {
    RowParser parser(&draft, lenient);
    switch (purpose) {
      case RowPurpose::kAnswer:
        parsed.error = parser.Parse(std::move(json).value());
        break;
      case RowPurpose::kScore:
        parsed.error = parser.ParseScored(std::move(json).value());
        break;
      default:
        parsed.error = parser.ParseTexts(std::move(json).value(), purpose);
        break;
    }
    if (!parsed.error && draft.row.metadata) {
      draft.row.metadata =
          RawValue(text, IsBatchFormat(draft.row.format) ? "body.metadata" : "metadata");
    }
    if (!parsed.error) FinishGrammar(text, &draft);
  }
  if (parsed.error) {
    parsed.row.index = index;
    parsed.row.line = line;
    parsed.row.format = draft.row.format;
    parsed.row.id = std::move(draft.row.id);
    parsed.row.session = std::move(draft.row.session);
  } else {
    parsed.row = std::move(draft.row);
  }
  return parsed;
}

}  // namespace minisgl::batch
