#include "batch/said_so_far.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "minisgl/base/check.h"
#include "minisgl/text/call_messages.h"

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

std::string StringIn(const Json& object, const char* name, const char* absent) {
  const Json* const value = object.Find(name);
  return value != nullptr && value->is_string() ? value->as_string() : absent;
}

// The calls whose results are the messages from `begin` on, as far as these tell of them.
std::vector<ToolCall> CallsBefore(const Json::Array& messages, size_t begin) {
  std::vector<ToolCall> calls;
  for (size_t i = begin; i < messages.size(); ++i) {
    if (*messages[i].Find("role") != Json("tool")) break;
    calls.push_back({StringIn(messages[i], "name", "tool"), "{}",
                     StringIn(messages[i], "tool_call_id", "call00000")});
  }
  return calls;
}

std::string TextOf(const Json& message) {
  const Json* const content = message.Find("content");
  return content != nullptr && content->is_string() ? content->as_string() : "";
}

}  // namespace

SaidSoFar::SaidSoFar(const TextModel* text) : text_(text) {}

std::optional<RowError> SaidSoFar::CheckNext(const Row& row) const {
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

size_t SaidSoFar::EndOfTurn(const Row& row) {
  if (!row.results.is_null()) return row.next_message;
  const Json::Array& messages = row.messages.as_array();
  size_t end = row.next_message;
  while (end < messages.size()) {
    const bool is_question = messages[end++].Find("role")->as_string() == "user";
    if (row.all_turns && is_question) break;
  }
  return end;
}

Conversation SaidSoFar::AddMessages(Row* row, std::vector<ConversationImage> images,
                                    const std::string* prefill) {
  if (!session_) session_.emplace(text_->tokenizer.get(), text_->chat_template.get());
  kind_ = Kind::kMessages;
  // Errors name a message by its index in the row.
  const auto index_offset =
      static_cast<int64_t>(row->next_message) - static_cast<int64_t>(session_->messages().size());
  const Json::Array& messages = row->messages.as_array();
  if (std::exchange(is_unknown_, false)) {
    ToolCallPiece asked;
    asked.calls = CallsBefore(messages, row->next_message);
    if (!asked.calls.empty()) {
      session_->messages().back() = session_->CallingMessage("", {}, asked);
    }
  }
  auto next_image = images.begin();
  for (const size_t end = EndOfTurn(*row); row->next_message < end; ++row->next_message) {
    const Json& message = messages[row->next_message];
    SessionMessage added = {message.Find("role")->as_string(), "", {}, "", message};
    const auto is_here = [row](const RowImage& image) {
      return image.message == row->next_message;
    };
    const auto end_of_images =
        next_image + std::count_if(row->images.begin(), row->images.end(), is_here);
    added.images.assign(std::make_move_iterator(next_image),
                        std::make_move_iterator(end_of_images));
    next_image = end_of_images;
    session_->messages().push_back(std::move(added));
  }
  continues_ = row->start == AnswerStart::kContinue && row->results.is_null();
  AddResults(row);
  if (prefill != nullptr && row->start == AnswerStart::kNewMessage) {
    session_->messages().push_back({"assistant", *prefill, {}, "", MessageOf(*prefill)});
    continues_ = true;
  }
  Conversation conversation = session_->ToConversation();
  conversation.start = continues_ ? AnswerStart::kContinue : AnswerStart::kNewMessage;
  conversation.checked.index_offset = index_offset;
  conversation.tools = row->tools;
  conversation.documents = row->documents;
  conversation.kwargs = row->template_kwargs;
  return conversation;
}

void SaidSoFar::AddResults(Row* row) {
  if (row->results.is_null()) return;
  for (Json& message : row->results.as_array()) {
    session_->messages().push_back({"tool", TextOf(message), {}, "", std::move(message)});
  }
  row->results = Json();
}

Conversation SaidSoFar::AddPrompt(Row* row) {
  MINISGL_CHECK(!empty(), "a prompt goes on with nothing");
  kind_ = Kind::kText;
  const Tokenizer& tokenizer = *text_->tokenizer;
  std::span<const TokenId> answer = answer_ids_;
  if (stopped_ && !answer.empty() && tokenizer.IsSpecial(answer.back())) {
    answer = answer.first(answer.size() - 1);
  }
  Conversation conversation;
  RawPrompt& raw = conversation.raw;
  answer = answer.first(NumIdsWithin(answer_, answer, prompt_, tokenizer, &raw.spoken));
  raw.before = std::move(prompt_.ids);
  raw.before.insert(raw.before.end(), answer.begin(), answer.end());
  raw.text = std::move(row->prompt);
  raw.after = std::move(row->prompt_token_ids);
  return conversation;
}

void SaidSoFar::Keep(const Row& row, const Prompt& prompt) {
  if (kind_ == Kind::kEmpty) kind_ = Kind::kText;
  prompt_ = prompt;
  prompt_.grammar = nullptr;
  prompt_.extras = nullptr;
  prompt_.marks.clear();
  calls_.reset();
  if (row.calls != nullptr)
    calls_ = {row.calls, CallIds(row, row.answer_number(), row.calls->dialect)};
}

void SaidSoFar::AddAnswer(std::string text, const TextParts& parts, std::vector<TokenId> ids,
                          bool stopped) {
  ToolCallPiece read;
  if (calls_) read = ReadCalls(*calls_->rules, calls_->ids, text, parts);
  const bool has_calls = !read.calls.empty();
  if (kind_ == Kind::kMessages && continues_) {
    Json& message = session_->messages().back().given;
    message.Set("content", TextOf(message) + (has_calls ? read.content : text));
    if (has_calls) message.Set("tool_calls", CallsJson(read.calls));
  } else if (kind_ == Kind::kMessages && has_calls) {
    session_->messages().push_back(session_->CallingMessage(text, ids, read));
  } else if (kind_ == Kind::kMessages) {
    session_->messages().push_back(session_->AnswerMessage(text, parts, ids));
  }
  answer_ = std::move(text);
  answer_ids_ = std::move(ids);
  stopped_ = stopped;
}

void SaidSoFar::AddUnknownAnswer() {
  AddAnswer("", {}, {}, /*stopped=*/false);
  is_unknown_ = kind_ == Kind::kMessages && !continues_;
}

void SaidSoFar::AddAnswer(std::vector<TokenId> ids, bool stopped) {
  TextParts parts;
  std::string text = AnswerText(prompt_, ids, *text_->tokenizer, &parts);
  AddAnswer(std::move(text), parts, std::move(ids), stopped);
}

}  // namespace minisgl::batch
