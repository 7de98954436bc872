// The messages of a conversation: the prompt of each turn extends the previous answer, so it hits
// the prefix cache.
//
// Answers keep the ids that were sampled; only later text is tokenized. Used by one thread; many
// sessions may share a Runtime.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/json.h"
#include "minisgl/text/chat_template.h"
#include "minisgl/text/conversation.h"
#include "minisgl/text/reasoning.h"
#include "minisgl/text/tokenizer.h"
#include "minisgl/text/tool_calls.h"

namespace minisgl {

struct SessionMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
  // assistant: the ids as sampled, end token included; empty if unknown.
  std::vector<TokenId> answer_ids;
  // assistant: the reasoning between control tokens, which no content can spell, or before a tag
  // that nothing opened. Otherwise, if the tags are ordinary text, the reasoning is in the content.
  std::string reasoning = {};
  // The message as the caller has it, with members that the fields above lack; null: these fields
  // are the message. Of an answer of this session: if it has calls of tools, and then `content` is
  // all of its text, calls included.
  Json given = {};
  // Its pictures: those of the parts {"type": "image"} of `given`, in their order. Without `given`
  // they stand before the content.
  std::vector<ConversationImage> images = {};
};

class Session {
 public:
  // All outlive the session.
  Session(const Tokenizer* tokenizer, const ChatTemplate* chat_template);

  std::vector<SessionMessage>& messages() { return messages_; }
  const std::vector<SessionMessage>& messages() const { return messages_; }

  // The tags around the model's reasoning, not counting one that a prompt opens; and the special
  // tokens in them, which an answer's text must keep (Prompt::kept_special_ids).
  const ReasoningTags& reasoning_tags() const { return tags_; }
  const std::vector<TokenId>& kept_special_ids() const { return kept_special_ids_; }
  // Returns the message of an answer of `ids`, its reasoning separate from the content if control
  // tokens divide them, or a closing tag that nothing opened. `text` and `parts` are what the
  // answer's events carried in total.
  SessionMessage AnswerMessage(const std::string& text, const TextParts& parts,
                               std::vector<TokenId> ids) const;

  // Returns the message of an answer with calls of tools. `text` is what the answer's events
  // carried in total, `read` what it was read as.
  SessionMessage CallingMessage(std::string text, std::vector<TokenId> ids,
                                const ToolCallPiece& read) const;

  // Returns the conversation so far, on its way to a prompt that the next answer continues
  // (text/conversation.h): answers with their ids, reasoning_tags(), and a check of the messages
  // behind the last answer. The ones before were checked when it was asked for.
  Conversation ToConversation() const;

  // Removes and returns the oldest turn: the first user message and all messages up to the next
  // one. Messages before the first user message stay. The last turn stays too: returns nothing if
  // it is the only one.
  std::vector<SessionMessage> TakeOldestTurn();

 private:
  bool ShowsReasoning(bool in_blocks, std::string_view open, std::string_view close) const;

  const Tokenizer* tokenizer_;
  const ChatTemplate* chat_template_;
  std::vector<TokenId> kept_special_ids_;
  const ReasoningTags tags_;
  // True if the template takes a message's reasoning as a part of its content, of type "thinking".
  const bool reasoning_in_blocks_;
  std::vector<SessionMessage> messages_;
};

}  // namespace minisgl
