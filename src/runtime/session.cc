// Messages of a conversation, and the forms in which a template takes them.
#include "minisgl/runtime/session.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "minisgl/text/call_messages.h"
#include "minisgl/text/chat_messages.h"

namespace minisgl {
namespace {

// Returns a message as templates take it.
Json MessageJson(const SessionMessage& message, bool reasoning_in_blocks) {
  if (!message.given.is_null()) return message.given;
  Json json;
  json.Set("role", message.role);
  if (!message.images.empty()) {
    Json parts, text;
    for (size_t i = 0; i < message.images.size(); ++i) {
      parts.Append(std::move(Json(Json::Object()).Set("type", "image")));
    }
    text.Set("type", "text").Set("text", message.content);
    if (!message.content.empty()) parts.Append(std::move(text));
    return json.Set("content", std::move(parts));
  }
  if (message.reasoning.empty()) {
    json.Set("content", message.content);
  } else if (reasoning_in_blocks) {
    Json reasoning, text;
    reasoning.Set("type", "thinking").Set("thinking", message.reasoning);
    text.Set("type", "text").Set("text", message.content);
    json.Set("content", Json(Json::Array{std::move(reasoning), std::move(text)}));
  } else {
    json.Set("content", message.content).Set("reasoning_content", message.reasoning);
  }
  return json;
}

}  // namespace

Session::Session(const Tokenizer* tokenizer, const ChatTemplate* chat_template)
    : tokenizer_(tokenizer),
      chat_template_(chat_template),
      tags_(FindReasoningTags(*chat_template, *tokenizer, &kept_special_ids_)),
      reasoning_in_blocks_(!tags_.none() && !ShowsReasoning(false, "", "") &&
                           ShowsReasoning(true, tags_.open, tags_.close)) {}

SessionMessage Session::AnswerMessage(const std::string& text, const TextParts& parts,
                                      std::vector<TokenId> ids) const {
  const bool is_bare = std::any_of(parts.begin(), parts.end(), [](const TextPart& part) {
    return part.kind == PartKind::kBareClose;
  });
  if (is_bare) {  // the text does not say that there is a thought
    ReasoningPiece piece = SplitParts(text, parts);
    return {"assistant", std::move(piece.text), std::move(ids), std::move(piece.reasoning)};
  }
  if (kept_special_ids_.empty()) return {"assistant", text, std::move(ids)};
  ReasoningPiece piece = SplitPartsExactly(text, parts);
  return {"assistant", std::move(piece.text), std::move(ids), std::move(piece.reasoning)};
}

SessionMessage Session::CallingMessage(std::string text, std::vector<TokenId> ids,
                                       const ToolCallPiece& read) const {
  Json message = MessageJson({"assistant", read.content, {}, read.reasoning}, reasoning_in_blocks_);
  // Templates ask whether there is text beside the calls.
  if (read.content.empty() && read.reasoning.empty()) message.Set("content", Json());
  message.Set("tool_calls", CallsJson(read.calls));
  return {"assistant", std::move(text), std::move(ids), "", std::move(message)};
}

// True if the template writes the reasoning of an answer that is passed in this form.
bool Session::ShowsReasoning(bool in_blocks, std::string_view open, std::string_view close) const {
  const std::string reasoning = "r4s0n";  // a text that no template writes by itself
  const SessionMessage answer = {"assistant", "a", {}, reasoning};
  ChatInput input;
  input.messages =
      Json(Json::Array{MessageJson({"user", "a", {}}, false), MessageJson(answer, in_blocks)});
  input.bos_token = tokenizer_->bos_token();
  input.eos_token = tokenizer_->eos_token();
  input.unk_token = tokenizer_->unk_token();
  input.pad_token = tokenizer_->pad_token();
  input.add_generation_prompt = false;
  const auto pieces = RenderMessages(*chat_template_, &input);
  if (!pieces.ok()) return false;
  const std::string shown = std::string(open) + reasoning + std::string(close);
  std::string text;
  for (const TextPiece& piece : *pieces) text += piece.text;
  return text.find(shown) != std::string::npos;
}

Conversation Session::ToConversation() const {
  Conversation conversation;
  conversation.goes_on = true;
  conversation.reasoning = tags_;
  Json::Array messages;
  for (size_t i = 0; i < messages_.size(); ++i) {
    const SessionMessage& message = messages_[i];
    messages.push_back(MessageJson(message, reasoning_in_blocks_));
    conversation.images.insert(conversation.images.end(), message.images.begin(),
                               message.images.end());
    if (message.answer_ids.empty()) continue;
    conversation.checked.first = i + 1;
    if (message.role != "assistant") continue;
    conversation.answers.push_back({i, message.content, message.answer_ids});
  }
  conversation.messages = Json(std::move(messages));
  return conversation;
}

std::vector<SessionMessage> Session::TakeOldestTurn() {
  const auto is_user = [](const SessionMessage& message) { return message.role == "user"; };
  const auto first = std::find_if(messages_.begin(), messages_.end(), is_user);
  if (first == messages_.end()) return {};
  const auto next = std::find_if(first + 1, messages_.end(), is_user);
  if (next == messages_.end()) return {};
  std::vector<SessionMessage> turn(std::make_move_iterator(first), std::make_move_iterator(next));
  messages_.erase(first, next);
  return turn;
}

}  // namespace minisgl
