#include "batch/conversation.h"

#include "load/model_loader.h"
#include "minisgl/base/check.h"

namespace minisgl::batch {
namespace {

// More ids than these at the end of an answer are not left out; then all of its text is encoded
// again.
constexpr int kIdsTried = 16;

// Returns how many of the first `ids` spell the beginning of `answer`, their text up to a stop
// string or a stop token; *rest is what they do not spell.
size_t NumIdsWithin(const std::string& answer, std::span<const TokenId> ids, const Prompt& prompt,
                    const Tokenizer& tokenizer, std::string* rest) {
  Prompt without_stops;
  without_stops.kept_special_ids = prompt.kept_special_ids;
  without_stops.keep_special = prompt.keep_special;
  for (int tried = 0; tried < kIdsTried && !ids.empty(); ++tried) {
    const std::string text = AnswerText(without_stops, ids, tokenizer);
    if (answer.starts_with(text)) {
      *rest = answer.substr(text.size());
      return ids.size();
    }
    ids = ids.first(ids.size() - 1);
  }
  *rest = answer;
  return 0;
}

Json MessageOf(const std::string& answer) {
  Json message;
  return message.Set("role", "assistant").Set("content", answer);
}

std::string TextOf(const Json& message) {
  const Json* const content = message.Find("content");
  return content != nullptr && content->is_string() ? content->as_string() : "";
}

}  // namespace

Conversation::Conversation(const TextModel* text) : text_(text) {}

std::optional<RowError> Conversation::CheckNext(const Row& row) const {
  if (row.kind == PromptKind::kMessages) {
    if (kind_ != Kind::kText) return std::nullopt;
    return InvalidRow(
        "messages cannot follow text: an earlier row of the session was completed without the chat "
        "template",
        "messages");
  }
  if (kind_ == Kind::kEmpty || row.append) return std::nullopt;
  return InvalidRow(
      "a later prompt of a session needs append: true, which goes on with the text; or give "
      "messages, or --chat, which makes a prompt a message",
      "append");
}

Result<ConversationPrompt> Conversation::AddMessages(Row* row, const std::atomic<bool>* cancelled,
                                                     const std::string* prefill) {
  MINISGL_RETURN_IF_ERROR(load::CheckHasTemplate(*text_));
  if (!session_) {
    session_.emplace(text_->tokenizer.get(), text_->chat_template.get());
    session_->set_parse_special(text_->parse_special);
  }
  kind_ = Kind::kMessages;
  // Errors name a message by its index in the row.
  const auto index_offset =
      static_cast<int64_t>(row->next_message) - static_cast<int64_t>(session_->messages().size());
  const Json::Array& messages = row->messages.as_array();
  while (row->next_message < messages.size()) {
    const Json& message = messages[row->next_message++];
    const std::string role = message.Find("role")->as_string();
    session_->messages().push_back({role, "", {}, "", message});
    if (row->all_turns && role == "user") break;
  }
  continues_ = row->start == AnswerStart::kContinue;
  if (prefill != nullptr && row->start == AnswerStart::kNewMessage) {
    session_->messages().push_back({"assistant", *prefill, {}, "", MessageOf(*prefill)});
    continues_ = true;
  }
  session_->set_continues(continues_);
  Json args = text_->template_args;
  if (row->template_kwargs.is_object()) args.SetAll(row->template_kwargs);
  session_->set_inputs({row->tools, row->documents, cancelled, index_offset});
  ConversationPrompt prompt;
  if (continues_) prompt.continued = TextOf(session_->messages().back().given);
  MINISGL_ASSIGN_OR_RETURN(prompt.pieces, session_->PromptPieces(args));
  MINISGL_ASSIGN_OR_RETURN(prompt.ids, session_->PromptIds(args));
  return prompt;
}

Result<std::vector<TokenId>> Conversation::AddPrompt(Row* row) {
  MINISGL_CHECK(!empty(), "a prompt goes on with nothing");
  kind_ = Kind::kText;
  const Tokenizer& tokenizer = *text_->tokenizer;
  std::span<const TokenId> answer = answer_ids_;
  if (stopped_ && !answer.empty() && tokenizer.IsSpecial(answer.back())) {
    answer = answer.first(answer.size() - 1);
  }
  std::vector<TextPiece> pieces(1);
  answer = answer.first(NumIdsWithin(answer_, answer, prompt_, tokenizer, &pieces.front().text));
  std::vector<TokenId> ids = std::move(prompt_.ids);
  ids.insert(ids.end(), answer.begin(), answer.end());
  if (pieces.front().text.empty()) pieces.clear();
  if (row->kind == PromptKind::kText) {
    for (TextPiece& piece : RawPieces(*text_, std::move(row->prompt))) {
      pieces.push_back(std::move(piece));
    }
  }
  MINISGL_ASSIGN_OR_RETURN(const std::vector<TokenId> more,
                           EncodeAfter(tokenizer, tokenizer.eos_id(), std::move(pieces)));
  ids.insert(ids.end(), more.begin(), more.end());
  ids.insert(ids.end(), row->prompt_token_ids.begin(), row->prompt_token_ids.end());
  return ids;
}

void Conversation::Keep(const Row& row, const Prompt& prompt) {
  if (kind_ == Kind::kEmpty) kind_ = Kind::kText;
  reasoning_ = row.reasoning;
  prompt_ = prompt;
  prompt_.grammar = nullptr;
}

void Conversation::AddAnswer(std::string text, std::vector<TokenId> ids, bool stopped) {
  if (kind_ == Kind::kMessages && continues_) {
    Json& message = session_->messages().back().given;
    message.Set("content", TextOf(message) + text);
    session_->set_continues(false);
  } else if (kind_ == Kind::kMessages) {
    session_->messages().push_back(session_->AnswerMessage(text, ids, reasoning_));
  }
  answer_ = std::move(text);
  answer_ids_ = std::move(ids);
  stopped_ = stopped;
}

void Conversation::AddAnswer(std::vector<TokenId> ids, bool stopped) {
  std::string text = AnswerText(prompt_, ids, *text_->tokenizer);
  AddAnswer(std::move(text), std::move(ids), stopped);
}

}  // namespace minisgl::batch
